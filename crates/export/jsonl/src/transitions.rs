//! The lines of kube-transition-metrics: its names, its closed schema, and its two wrong durations
//! only on request.

use std::time::Duration;

use kubevitals_model::{Pod, Timestamp};
use kubevitals_transitions::{
    ContainerRecord, ContainerRole, End, ImageName, LabelKeys, Moment, Output, PodRecord, Pull,
    PullTarget, Workload, owner,
};
use serde::{Serialize, Serializer};

use crate::lifecycle::Lifecycle;

/// Renders the outputs of a tracker as lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TransitionLines {
    /// Writes two durations and a name as kube-transition-metrics does: `started_to_ready_seconds`
    /// from when the container ran, `initialized_to_running_seconds` from when the pod was
    /// scheduled, and `kube_stateful_set`.
    pub compat: bool,
    /// When records of our own are added.
    pub lifecycle: LifecycleLines,
    /// Labels of pods that are added to every line, which the schema of kube-transition-metrics
    /// does not have.
    pub label_keys: LabelKeys,
}

/// When `lifecycle` records are written. They are not in the schema of kube-transition-metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LifecycleLines {
    #[default]
    Never,
    /// Once for each pod, when its lifecycle has ended.
    AtEnd,
    /// When it has started, and again when its lifecycle has ended.
    AtStartAndEnd,
}

/// The schema has no others.
const QOS_CLASSES: [&str; 3] = ["Guaranteed", "Burstable", "BestEffort"];

#[derive(Serialize)]
struct Line<'r> {
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'r str>,
    kube_transition_metrics: Metrics<'r>,
}

#[derive(Serialize, Default)]
struct Metrics<'r> {
    r#type: &'static str,
    partial: bool,
    kube_namespace: &'r str,
    pod_name: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_node: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_qos: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_priority_class: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_runtime_class: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_ownerref_kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_ownerref_name: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_cronjob: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_daemon_set: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_deployment: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_job: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_replica_set: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_statefulset: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_stateful_set: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_app_component: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_app_instance: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_app_managed_by: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_app_name: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_app_part_of: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kube_app_version: Option<&'r str>,
    #[serde(flatten)]
    labels: PodLabels<'r>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container_name: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    short_image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<PodPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<ContainerPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_pull: Option<ImagePullPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifecycle: Option<Lifecycle>,
}

/// The labels of a pod, as fields.
#[derive(Default)]
struct PodLabels<'r>(Option<(&'r LabelKeys, &'r Pod)>);

#[derive(Serialize)]
struct PodPart {
    creation_timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduled_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_to_scheduled_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    initialized_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_to_initialized_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduled_to_initialized_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_to_ready_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    initialized_to_ready_seconds: Option<f64>,
}

#[derive(Serialize)]
struct ContainerPart {
    init_container: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous_to_running_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    initialized_to_running_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    running_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    running_to_started_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    running_to_ready_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_to_ready_seconds: Option<f64>,
}

#[derive(Serialize)]
struct ImagePullPart {
    #[serde(skip_serializing_if = "Option::is_none")]
    already_present: Option<bool>,
    started_timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_seconds: Option<f64>,
}

impl TransitionLines {
    /// Renders an output as lines, each with its line break; `time` is that of the record.
    pub fn render(&self, output: &Output, time: Timestamp) -> Vec<u8> {
        let mut lines = Vec::new();
        match output {
            Output::Progress(record) => self.push_start(record, time, &mut lines),
            Output::Startup(record) => {
                self.push_start(record, time, &mut lines);
                // For a pod that has ended, the lifecycle record follows.
                if self.lifecycle == LifecycleLines::AtStartAndEnd && record.end == End::Open {
                    self.push_life(record, time, &mut lines);
                }
            }
            Output::Lifecycle(record) => {
                if self.lifecycle != LifecycleLines::Never {
                    self.push_life(record, time, &mut lines);
                }
            }
            Output::ImagePull(record, target) => {
                if let Some(pull) = record.facts.pull(target) {
                    self.push_pull(record, target, pull, time, &mut lines);
                }
            }
        }
        lines
    }

