//! Facts from events. Each is the same whatever the order in which events arrive, and however
//! often.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Event, Timestamp, fnv1a};

use crate::kubelet_message::{COMBINED, Probe, PulledMessage, container_of, killed_for};

/// Containers beyond this number have no facts.
const MAX_CONTAINERS: usize = 64;

/// Events of one kind that are counted separately; the kubelet itself writes no more than 25 of an
/// object in a burst.
const MAX_TALLIED: usize = 16;

/// Bytes of a message that are kept.
const MAX_MESSAGE: usize = 512;

/// Frequent reasons without relevant facts. A field selector can only exclude reasons.
const IGNORED_REASONS: [&str; 9] = [
    "Created",
    "DNSConfigForming",
    "FailedScheduling",
    "NotTriggerScaleUp",
    "SandboxChanged",
    "Scheduled",
    "Started",
    "SuccessfulAttachVolume",
    "TriggeredScaleUp",
];

/// The facts of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    containers: Vec<(Arc<str>, ContainerFacts)>,
    /// Failures of sandbox, network or volumes.
    pub sandbox: Failures,
}

/// The facts of a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerFacts {
    pub pull: Pull,
    pub startup_probe: Failures,
    pub readiness_probe: Failures,
    pub liveness_probe: Failures,
    startup_kills: Tally,
    liveness_kills: Tally,
}

/// The pull of an image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pull {
    /// The start of the first attempt.
    pub began: Option<Timestamp>,
    /// The first success.
    pub done: Option<Pulled>,
    attempts: Tally,
    pub failed: Failures,
    /// Back-offs of the kubelet.
    pub backed_off: Failures,
}

/// A pull that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// The end, in whole seconds.
    pub at: Timestamp,
    /// Whether the image was on the node already.
    pub already_present: bool,
    /// The duration of the pull itself.
    pub pull: Option<Duration>,
    /// The duration with the wait for other pulls of the node.
    pub with_waiting: Option<Duration>,
    /// The size of the image.
    pub bytes: Option<u64>,
    pub message: Option<Arc<str>>,
}

/// Failures of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failures {
    times: Tally,
    last: Option<Timestamp>,
    /// The message of the last.
    pub message: Option<Arc<str>>,
}

/// A number of occurrences: the sum over events, each of which has a count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Tally(Vec<(u64, u32)>);

impl Facts {
    /// The facts of a container.
    pub fn of(&self, container: &str) -> Option<&ContainerFacts> {
        let found = self
            .containers
            .iter()
            .find(|(name, _)| &**name == container);
        found.map(|(_, facts)| facts)
    }

    /// Whether an event has relevant facts.
    pub fn is_relevant(event: &Event) -> bool {
        let message = || event.message.as_deref().unwrap_or_default();
        &*event.regarding.kind == "Pod"
            && match event.reason.as_deref() {
                // Most others are of containers that stop because their pod is deleted.
                Some("Killing") => killed_for(message()).is_some(),
                Some(
                    "Pulling"
                    | "Pulled"
                    | "Failed"
                    | "BackOff"
                    | "ErrImageNeverPull"
                    | "InspectFailed"
                    | "Unhealthy"
                    | "FailedCreatePodSandBox"
                    | "FailedMount"
                    | "FailedAttachVolume"
                    | "FailedMapVolume"
                    | "NetworkNotReady"
                    | "FailedPrepareDynamicResources",
                ) => true,
                _ => false,
            }
    }

    /// A field selector that excludes most other events.
    pub fn field_selector() -> String {
        let mut selector = "involvedObject.kind=Pod".to_owned();
        for reason in IGNORED_REASONS {
            selector.push_str(",reason!=");
            selector.push_str(reason);
        }
        selector
    }

    /// Adds the facts of an event.
    pub(crate) fn learn(&mut self, event: &Event) {
        let message = event.message.as_deref().unwrap_or_default();
        let message = message.strip_prefix(COMBINED).unwrap_or(message);
        let path = event.regarding.field_path.as_deref().unwrap_or_default();
        let reason = event.reason.as_deref().unwrap_or_default();
        let Some(container) = container_of(path) else {
            if matches!(
                reason,
                "FailedCreatePodSandBox"
                    | "FailedMount"
                    | "FailedAttachVolume"
                    | "FailedMapVolume"
                    | "NetworkNotReady"
                    | "FailedPrepareDynamicResources"
            ) {
                self.sandbox.learn(event, message);
            }
            return;
        };
        let Some(facts) = self.of_mut(container) else {
            return;
        };
        match reason {
            "Pulling" => facts.pull.begin(event),
            "Pulled" => facts.pull.finish(event, message),
            "Failed" if message.starts_with("Failed to pull image") => {
                facts.pull.failed.learn(event, message);
            }
            "ErrImageNeverPull" | "InspectFailed" => facts.pull.failed.learn(event, message),
            "BackOff" if message.starts_with("Back-off pulling image") => {
                facts.pull.backed_off.learn(event, message);
            }
            "Unhealthy" => match Probe::read(message) {
                Some((Probe::Startup, said)) => facts.startup_probe.learn(event, said),
                Some((Probe::Readiness, said)) => facts.readiness_probe.learn(event, said),
                Some((Probe::Liveness, said)) => facts.liveness_probe.learn(event, said),
                None => {}
            },
            "Killing" => match killed_for(message) {
                Some(Probe::Startup) => facts.startup_kills.count(event),
                Some(Probe::Liveness) => facts.liveness_kills.count(event),
                _ => {}
            },
            _ => {}
        }
    }

