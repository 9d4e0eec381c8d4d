//! Running containers: probes, crashes, back-off, failed image pulls.

use std::sync::Arc;

use kubevitals_model::Timestamp;

use super::lifecycle::PodStep;
use super::pod::{Container, ContainerState, Pod, Termination};
use super::template::{Readiness, RestartPolicy};
use super::{PodId, StepContext, Workload, messages};
use crate::clock::millis_between;
use crate::kubelet::usage::{ContainerUsage, MAX_SAMPLE_GAP_MILLIS};

/// A kubelet emits the same event about the same object 25 times, and then once in five minutes.
const SPAM_BURST: u32 = 25;
const SPAM_REFILL_MILLIS: u64 = 300_000;

impl Workload {
    /// Starts a container now, and plans its exit if it has one.
    pub(super) fn run(&mut self, id: PodId, at: usize, ctx: StepContext<'_>) {
        let plan = self.change(id, |pod| {
            let template = pod.template().at(at)?;
            let init = at < pod.template().init.len();
            let one_shot = init && !template.sidecar;
            let started = !template.sidecar || template.startup.is_none();
            let ready = !init && template.readiness.is_none();
            let exit = template.exit.or(one_shot.then_some((50, 0)));
            let exits = template.exits;
            let container = pod.containers.get_mut(at)?;
            container.state = ContainerState::Running { since: ctx.now };
            container.started = started;
            container.ready = ready;
            exit.filter(|_| exits.is_none_or(|max| container.restarts < max))
        });
        if let Some(Some((milliseconds, _))) = plan {
            self.plan_step(id, PodStep::Exit(at), ctx.now, (milliseconds, milliseconds));
        }
    }

    /// Plans what follows the start of all containers: probes and the readiness gate.
    pub(super) fn after_start(&mut self, id: PodId, ctx: StepContext<'_>) {
        let Some(entry) = self.pods.get(&id) else {
            return;
        };
        let pod = Arc::clone(&entry.pod);
        for part in pod.parts().filter(|part| !part.init) {
            if matches!(part.container.state, ContainerState::Running { .. }) {
                self.plan_probe(id, part.index, ctx.now, true);
            }
        }
        if let Some((_, milliseconds)) = pod.template().readiness_gate {
            self.plan_step(id, PodStep::OpenGate, ctx.now, (milliseconds, milliseconds));
        }
        self.pod_changed(id, ctx);
    }

    fn plan_probe(&mut self, id: PodId, at: usize, now: Timestamp, first: bool) {
        let Some(template) = self.pod(id).and_then(|pod| pod.template().at(at)) else {
            return;
        };
        let Some((probe, _)) = &template.readiness else {
            return;
        };
        let period = u64::from(probe.period_seconds) * 1_000;
        let wait = if first {
            (50, period)
        } else {
            (period, period)
        };
        self.plan_step(id, PodStep::Probe(at), now, wait);
    }

    pub(super) fn probe(&mut self, id: PodId, at: usize, ctx: StepContext<'_>) {
        let Some(pod) = self.pod(id).map(Arc::clone) else {
            return;
        };
        let (Some(template), Some(container)) = (pod.template().at(at), pod.containers.get(at))
        else {
            return;
        };
        let (ContainerState::Running { since }, Some((probe, readiness))) =
            (&container.state, &template.readiness)
        else {
            return;
        };
        let passes = match readiness {
            Readiness::After(milliseconds) => millis_between(*since, ctx.now) >= *milliseconds,
            Readiness::Never => false,
        };
        if passes {
            if !container.ready {
                self.change(id, |pod| {
                    if let Some(container) = pod.containers.get_mut(at) {
                        container.ready = true;
                    }
                    pod.update_conditions(ctx.now);
                });
                self.publish(id, ctx);
                self.pod_changed(id, ctx);
            }
            // Later successful probes have no visible effect.
            return;
        }
        let message = format!("Readiness probe failed: {}", probe.failure);
        let count = self.emit_event(id, Some(at), true, "Unhealthy", &message, ctx);
        if count < SPAM_BURST {
            self.plan_probe(id, at, ctx.now, false);
        } else {
            let wait = (SPAM_REFILL_MILLIS, SPAM_REFILL_MILLIS);
            self.plan_step(id, PodStep::Probe(at), ctx.now, wait);
        }
    }

