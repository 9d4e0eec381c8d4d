//! Statistics of the starts of several pods: how long they took, which phases and which causes.

use std::sync::Arc;
use std::time::Duration;

use crate::blocker::BlockerKind;
use crate::cause::HumanDuration;
use crate::critical_path::Phase;
use crate::record::PodRecord;

pub mod compare;
pub mod groups;
pub mod threshold;

/// Phases, causes and images of one group that are kept apart; what is beyond is left out.
const MAX_KEYS: usize = 64;

/// One start, reduced to what statistics need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// `NAMESPACE/NAME`.
    pub pod: Arc<str>,
    pub outcome: StartOutcome,
    /// From creation to ready, or up to now.
    pub took: Option<Duration>,
    pub phases: Vec<PhaseTime>,
    pub blocker: Option<BlockerKind>,
    /// One sentence.
    pub cause: String,
    /// Containers and their images.
    pub images: Vec<(Arc<str>, Arc<str>)>,
}

/// The time that a start spent in a phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseTime {
    pub phase: Phase,
    pub container: Option<Arc<str>>,
    pub took: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StartOutcome {
    /// It became ready, at a known time.
    Ready,
    /// It is not ready yet.
    Starting,
    /// It will never be ready.
    Failed,
    /// It completed before it was seen ready, as Jobs may.
    Completed,
    /// It was ready at an unknown time.
    Unknown,
}

/// Statistics of several starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StartStats {
    pub pods: usize,
    pub ready: usize,
    pub starting: usize,
    pub failed: usize,
    pub completed: usize,
    pub unknown: usize,
    /// The pods whose causes are counted.
    pub explained: usize,
    /// The pods whose phases are counted: those that became ready.
    pub phased: usize,
    /// The slowest pod that is ready or starting.
    pub slowest: Option<(Duration, Arc<str>)>,
    /// Of pods that became ready, in milliseconds.
    took: Vec<u32>,
    /// Of pods that are starting, so far.
    waited: Vec<u32>,
    phases: Vec<PhaseTotal>,
    causes: Vec<Cause>,
    images: Vec<(Arc<str>, Arc<str>)>,
}

/// The time that several starts spent in a phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseTotal {
    pub phase: Phase,
    pub container: Option<Arc<str>>,
    /// The pods that spent time in it.
    pub pods: usize,
    pub total: Duration,
}

/// A cause that several starts share: the phase that took longest, or what blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    pub phase: Option<Phase>,
    pub container: Option<Arc<str>>,
    /// Of pods that are not ready.
    pub blocker: Option<BlockerKind>,
    pub pods: usize,
    /// The slowest of these pods, how long it took, and its cause in one sentence.
    pub example: Arc<str>,
    /// `None` if it is unknown of all these pods.
    pub example_took: Option<Duration>,
    pub example_cause: String,
}

/// A statistic of durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Statistic {
    P50,
    P90,
    P95,
    P99,
    Max,
}

impl Start {
    /// Reduces a record; `pool` is that of its node.
    pub fn of(record: &PodRecord, pool: Option<&str>) -> Self {
        let phases = record.critical_path().into_iter().map(|segment| PhaseTime {
            phase: segment.phase,
            took: segment.took(),
            container: segment.container,
        });
        let images = record.containers.iter().filter_map(|container| {
            let image = container.image.as_ref()?;
            Some((Arc::clone(&container.name), Arc::clone(image)))
        });
        Self {
            pod: record.pod.summary.identity.to_string().into(),
            outcome: StartOutcome::of(record),
            took: record.total(),
            phases: phases.collect(),
            blocker: record.blocker().map(|blocker| blocker.kind),
            cause: record.cause_in(pool),
            images: images.collect(),
        }
    }

    /// The phase that took longest; of two, the earlier.
    pub fn longest(&self) -> Option<&PhaseTime> {
        let longest = |one, two| if took(two) > took(one) { two } else { one };
        self.phases.iter().reduce(longest)
    }
}

impl PhaseTime {
    fn is_same(&self, other: &Self) -> bool {
        (self.phase, &self.container) == (other.phase, &other.container)
    }
}

