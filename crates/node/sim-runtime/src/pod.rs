//! One simulated pod: its times, and the status and events that follow from them.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp as ApiTimestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, Pod, PodCondition, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevitals_model::{Moment, Timestamp};
use kubevitals_virtual_node::runtime::{PodEvent, PodId, RuntimeChange, RuntimePod};

const RUN_FOR: &str = "sim.kubevitals.io/run-for";
const EXIT_CODE: &str = "sim.kubevitals.io/exit-code";

/// A simulated pod.
#[derive(Debug, Clone)]
pub(crate) struct SimPod {
    pub(crate) id: PodId,
    pub(crate) pod: Arc<Pod>,
    stage: Stage,
    /// What was announced last.
    announced: Option<Announced>,
    /// The first and the last moment of the containers.
    pub(crate) started: Option<Moment>,
    pub(crate) ended: Option<Moment>,
    exit_code: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Starting {
        due: Duration,
    },
    /// With the time at which it ends by itself.
    Running {
        until: Option<Duration>,
    },
    Stopping {
        due: Duration,
    },
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Announced {
    Starting,
    Running,
    Ended,
}

impl SimPod {
    pub(crate) fn new(id: PodId, pod: Arc<Pod>, now: Moment, delay: Duration) -> Self {
        Self {
            id,
            pod,
            stage: Stage::Starting {
                due: now.monotonic.saturating_add(delay),
            },
            announced: None,
            started: None,
            ended: None,
            exit_code: 0,
        }
    }

    /// The containers of the spec.
    pub(crate) fn containers(&self) -> &[Container] {
        let spec = self.pod.spec.as_ref();
        spec.map(|spec| spec.containers.as_slice())
            .unwrap_or_default()
    }

    pub(crate) fn annotation(&self, name: &str) -> Option<&str> {
        let annotations = self.pod.metadata.annotations.as_ref()?;
        annotations.get(name).map(String::as_str)
    }

    /// When the pod changes by itself.
    pub(crate) fn due(&self) -> Option<Duration> {
        match self.stage {
            Stage::Starting { due } | Stage::Stopping { due } => Some(due),
            Stage::Running { until } => until,
            Stage::Ended => None,
        }
    }

    /// Ends the pod after a delay, or sooner if it is ending already.
    pub(crate) fn stop(&mut self, now: Moment, delay: Duration) {
        let at = now.monotonic.saturating_add(delay);
        self.stage = match self.stage {
            Stage::Ended => Stage::Ended,
            Stage::Stopping { due } => Stage::Stopping { due: due.min(at) },
            Stage::Starting { .. } | Stage::Running { .. } => Stage::Stopping { due: at },
        };
    }

    /// Lets time pass, and adds what is to be announced.
    pub(crate) fn advance(&mut self, now: Moment, changes: &mut Vec<RuntimeChange>) {
        if self.announced.is_none() {
            self.announce(Announced::Starting, changes);
        }
        if let Stage::Starting { due } = self.stage
            && due <= now.monotonic
        {
            self.started = Some(now);
            let run_for = self.annotation(RUN_FOR).and_then(|text| text.parse().ok());
            self.stage = Stage::Running {
                until: run_for
                    .map(|seconds| now.monotonic.saturating_add(Duration::from_secs(seconds))),
            };
            self.announce(Announced::Running, changes);
        }
        match self.stage {
            Stage::Running { until: Some(until) } if until <= now.monotonic => {
                let code = self
                    .annotation(EXIT_CODE)
                    .and_then(|text| text.parse().ok());
                self.exit_code = code.unwrap_or(0);
                self.end(now, changes);
            }
            Stage::Stopping { due } if due <= now.monotonic => self.end(now, changes),
            _ => {}
        }
    }

    fn end(&mut self, now: Moment, changes: &mut Vec<RuntimeChange>) {
        self.stage = Stage::Ended;
        self.ended = Some(now);
        self.announce(Announced::Ended, changes);
    }