    pub(super) fn open_gate(&mut self, id: PodId, ctx: StepContext<'_>) {
        self.change(id, |pod| {
            pod.gate_open = Some(ctx.now);
            pod.update_conditions(ctx.now);
        });
        self.publish(id, ctx);
        self.pod_changed(id, ctx);
    }

    pub(super) fn exit(&mut self, id: PodId, at: usize, ctx: StepContext<'_>) {
        let Some(pod) = self.pod(id).map(Arc::clone) else {
            return;
        };
        let Some(template) = pod.template().at(at) else {
            return;
        };
        let exit_code = template.exit.map_or(0, |(_, code)| code);
        let one_shot = at < pod.template().init.len() && !template.sidecar;
        self.change(id, |pod| {
            end(pod, at, exit_code, ctx.now);
            if let Some(container) = pod.containers.get_mut(at) {
                container.ready = one_shot && exit_code == 0;
            }
            pod.update_conditions(ctx.now);
        });
        self.publish(id, ctx);
        self.pod_changed(id, ctx);
        if one_shot && exit_code == 0 {
            self.plan_step(id, PodStep::PullImage(at + 1), ctx.now, (200, 900));
            return;
        }
        let again = template.sidecar
            || match pod.template().restart {
                RestartPolicy::Always => true,
                RestartPolicy::OnFailure => exit_code != 0,
                RestartPolicy::Never => false,
            };
        let restarts = pod
            .containers
            .get(at)
            .map_or(0, |container| container.restarts);
        if again && restarts == 0 {
            self.plan_step(id, PodStep::Restart(at), ctx.now, (300, 900));
        } else if again {
            self.plan_step(id, PodStep::BackOff(at), ctx.now, (600, 1_400));
        } else if self.pod(id).is_some_and(|pod| pod.outcome().is_some()) {
            self.plan_step(id, PodStep::Complete, ctx.now, (700, 1_600));
        }
    }

    pub(super) fn back_off(&mut self, id: PodId, at: usize, ctx: StepContext<'_>) {
        let Some(pod) = self.pod(id).map(Arc::clone) else {
            return;
        };
        let (Some(template), Some(container)) = (pod.template().at(at), pod.containers.get(at))
        else {
            return;
        };
        let (name, full_name) = (&template.name, pod.full_name());
        let seconds = back_off_seconds(container.restarts);
        let message = format!("Back-off restarting failed container {name} in pod {full_name}");
        self.emit_event(id, Some(at), true, "BackOff", &message, ctx);
        let waiting = format!(
            "back-off {} restarting failed container={name} pod={full_name}",
            messages::go_seconds(seconds)
        );
        self.change(id, |pod| {
            retire(pod, at);
            if let Some(container) = pod.containers.get_mut(at) {
                container.state = ContainerState::Waiting {
                    reason: "CrashLoopBackOff",
                    message: Some(waiting.into()),
                };
            }
        });
        self.publish(id, ctx);
        let wait = seconds * 1_000;
        self.plan_step(id, PodStep::Restart(at), ctx.now, (wait, wait + wait / 10));
    }

    pub(super) fn restart(&mut self, id: PodId, at: usize, ctx: StepContext<'_>) {
        self.emit_image_present(id, at, ctx);
        self.emit_event(id, Some(at), false, "Created", "Container created", ctx);
        self.emit_event(id, Some(at), false, "Started", "Container started", ctx);
        self.change(id, |pod| {
            retire(pod, at);
            if let Some(container) = pod.containers.get_mut(at) {
                container.restarts += 1;
            }
        });
        self.run(id, at, ctx);
        self.change(id, |pod| {
            if at < pod.template().init.len()
                && let Some(container) = pod.containers.get_mut(at)
            {
                (container.started, container.ready) = (true, true);
            }
            pod.update_conditions(ctx.now);
        });
        self.publish(id, ctx);
        self.plan_probe(id, at, ctx.now, true);
        self.pod_changed(id, ctx);
    }

    pub(super) fn pull_failed(&mut self, id: PodId, at: usize, ctx: StepContext<'_>) {
        let Some(pod) = self.pod(id).map(Arc::clone) else {
            return;
        };
        let (Some(template), Some(host)) = (pod.template().at(at), &pod.host) else {
            return;
        };
        let mut seed = pod.seed.derive(ctx.now.unix_millis().cast_unsigned());
        let cause = messages::pull_failure(&template.image, host.ip, seed.between(32_768, 60_999));
        let message = format!("Failed to pull image \"{}\": {cause}", template.image);
        self.emit_event(id, Some(at), true, "Failed", &message, ctx);
        let tries = self.emit_event(id, Some(at), true, "Failed", "Error: ErrImagePull", ctx);
        self.wait(id, at, "ErrImagePull", cause, ctx);
        self.plan_step(id, PodStep::PullBackOff(at), ctx.now, (800, 14_000));
        let main = at >= pod.template().init.len();
        if tries == 1 && main {
            // The other containers do not wait for it.
            self.next_main_after_failure(id, at, ctx);
        }
    }

