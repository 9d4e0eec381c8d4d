//! What events say of a pod. Each fact is the same whatever the order in which events come, and
//! however often.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Event, Timestamp};

use crate::message::{Probe, PulledMessage, container_of};
use crate::shard::fnv1a;

/// More containers than this are not told apart by what events say; pods with so many are unheard
/// of.
const MAX_CONTAINERS: usize = 64;

/// Events of one kind that are counted apart; the kubelet itself writes no more than 25 of an
/// object in a burst.
const MAX_TALLIED: usize = 16;

/// How much of a message is kept.
const MAX_MESSAGE: usize = 512;

/// Reasons of events that are frequent and say nothing that is used here. A selector cannot name
/// the reasons that are wanted, only those that are not.
const UNUSED: [&str; 10] = [
    "Created",
    "DNSConfigForming",
    "FailedScheduling",
    "Killing",
    "NotTriggerScaleUp",
    "SandboxChanged",
    "Scheduled",
    "Started",
    "SuccessfulAttachVolume",
    "TriggeredScaleUp",
];

/// What events say of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    containers: Vec<(Arc<str>, ContainerFacts)>,
    /// What was wrong with its sandbox, network or volumes.
    pub sandbox: Trouble,
}

/// What events say of a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerFacts {
    /// How its image came to the node.
    pub pull: Pull,
    /// How its startup probe failed.
    pub startup_probe: Trouble,
    /// How its readiness probe failed.
    pub readiness_probe: Trouble,
    /// How its liveness probe failed.
    pub liveness_probe: Trouble,
}

/// How an image came to a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pull {
    /// When a pull first began.
    pub began: Option<Timestamp>,
    /// How the first that succeeded did.
    pub done: Option<Pulled>,
    /// How often it was begun.
    attempts: Tally,
    /// How it failed.
    pub failed: Trouble,
    /// How the kubelet waited before it tried again.
    pub backed_off: Trouble,
}

/// A pull that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// When, in whole seconds.
    pub at: Timestamp,
    /// Whether there was nothing to pull.
    pub already_present: bool,
    /// How long the pull itself took.
    pub pull: Option<Duration>,
    /// How long it took with the wait for other pulls of the node.
    pub with_waiting: Option<Duration>,
    /// How large the image is.
    pub bytes: Option<u64>,
    /// What the kubelet said.
    pub message: Option<Arc<str>>,
}

/// Something that went wrong, perhaps often.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trouble {
    times: Tally,
    last: Option<Timestamp>,
    /// What was last said of it.
    pub message: Option<Arc<str>>,
}

/// How often something happened: the sum over events, each of which counts itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Tally(Vec<(u64, u32)>);

impl Facts {
    /// What is known of a container.
    pub fn of(&self, container: &str) -> Option<&ContainerFacts> {
        let found = self
            .containers
            .iter()
            .find(|(name, _)| &**name == container);
        found.map(|(_, facts)| facts)
    }

    /// Whether an event says anything that is used here.
    pub fn are_told_by(event: &Event) -> bool {
        &*event.regarding.kind == "Pod"
            && matches!(
                event.reason.as_deref(),
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
                        | "FailedPrepareDynamicResources"
                )
            )
    }

    /// What to ask an API server for, so that it sends little else than what is used here.
    pub fn field_selector() -> String {
        let mut selector = "involvedObject.kind=Pod".to_owned();
        for reason in UNUSED {
            selector.push_str(",reason!=");
            selector.push_str(reason);
        }
        selector
    }

    /// Takes in what an event says.
    pub(crate) fn learn(&mut self, event: &Event) {
        let message = event.message.as_deref().unwrap_or_default();
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

impl Pull {
    /// How often a pull was begun.
    pub fn attempts(&self) -> u32 {
        self.attempts.sum()
    }

    /// Whether anything is known of it.
    pub fn is_known(&self) -> bool {
        self.began.is_some() || self.done.is_some() || self.failed.times() > 0
    }

    /// When the pull that succeeded began: as the kubelet said, or else so long before its end as
    /// it took.
    pub fn started(&self) -> Option<Timestamp> {
        match &self.done {
            Some(done) if done.already_present => Some(done.at),
            Some(done) => self
                .began
                .or_else(|| done.at.checked_sub(done.with_waiting.or(done.pull)?)),
            None => self.began,
        }
    }

    /// How long it took until the image was there, the wait and failed attempts included.
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
        let is_news = self
            .done
            .as_ref()
            .is_none_or(|known| (at, said.already_present) < (known.at, known.already_present));
        if is_news {
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

impl Trouble {
    /// How often it happened.
    pub fn times(&self) -> u32 {
        self.times.sum()
    }

    fn learn(&mut self, event: &Event, message: &str) {
        self.times.count(event);
        let at = event.happened();
        let message = kept(message);
        // Of two at one time either may be the last: the greater, so that their order does not
        // matter.
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

/// When an event first happened: unlike when it last did, that stays as it is counted up.
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