    fn push_start(&self, record: &PodRecord, time: Timestamp, lines: &mut Vec<u8>) {
        let common = || self.common(record);
        // The schema requires a time of creation, which every pod has.
        if let Some(pod) = PodPart::of(record) {
            let metrics = Metrics {
                r#type: "pod",
                partial: !record.is_complete(),
                pod: Some(pod),
                ..common()
            };
            push(lines, time, None, metrics);
        }
        let mut previous = None;
        for container in &record.containers {
            let metrics = Metrics {
                r#type: "container",
                partial: !is_complete(container),
                container: Some(self.container(record, container, previous)),
                ..common().with_container(container)
            };
            push(lines, time, None, metrics);
            previous = Some(container);
        }
        // Those that have ended are outputs of their own.
        for (target, pull) in record.pulls().filter(|(_, pull)| pull.done.is_none()) {
            self.push_pull(record, &target, pull, time, lines);
        }
    }

    fn push_pull(
        &self,
        record: &PodRecord,
        target: &PullTarget,
        pull: &Pull,
        time: Timestamp,
        lines: &mut Vec<u8>,
    ) {
        let Some(started) = pull.started() else {
            return;
        };
        let done = pull.done.as_ref();
        let common = self.common(record);
        let common = match target {
            PullTarget::Container(name) => {
                let mut containers = record.containers.iter();
                match containers.find(|one| one.name == *name) {
                    Some(container) => common.with_container(container),
                    None => common,
                }
            }
            PullTarget::Volume(image) => common.with_image(Some(image)),
        };
        let metrics = Metrics {
            r#type: "image_pull",
            partial: done.is_none(),
            image_pull: Some(ImagePullPart {
                already_present: done.map(|done| done.already_present),
                started_timestamp: printed(started),
                finished_timestamp: done.map(|done| printed(done.at)),
                duration_seconds: pull.took().map(|took| took.as_secs_f64()),
            }),
            ..common
        };
        let message = match done {
            Some(done) => done.message.as_deref(),
            None => pull.failed.message.as_deref(),
        };
        push(lines, time, message, metrics);
    }

    fn push_life(&self, record: &PodRecord, time: Timestamp, lines: &mut Vec<u8>) {
        let metrics = Metrics {
            r#type: "lifecycle",
            partial: !record.is_complete(),
            pod_uid: Some(record.pod.summary.identity.uid.to_string()),
            lifecycle: Some(Lifecycle::of(record)),
            ..self.common(record)
        };
        push(lines, time, None, metrics);
    }

    fn common<'r>(&'r self, record: &'r PodRecord) -> Metrics<'r> {
        let pod = &*record.pod;
        let label = |key: &str| pod.summary.labels.get(key).map(|value| &**value);
        let owner = owner(pod);
        let named = |kind: &str| {
            owner
                .filter(|owner| &*owner.kind == kind)
                .map(|owner| &*owner.name)
        };
        let stateful_set = named("StatefulSet");
        Metrics {
            kube_namespace: &pod.summary.identity.namespace,
            pod_name: &pod.summary.identity.name,
            kube_node: pod.summary.node.as_deref(),
            kube_qos: pod
                .qos_class
                .as_deref()
                .filter(|class| QOS_CLASSES.contains(class)),
            kube_priority_class: pod.priority_class.as_deref(),
            kube_runtime_class: pod.runtime_class.as_deref(),
            kube_ownerref_kind: owner.map(|owner| owner.kind.to_lowercase()),
            kube_ownerref_name: owner.map(|owner| &*owner.name),
            kube_cronjob: Workload::cron_job_of(pod),
            kube_daemon_set: named("DaemonSet"),
            kube_deployment: Workload::deployment_of(pod),
            kube_job: named("Job"),
            kube_replica_set: named("ReplicaSet"),
            kube_statefulset: stateful_set.filter(|_| !self.compat),
            kube_stateful_set: stateful_set.filter(|_| self.compat),
            kube_app_component: label("app.kubernetes.io/component"),
            kube_app_instance: label("app.kubernetes.io/instance"),
            kube_app_managed_by: label("app.kubernetes.io/managed-by"),
            kube_app_name: label("app.kubernetes.io/name"),
            kube_app_part_of: label("app.kubernetes.io/part-of"),
            kube_app_version: label("app.kubernetes.io/version"),
            labels: PodLabels(Some((&self.label_keys, pod))),
            ..Metrics::default()
        }
    }

