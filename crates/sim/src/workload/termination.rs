//! Termination of pods: completion, deletion and eviction.

use std::sync::Arc;

use super::lifecycle::PodStep;
use super::pod::{ContainerState, Eviction, Phase, Termination};
use super::running::end;
use super::{PodId, StepContext, Workload};
use crate::objects::{Resource, WriteError};

impl Workload {
    /// All containers have terminated, and the sandbox is removed.
    pub(super) fn complete(&mut self, id: PodId, ctx: StepContext<'_>) {
        self.change(id, |pod| {
            let outcome = pod.outcome().unwrap_or(Phase::Succeeded);
            pod.phase = outcome;
            pod.sandbox.set(false, ctx.now);
            pod.update_conditions(ctx.now);
        });
        self.publish(id, ctx);
        self.plan_step(id, PodStep::Untrack, ctx.now, (50, 400));
    }

    /// The Job controller has counted the pod and removes its finalizer.
    pub(super) fn untrack(&mut self, id: PodId, ctx: StepContext<'_>) {
        if self.pod(id).is_some_and(|pod| pod.tracked) {
            self.change(id, |pod| pod.tracked = false);
            self.publish(id, ctx);
        }
        self.pod_changed(id, ctx);
    }

    /// The node is out of memory and its kubelet evicts the pod.
    pub(super) fn evict(&mut self, id: PodId, ctx: StepContext<'_>) {
        let Some(pod) = self.pod(id).map(Arc::clone) else {
            return;
        };
        if pod.phase != Phase::Running || pod.deletion.is_some() {
            return;
        }
        let name = pod.template().containers.first().map_or("", |c| &*c.name);
        let message = format!(
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 72340Ki. \
             Container {name} was using 65484Ki, request is 16Mi, has larger consumption of memory. "
        );
        self.emit_event(id, None, true, "Evicted", &message, ctx);
        self.cancel_steps(id);
        self.emit_killing(id, ctx);
        self.change(id, |pod| {
            terminate_containers(pod, 137, ctx.now);
            pod.phase = Phase::Failed;
            pod.reason = Some(Arc::new(Eviction {
                message,
                at: ctx.now,
            }));
            pod.sandbox.set(false, ctx.now);
            pod.update_conditions(ctx.now);
        });
        self.publish(id, ctx);
        self.pod_changed(id, ctx);
        // Controllers replace it; the pod garbage collector removes it later.
        self.plan_step(id, PodStep::Delete, ctx.now, (20_000, 60_000));
    }

    /// Deletes the pod through the API.
    pub(super) fn delete(&mut self, id: PodId, grace: Option<u32>, ctx: StepContext<'_>) {
        let Some(pod) = self.pod(id).map(Arc::clone) else {
            return;
        };
        if pod.deletion.is_some() {
            return;
        }
        self.cancel_steps(id);
        // Without a kubelet there is nothing to wait for.
        let idle = pod.start.is_none() || matches!(pod.phase, Phase::Succeeded | Phase::Failed);
        let grace = if idle {
            0
        } else {
            grace.unwrap_or(pod.template().grace_seconds)
        };
        self.change(id, |pod| pod.mark_deleted(grace, ctx.now));
        self.publish(id, ctx);
        self.pod_changed(id, ctx);
        if idle {
            self.plan_step(id, PodStep::Remove, ctx.now, (1, 40));
            return;
        }
        self.emit_killing(id, ctx);
        self.plan_step(id, PodStep::Terminate, ctx.now, (20, 250));
    }

    fn emit_killing(&mut self, id: PodId, ctx: StepContext<'_>) {
        let Some(pod) = self.pod(id).map(Arc::clone) else {
            return;
        };
        for part in pod.parts() {
            if matches!(part.container.state, ContainerState::Running { .. }) {
                let message = format!("Stopping container {}", part.name);
                self.emit_event(id, Some(part.index), false, "Killing", &message, ctx);
            }
        }
    }

