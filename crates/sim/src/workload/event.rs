//! Events, as kubelet, scheduler and controllers write them.
//!
//! An event repeated about the same object increments the count of the existing one, as client-go's
//! recorder does. Events expire after a while, and the oldest expire early if there are too many,
//! so that a busy cluster does not fill the store.

use std::collections::VecDeque;
use std::sync::Arc;

use kubevitals_model::Timestamp;

use crate::clock::after;
use crate::json::{push_display, push_hex};
use crate::objects::{ObjectText, ObjectWriter, Resource};
use crate::seed::{Seed, Uid};

/// The component that reports an event.
#[derive(Debug, Clone)]
pub(crate) enum Source<'a> {
    /// The kubelet of a node.
    Kubelet(&'a str),
    /// The scheduler, which uses the newer API.
    Scheduler { action: &'static str },
    /// A controller of the controller manager.
    Controller(&'static str),
}

/// The involved object of an event.
pub(crate) struct Subject<'a> {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespace: &'a Arc<str>,
    pub(crate) name: &'a str,
    pub(crate) uid: Uid,
    pub(crate) version: u64,
    pub(crate) field_path: Option<&'a str>,
}

/// Type, reason and message of an event.
pub(crate) struct EventText<'a> {
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: &'a str,
}

/// An event that was written about an object.
#[derive(Debug)]
pub(crate) struct WrittenEvent {
    key: u64,
    name: Arc<str>,
    count: u32,
    first: Timestamp,
    uid: Uid,
}

/// Identity and count of an event.
struct EventIdentity<'a> {
    name: &'a str,
    uid: Uid,
    count: u32,
    first: Timestamp,
    last: Timestamp,
}

/// Writes events and removes expired ones.
#[derive(Debug)]
pub(crate) struct Recorder {
    sequence: u64,
    seed: Seed,
    live: VecDeque<(Timestamp, Arc<str>, Arc<str>)>,
    lifetime_millis: u64,
    max: usize,
    /// Buffer of the next event to write.
    text: ObjectText,
}

impl Recorder {
    pub(crate) fn new(seed: Seed, lifetime_millis: u64, max: usize) -> Self {
        Self {
            sequence: 0,
            seed,
            live: VecDeque::new(),
            lifetime_millis,
            max,
            text: ObjectText::default(),
        }
    }

    /// Number of events.
    pub(crate) fn count(&self) -> usize {
        self.live.len()
    }

    /// Writes an event and returns its count. `written` are the earlier events of this object.
    pub(crate) fn record(
        &mut self,
        writer: &dyn ObjectWriter,
        written: &mut Vec<WrittenEvent>,
        subject: &Subject<'_>,
        source: &Source<'_>,
        event_text: &EventText<'_>,
        now: Timestamp,
    ) -> u32 {
        let key = key(subject, event_text);
        if let Source::Kubelet(_) | Source::Controller(_) = source
            && let Some(earlier) = written.iter_mut().find(|earlier| earlier.key == key)
        {
            earlier.count += 1;
            let identity = EventIdentity {
                name: &earlier.name,
                uid: earlier.uid,
                count: earlier.count,
                first: earlier.first,
                last: now,
            };
            event(&identity, subject, source, event_text, &mut self.text);
            if writer.replace_text(Resource::Events, &self.text).is_ok() {
                return earlier.count;
            }
            // It has expired: the event is new again.
            written.retain(|earlier| earlier.key != key);
        }
        self.sequence += 1;
        let mut name = String::with_capacity(subject.name.len() + 17);
        // Events are named after their instant, with the sequence for those of the same instant.
        let instant = now.unix_millis().cast_unsigned().wrapping_mul(1_000_000);
        let number = instant.wrapping_add(self.sequence % 1_000_000);
        name.push_str(subject.name);
        name.push('.');
        push_hex(&mut name, number, 16);
        let uid = self.seed.derive(self.sequence).uid();
        let identity = EventIdentity {
            name: &name,
            uid,
            count: 1,
            first: now,
            last: now,
        };
        event(&identity, subject, source, event_text, &mut self.text);
        if let Err(error) = writer.create_text(Resource::Events, &self.text) {
            tracing::debug!(%error, "event not written");
            return 1;
        }
        let name: Arc<str> = name.into();
        self.live.push_back((
            after(now, self.lifetime_millis),
            Arc::clone(subject.namespace),
            Arc::clone(&name),
        ));
        written.push(WrittenEvent {
            key,
            name,
            count: 1,
            first: now,
            uid,
        });
        1
    }

