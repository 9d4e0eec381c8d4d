//! Why a pod took as long as it did, in words.

use std::fmt::Write;
use std::time::Duration;

use kubevitals_model::{Condition, Timestamp};

use crate::facts::Trouble;
use crate::hindrance::{Hindrance, HindranceKind};
use crate::path::{Phase, Segment};
use crate::record::PodRecord;

/// How much of a message is told in one line.
const MAX_QUOTE: usize = 160;

impl PodRecord {
    /// One sentence about what took longest: what, for how long of how long, and why if anything
    /// says why.
    pub fn cause(&self) -> String {
        self.cause_in(None)
    }

    /// The same with the pool that its node belongs to, where that is known and matters.
    pub fn cause_in(&self, pool: Option<&str>) -> String {
        let longest = self.longest();
        if self.is_complete() {
            return longest.map_or_else(
                || "ready within the second in which it was created".to_owned(),
                |longest| self.about(&longest, pool),
            );
        }
        let (lasted, besides) = match &longest {
            Some(longest) if !longest.is_done => {
                (format!(", for {}", self.share(longest)), String::new())
            }
            Some(longest) => (String::new(), format!("; {}", self.about(longest, pool))),
            None => (String::new(), String::new()),
        };
        let is_wanted = !self.is_over() && self.milestones.deletion.is_none();
        let never = if is_wanted {
            "not ready yet"
        } else {
            "never seen ready"
        };
        let Some(found) = &self.hindrance else {
            return format!("{never}{lasted}{besides}");
        };
        let (why, trouble, said) = self.why_not(found);
        let text = if self.is_unseen() {
            why
        } else {
            format!("{never}: {why}{lasted}")
        };
        let text = match trouble {
            Some(trouble) => with_trouble(text, trouble),
            None => with_quote(text, said),
        };
        text + &besides
    }

    /// How long a piece took, of how long.
    fn share(&self, piece: &Segment) -> String {
        match self.total() {
            Some(total) if total > piece.took() => {
                format!("{} of {}", Spelled(piece.took()), Spelled(total))
            }
            _ => Spelled(piece.took()).to_string(),
        }
    }

    /// What keeps a pod that was ready from being so now, since when and why; none if it is ready,
    /// over or not wanted.
    pub fn relapse(&self, now: Timestamp) -> Option<String> {
        let was_ready = self.is_complete() || self.was_ready_before;
        if !was_ready || self.is_over() || self.milestones.deletion.is_some() {
            return None;
        }
        let ready = Condition::find(&self.pod.conditions, "Ready");
        let ready = ready.filter(|condition| !condition.is_true())?;
        let lasts = ready.last_transition.and_then(|since| now.since(since));
        let lasts = lasts.map_or(String::new(), |lasts| format!(" for {}", Spelled(lasts)));
        let found = Hindrance::find(&self.pod, Some(now));
        let (why, trouble, said) = self.why_not(&found);
        let text = format!("it was ready once, and has not been{lasts}: {why}");
        Some(match trouble {
            Some(trouble) => with_trouble(text, trouble),
            None => with_quote(text, said),
        })
    }

    fn about(&self, longest: &Segment, pool: Option<&str>) -> String {
        let of = self.share(longest);
        let container = longest.container.as_deref().unwrap_or("?");
        let image = self
            .containers
            .iter()
            .find(|one| Some(&one.name) == longest.container.as_ref())
            .and_then(|one| one.image.as_deref())
            .unwrap_or("?");
        let facts = self.facts.of(container);
        match longest.phase {
            Phase::Gated => format!("it was held back by scheduling gates for {of}"),
            Phase::Scheduling => {
                let why = self.unschedulable.as_ref();
                let why = why.and_then(|found| found.message.as_deref());
                with_quote(format!("it waited for a node for {of}"), why)
            }
            Phase::Sandbox => with_trouble(
                format!("sandbox, network and volumes took {of}"),
                &self.facts.sandbox,
            ),
            Phase::ImagePull => {
                let bytes = facts
                    .and_then(|facts| facts.pull.done.as_ref())
                    .and_then(|done| done.bytes);
                let mut text = format!("image {image} was pulled for {of}");
                if let Some(bytes) = bytes {
                    let _ = write!(text, ", {}", Size(bytes));
                }
                if let Some(node) = &self.pod.summary.node {
                    let _ = write!(text, " to node {node}");
                    if let Some(pool) = pool {
                        let _ = write!(text, " of pool {pool}");
                    }
                }
                text
            }
            Phase::ContainerStart => {
                format!("container {container} took {of} to be made and started")
            }
            Phase::Init => format!("init container {container} took {of}"),
            Phase::StartupProbe => {
                let text = format!("container {container} took {of} to pass its startup probe");
                facts.map_or(text.clone(), |facts| {
                    with_trouble(text, &facts.startup_probe)
                })
            }
            Phase::Readiness if longest.container.is_some() => {
                let text = format!("container {container} ran for {of} before it was ready");
                facts.map_or(text.clone(), |facts| {
                    with_trouble(text, &facts.readiness_probe)
                })
            }
            Phase::Readiness => format!("it took {of} until all was reported ready"),
            Phase::ReadinessGates => format!("its readiness gates took {of}"),
            Phase::CrashLoop => format!("container {container} ended again and again for {of}"),
            Phase::Unknown => format!("{of} passed"),
        }
    }