    fn container(
        &self,
        record: &PodRecord,
        container: &ContainerRecord,
        previous: Option<&ContainerRecord>,
    ) -> ContainerPart {
        let timeline = record.timeline();
        let by_node = |moment: Option<Moment>| moment.map(|moment| timeline.node(moment));
        let reached = &record.milestones;
        let is_init = container.role.is_init();
        let let_on = previous.and_then(|previous| match previous.role {
            // The kubelet goes on once a sidecar has started, whether or not it is ready.
            ContainerRole::Sidecar if !self.compat => previous.started,
            _ => previous.ready,
        });
        let initialized = if self.compat {
            reached.scheduled.map(|moment| timeline.api_server(moment))
        } else {
            by_node(reached.initialized)
        };
        let [running, started, ready] =
            [container.running, container.started, container.ready].map(by_node);
        ContainerPart {
            init_container: is_init,
            previous_to_running_seconds: between(by_node(let_on), running).filter(|_| is_init),
            initialized_to_running_seconds: between(initialized, running).filter(|_| !is_init),
            running_timestamp: stamp(container.running),
            started_timestamp: stamp(container.started),
            running_to_started_seconds: between(running, started),
            ready_timestamp: stamp(container.ready),
            running_to_ready_seconds: between(running, ready),
            started_to_ready_seconds: between(if self.compat { running } else { started }, ready),
        }
    }
}

impl<'r> Metrics<'r> {
    fn with_container(self, container: &'r ContainerRecord) -> Self {
        Self {
            container_name: Some(&container.name),
            ..self.with_image(container.image.as_deref())
        }
    }

    fn with_image(self, image: Option<&str>) -> Self {
        let (name, short, tag) = match image.and_then(ImageName::parse) {
            Some(image) => (Some(image.name), Some(image.short), Some(image.tag)),
            None => (None, None, None),
        };
        Self {
            image_name: name,
            short_image: short,
            image_tag: tag,
            ..self
        }
    }
}

impl Serialize for PodLabels<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().flat_map(|(keys, pod)| keys.of(pod)))
    }
}

impl PodPart {
    fn of(record: &PodRecord) -> Option<Self> {
        let reached = &record.milestones;
        let timeline = record.timeline();
        let by_api_server =
            |moment: Option<Moment>| moment.map(|moment| timeline.api_server(moment));
        let by_node = |moment: Option<Moment>| moment.map(|moment| timeline.node(moment));
        let [created, scheduled] = [Some(reached.created), reached.scheduled].map(by_api_server);
        let [initialized, ready] = [reached.initialized, reached.ready].map(by_node);
        Some(Self {
            creation_timestamp: stamp(Some(reached.created))?,
            scheduled_timestamp: stamp(reached.scheduled),
            creation_to_scheduled_seconds: between(created, scheduled),
            initialized_timestamp: stamp(reached.initialized),
            creation_to_initialized_seconds: between(created, initialized),
            scheduled_to_initialized_seconds: between(scheduled, initialized),
            ready_timestamp: stamp(reached.ready),
            creation_to_ready_seconds: between(created, ready),
            initialized_to_ready_seconds: between(initialized, ready),
        })
    }
}

/// Whether all times of a container are known. Of one that started before it was observed, some
/// may not be.
fn is_complete(container: &ContainerRecord) -> bool {
    [container.running, container.started, container.ready]
        .iter()
        .all(|moment| moment.is_some_and(|moment| moment.best().is_some()))
}

fn push(lines: &mut Vec<u8>, time: Timestamp, message: Option<&str>, metrics: Metrics<'_>) {
    let line = Line {
        time: printed(time),
        message,
        kube_transition_metrics: metrics,
    };
    serde_json::to_writer(&mut *lines, &line)
        .expect("strings and numbers in memory can be written");
    lines.push(b'\n');
}

pub(crate) fn between(from: Option<Moment>, to: Option<Moment>) -> Option<f64> {
    to?.since(from?)
        .map(|duration: Duration| duration.as_secs_f64())
}

fn stamp(moment: Option<Moment>) -> Option<String> {
    moment?.best().map(printed)
}

pub(crate) fn printed(time: Timestamp) -> String {
    time.rfc3339_seconds().to_string()
}
