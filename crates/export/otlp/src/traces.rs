//! The start of a pod as a trace.
//!
//! ```text
//! pod start                     creation to ready, or to where the start ended
//! ├── scheduling                the critical path: one span after another, without gaps
//! ├── image_pull
//! ├── readiness
//! └── container                 from its image pull or first run until it is ready
//!     └── image pull
//! ```

use std::sync::Arc;

use kubevitals_model::Timestamp;
use kubevitals_transitions::{
    BlockerKind, ContainerRecord, ContainerRole, Failures, ImageName, Moment, PodRecord, Segment,
    Workload, owner,
};

use crate::id::{SpanId, TraceId};
use crate::span::{Attribute, Span, SpanEvent, Status, Value};

/// Builds the spans of one trace.
struct Trace<'r> {
    record: &'r PodRecord,
    id: TraceId,
    root: SpanId,
    start: Timestamp,
    end: Timestamp,
    /// The attributes of every span: the pod.
    pod: Vec<Attribute>,
}

/// Returns the spans of a start, the root first. There are none if its beginning or its end is
/// unknown.
pub fn pod_trace(record: &PodRecord) -> Vec<Span> {
    let created = record.timeline().api_server(record.milestones.created);
    // The last step of a pod that was ready before is not the end of its start.
    let end = record.start_ended().filter(|_| !record.is_unseen());
    let (Some(start), Some(end)) = (created.best(), end) else {
        return Vec::new();
    };
    if end < start || !is_representable(start) || !is_representable(end) {
        return Vec::new();
    }
    let id = TraceId::of(&record.pod.summary.identity.uid);
    let trace = Trace {
        record,
        id,
        root: id.span(format_args!("start")),
        start,
        end,
        pod: pod_attributes(record),
    };
    let mut spans = vec![trace.root_span()];
    let path = record.critical_path();
    spans.extend(
        path.iter()
            .enumerate()
            .map(|(at, segment)| trace.segment_span(at, segment)),
    );
    for container in &record.containers {
        trace.push_container(container, &mut spans);
    }
    spans
}

