//! Startup of containers: image pulls, init containers, sidecars.

use std::sync::Arc;

use super::lifecycle::PodStep;
use super::pod::{ContainerState, Phase};
use super::template::Pull;
use super::{PodId, StepContext, Workload, messages};

impl Workload {
    pub(super) fn pull_image(&mut self, id: PodId, at: usize, ctx: StepContext<'_>) {
        let Some(pod) = self.pod(id).map(Arc::clone) else {
            return;
        };
        let Some(template) = pod.template().at(at) else {
            return;
        };
        match template.pull {
            Pull::Present => {
                self.emit_image_present(id, at, ctx);
                self.plan_step(id, PodStep::Start(at), ctx.now, (40, 300));
            }
            Pull::Takes { milliseconds, .. } => {
                let message = format!("Pulling image \"{}\"", template.image);
                self.emit_event(id, Some(at), false, "Pulling", &message, ctx);
                self.plan_step(
                    id,
                    PodStep::ImagePulled(at),
                    ctx.now,
                    (milliseconds, milliseconds),
                );
            }
            Pull::Fails => {
                let message = format!("Pulling image \"{}\"", template.image);
                self.emit_event(id, Some(at), false, "Pulling", &message, ctx);
                self.plan_step(id, PodStep::PullFailed(at), ctx.now, (9_900, 10_300));
            }
        }
    }

    pub(super) fn emit_image_present(&mut self, id: PodId, at: usize, ctx: StepContext<'_>) {
        let image = self
            .pod(id)
            .and_then(|pod| pod.template().at(at))
            .map(|template| Arc::clone(&template.image))
            .unwrap_or_default();
        let message = format!(
            "Container image \"{image}\" already present on machine and can be accessed by the pod"
        );
        self.emit_event(id, Some(at), false, "Pulled", &message, ctx);
    }

    pub(super) fn image_pulled(&mut self, id: PodId, at: usize, ctx: StepContext<'_>) {
        let Some(pod) = self.pod(id).map(Arc::clone) else {
            return;
        };
        if let Some(template) = pod.template().at(at)
            && let Pull::Takes {
                milliseconds,
                bytes,
            } = template.pull
        {
            let took = messages::go_millis(milliseconds);
            let message = format!(
                "Successfully pulled image \"{}\" in {took} ({took} including waiting). \
                 Image size: {bytes} bytes.",
                template.image
            );
            self.emit_event(id, Some(at), false, "Pulled", &message, ctx);
        }
        self.plan_step(id, PodStep::Start(at), ctx.now, (40, 300));
    }

    pub(super) fn start(&mut self, id: PodId, at: usize, ctx: StepContext<'_>) {
        self.emit_event(id, Some(at), false, "Created", "Container created", ctx);
        self.emit_event(id, Some(at), false, "Started", "Container started", ctx);
        self.run(id, at, ctx);
        let Some(pod) = self.pod(id).map(Arc::clone) else {
            return;
        };
        let init = pod.template().init.len();
        let Some(template) = pod.template().at(at) else {
            return;
        };
        if at < init {
            self.publish(id, ctx);
            match (template.sidecar, &template.startup) {
                // `run` plans its exit.
                (false, _) => {}
                (true, Some(_)) => {
                    self.plan_step(id, PodStep::StartedUp(at), ctx.now, (100, 900));
                }
                (true, None) => self.sidecar_ready(id, at, ctx),
            }
            return;
        }
        self.next_main(id, at, ctx);
    }

    /// Starts the next container, or reports that all have started.
    pub(super) fn next_main(&mut self, id: PodId, at: usize, ctx: StepContext<'_>) {
        let Some(pod) = self.pod(id) else {
            return;
        };
        if at + 1 < pod.containers.len() {
            self.plan_step(id, PodStep::PullImage(at + 1), ctx.now, (5, 40));
            return;
        }
        self.change(id, |pod| {
            let init = pod.template().init.len();
            let mut main = pod.containers.iter().skip(init);
            if main.any(|c| {
                matches!(
                    c.state,
                    ContainerState::Running { .. } | ContainerState::Terminated(_)
                )
            }) {
                pod.phase = Phase::Running;
            }
            pod.update_conditions(ctx.now);
        });
        self.publish(id, ctx);
        self.after_start(id, ctx);
    }

    pub(super) fn started_up(&mut self, id: PodId, at: usize, ctx: StepContext<'_>) {
        self.change(id, |pod| {
            if let Some(container) = pod.containers.get_mut(at) {
                container.started = true;
            }
            pod.update_conditions(ctx.now);
        });
        self.publish(id, ctx);
        self.plan_step(id, PodStep::SidecarReady(at), ctx.now, (20, 400));
    }

    pub(super) fn sidecar_ready(&mut self, id: PodId, at: usize, ctx: StepContext<'_>) {
        self.change(id, |pod| {
            if let Some(container) = pod.containers.get_mut(at) {
                container.started = true;
                container.ready = true;
            }
            pod.update_conditions(ctx.now);
        });
        self.publish(id, ctx);
        self.plan_step(id, PodStep::PullImage(at + 1), ctx.now, (10, 80));
    }
}
