//! Facts from events. Each is the same whatever the order in which events arrive, and however
//! often.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Event, Timestamp, fnv1a};

use crate::kubelet_message::{
    COMBINED, Probe, PulledMessage, container_of, killed_for, quoted_image,
};
use crate::preparation::Preparation;

/// Containers beyond this number have no facts.
const MAX_CONTAINERS: usize = 64;

/// Events of one kind that are counted separately; the kubelet itself writes no more than 25 of an
/// object in a burst.
const MAX_TALLIED: usize = 16;

/// Bytes of a message that are kept.
const MAX_MESSAGE: usize = 512;

/// Frequent reasons without relevant facts. A field selector can only exclude.
const IGNORED_REASONS: [&str; 5] = [
    "Created",
    "DNSConfigForming",
    "SandboxChanged",
    "Scheduled",
    "Started",
];

/// The writer of most `FailedScheduling`, whose message the pod has too. Those of Karpenter are
/// relevant, and its managed variants have other names: the scheduler is excluded instead. Events
/// of schedulers with other names are received and ignored.
const IGNORED_SOURCE: &str = "default-scheduler";

/// The facts of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    containers: Vec<(Arc<str>, ContainerFacts)>,
    /// Facts of the time before containers start, which most pods do not have.
    preparation: Option<Box<Preparation>>,
    /// Pulls of image volumes, which most pods do not have.
    image_volumes: Option<Box<ImageVolumes>>,
}

/// Pulls of image volumes, by image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ImageVolumes(Vec<(Arc<str>, Pull)>);

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
    pub(crate) report: PullReport,
}

/// The progress of the record of a pull. It is not a fact: all are equal.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PullReport {
    /// Whether it was emitted, is queued, or will not be emitted.
    pub(crate) is_done: bool,
    /// The version of the event that said that the pull has ended.
    pub(crate) version: Option<u64>,
}

/// What an image is pulled for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullTarget {
    /// A container, by name.
    Container(Arc<str>),
    /// A volume, by image.
    Volume(Arc<str>),
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

    /// The facts of the time before containers start.
    pub fn preparation(&self) -> Option<&Preparation> {
        self.preparation.as_deref()
    }

    /// The pulls of image volumes, by image.
    pub fn image_volumes(&self) -> impl Iterator<Item = (&Arc<str>, &Pull)> {
        let volumes = self.image_volumes.iter().flat_map(|volumes| &volumes.0);
        volumes.map(|(image, pull)| (image, pull))
    }

    /// The pull for a container or a volume.
    pub fn pull(&self, target: &PullTarget) -> Option<&Pull> {
        match target {
            PullTarget::Container(name) => self.of(name).map(|facts| &facts.pull),
            PullTarget::Volume(image) => {
                let found = self.image_volumes().find(|(known, _)| *known == image);
                found.map(|(_, pull)| pull)
            }
        }
    }

    /// All pulls, to mark what is reported of them.
    pub(crate) fn pulls_mut(&mut self) -> impl Iterator<Item = (PullTarget, &mut Pull)> {
        let containers = self.containers.iter_mut().map(|(name, facts)| {
            let target = PullTarget::Container(Arc::clone(name));
            (target, &mut facts.pull)
        });
        let volumes = self.image_volumes.iter_mut();
        let volumes = volumes.flat_map(|volumes| &mut volumes.0);
        let volumes = volumes.map(|(image, pull)| (PullTarget::Volume(Arc::clone(image)), pull));
        containers.chain(volumes)
    }

    /// Whether an event has relevant facts.
    pub fn is_relevant(event: &Event) -> bool {
        let message = || event.message.as_deref().unwrap_or_default();
        &*event.regarding.kind == "Pod"
            && match event.reason.as_deref() {
                // Most others are of containers that stop because their pod is deleted.
                Some("Killing") => killed_for(message()).is_some(),
                Some(
                    "Pulling" | "Pulled" | "Failed" | "BackOff" | "ErrImageNeverPull"
                    | "InspectFailed" | "Unhealthy",
                ) => true,
                _ => Preparation::is_relevant(event),
            }
    }

    /// A field selector that excludes most other events.
    pub fn field_selector() -> String {
        let mut selector = "involvedObject.kind=Pod".to_owned();
        for reason in IGNORED_REASONS {
            selector.push_str(",reason!=");
            selector.push_str(reason);
        }
        selector.push_str(",source!=");
        selector.push_str(IGNORED_SOURCE);
        selector
    }

    /// Adds the facts of an event.
    pub(crate) fn learn(&mut self, event: &Event) {
        let message = event.message.as_deref().unwrap_or_default();
        let combined = message.strip_prefix(COMBINED);
        let message = combined.unwrap_or(message);
        let path = event.regarding.field_path.as_deref().unwrap_or_default();
        let reason = event.reason.as_deref().unwrap_or_default();
        let Some(container) = container_of(path) else {
            if Preparation::is_relevant(event) {
                self.preparation
                    .get_or_insert_default()
                    .learn(event, message);
            } else if path.is_empty()
                && let Some(image) = quoted_image(message)
                && let Some(pull) = entry(&mut self.image_volumes.get_or_insert_default().0, image)
            {
                // Images of volumes are pulled for the pod and not for a container.
                pull.learn(event, reason, message);
            }
            return;
        };
        // Events of several containers are combined under the path of one of them.
        if combined.is_some() && matches!(reason, "Pulling" | "Pulled") {
            return;
        }
        let Some(facts) = entry(&mut self.containers, container) else {
            return;
        };
        match reason {
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
            _ => facts.pull.learn(event, reason, message),
        }
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

    fn learn(&mut self, event: &Event, reason: &str, message: &str) {
        match reason {
            "Pulling" => self.begin(event),
            "Pulled" => self.finish(event, message),
            "Failed" if message.starts_with("Failed to pull image") => {
                self.failed.learn(event, message);
            }
            "ErrImageNeverPull" | "InspectFailed" => self.failed.learn(event, message),
            "BackOff" if message.starts_with("Back-off pulling image") => {
                self.backed_off.learn(event, message);
            }
            _ => {}
        }
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
        if self.done.is_none() {
            self.report.version = event.identity.resource_version.as_number();
        }
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

impl PartialEq for PullReport {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for PullReport {}

impl Failures {
    pub fn times(&self) -> u32 {
        self.times.sum()
    }

    /// The time of the last.
    pub fn last(&self) -> Option<Timestamp> {
        self.last
    }

    pub(crate) fn learn(&mut self, event: &Event, message: &str) {
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

/// The value of a key; `None` if there are too many. Keys are sorted, so that the order of events
/// leaves no trace.
fn entry<'e, T: Default>(entries: &'e mut Vec<(Arc<str>, T)>, key: &str) -> Option<&'e mut T> {
    let at = entries.partition_point(|(known, _)| &**known < key);
    let is_known = entries.get(at).is_some_and(|(known, _)| &**known == key);
    if !is_known {
        if entries.len() >= MAX_CONTAINERS {
            return None;
        }
        entries.insert(at, (key.into(), T::default()));
    }
    entries.get_mut(at).map(|(_, value)| value)
}

/// The first time of an event, which does not change as its count goes up.
pub(crate) fn first_time(event: &Event) -> Option<Timestamp> {
    event.first.or(event.time).or(event.created)
}

pub(crate) fn kept(message: &str) -> Option<Arc<str>> {
    let message = message.trim();
    let end = message.floor_char_boundary(MAX_MESSAGE);
    message
        .get(..end)
        .filter(|text| !text.is_empty())
        .map(Into::into)
}
