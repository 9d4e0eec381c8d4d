//! Startup of containers: image pulls, init containers, sidecars.

use std::sync::Arc;

use super::life::Step;
use super::pod::{Phase, State};
use super::template::Pull;
use super::{Moment, PodId, Workload, messages};

impl Workload {
    pub(super) fn fetch(&mut self, id: PodId, at: usize, moment: Moment<'_>) {
        let Some(pod) = self.pod(id).map(Arc::clone) else {
            return;
        };
        let Some(template) = pod.template().at(at) else {
            return;
        };
        match template.pull {
            Pull::Present => {
                self.say_present(id, at, moment);
                self.plan_step(id, Step::Start(at), moment.now, (40, 300));
            }
            Pull::Takes { milliseconds, .. } => {
                let message = format!("Pulling image \"{}\"", template.image);
                self.say(id, Some(at), false, "Pulling", &message, moment);
                self.plan_step(
                    id,
                    Step::Fetched(at),
                    moment.now,
                    (milliseconds, milliseconds),
                );
            }
            Pull::Fails => {
                let message = format!("Pulling image \"{}\"", template.image);
                self.say(id, Some(at), false, "Pulling", &message, moment);
                self.plan_step(id, Step::FetchFailed(at), moment.now, (9_900, 10_300));
            }
        }
    }

    pub(super) fn say_present(&mut self, id: PodId, at: usize, moment: Moment<'_>) {
        let image = self
            .pod(id)
            .and_then(|pod| pod.template().at(at))
            .map(|template| Arc::clone(&template.image))
            .unwrap_or_default();
        let message = format!(
            "Container image \"{image}\" already present on machine and can be accessed by the pod"
        );
        self.say(id, Some(at), false, "Pulled", &message, moment);
    }

    pub(super) fn fetched(&mut self, id: PodId, at: usize, moment: Moment<'_>) {
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
            self.say(id, Some(at), false, "Pulled", &message, moment);
        }
        self.plan_step(id, Step::Start(at), moment.now, (40, 300));
    }

    pub(super) fn start(&mut self, id: PodId, at: usize, moment: Moment<'_>) {
        self.say(id, Some(at), false, "Created", "Container created", moment);
        self.say(id, Some(at), false, "Started", "Container started", moment);
        self.run(id, at, moment);
        let Some(pod) = self.pod(id).map(Arc::clone) else {
            return;
        };
        let init = pod.template().init.len();
        let Some(template) = pod.template().at(at) else {
            return;
        };
        if at < init {
            self.publish(id, moment);
            match (template.sidecar, &template.startup) {
                // `run` plans its exit.
                (false, _) => {}
                (true, Some(_)) => {
                    self.plan_step(id, Step::StartedUp(at), moment.now, (100, 900));
                }
                (true, None) => self.sidecar_ready(id, at, moment),
            }
            return;
        }
        self.next_main(id, at, moment);
    }

    /// Starts the next container, or reports that all have started.
    pub(super) fn next_main(&mut self, id: PodId, at: usize, moment: Moment<'_>) {
        let Some(pod) = self.pod(id) else {
            return;
        };
        if at + 1 < pod.containers.len() {
            self.plan_step(id, Step::Fetch(at + 1), moment.now, (5, 40));
            return;
        }
        self.change(id, |pod| {
            let init = pod.template().init.len();
            let mut main = pod.containers.iter().skip(init);
            if main.any(|c| matches!(c.state, State::Running { .. } | State::Ended(_))) {
                pod.phase = Phase::Running;
            }
            pod.settle(moment.now);
        });
        self.publish(id, moment);
        self.after_start(id, moment);
    }

    pub(super) fn started_up(&mut self, id: PodId, at: usize, moment: Moment<'_>) {
        self.change(id, |pod| {
            if let Some(container) = pod.containers.get_mut(at) {
                container.started = true;
            }
            pod.settle(moment.now);
        });
        self.publish(id, moment);
        self.plan_step(id, Step::SidecarReady(at), moment.now, (20, 400));
    }

    pub(super) fn sidecar_ready(&mut self, id: PodId, at: usize, moment: Moment<'_>) {
        self.change(id, |pod| {
            if let Some(container) = pod.containers.get_mut(at) {
                container.started = true;
                container.ready = true;
            }
            pod.settle(moment.now);
        });
        self.publish(id, moment);
        self.plan_step(id, Step::Fetch(at + 1), moment.now, (10, 80));
    }
}
