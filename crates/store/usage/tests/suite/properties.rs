//! Property tests: whatever happens to samples, usage matches the two samples that it claims.

use proptest::prelude::*;

use crate::harness::{Harness, Row, at, moment, row};

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Time passes, and the kubelet samples all containers.
    Look(i64),
    /// A scrape returns the last samples.
    Answer,
    /// A scrape fails.
    Lose,
    /// Time passes without a scrape.
    Silence(i64),
    /// A container restarts.
    Restart(usize),
    /// The kubelet stops reporting a container, or reports it again.
    Hide(usize),
    /// The kubelet stops reporting the memory of a container, or reports it again.
    HideMemory(usize),
    /// A counter is reset without a restart.
    Reset(usize),
    /// The clock of the node is changed by this number of milliseconds.
    SetClock(i64),
}

/// The true state of a container; times are by the clock of the node.
#[derive(Debug, Clone)]
struct Truth {
    name: &'static str,
    started: i64,
    /// The offset of the counter after resets.
    counted: u64,
    is_hidden: bool,
    has_memory: bool,
    /// The last sample: time and counter.
    look: Option<(i64, u64)>,
    /// Every sample that was sent: its time by the clock of the node, the counter, its receipt, and
    /// the start time.
    sent: Vec<(i64, u64, i64, i64)>,
}

struct Cluster {
    harness: Harness,
    now: i64,
    clock: i64,
    containers: Vec<Truth>,
    stepped: bool,
    stepped_back: bool,
    last_times: Vec<Option<i64>>,
}

impl Truth {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            started: -3_600_000,
            counted: 0,
            is_hidden: false,
            has_memory: true,
            look: None,
            sent: Vec::new(),
        }
    }

    fn row(&self) -> Option<Row> {
        let (time, total) = self.look.filter(|_| !self.is_hidden)?;
        let has_memory = self.has_memory;
        let row = row(self.name, time, total).started(self.started);
        Some(row.with(|own| own.memory = own.memory.filter(|_| has_memory)))
    }
}

impl Cluster {
    fn new() -> Self {
        Self {
            harness: Harness::with_pod(),
            now: 0,
            clock: 0,
            containers: vec![Truth::new("a"), Truth::new("b")],
            stepped: false,
            stepped_back: false,
            last_times: vec![None, None],
        }
    }

    fn pass(&mut self, millis: i64) {
        self.now += millis;
        self.clock += millis;
        for (index, container) in self.containers.iter_mut().enumerate() {
            // Different for every span, so that a rate over other samples has another value.
            let pace = 1_000 + (self.clock.unsigned_abs() * 7 + index as u64 * 31) % 900;
            container.counted += millis.unsigned_abs() * pace * 100;
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Look(millis) => {
                self.pass(millis);
                for container in &mut self.containers {
                    container.look = Some((self.clock, container.counted));
                }
            }
            Step::Answer => {
                let rows: Vec<Row> = self.containers.iter().filter_map(Truth::row).collect();
                for container in self.containers.iter_mut().filter(|own| !own.is_hidden) {
                    if let Some((time, total)) = container.look {
                        let sent = (time, total, self.now, container.started);
                        container.sent.push(sent);
                    }
                }
                self.harness.scrape(self.now, &rows);
            }
            Step::Lose => self.harness.fail(self.now, "lost"),
            Step::Silence(millis) => self.pass(millis),
            Step::Restart(index) => {
                let clock = self.clock;
                if let Some(own) = self.containers.get_mut(index) {
                    (own.started, own.counted) = (clock, 0);
                    // A kubelet drops the samples of the predecessor.
                    own.look = None;
                }
            }
            Step::Hide(index) => {
                if let Some(own) = self.containers.get_mut(index) {
                    own.is_hidden = !own.is_hidden;
                }
            }
            Step::HideMemory(index) => {
                if let Some(own) = self.containers.get_mut(index) {
                    own.has_memory = !own.has_memory;
                }
            }
            Step::Reset(index) => {
                if let Some(own) = self.containers.get_mut(index) {
                    own.counted /= 1_000;
                }
            }
            Step::SetClock(millis) => {
                self.clock += millis;
                self.stepped = true;
                self.stepped_back |= millis < 0;
            }
        }
        self.harness.store.expire(moment(self.now));
    }