impl Trace<'_> {
    fn span(&self, name: &'static str, id: SpanId, parent: SpanId) -> Span {
        Span {
            trace: self.id,
            id,
            parent: Some(parent),
            name,
            start: self.start,
            end: self.end,
            attributes: self.pod.clone(),
            events: Vec::new(),
            status: Status::Unset,
        }
    }

    fn root_span(&self) -> Span {
        let record = self.record;
        let blocker = record.blocker();
        let kind = blocker.as_ref().map(|found| found.kind);
        let result = match kind {
            _ if record.is_complete() => "ready",
            Some(kind) => kind.as_str(),
            None => "unknown",
        };
        let mut span = Span {
            parent: None,
            ..self.span("pod start", self.root, self.root)
        };
        let cause = record.cause();
        span.attributes
            .push(Attribute::new("kubevitals.result", result));
        if record.reconstructed {
            span.attributes
                .push(Attribute::new("kubevitals.reconstructed", true));
        }
        if record.is_skewed() {
            span.attributes
                .push(Attribute::new("kubevitals.clock_skew", true));
        }
        // A Job that completes before it is seen ready has not failed.
        if record.is_complete() || kind == Some(BlockerKind::Succeeded) {
            span.attributes
                .push(Attribute::new("kubevitals.cause", cause));
        } else {
            span.attributes.push(Attribute::new("error.type", result));
            span.status = Status::Error(cause);
        }
        span.events = self.pod_events();
        span
    }

    fn segment_span(&self, at: usize, segment: &Segment) -> Span {
        let phase = segment.phase.as_str();
        let id = self.id.span(format_args!("path/{at}/{phase}"));
        let mut span = Span {
            start: segment.from,
            end: segment.to,
            ..self.span(phase, id, self.root)
        };
        span.attributes
            .push(Attribute::new("kubevitals.critical_path", true));
        let name = segment.container.as_ref();
        let container = name.and_then(|name| {
            let mut containers = self.record.containers.iter();
            containers.find(|container| container.name == *name)
        });
        if let Some(container) = container {
            put_container(&mut span.attributes, container);
        }
        if !segment.is_done {
            span.status = Status::Error(format!("{phase} did not complete"));
        }
        span
    }

    /// Appends the span of a container, and that of its image pull, as far as they are known.
    fn push_container(&self, container: &ContainerRecord, spans: &mut Vec<Span>) {
        let timeline = self.record.timeline();
        let by_node = |moment: Option<Moment>| timeline.node(moment?).best();
        let facts = self.record.facts_of(container);
        let pull = facts.map(|facts| &facts.pull);
        let pull_start = pull.and_then(|pull| Some(timeline.node_time(pull.started()?)));
        let done = pull.and_then(|pull| pull.done.as_ref());
        let pull_end = done.map(|done| timeline.node_time(done.at));
        let running = by_node(container.running);
        let id = self.id.span(format_args!("container/{}", container.name));

        let began = pull_start.into_iter().chain(running).min();
        let (end, is_done) = match container.ready {
            Some(ready) => (by_node(Some(ready)), true),
            // The end of a pod that became ready is not that of a container which did not.
            None => (Some(self.end).filter(|_| !self.record.is_complete()), false),
        };
        let interval = began
            .zip(end)
            .and_then(|(start, end)| self.within(start, end));
        let mut parent = self.root;
        if let Some((start, end)) = interval {
            parent = id;
            let mut span = Span {
                start,
                end,
                events: self.container_events(container),
                ..self.span("container", id, self.root)
            };
            let attributes = &mut span.attributes;
            put_container(attributes, container);
            attributes.push(Attribute::new(
                "kubevitals.container.role",
                container.role.as_str(),
            ));
            if container.restarts > 0 {
                let restarts = Attribute::new("k8s.container.restart_count", container.restarts);
                attributes.push(restarts);
            }
            if let Some(done) = done {
                let present =
                    Attribute::new("kubevitals.image.already_present", done.already_present);
                attributes.push(present);
            }
            if !is_done && self.is_blocked_by(container) {
                span.status = Status::Error("the container was not ready".to_owned());
            }
            spans.push(span);
        }

        let is_present = done.is_some_and(|done| done.already_present);
        let pulled = pull_start.filter(|_| !is_present).map(|start| {
            // A pull that has not ended lasted until the start ended without it.
            (start, pull_end.unwrap_or(self.end), pull_end.is_some())
        });
        let Some((start, end, is_done)) = pulled else {
            return;
        };
        if let Some((start, end)) = self.within(start, end) {
            let id = self.id.span(format_args!("pull/{}", container.name));
            let mut span = Span {
                start,
                end,
                ..self.span("image pull", id, parent)
            };
            put_container(&mut span.attributes, container);
            if let Some(bytes) = done.and_then(|done| done.bytes) {
                let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
                let size = Value::Integer(bytes);
                span.attributes
                    .push(Attribute::new("kubevitals.image.size", size));
            }
            if let Some(pull) = pull {
                let attempts = Attribute::new("kubevitals.image.pull_attempts", pull.attempts());
                span.attributes.push(attempts);
            }
            if !is_done {
                span.status = Status::Error("the image was not pulled".to_owned());
            }
            spans.push(span);
        }
    }

    /// An interval inside of the start; `None` if it is not.
    fn within(&self, start: Timestamp, end: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let end = end.min(self.end);
        (self.start <= start && start <= end).then_some((start, end))
    }

    fn is_blocked_by(&self, container: &ContainerRecord) -> bool {
        let blocker = self.record.blocker();
        blocker.is_some_and(|found| {
            found.container.as_ref() == Some(&container.name)
                && found.kind != BlockerKind::Succeeded
        })
    }

    fn pod_events(&self) -> Vec<SpanEvent> {
        let record = self.record;
        let mut events = Vec::new();
        if let Some(facts) = record.facts.preparation() {
            for (kind, failed) in [
                ("volume attach failed", &facts.volumes.attach),
                ("volume mount failed", &facts.volumes.mount),
                ("network not ready", &facts.network_not_ready),
                ("network failed", &facts.network),
                ("sandbox failed", &facts.sandbox),
            ] {
                self.push_failures(&mut events, kind, &failed.failures, None);
            }
        }
        let timeline = record.timeline();
        if let Some(found) = &record.unschedulable {
            let since = timeline.api_server(found.since).best();
            self.push_event(&mut events, "unschedulable", since, found.message.as_ref());
        }
        if let Some(found) = &record.disruption {
            let since = timeline.api_server(found.since).best();
            let text = found.message.as_ref().or(found.reason.as_ref());
            self.push_event(&mut events, "disruption", since, text);
        }
        // Of a container without a span, nothing but its failures may be known.
        for container in &record.containers {
            let facts = record.facts_of(container);
            let is_begun = container.running.is_some()
                || facts.is_some_and(|facts| facts.pull.started().is_some());
            if !is_begun {
                events.extend(self.container_events(container));
            }
        }
        events.sort_by_key(|event| event.time);
        events
    }

    fn container_events(&self, container: &ContainerRecord) -> Vec<SpanEvent> {
        let mut events = Vec::new();
        let name = Some(&container.name);
        if let Some(facts) = self.record.facts_of(container) {
            for (kind, failures) in [
                ("image pull failed", &facts.pull.failed),
                ("image pull backed off", &facts.pull.backed_off),
                ("startup probe failed", &facts.startup_probe),
                ("readiness probe failed", &facts.readiness_probe),
                ("liveness probe failed", &facts.liveness_probe),
            ] {
                self.push_failures(&mut events, kind, failures, name);
            }
        }
        if let Some((exit, finished)) = container.last_exit.as_ref().zip(container.finished) {
            let is_failure = exit.code != 0 || container.role != ContainerRole::Init;
            let at = self.record.timeline().node(finished).best();
            if is_failure && let Some(time) = at.filter(|time| self.contains(*time)) {
                let mut attributes = vec![
                    Attribute::new("k8s.container.name", &container.name),
                    Attribute::new("kubevitals.container.exit_code", exit.code),
                ];
                if let Some(reason) = &exit.reason {
                    let key = "k8s.container.status.last_terminated_reason";
                    attributes.push(Attribute::new(key, reason));
                }
                events.push(SpanEvent {
                    name: "container exited",
                    time,
                    attributes,
                });
            }
        }
        events.sort_by_key(|event| event.time);
        events
    }

    /// Appends the last of some failures, with their number.
    fn push_failures(
        &self,
        events: &mut Vec<SpanEvent>,
        name: &'static str,
        failures: &Failures,
        container: Option<&Arc<str>>,
    ) {
        let before = events.len();
        let time = failures.last();
        let time = time.map(|time| self.record.timeline().node_time(time));
        if failures.times() > 0 {
            self.push_event(events, name, time, failures.message.as_ref());
        }
        if let Some(event) = events.get_mut(before) {
            let times = Attribute::new("kubevitals.failures", failures.times());
            event.attributes.push(times);
            let container = container.map(|name| Attribute::new("k8s.container.name", name));
            event.attributes.extend(container);
        }
    }

    /// Appends an event unless its time is unknown, or after the start: a probe may fail later too.
    fn push_event(
        &self,
        events: &mut Vec<SpanEvent>,
        name: &'static str,
        time: Option<Timestamp>,
        message: Option<&Arc<str>>,
    ) {
        let Some(time) = time.filter(|time| self.contains(*time)) else {
            return;
        };
        let message = message.map(|text| Attribute::new("kubevitals.message", text));
        events.push(SpanEvent {
            name,
            time,
            attributes: message.into_iter().collect(),
        });
    }

    fn contains(&self, time: Timestamp) -> bool {
        (self.start..=self.end).contains(&time)
    }
}

