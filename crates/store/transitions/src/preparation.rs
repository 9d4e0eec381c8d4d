//! Facts of the time before the containers of a pod start: a new node, volumes, network, sandbox.
//!
//! A state has one condition for all that a kubelet prepares. Events tell the parts from one
//! another where something was slow or failed; what they leave open stays together.

use std::sync::Arc;

use kubevitals_model::{Event, Timestamp};

use crate::facts::{Failures, first_time, kept};

/// Parts of a message of a runtime whose network plugin failed.
const NETWORK_ERRORS: [&str; 5] = [
    "network for sandbox",
    "network for pod",
    "CNI network",
    "networkPlugin cni",
    "plugin type=",
];

/// What the message of Karpenter's `Nominated` and `FailedScheduling` begins with. The scheduler
/// writes the second reason too, and managed variants have another component.
const NOMINATED: &str = "Pod should schedule on";
const NOT_PROVISIONED: &str = "Failed to schedule pod, ";

/// What the message of the autoscaler's `NotTriggerScaleUp` begins with.
const NOT_TRIGGERED: &str = "pod didn't trigger scale-up";

/// Facts of the time before the containers of a pod start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Preparation {
    pub provisioning: Provisioning,
    pub volumes: Volumes,
    /// The network of the node was not ready.
    pub network_not_ready: Outage,
    /// The network of the sandbox could not be set up.
    pub network: Outage,
    /// The sandbox could not be created for another reason.
    pub sandbox: Outage,
}

/// A node that an autoscaler adds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Provisioning {
    /// The first decision to add a node for this pod.
    pub triggered: Option<Timestamp>,
    last_triggered: Option<Timestamp>,
    /// The message of the last decision.
    pub message: Option<Arc<str>>,
    /// Decisions not to add a node for this pod.
    pub refused: Outage,
}

/// The volumes of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Volumes {
    /// The last volume was attached to the node.
    pub attached: Option<Timestamp>,
    pub attach: Outage,
    pub mount: Outage,
}

/// A time in which attempts failed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outage {
    pub first: Option<Timestamp>,
    pub failures: Failures,
}

/// The part of the preparation that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailedPart {
    Volumes,
    Network,
    Sandbox,
}

impl Preparation {
    /// Whether an event has facts of the preparation.
    pub(crate) fn is_relevant(event: &Event) -> bool {
        let message = event.message.as_deref().unwrap_or_default();
        match event.reason.as_deref() {
            // Most events of this reason are the scheduler's, whose message is in the pod.
            Some("FailedScheduling") => message.starts_with(NOT_PROVISIONED),
            Some("Nominated") => message.starts_with(NOMINATED),
            Some(
                "TriggeredScaleUp"
                | "NotTriggerScaleUp"
                | "FailedScaleUp"
                | "SuccessfulAttachVolume"
                | "FailedAttachVolume"
                | "FailedMount"
                | "FailedMapVolume"
                | "NetworkNotReady"
                | "FailedCreatePodSandBox"
                | "FailedPrepareDynamicResources",
            ) => true,
            _ => false,
        }
    }

    pub(crate) fn learn(&mut self, event: &Event, message: &str) {
        let failed = match event.reason.as_deref().unwrap_or_default() {
            "TriggeredScaleUp" | "Nominated" => {
                self.provisioning.trigger(event, message);
                return;
            }
            "SuccessfulAttachVolume" => {
                self.volumes.attached = self.volumes.attached.max(first_time(event));
                return;
            }
            "FailedScheduling" | "NotTriggerScaleUp" | "FailedScaleUp" => {
                &mut self.provisioning.refused
            }
            "FailedAttachVolume" => &mut self.volumes.attach,
            "FailedMount" | "FailedMapVolume" => &mut self.volumes.mount,
            "NetworkNotReady" => &mut self.network_not_ready,
            "FailedCreatePodSandBox"
                if NETWORK_ERRORS.iter().any(|part| message.contains(part)) =>
            {
                &mut self.network
            }
            _ => &mut self.sandbox,
        };
        failed.learn(event, message);
    }

    /// The failures of a part; of two, the later.
    pub(crate) fn failures(&self, part: FailedPart) -> &Failures {
        let (one, two) = match part {
            FailedPart::Volumes => (&self.volumes.mount, &self.volumes.attach),
            FailedPart::Network => (&self.network, &self.network_not_ready),
            FailedPart::Sandbox => return &self.sandbox.failures,
        };
        let is_later = two.failures.last() > one.failures.last();
        &(if is_later { two } else { one }).failures
    }

    /// The part that failed last.
    pub(crate) fn failed_last(&self) -> Option<FailedPart> {
        [
            FailedPart::Sandbox,
            FailedPart::Network,
            FailedPart::Volumes,
        ]
        .into_iter()
        .filter(|part| self.failures(*part).times() > 0)
        .max_by_key(|part| self.failures(*part).last())
    }

    /// Volumes could not be attached or mounted.
    pub(crate) fn volumes_failed(&self) -> Option<Timestamp> {
        earliest([self.volumes.attach.first, self.volumes.mount.first])
    }

    /// The creation of the sandbox first failed, its network included.
    pub(crate) fn sandbox_failed(&self) -> Option<Timestamp> {
        earliest([self.network.first, self.sandbox.first])
    }
}

impl Provisioning {
    /// Whether the last decision was to add a node.
    pub fn is_under_way(&self) -> bool {
        self.last_triggered.is_some() && self.last_triggered >= self.refused.failures.last()
    }

    /// The reason for which no node is added, if that was the last decision.
    pub fn refusal(&self) -> Option<&str> {
        let message = self.refused.failures.message.as_deref();
        let message = message.filter(|_| !self.is_under_way())?;
        let reason = [NOT_TRIGGERED, NOT_PROVISIONED]
            .into_iter()
            .find_map(|prefix| message.strip_prefix(prefix));
        let reason = reason.unwrap_or(message).trim_start_matches([':', ' ']);
        Some(reason).filter(|reason| !reason.is_empty())
    }

    fn trigger(&mut self, event: &Event, message: &str) {
        self.triggered = earliest([self.triggered, first_time(event)]);
        let (at, message) = (event.happened(), kept(message));
        if (at, &message) >= (self.last_triggered, &self.message) {
            self.last_triggered = at;
            self.message = message;
        }
    }
}

impl Outage {
    fn learn(&mut self, event: &Event, message: &str) {
        self.first = earliest([self.first, first_time(event)]);
        self.failures.learn(event, message);
    }
}

fn earliest(times: [Option<Timestamp>; 2]) -> Option<Timestamp> {
    times.into_iter().flatten().min()
}