    fn announce(&mut self, what: Announced, changes: &mut Vec<RuntimeChange>) {
        self.announced = Some(what);
        for container in self.containers() {
            let event = |reason, message: String| {
                RuntimeChange::Event(PodEvent {
                    pod: self.id.clone(),
                    field_path: format!("spec.containers{{{}}}", container.name),
                    is_warning: false,
                    reason,
                    message,
                })
            };
            match what {
                Announced::Starting => {
                    let image = container.image.as_deref().unwrap_or_default();
                    changes.push(event(
                        "Pulled",
                        format!("Container image {image:?} already present on machine"),
                    ));
                }
                Announced::Running => {
                    changes.push(event("Created", "Container created".to_owned()));
                    changes.push(event("Started", "Container started".to_owned()));
                }
                Announced::Ended if self.exit_code == 0 && self.started.is_some() => {
                    changes.push(event(
                        "Killing",
                        format!("Stopping container {}", container.name),
                    ));
                }
                Announced::Ended => {}
            }
        }
        changes.push(RuntimeChange::Status(self.report()));
    }

    /// The pod as the virtual node sees it.
    pub(crate) fn report(&self) -> RuntimePod {
        RuntimePod {
            id: self.id.clone(),
            status: self.status(),
            is_terminated: self.stage == Stage::Ended,
        }
    }

    fn status(&self) -> PodStatus {
        let is_ready = matches!(self.stage, Stage::Running { .. });
        let phase = match (self.stage, self.started) {
            (Stage::Ended, _) if self.exit_code != 0 || self.started.is_none() => "Failed",
            (Stage::Ended, _) => "Succeeded",
            (_, None) => "Pending",
            (_, Some(_)) => "Running",
        };
        let reason = match phase {
            _ if is_ready => None,
            "Succeeded" => Some("PodCompleted"),
            "Failed" => Some("PodFailed"),
            _ => Some("ContainersNotReady"),
        };
        let condition = |kind: &str, is_true: bool| PodCondition {
            type_: kind.to_owned(),
            status: if is_true { "True" } else { "False" }.to_owned(),
            reason: reason.filter(|_| !is_true).map(str::to_owned),
            ..PodCondition::default()
        };
        let mut statuses: Vec<ContainerStatus> = self
            .containers()
            .iter()
            .map(|container| self.container_status(container, is_ready))
            .collect();
        statuses.sort_by(|one, other| one.name.cmp(&other.name));
        PodStatus {
            phase: Some(phase.to_owned()),
            conditions: Some(vec![
                condition("PodReadyToStartContainers", true),
                condition("Initialized", true),
                condition("Ready", is_ready),
                condition("ContainersReady", is_ready),
            ]),
            container_statuses: Some(statuses),
            ..PodStatus::default()
        }
    }

    fn container_status(&self, container: &Container, is_ready: bool) -> ContainerStatus {
        let image = container.image.clone().unwrap_or_default();
        let id = self.started.map(|_| self.container_id(&container.name));
        let state = match (self.started, self.ended) {
            (None, None) => ContainerState {
                waiting: Some(ContainerStateWaiting {
                    reason: Some("ContainerCreating".to_owned()),
                    message: None,
                }),
                ..ContainerState::default()
            },
            (Some(started), None) => ContainerState {
                running: Some(ContainerStateRunning {
                    started_at: Some(time(started.wall)),
                }),
                ..ContainerState::default()
            },
            (started, Some(ended)) => ContainerState {
                terminated: Some(ContainerStateTerminated {
                    exit_code: if started.is_some() {
                        self.exit_code
                    } else {
                        137
                    },
                    reason: Some(
                        if started.is_some() && self.exit_code == 0 {
                            "Completed"
                        } else {
                            "Error"
                        }
                        .to_owned(),
                    ),
                    started_at: started.map(|at| time(at.wall)),
                    finished_at: Some(time(ended.wall)),
                    container_id: id.clone(),
                    ..ContainerStateTerminated::default()
                }),
                ..ContainerState::default()
            },
        };
        ContainerStatus {
            name: container.name.clone(),
            image_id: image.clone(),
            image,
            ready: is_ready,
            started: Some(is_ready),
            restart_count: 0,
            container_id: id,
            state: Some(state),
            ..ContainerStatus::default()
        }
    }

    pub(crate) fn container_id(&self, container: &str) -> String {
        format!("sim://{}-{container}", self.id.uid)
    }
}

fn time(at: Timestamp) -> Time {
    let time = ApiTimestamp::from_millisecond(at.unix_millis());
    Time(time.unwrap_or(ApiTimestamp::UNIX_EPOCH))
}