    fn next_main_after_failure(&mut self, id: PodId, at: usize, ctx: StepContext<'_>) {
        if self
            .pod(id)
            .is_some_and(|pod| at + 1 < pod.containers.len())
        {
            self.plan_step(id, PodStep::PullImage(at + 1), ctx.now, (5, 40));
        }
    }

    pub(super) fn pull_back_off(&mut self, id: PodId, at: usize, ctx: StepContext<'_>) {
        let Some(pod) = self.pod(id).map(Arc::clone) else {
            return;
        };
        let (Some(template), Some(container)) = (pod.template().at(at), pod.containers.get(at))
        else {
            return;
        };
        let image = &template.image;
        let cause = match &container.state {
            ContainerState::Waiting {
                message: Some(message),
                ..
            } => Arc::clone(message),
            _ => "".into(),
        };
        let message = format!("Back-off pulling image \"{image}\"");
        let tries = self.emit_event(id, Some(at), false, "BackOff", &message, ctx);
        self.emit_event(id, Some(at), true, "Failed", "Error: ImagePullBackOff", ctx);
        let waiting = format!("{message}: ErrImagePull: {cause}");
        self.wait(id, at, "ImagePullBackOff", waiting, ctx);
        let wait = back_off_seconds(tries) * 1_000;
        self.plan_step(id, PodStep::PullImage(at), ctx.now, (wait, wait + wait / 5));
    }

    fn wait(
        &mut self,
        id: PodId,
        at: usize,
        reason: &'static str,
        message: String,
        ctx: StepContext<'_>,
    ) {
        self.change(id, |pod| {
            if let Some(container) = pod.containers.get_mut(at) {
                container.state = ContainerState::Waiting {
                    reason,
                    message: Some(message.into()),
                };
            }
        });
        self.publish(id, ctx);
    }
}

/// Terminates the current run of a container.
pub(super) fn end(pod: &mut Pod, at: usize, exit_code: i32, now: Timestamp) {
    let Some(container) = pod.containers.get_mut(at) else {
        return;
    };
    if let ContainerState::Running { since } = container.state {
        container.state = ContainerState::Terminated(Termination {
            exit_code,
            started: since,
            finished: now,
            // 137 without a deletion of the pod means that it was OOM killed.
            out_of_memory: exit_code == 137,
            run: container.restarts,
        });
    }
    container.ready = false;
    container.started = false;
}

/// Moves a terminated run to `lastState`, and adds the CPU time of earlier runs to their sum.
fn retire(pod: &mut Pod, at: usize) {
    let Some(Container {
        state: ContainerState::Terminated(ended),
        recent,
        ..
    }) = pod.containers.get(at)
    else {
        return;
    };
    let ended = *ended;
    let (kept, past): (Vec<Termination>, Vec<Termination>) =
        recent.iter().copied().chain([ended]).partition(|run| {
            millis_between(run.finished, ended.finished) < 2 * MAX_SAMPLE_GAP_MILLIS
        });
    let used: u64 = past
        .iter()
        .map(|run| ContainerUsage::of(pod, at, run.started, run.run).cpu_nanos(run.finished))
        .sum();
    if let Some(container) = pod.containers.get_mut(at) {
        // The run shown as terminated is not counted twice.
        container.state = ContainerState::Waiting {
            reason: "ContainerCreating",
            message: None,
        };
        container.last = Some(ended);
        container.recent = kept;
        container.earlier_cpu = container.earlier_cpu.saturating_add(used);
    }
}

/// Ten seconds, doubled with each failure, at most five minutes.
fn back_off_seconds(failures: u32) -> u64 {
    10_u64
        .saturating_mul(1 << failures.saturating_sub(1).min(5))
        .min(300)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_up_to_five_minutes() {
        let seconds: Vec<u64> = (1..9).map(back_off_seconds).collect();
        assert_eq!(seconds, [10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(back_off_seconds(u32::MAX), 300);
    }
}