    /// The kubelet starts to terminate the pod.
    pub(super) fn terminate(&mut self, id: PodId, ctx: StepContext<'_>) {
        let mut seed = self.seed;
        let ran = self.change(id, |pod| {
            pod.observed = pod.generation;
            seed = pod.seed.derive_name("end");
            let mut ran = false;
            for container in &mut pod.containers {
                match &mut container.state {
                    ContainerState::Waiting { reason, message } if container.last.is_none() => {
                        // The kubelet stops trying, so the waiting reason is cleared.
                        *reason = "ContainerCreating";
                        *message = None;
                    }
                    ContainerState::Waiting { .. } | ContainerState::Lost => {}
                    ContainerState::Running { .. } | ContainerState::Terminated(_) => ran = true,
                }
            }
            ran
        });
        self.publish(id, ctx);
        if ran == Some(false) {
            self.plan_step(id, PodStep::StopSandbox, ctx.now, (50, 300));
            return;
        }
        let grace = self
            .pod(id)
            .and_then(|pod| pod.deletion)
            .map_or(0, |d| d.grace_seconds);
        let grace = u64::from(grace) * 1_000;
        // Most programs exit on SIGTERM, some must be killed.
        let wait = if grace <= 1_000 || seed.happens(100) {
            (grace + 300, grace + 1_500)
        } else {
            (100, grace.min(2_500))
        };
        self.plan_step(id, PodStep::Kill, ctx.now, wait);
    }

    /// The sandbox of a pod that never ran is removed.
    pub(super) fn stop_sandbox(&mut self, id: PodId, ctx: StepContext<'_>) {
        self.change(id, |pod| pod.sandbox.set(false, ctx.now));
        self.publish(id, ctx);
        self.plan_step(id, PodStep::Kill, ctx.now, (20, 100));
    }

    pub(super) fn kill(&mut self, id: PodId, ctx: StepContext<'_>) {
        self.change(id, |pod| {
            let deadline = pod.deletion.map(|deletion| deletion.at);
            let exit_code = match deadline {
                Some(deadline) if ctx.now < deadline => 143,
                _ => 137,
            };
            terminate_containers(pod, exit_code, ctx.now);
            for container in &mut pod.containers {
                if let ContainerState::Waiting { .. } = container.state {
                    container.state = match container.last {
                        Some(last) => ContainerState::Terminated(last),
                        None => ContainerState::Lost,
                    };
                }
            }
            pod.phase = Phase::Failed;
            pod.phase = pod.outcome().unwrap_or(Phase::Failed);
            pod.sandbox.set(false, ctx.now);
            pod.update_conditions(ctx.now);
        });
        self.publish(id, ctx);
        self.pod_changed(id, ctx);
        self.plan_step(id, PodStep::Remove, ctx.now, (5, 80));
    }

    /// The grace period is over, and the object is removed.
    pub(super) fn remove(&mut self, id: PodId, ctx: StepContext<'_>) {
        let last = self.change(id, |pod| {
            let deletion = pod.deletion.as_mut()?;
            (deletion.grace_seconds > 0).then(|| {
                deletion.grace_seconds = 0;
                deletion.at = ctx.now;
            })
        });
        if let Some(Some(())) = last {
            self.publish(id, ctx);
        }
        let Some(pod) = self.pod(id).map(Arc::clone) else {
            return;
        };
        let removed = ctx
            .writer
            .delete(Resource::Pods, Some(&pod.namespace), &pod.name);
        if let Err(error) = removed
            && !matches!(error, WriteError::NotFound { .. })
        {
            self.rejected_writes += 1;
            tracing::debug!(%error, "pod not removed");
        }
        self.drop_pod(id, ctx);
    }

    /// Drops the state of a removed pod.
    pub(super) fn drop_pod(&mut self, id: PodId, ctx: StepContext<'_>) {
        let Some(entry) = self.pods.remove(&id) else {
            return;
        };
        self.node_replacement.unbind(id);
        if let Some(host) = &entry.pod.host
            && let Some(node) = self.node_set.nodes().get(host.index)
        {
            node.remove(&entry.pod, ctx.now);
        }
        if let Some(owner) = entry.owner {
            self.pod_removed(owner, id, ctx);
        }
    }

    /// Cancels all planned steps of the pod.
    pub(super) fn cancel_steps(&mut self, id: PodId) {
        if let Some(entry) = self.pods.get_mut(&id) {
            entry.epoch += 1;
        }
    }
}

/// Terminates all running containers, as the kubelet does.
fn terminate_containers(pod: &mut super::Pod, exit_code: i32, now: kubevitals_model::Timestamp) {
    for at in 0..pod.containers.len() {
        end(pod, at, exit_code, now);
        if let Some(container) = pod.containers.get_mut(at)
            && let ContainerState::Terminated(Termination {
                finished,
                out_of_memory,
                ..
            }) = &mut container.state
            && *finished == now
        {
            *out_of_memory = false;
        }
    }
}