/// Whether OTLP can express a time: nanoseconds since 1970, and 0 means that it is unknown.
fn is_representable(time: Timestamp) -> bool {
    const MAX_MILLIS: i64 = i64::MAX / 1_000_000;
    (1..=MAX_MILLIS).contains(&time.unix_millis())
}

/// The attributes of a pod, by OpenTelemetry's semantic conventions.
fn pod_attributes(record: &PodRecord) -> Vec<Attribute> {
    let pod = &record.pod;
    let identity = &pod.summary.identity;
    let mut attributes = vec![
        Attribute::new("k8s.namespace.name", &*identity.namespace),
        Attribute::new("k8s.pod.name", &*identity.name),
        Attribute::new("k8s.pod.uid", identity.uid.to_string()),
    ];
    if let Some(node) = &pod.summary.node {
        attributes.push(Attribute::new("k8s.node.name", node));
    }
    if let Some(owner) = owner(pod)
        && let Some(key) = workload_key(&owner.kind)
    {
        attributes.push(Attribute::new(key, &*owner.name));
    }
    if let Some(workload) = Workload::of(pod)
        && let Some(key) = workload_key(workload.kind)
        && !attributes.iter().any(|known| known.key == key)
    {
        attributes.push(Attribute::new(key, workload.name));
    }
    attributes
}

fn workload_key(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "CronJob" => "k8s.cronjob.name",
        "DaemonSet" => "k8s.daemonset.name",
        "Deployment" => "k8s.deployment.name",
        "Job" => "k8s.job.name",
        "ReplicaSet" => "k8s.replicaset.name",
        "ReplicationController" => "k8s.replicationcontroller.name",
        "StatefulSet" => "k8s.statefulset.name",
        _ => return None,
    })
}

fn put_container(attributes: &mut Vec<Attribute>, container: &ContainerRecord) {
    attributes.push(Attribute::new("k8s.container.name", &container.name));
    let image = container.image.as_deref().and_then(ImageName::parse);
    if let Some(image) = image {
        // A digest has a colon, a tag has none.
        let (key, value) = if image.tag.contains(':') {
            let digest = format!("{}@{}", image.name, image.tag);
            ("container.image.repo_digests", digest)
        } else {
            ("container.image.tags", image.tag)
        };
        attributes.push(Attribute::new("container.image.name", image.name));
        attributes.push(Attribute::new(key, Value::Texts(vec![value.into()])));
    }
}
