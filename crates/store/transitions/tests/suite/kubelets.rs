//! Recordings of starts whose cause was known beforehand, on two versions of the kubelet.
//!
//! `cargo xtask e2e starts:: --record FOLDER` writes them; the pods are in
//! `e2e/tests/suite/starts`.

use std::fmt::Write as _;
use std::sync::Arc;

use kubevitals_model::Event;
use kubevitals_transitions::{BlockerKind, HumanDuration, Output, Phase, PodRecord};

use crate::support::{StreamItem, lifecycles, read};

/// The streams of one recording.
struct Recorded {
    kubelet: &'static str,
    pods: Vec<StreamItem>,
    events: Vec<StreamItem>,
}

/// What was known of a start before it began.
struct Truth {
    /// The beginning of its name.
    pod: &'static str,
    /// The reason why it is not ready; `None` if it becomes ready.
    blocker: Option<BlockerKind>,
    /// The phase that takes longest, and its container.
    longest: Option<(Phase, Option<&'static str>)>,
    words: &'static str,
}

const TRUTHS: [Truth; 23] = [
    ready(
        "slow-pull",
        Phase::ImagePull,
        "app",
        "pulling image 127.0.0.1:",
    ),
    ready(
        "queued-pull",
        Phase::ImagePull,
        "app",
        "pulling image 127.0.0.1:",
    ),
    ready(
        "slow-first",
        Phase::ImagePull,
        "app",
        "slow-first-app:1 took",
    ),
    ready(
        "slow-second",
        Phase::ImagePull,
        "agent",
        "slow-second-agent:1 took",
    ),
    ready(
        "init-pull",
        Phase::ImagePull,
        "prepare",
        "pulling image 127.0.0.1:",
    ),
    ready(
        "static-",
        Phase::ImagePull,
        "app",
        "pulling image 127.0.0.1:",
    ),
    ready(
        "pulling",
        Phase::ImagePull,
        "app",
        "pulling image 127.0.0.1:",
    ),
    ready(
        "rate-limited",
        Phase::ImagePullFailed,
        "app",
        "429 Too Many Requests",
    ),
    ready(
        "two-crashes",
        Phase::CrashLoop,
        "app",
        "(restarted 2 times, last exit: Error, exit code 3)",
    ),
    ready("failing-init", Phase::Init, "migrate", "(restarted 2 times"),
    ready(
        "slow-startup",
        Phase::StartupProbe,
        "app",
        "to pass its startup probe (failed",
    ),
    ready(
        "slow-readiness",
        Phase::Readiness,
        "app",
        "container app ran for",
    ),
    ready(
        "slow-sidecar",
        Phase::Readiness,
        "proxy",
        "container proxy ran for",
    ),
    ready(
        "slow-init",
        Phase::Init,
        "prepare",
        "init container prepare took",
    ),
    Truth {
        longest: Some((Phase::Volumes, None)),
        ..ready(
            "late-volume",
            Phase::Volumes,
            "",
            "configmap \"settings\" not found",
        )
    },
    never(
        "missing-image",
        BlockerKind::ImagePullFailed,
        Some((Phase::ImagePullFailed, Some("app"))),
        "not found",
    ),
    never(
        "oom-killed",
        BlockerKind::CrashLoop,
        Some((Phase::CrashLoop, Some("app"))),
        "keeps crashing (OOMKilled, exit code 137)",
    ),
    never(
        "startup-exits-0",
        BlockerKind::StartupProbe,
        Some((Phase::StartupProbe, Some("app"))),
        "container app fails its startup probe",
    ),
    never(
        "startup-killed",
        BlockerKind::StartupProbe,
        Some((Phase::StartupProbe, Some("app"))),
        "container app fails its startup probe",
    ),
    never(
        "not-alive",
        BlockerKind::CrashLoop,
        Some((Phase::CrashLoop, Some("app"))),
        "the kubelet kills it for its liveness probe",
    ),
    never(
        "no-room",
        BlockerKind::Unschedulable,
        Some((Phase::Scheduling, None)),
        "Insufficient cpu",
    ),
    never("refused", BlockerKind::Failed, None, "OutOfcpu"),
    never(
        "helper-completes-",
        BlockerKind::Succeeded,
        None,
        "completed",
    ),
];

const fn ready(
    pod: &'static str,
    phase: Phase,
    container: &'static str,
    words: &'static str,
) -> Truth {
    Truth {
        pod,
        blocker: None,
        longest: Some((phase, Some(container))),
        words,
    }
}

const fn never(
    pod: &'static str,
    kind: BlockerKind,
    longest: Option<(Phase, Option<&'static str>)>,
    words: &'static str,
) -> Truth {
    Truth {
        pod,
        blocker: Some(kind),
        longest,
        words,
    }
}

macro_rules! recorded {
    ($version:literal) => {
        Recorded {
            kubelet: $version,
            pods: read(include_str!(concat!(
                "../fixtures/kubelet-",
                $version,
                ".pods.jsonl"
            ))),
            events: read(include_str!(concat!(
                "../fixtures/kubelet-",
                $version,
                ".events.jsonl"
            ))),
        }
    };
}

fn recordings() -> [Recorded; 2] {
    [recorded!("1.35"), recorded!("1.37")]
}

impl Recorded {
    /// The records of all its pods, in the order of their names.
    fn records(&self) -> Vec<Arc<PodRecord>> {
        let outputs = lifecycles(self.pods.iter().chain(&self.events));
        let mut records: Vec<Arc<PodRecord>> = outputs
            .into_iter()
            .filter_map(|output| match output {
                Output::Lifecycle(record) => Some(record),
                _ => None,
            })
            .collect();
        records.sort_by(|one, two| name(one).cmp(name(two)));
        records
    }

    /// Reconstructs a pod from its last state before its deletion, and its events.
    fn reconstructed(&self, record: &PodRecord) -> PodRecord {
        let uid = &record.pod.summary.identity.uid;
        let mut states = self.pods.iter().filter_map(|item| match item {
            StreamItem::Pod(_, pod, _) => Some(pod),
            StreamItem::Event(_) => None,
        });
        let pod = states
            .rfind(|pod| pod.summary.identity.uid == *uid && pod.meta.deleted.is_none())
            .unwrap();
        let events: Vec<Event> = self
            .events
            .iter()
            .filter_map(|item| match item {
                StreamItem::Event(event) => Some((**event).clone()),
                StreamItem::Pod(..) => None,
            })
            .filter(|event| event.regarding.uid == *pod.event_uid())
            .collect();
        PodRecord::reconstruct(pod, &events, record.latest.unwrap())
    }
}

fn name(record: &PodRecord) -> &str {
    &record.pod.summary.identity.name
}

#[track_caller]
fn check(truth: &Truth, records: &[Arc<PodRecord>], kubelet: &str) {
    let mut found = records
        .iter()
        .filter(|record| name(record).starts_with(truth.pod));
    let record = found
        .next()
        .unwrap_or_else(|| panic!("{kubelet}: no {}", truth.pod));
    assert!(found.next().is_none(), "{kubelet}: two of {}", truth.pod);
    let said = format!("kubelet {kubelet}, {}: {}", truth.pod, record.cause());
    assert_eq!(
        record.blocker().map(|found| found.kind),
        truth.blocker,
        "{said}"
    );
    if let Some(expected) = truth.longest {
        let longest = record.longest().unwrap();
        assert_eq!(
            (longest.phase, longest.container.as_deref()),
            expected,
            "{said}"
        );
    }
    assert!(record.cause().contains(truth.words), "{said}");
    assert!(!record.is_skewed(), "{said}");
}

#[test]
fn every_start_has_its_true_cause_on_both_kubelets() {
    for recorded in recordings() {
        let records = recorded.records();
        for truth in &TRUTHS {
            check(truth, &records, recorded.kubelet);
        }
        assert_eq!(records.len(), TRUTHS.len(), "kubelet {}", recorded.kubelet);
    }
}

/// The phases of each start, with their seconds, and the sentence.
#[test]
fn paths_of_starts_are_those_of_the_recordings() {
    for recorded in recordings() {
        let mut text = String::new();
        for record in recorded.records() {
            let total = HumanDuration(record.total().unwrap());
            let name = name(&record);
            let _ = writeln!(text, "{name}: {total}");
            for segment in record.critical_path() {
                let container = segment.container.as_deref().unwrap_or_default();
                let took = HumanDuration(segment.took());
                let open = if segment.is_done { "" } else { " (open)" };
                let phase = segment.phase.as_str();
                let _ = writeln!(text, "  {phase} {container} {took}{open}");
            }
            let _ = writeln!(text, "  → {}", record.cause());
        }
        insta::assert_snapshot!(format!("kubelet_{}", recorded.kubelet), text);
    }
}

/// A pod that is read once, after the fact, has the same cause.
#[test]
fn a_start_that_is_reconstructed_has_its_true_cause_too() {
    for recorded in recordings() {
        let records: Vec<Arc<PodRecord>> = recorded
            .records()
            .iter()
            .map(|record| Arc::new(recorded.reconstructed(record)))
            .collect();
        for truth in &TRUTHS {
            check(truth, &records, recorded.kubelet);
        }
    }
}