    /// Removes events that have expired or exceed the limit.
    pub(crate) fn expire(&mut self, writer: &dyn ObjectWriter, now: Timestamp) {
        while let Some((until, _, _)) = self.live.front()
            && (*until <= now || self.live.len() > self.max)
        {
            let Some((_, namespace, name)) = self.live.pop_front() else {
                break;
            };
            // A client may have deleted it already.
            let _ = writer.delete(Resource::Events, Some(&namespace), &name);
        }
    }
}

fn key(subject: &Subject<'_>, event_text: &EventText<'_>) -> u64 {
    Seed::new(0)
        .derive_name(event_text.reason)
        .derive_name(event_text.message)
        .derive_name(subject.field_path.unwrap_or(""))
        .next()
}

/// Writes the whole object, without `resourceVersion`.
fn event(
    identity: &EventIdentity<'_>,
    subject: &Subject<'_>,
    source: &Source<'_>,
    event_text: &EventText<'_>,
    out: &mut ObjectText,
) {
    let (component, instance) = match source {
        Source::Kubelet(node) => ("kubelet", *node),
        Source::Controller(component) => (*component, ""),
        Source::Scheduler { .. } => ("default-scheduler", "default-scheduler-sim"),
    };
    let kind = if event_text.warning {
        "Warning"
    } else {
        "Normal"
    };
    out.begin(subject.namespace, identity.name);
    out.members()
        .time("creationTimestamp", identity.first)
        .text("name", identity.name)
        .text("namespace", subject.namespace)
        .uid("uid", identity.uid);
    out.end_metadata();
    let mut members = out.members();
    if let Source::Scheduler { action } = source {
        members
            .text("action", action)
            .micro_time("eventTime", identity.last)
            .null("firstTimestamp");
    } else {
        members
            .bare("count", identity.count)
            .null("eventTime")
            .time("firstTimestamp", identity.first);
    }
    members.object("involvedObject", |members| {
        members.text("apiVersion", subject.api_version);
        if let Some(path) = subject.field_path {
            members.text("fieldPath", path);
        }
        members
            .text("kind", subject.kind)
            .text("name", subject.name)
            .text("namespace", subject.namespace)
            .display("resourceVersion", subject.version)
            .uid("uid", subject.uid);
    });
    if let Source::Scheduler { .. } = source {
        members.null("lastTimestamp");
    } else {
        members.time("lastTimestamp", identity.last);
    }
    members
        .text("message", event_text.message)
        .text("reason", event_text.reason)
        .text("reportingComponent", component)
        .text("reportingInstance", instance)
        .object("source", |members| match source {
            Source::Kubelet(node) => {
                members.text("component", component).text("host", node);
            }
            Source::Controller(_) => {
                members.text("component", component);
            }
            Source::Scheduler { .. } => {}
        })
        .text("type", kind);
    out.end();
    fields(subject, event_text.reason, component, kind, out);
}

/// The selectable fields, in the order of `ResourceInfo::fields`.
fn fields(subject: &Subject<'_>, reason: &str, component: &str, kind: &str, out: &mut ObjectText) {
    out.field(subject.kind);
    out.field(subject.namespace);
    out.field(subject.name);
    subject.uid.push(&mut out.fields);
    out.field("");
    out.field(subject.api_version);
    push_display(&mut out.fields, subject.version);
    out.field("");
    out.field(subject.field_path.unwrap_or(""));
    out.field(reason);
    // The component again for `source`, which the newer API leaves empty.
    for value in [component, component, kind] {
        out.field(value);
    }
}

#[cfg(test)]
mod tests;