    /// Returns the usage of a container, after checking it against the samples sent.
    fn check(&mut self, index: usize) -> Option<(u64, u64, i64)> {
        let container = self.containers.get(index)?;
        let usage = self.harness.usage("default/web-0", container.name)?;
        let window = i64::try_from(usage.window.as_millis()).unwrap();
        let end = usage.timestamp.unix_millis() - at(0).unix_millis();
        let begin = end - window;
        assert!(window > 0);
        let is_true = |used: u64| used * 1_000 / window.unsigned_abs() == usage.cpu.nanocores();
        let fits = |last: usize| {
            let (time, total, _, started) = container.sent[last];
            let between = |first: &(i64, u64, i64, i64)| {
                first.0 == begin && total >= first.1 && is_true(total - first.1)
            };
            let since_start = started == begin && window >= 10_000 && is_true(total);
            time == end && (since_start || container.sent[..last].iter().any(between))
        };
        let found = (0..container.sent.len()).filter(|last| fits(*last));
        // Its first receipt: a repetition makes nothing younger.
        let received = found.map(|last| {
            let (time, total, ..) = container.sent[last];
            let same = |sent: &&(i64, u64, i64, i64)| (sent.0, sent.1) == (time, total);
            let mut sent = container.sent.iter();
            // After a step of the clock an old sample can look new; then its last receipt counts.
            let found = if self.stepped {
                sent.rfind(same)
            } else {
                sent.find(same)
            };
            found.unwrap().2
        });
        let youngest = received.max();
        let Some(received) = youngest else {
            panic!("{usage:?} is true of no two of {:?}", container.sent);
        };
        assert!(self.now - received <= 45_000, "too old: {usage:?}");
        let last = self.last_times[index].replace(end);
        assert!(
            self.stepped_back || last.is_none_or(|last| last <= end),
            "time went backwards"
        );
        Some((usage.cpu.nanocores(), window.unsigned_abs(), end))
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1_000_i64..20_000).prop_map(Step::Look),
        8 => Just(Step::Answer),
        1 => Just(Step::Lose),
        1 => (1_000_i64..120_000).prop_map(Step::Silence),
        1 => (0_usize..2).prop_map(Step::Restart),
        1 => (0_usize..2).prop_map(Step::Hide),
        1 => (0_usize..2).prop_map(Step::HideMemory),
        1 => (0_usize..2).prop_map(Step::Reset),
        1 => prop_oneof![-7_200_000_i64..-1_000, 1_000_i64..7_200_000].prop_map(Step::SetClock),
    ]
}

/// Returns the step without its effect on the second container.
fn without_the_second(step: Step) -> Option<Step> {
    match step {
        Step::Restart(1) | Step::Hide(1) | Step::HideMemory(1) | Step::Reset(1) => None,
        other => Some(other),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn usage_matches_the_two_samples_that_it_claims(
        steps in prop::collection::vec(step(), 1..80)
    ) {
        let mut cluster = Cluster::new();
        for step in steps {
            cluster.step(step);
            cluster.check(0);
            cluster.check(1);
        }
    }

    #[test]
    fn a_fault_of_one_container_never_changes_the_usage_of_its_sibling(
        steps in prop::collection::vec(step(), 1..80)
    ) {
        let (mut faulty, mut calm) = (Cluster::new(), Cluster::new());
        for step in steps {
            faulty.step(step);
            if let Some(step) = without_the_second(step) {
                calm.step(step);
            }
            prop_assert_eq!(faulty.check(0), calm.check(0));
        }
    }
}

#[test]
fn the_steps_of_the_properties_produce_usage() {
    let mut cluster = Cluster::new();
    for _ in 0..3 {
        cluster.step(Step::Look(15_000));
        cluster.step(Step::Answer);
    }
    let served = cluster.check(0).unwrap();
    assert_eq!((served.1, served.2), (15_000, 45_000));
    assert!(served.0 > 0);
}
