//! Events, as kubelet, scheduler and controllers write them.
//!
//! The same thing said again of the same object raises the count of the event that is there, as
//! client-go's recorder does. Events end after a while, and the oldest end early where there are too
//! many, so that a busy cluster does not fill the store.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;

use kubevitals_model::Timestamp;
use serde_json::{Map, Value, json};

use super::render::time;
use crate::clock::after;
use crate::objects::{ObjectWriter, Resource};
use crate::seed::{Seed, Uid};

/// Who writes an event.
#[derive(Debug, Clone)]
pub(crate) enum Source<'a> {
    /// The kubelet of a node.
    Kubelet(&'a str),
    /// The scheduler, which uses the newer form.
    Scheduler { action: &'static str },
    /// A controller of the controller manager.
    Controller(&'static str),
}

/// What an event is about.
pub(crate) struct Subject<'a> {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: Uid,
    pub(crate) version: u64,
    pub(crate) field_path: Option<String>,
}

/// What is said.
pub(crate) struct Saying<'a> {
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: &'a str,
}

/// An event that was written about an object.
#[derive(Debug)]
pub(crate) struct Written {
    key: u64,
    name: Box<str>,
    count: u32,
    first: Timestamp,
}

/// Writes events and ends them.
#[derive(Debug)]
pub(crate) struct Recorder {
    sequence: u64,
    seed: Seed,
    live: VecDeque<(Timestamp, Arc<str>, Box<str>)>,
    lifetime_millis: u64,
    most: usize,
}

impl Recorder {
    pub(crate) fn new(seed: Seed, lifetime_millis: u64, most: usize) -> Self {
        Self {
            sequence: 0,
            seed,
            live: VecDeque::new(),
            lifetime_millis,
            most,
        }
    }

    /// How many events there are.
    pub(crate) fn live(&self) -> usize {
        self.live.len()
    }

    /// Writes an event and returns how many times it was said. `written` is what was said of this
    /// object before.
    pub(crate) fn say(
        &mut self,
        writer: &dyn ObjectWriter,
        written: &mut Vec<Written>,
        subject: &Subject<'_>,
        source: &Source<'_>,
        saying: &Saying<'_>,
        now: Timestamp,
    ) -> u32 {
        let key = key(subject, saying);
        if let Source::Kubelet(_) | Source::Controller(_) = source
            && let Some(known) = written.iter_mut().find(|known| known.key == key)
        {
            known.count += 1;
            let object = event(
                &known.name,
                subject,
                source,
                saying,
                (known.first, now),
                known.count,
            );
            if writer.replace(Resource::Events, object).is_ok() {
                return known.count;
            }
            // It ended meanwhile: what is said now is new again.
            written.retain(|known| known.key != key);
        }
        self.sequence += 1;
        let mut name = String::with_capacity(subject.name.len() + 17);
        // Events are named after their instant, with the sequence to tell those of one instant apart.
        let instant = now.unix_millis().cast_unsigned().wrapping_mul(1_000_000);
        write!(
            name,
            "{}.{:016x}",
            subject.name,
            instant.wrapping_add(self.sequence % 1_000_000)
        )
        .expect("a String takes any text");
        let mut object = event(&name, subject, source, saying, (now, now), 1);
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            let uid = self.seed.derive(self.sequence).uid();
            metadata.insert("uid".into(), uid.to_string().into());
            metadata.insert("creationTimestamp".into(), time(now));
        }
        if let Err(error) = writer.create(Resource::Events, object) {
            tracing::debug!(%error, "event not written");
            return 1;
        }
        let name: Box<str> = name.into();
        self.live.push_back((
            after(now, self.lifetime_millis),
            subject.namespace.into(),
            name.clone(),
        ));
        written.push(Written {
            key,
            name,
            count: 1,
            first: now,
        });
        1
    }

    /// Ends events that are due, or too many.
    pub(crate) fn expire(&mut self, writer: &dyn ObjectWriter, now: Timestamp) {
        while let Some((until, _, _)) = self.live.front()
            && (*until <= now || self.live.len() > self.most)
        {
            let Some((_, namespace, name)) = self.live.pop_front() else {
                break;
            };
            // Somebody may have deleted it before.
            let _ = writer.delete(Resource::Events, Some(&namespace), &name);
        }
    }
}

fn key(subject: &Subject<'_>, saying: &Saying<'_>) -> u64 {
    Seed::new(0)
        .derive_name(saying.reason)
        .derive_name(saying.message)
        .derive_name(subject.field_path.as_deref().unwrap_or(""))
        .next()
}

fn event(
    name: &str,
    subject: &Subject<'_>,
    source: &Source<'_>,
    saying: &Saying<'_>,
    (first, last): (Timestamp, Timestamp),
    count: u32,
) -> Value {
    let mut involved = json!({
        "kind": subject.kind,
        "namespace": subject.namespace,
        "name": subject.name,
        "uid": subject.uid.to_string(),
        "apiVersion": subject.api_version,
        "resourceVersion": subject.version.to_string(),
    });
    if let (Some(path), Some(involved)) = (&subject.field_path, involved.as_object_mut()) {
        involved.insert("fieldPath".into(), path.as_str().into());
    }
    let mut fields = Map::new();
    fields.insert("kind".into(), "Event".into());
    fields.insert("apiVersion".into(), "v1".into());
    fields.insert(
        "metadata".into(),
        json!({"name": name, "namespace": subject.namespace, "creationTimestamp": time(first)}),
    );
    fields.insert("involvedObject".into(), involved);
    fields.insert("reason".into(), saying.reason.into());
    fields.insert("message".into(), saying.message.into());
    let kind = if saying.warning { "Warning" } else { "Normal" };
    fields.insert("type".into(), kind.into());
    let (component, instance) = match source {
        Source::Kubelet(node) => {
            fields.insert(
                "source".into(),
                json!({"component": "kubelet", "host": node}),
            );
            ("kubelet", *node)
        }
        Source::Controller(component) => {
            fields.insert("source".into(), json!({"component": component}));
            (*component, "")
        }
        Source::Scheduler { action } => {
            fields.insert("source".into(), json!({}));
            fields.insert("action".into(), (*action).into());
            ("default-scheduler", "default-scheduler-sim")
        }
    };
    fields.insert("reportingComponent".into(), component.into());
    fields.insert("reportingInstance".into(), instance.into());
    if let Source::Scheduler { .. } = source {
        // metav1.MicroTime: six digits, whatever the clock's own resolution.
        let millis = last.rfc3339_millis();
        let micros = format!("{}000Z", millis.as_str().trim_end_matches('Z'));
        fields.insert("eventTime".into(), micros.into());
        fields.insert("firstTimestamp".into(), Value::Null);
        fields.insert("lastTimestamp".into(), Value::Null);
    } else {
        fields.insert("eventTime".into(), Value::Null);
        fields.insert("firstTimestamp".into(), time(first));
        fields.insert("lastTimestamp".into(), time(last));
        fields.insert("count".into(), count.into());
    }
    fields.into()
}