impl StartOutcome {
    pub fn of(record: &PodRecord) -> Self {
        let blocker = record.blocker().map(|blocker| blocker.kind);
        if record.is_complete() {
            Self::Ready
        } else if record.is_unseen() {
            Self::Unknown
        } else {
            Self::of_unready(
                blocker,
                record.is_over() || record.milestones.deletion.is_some(),
            )
        }
    }

    /// The outcome of a start that was not seen ready.
    pub fn of_unready(blocker: Option<BlockerKind>, is_over: bool) -> Self {
        match blocker {
            Some(BlockerKind::Unseen) => Self::Unknown,
            Some(BlockerKind::Succeeded) => Self::Completed,
            Some(BlockerKind::Failed) => Self::Failed,
            _ if is_over => Self::Failed,
            _ => Self::Starting,
        }
    }
}

impl StartStats {
    /// Statistics of these starts.
    pub fn of<'s>(starts: impl IntoIterator<Item = &'s Start>) -> Self {
        let mut stats = Self::default();
        for start in starts {
            stats.add(start);
        }
        stats
    }

    /// Counts a start with its phases and its cause.
    pub fn add(&mut self, start: &Start) {
        self.count(start.outcome, start.took, &start.pod);
        self.explain(start);
    }

    /// Counts a start without its phases and its cause.
    pub fn count(&mut self, outcome: StartOutcome, took: Option<Duration>, pod: &Arc<str>) {
        self.pods += 1;
        let (counter, took_of) = match outcome {
            StartOutcome::Ready => (&mut self.ready, Some(&mut self.took)),
            StartOutcome::Starting => (&mut self.starting, Some(&mut self.waited)),
            StartOutcome::Failed => (&mut self.failed, None),
            StartOutcome::Completed => (&mut self.completed, None),
            StartOutcome::Unknown => (&mut self.unknown, None),
        };
        *counter += 1;
        if let Some((took_of, took)) = took_of.zip(took) {
            let millis = u32::try_from(took.as_millis()).unwrap_or(u32::MAX);
            took_of.push(millis);
            let slowest = self.slowest.as_ref().map(|(took, _)| *took);
            if slowest.is_none_or(|slowest| took > slowest) {
                self.slowest = Some((took, Arc::clone(pod)));
            }
        }
    }

    /// Adds the phases, the cause and the images of a start that is counted.
    pub fn explain(&mut self, start: &Start) {
        self.explained += 1;
        // A pod that is stuck for hours would hide where the time of the others goes.
        if start.outcome == StartOutcome::Ready {
            self.phased += 1;
            self.add_phases(&start.phases);
        }
        self.add_cause(start);
        for image in &start.images {
            if !self.images.contains(image) && self.images.len() < MAX_KEYS {
                self.images.push(image.clone());
            }
        }
    }

    /// A statistic of the pods that became ready, by the nearest rank.
    pub fn statistic(&self, statistic: Statistic) -> Option<Duration> {
        let mut took = self.took.clone();
        took.sort_unstable();
        ranked(&took, statistic.percent()).map(from_millis)
    }

    /// The same of all pods whose start is known: one that is not ready yet counts with the time so
    /// far, and one that never will be takes forever, which is `None`.
    pub fn statistic_of_all(&self, statistic: Statistic) -> Option<Duration> {
        let mut all: Vec<u32> = [&self.took[..], &self.waited[..]].concat();
        all.sort_unstable();
        let known = all.len();
        all.resize(known + self.failed, u32::MAX);
        let found = ranked(&all, statistic.percent())?;
        (found < u32::MAX).then(|| from_millis(found))
    }

    /// The pods that [`statistic_of_all`](Self::statistic_of_all) is of.
    pub fn known(&self) -> usize {
        self.took.len() + self.waited.len() + self.failed
    }

    /// The longest time that a pod has been starting.
    pub fn longest_wait(&self) -> Option<Duration> {
        self.waited.iter().max().copied().map(from_millis)
    }

    /// The phases, the one with most time first.
    pub fn phases(&self) -> Vec<&PhaseTotal> {
        let mut phases: Vec<&PhaseTotal> = self.phases.iter().collect();
        phases.sort_by_key(|phase| (std::cmp::Reverse(phase.total), phase.phase));
        phases
    }

    /// The time of all phases.
    pub fn total(&self) -> Duration {
        self.phases.iter().map(|phase| phase.total).sum()
    }

    /// The mean time of a phase over the pods that became ready.
    pub fn mean(&self, phase: &PhaseTotal) -> Duration {
        let pods = u32::try_from(self.phased).unwrap_or(u32::MAX).max(1);
        phase.total / pods
    }

    /// The causes, the most frequent first.
    pub fn causes(&self) -> Vec<&Cause> {
        let mut causes: Vec<&Cause> = self.causes.iter().collect();
        causes.sort_by(|one, two| {
            let order = |cause: &Cause| (cause.pods, cause.example_took);
            order(two)
                .cmp(&order(one))
                .then_with(|| one.example.cmp(&two.example))
        });
        causes
    }

    /// Containers and their images, sorted.
    pub fn images(&self) -> Vec<(&str, &str)> {
        let images = self.images.iter();
        let mut images: Vec<(&str, &str)> = images
            .map(|(container, image)| (&**container, &**image))
            .collect();
        images.sort_unstable();
        images
    }

    fn add_phases(&mut self, phases: &[PhaseTime]) {
        for (index, time) in phases.iter().enumerate() {
            let mut earlier = phases.iter().take(index);
            let is_first = !earlier.any(|known| known.is_same(time));
            self.add_phase(time, is_first);
        }
    }

    fn add_phase(&mut self, time: &PhaseTime, is_first: bool) {
        let is_full = self.phases.len() >= MAX_KEYS;
        let known = self
            .phases
            .iter_mut()
            .find(|known| known.phase == time.phase && known.container == time.container);
        match known {
            Some(known) => {
                known.pods += usize::from(is_first);
                known.total = known.total.saturating_add(time.took);
            }
            None if !is_full => self.phases.push(PhaseTotal {
                phase: time.phase,
                container: time.container.clone(),
                pods: 1,
                total: time.took,
            }),
            None => {}
        }
    }

    fn add_cause(&mut self, start: &Start) {
        let longest = start.longest();
        let phase = longest.map(|time| time.phase);
        let container = longest.and_then(|time| time.container.as_ref());
        let took = start.took;
        let is_full = self.causes.len() >= MAX_KEYS;
        let known = self.causes.iter_mut().find(|known| {
            (known.phase, known.container.as_ref(), known.blocker)
                == (phase, container, start.blocker)
        });
        match known {
            Some(known) => {
                known.pods += 1;
                // `None` is less than any duration.
                if took > known.example_took {
                    known.example = Arc::clone(&start.pod);
                    known.example_took = took;
                    known.example_cause.clone_from(&start.cause);
                }
            }
            None if !is_full => self.causes.push(Cause {
                phase,
                container: container.cloned(),
                blocker: start.blocker,
                pods: 1,
                example: Arc::clone(&start.pod),
                example_took: took,
                example_cause: start.cause.clone(),
            }),
            None => {}
        }
    }
}

impl Statistic {
    pub const ALL: [Self; 5] = [Self::P50, Self::P90, Self::P95, Self::P99, Self::Max];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::Max => "max",
        }
    }

    const fn percent(self) -> usize {
        match self {
            Self::P50 => 50,
            Self::P90 => 90,
            Self::P95 => 95,
            Self::P99 => 99,
            Self::Max => 100,
        }
    }
}

fn took(time: &PhaseTime) -> Duration {
    time.took
}

/// The value at a percentile of sorted values, by the nearest rank.
fn ranked(sorted: &[u32], percent: usize) -> Option<u32> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

fn from_millis(millis: u32) -> Duration {
    Duration::from_millis(millis.into())
}

/// A duration that may be unknown, as it is shown to users.
pub fn human(duration: Option<Duration>) -> String {
    duration.map_or_else(|| "-".to_owned(), |known| HumanDuration(known).to_string())
}
