//! Delays before the containers of a pod start: a new node, volumes, the network.

use super::lifecycle::PodStep;
use super::pod::Pod;
use super::template::Delay;
use super::{PodId, StepContext, Workload};

impl Pod {
    /// Whether the scheduler finds no node, and an autoscaler will add one.
    pub(super) fn needs_new_node(&self) -> bool {
        let delay = self.template().delay;
        matches!(delay, Some(Delay::NewNode { .. })) && self.scheduled.is_none()
    }
}

impl Workload {
    pub(super) fn scale_up(&mut self, id: PodId, ctx: StepContext<'_>) {
        let Some(Delay::NewNode { milliseconds }) = self.delay(id) else {
            return;
        };
        let message = "pod triggered scale-up: [{pool-a 1->2 (max: 10)}]";
        self.emit_event(id, None, false, "TriggeredScaleUp", message, ctx);
        let wait = (milliseconds, milliseconds);
        self.plan_step(id, PodStep::Schedule, ctx.now, wait);
    }

    /// Plans what precedes the sandbox, or the sandbox.
    pub(super) fn prepare(&mut self, id: PodId, ctx: StepContext<'_>) {
        let (step, wait) = match self.delay(id) {
            Some(Delay::Volume { milliseconds }) => {
                (PodStep::VolumeAttached, (milliseconds, milliseconds))
            }
            Some(Delay::MountFails { .. } | Delay::NetworkFails { .. }) => {
                (PodStep::PrepareFailed, (300, 900))
            }
            Some(Delay::NewNode { .. }) | None => (PodStep::Sandbox, (300, 1_100)),
        };
        self.plan_step(id, step, ctx.now, wait);
    }

    pub(super) fn volume_attached(&mut self, id: PodId, ctx: StepContext<'_>) {
        let message = "AttachVolume.Attach succeeded for volume \"pvc-7f1c\" ";
        self.emit_event(id, None, false, "SuccessfulAttachVolume", message, ctx);
        self.plan_step(id, PodStep::Sandbox, ctx.now, (300, 1_100));
    }

    pub(super) fn prepare_failed(&mut self, id: PodId, ctx: StepContext<'_>) {
        let (times, reason, message) = match self.delay(id) {
            Some(Delay::MountFails { times }) => (
                times,
                "FailedMount",
                "MountVolume.SetUp failed for volume \"config\" : configmap \"web\" not found",
            ),
            Some(Delay::NetworkFails { times }) => (
                times,
                "FailedCreatePodSandBox",
                "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup \
                 network for sandbox: plugin type=\"bridge\" failed (add): no addresses left",
            ),
            _ => return,
        };
        let failed = self.emit_event(id, None, true, reason, message, ctx);
        // Zero if the pod is gone.
        if (1..times).contains(&failed) {
            self.plan_step(id, PodStep::PrepareFailed, ctx.now, (1_000, 12_000));
        } else {
            self.plan_step(id, PodStep::Sandbox, ctx.now, (300, 1_100));
        }
    }

    fn delay(&self, id: PodId) -> Option<Delay> {
        self.pod(id)?.template().delay
    }
}