    fn of_mut(&mut self, container: &str) -> Option<&mut ContainerFacts> {
        let known = self
            .containers
            .iter()
            .position(|(name, _)| &**name == container);
        let at = match known {
            Some(at) => at,
            None if self.containers.len() < MAX_CONTAINERS => {
                // Sorted, so that the order of events leaves no trace.
                let at = self
                    .containers
                    .partition_point(|(name, _)| &**name < container);
                let new = (container.into(), ContainerFacts::default());
                self.containers.insert(at, new);
                at
            }
            None => return None,
        };
        self.containers.get_mut(at).map(|(_, facts)| facts)
    }
}

impl ContainerFacts {
    /// Whether the kubelet killed it for its startup probe.
    pub fn was_killed_for_startup_probe(&self) -> bool {
        self.startup_kills.sum() > 0
    }

    /// Whether the kubelet killed it for its liveness probe.
    pub fn was_killed_for_liveness_probe(&self) -> bool {
        self.liveness_kills.sum() > 0
    }
}

impl Pull {
    /// The number of attempts.
    pub fn attempts(&self) -> u32 {
        self.attempts.sum()
    }

    /// Whether anything is known of it.
    pub fn is_known(&self) -> bool {
        self.began.is_some() || self.done.is_some() || self.failed.times() > 0
    }

    /// The start of the pull that succeeded: from its event, or else its end minus its duration.
    pub fn started(&self) -> Option<Timestamp> {
        match &self.done {
            Some(done) if done.already_present => Some(done.at),
            Some(done) => self
                .began
                .or_else(|| done.at.checked_sub(done.with_waiting.or(done.pull)?)),
            None => self.began,
        }
    }

    /// Whether an attempt has begun and none has succeeded.
    pub fn is_pending(&self) -> bool {
        self.began.is_some() && self.done.is_none()
    }

    /// The start of the attempt that succeeded after failed ones; `None` if it was the first.
    pub fn retried(&self) -> Option<Timestamp> {
        let done = self.done.as_ref().filter(|done| !done.already_present)?;
        let has_failed = self.failed.times() > 0 || self.backed_off.times() > 0;
        let began = done.at.checked_sub(done.with_waiting.or(done.pull)?)?;
        (has_failed && self.began.is_some_and(|first| first < began)).then_some(began)
    }

    /// The time until the image was present, with the wait and failed attempts.
    pub fn took(&self) -> Option<Duration> {
        let done = self.done.as_ref()?;
        if done.already_present {
            return Some(Duration::ZERO);
        }
        // One attempt is known to the millisecond; of several, only when the first began.
        if self.failed.times() == 0
            && let Some(exact) = done.with_waiting.or(done.pull)
        {
            return Some(exact);
        }
        done.at.since(self.began?)
    }

    fn begin(&mut self, event: &Event) {
        let at = first_time(event);
        self.began = [self.began, at].into_iter().flatten().min();
        self.attempts.count(event);
    }

    fn finish(&mut self, event: &Event, message: &str) {
        let Some(at) = first_time(event) else {
            return;
        };
        let said = PulledMessage::read(message);
        let is_earlier = self
            .done
            .as_ref()
            .is_none_or(|known| (at, said.already_present) < (known.at, known.already_present));
        if is_earlier {
            self.done = Some(Pulled {
                at,
                already_present: said.already_present,
                pull: said.pull,
                with_waiting: said.with_waiting,
                bytes: said.bytes,
                message: kept(message),
            });
        }
    }
}

impl Failures {
    pub fn times(&self) -> u32 {
        self.times.sum()
    }

    fn learn(&mut self, event: &Event, message: &str) {
        self.times.count(event);
        let at = event.happened();
        let message = kept(message);
        // Of two at the same time the greater is the last, so that their order does not matter.
        if (at, &message) >= (self.last, &self.message) {
            self.last = at;
            self.message = message;
        }
    }
}

impl Tally {
    fn sum(&self) -> u32 {
        self.0
            .iter()
            .fold(0, |sum, (_, times)| sum.saturating_add(*times))
    }

    fn count(&mut self, event: &Event) {
        let name = fnv1a(event.identity.name.as_bytes());
        let times = u32::try_from(event.occurrences()).unwrap_or(1);
        let at = self.0.partition_point(|(known, _)| *known < name);
        if let Some((_, most)) = self.0.get_mut(at).filter(|(known, _)| *known == name) {
            *most = times.max(*most);
        } else if self.0.len() < MAX_TALLIED {
            self.0.insert(at, (name, times));
        }
    }
}

/// The first time of an event, which does not change as its count goes up.
fn first_time(event: &Event) -> Option<Timestamp> {
    event.first.or(event.time).or(event.created)
}

fn kept(message: &str) -> Option<Arc<str>> {
    let message = message.trim();
    let end = message.floor_char_boundary(MAX_MESSAGE);
    message
        .get(..end)
        .filter(|text| !text.is_empty())
        .map(Into::into)
}