    /// What was in the way, how it failed, or what was said of it.
    fn why_not<'r>(
        &'r self,
        found: &'r Hindrance,
    ) -> (String, Option<&'r Trouble>, Option<&'r str>) {
        let container = found.container.as_deref().unwrap_or("?");
        let facts = self.facts.of(container);
        let reason = found.reason.as_deref();
        let with_reason = |text: String| match reason {
            Some(reason) => format!("{text} ({reason})"),
            None => text,
        };
        let named = reason.unwrap_or("?");
        let trouble = match found.kind {
            HindranceKind::Sandbox => Some(&self.facts.sandbox),
            HindranceKind::StartupProbe => facts.map(|facts| &facts.startup_probe),
            HindranceKind::ReadinessProbe => facts.map(|facts| &facts.readiness_probe),
            _ => None,
        };
        let text = match found.kind {
            HindranceKind::Gated => format!("scheduling gate {named} is closed"),
            HindranceKind::NotScheduled => "the scheduler had not looked at it".to_owned(),
            HindranceKind::Unschedulable => "no node can take it".to_owned(),
            HindranceKind::NotAccepted => "the kubelet of its node had not taken it on".to_owned(),
            HindranceKind::Sandbox => "sandbox, network or volumes were not there".to_owned(),
            HindranceKind::ImagePull => with_reason(format!(
                "the image of container {container} cannot be pulled"
            )),
            HindranceKind::ContainerCreation => {
                with_reason(format!("container {container} was not started"))
            }
            HindranceKind::Init => format!("init container {container} had not ended"),
            HindranceKind::InitFailed => with_reason(format!("init container {container} fails")),
            HindranceKind::CrashLoop => {
                with_reason(format!("container {container} does not stay up"))
            }
            HindranceKind::StartupProbe => format!("container {container} fails its startup probe"),
            HindranceKind::ReadinessProbe => format!("container {container} is not ready"),
            HindranceKind::ReadinessGate => format!("readiness gate {named} is closed"),
            HindranceKind::Ended => with_reason("it ended first".to_owned()),
            HindranceKind::Unseen => {
                "when it was first ready is not known any more: that was before it was watched"
                    .to_owned()
            }
        };
        (
            text,
            trouble.filter(|trouble| trouble.times() > 0),
            found.message.as_deref(),
        )
    }
}

/// A duration for people.
pub struct Spelled(
    /// The duration.
    pub Duration,
);

/// A number of bytes for people.
struct Size(u64);

impl std::fmt::Display for Spelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let millis = self.0.as_millis();
        let (seconds, rest) = (millis / 1_000, millis % 1_000);
        match (seconds, rest) {
            (0, 1..) => write!(f, "{rest} ms"),
            (0..10, 1..) => write!(f, "{seconds}.{} s", rest / 100),
            (0..120, _) => write!(f, "{seconds} s"),
            (120..7_200, _) => write!(f, "{} min {} s", seconds / 60, seconds % 60),
            _ => write!(f, "{} h {} min", seconds / 3_600, seconds / 60 % 60),
        }
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = |unit: u64| (self.0 / unit, self.0 % unit * 10 / unit);
        match self.0 {
            0..1_000 => write!(f, "{} B", self.0),
            1_000..1_000_000 => write!(f, "{} kB", self.0 / 1_000),
            1_000_000..1_000_000_000 => write!(f, "{} MB", self.0 / 1_000_000),
            _ => {
                let (whole, tenth) = tenths(1_000_000_000);
                write!(f, "{whole}.{tenth} GB")
            }
        }
    }
}

fn with_trouble(text: String, trouble: &Trouble) -> String {
    match trouble.times() {
        0 => text,
        1 => with_quote(format!("{text} (failed once)"), trouble.message.as_deref()),
        times => with_quote(
            format!("{text} (failed {times} times)"),
            trouble.message.as_deref(),
        ),
    }
}

/// Whatever a registry or a probe said becomes one line without control characters: it is shown on
/// terminals.
fn with_quote(text: String, said: Option<&str>) -> String {
    let Some(said) = said.filter(|said| !said.is_empty()) else {
        return text;
    };
    let mut quote: String = said
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .take(MAX_QUOTE)
        .collect();
    if said.chars().nth(MAX_QUOTE).is_some() {
        quote.push('…');
    }
    format!("{text}: {quote}")
}
