//! Events, sent as client-go's recorder sends them.
//!
//! A full queue drops events, and so does the correlator: both are counted. Nothing waits for an
//! event to be sent.

mod correlator;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kubevitals_model::{Backoff, BackoffPolicy, Clock, Jitter, Rng};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use self::correlator::{Correlated, Correlator, Verdict};
use crate::api_error::status_code;
use crate::metrics::{EventResult, NodeMetrics};
use crate::runtime::PodEvent;
use crate::time::api_time;

/// Events that wait to be sent, as in client-go's broadcaster.
const QUEUE: usize = 1_000;

/// The rate of requests: 50 per second, 100 at once, as a kubelet's.
const INTERVAL: Duration = Duration::from_millis(20);
const BURST: u32 = 100;

/// The attempts to send an event over a connection that fails.
const ATTEMPTS: u32 = 6;

const RETRY: BackoffPolicy = BackoffPolicy {
    first: Duration::from_millis(500),
    second: Duration::from_secs(1),
    max: Duration::from_secs(10),
    jitter: Jitter::Added(0.2),
};

/// The component in events, as on any node.
const COMPONENT: &str = "kubelet";

/// The longest message that the API server accepts.
const MAX_MESSAGE: usize = 1_024;

/// The object of an event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct EventObject {
    pub(crate) kind: &'static str,
    /// Empty for a Node.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) field_path: String,
}

/// An event to record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct NewEvent {
    pub(crate) object: EventObject,
    pub(crate) is_warning: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Records events. Clones share the queue.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    sender: mpsc::Sender<NewEvent>,
    metrics: NodeMetrics,
}

/// Sends what was recorded.
pub(crate) struct EventSender {
    client: kube::Client,
    receiver: mpsc::Receiver<NewEvent>,
    correlator: Correlator,
    limiter: Limiter,
    host: String,
    clock: Clock,
    metrics: NodeMetrics,
}

/// A token bucket that is waited for.
#[derive(Debug)]
struct Limiter {
    tokens: u32,
    updated: Instant,
}

pub(crate) fn recorder(
    client: kube::Client,
    host: &str,
    clock: Clock,
    metrics: NodeMetrics,
) -> (Recorder, EventSender) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let recorder = Recorder {
        sender,
        metrics: metrics.clone(),
    };
    let sender = EventSender {
        client,
        receiver,
        correlator: Correlator::new(),
        limiter: Limiter {
            tokens: BURST,
            updated: Instant::now(),
        },
        host: host.to_owned(),
        clock,
        metrics,
    };
    (recorder, sender)
}

impl Recorder {
    /// Queues an event, or drops it if the queue is full.
    pub(crate) fn record(&self, event: NewEvent) {
        if self.sender.try_send(event).is_err() {
            self.metrics.count_event(EventResult::QueueFull);
        }
    }

    /// Queues an event of a runtime.
    pub(crate) fn record_pod(&self, event: PodEvent) {
        self.record(NewEvent {
            object: EventObject {
                kind: "Pod",
                namespace: event.pod.key.namespace().to_string(),
                name: event.pod.key.name().to_string(),
                uid: event.pod.uid.to_string(),
                field_path: event.field_path,
            },
            is_warning: event.is_warning,
            reason: event.reason.to_owned(),
            message: event.message,
        });
    }
}

impl EventSender {
    /// Sends events until all recorders are dropped.
    pub(crate) async fn run(mut self) {
        while let Some(event) = self.receiver.recv().await {
            let now = self.clock.moment();
            match self.correlator.correlate(event, now) {
                Verdict::Drop => self.metrics.count_event(EventResult::Spam),
                Verdict::Send(correlated) => self.send(*correlated).await,
            }
        }
    }

    async fn send(&mut self, correlated: Correlated) {
        let mut backoff = Backoff::new(RETRY, Rng::random());
        loop {
            self.limiter.wait().await;
            let error = match self.request(&correlated).await {
                Ok(created) => {
                    let name = created.metadata.name.unwrap_or_default();
                    self.correlator.sent(&correlated, &name);
                    self.metrics.count_event(EventResult::Sent);
                    return;
                }
                Err(error) => error,
            };
            // What the server rejects it rejects again, such as an event in a namespace that ends.
            let is_final = status_code(&error).is_some_and(|code| code < 500 && code != 429);
            if is_final || backoff.failures() + 1 >= ATTEMPTS {
                let event = &correlated.event;
                tracing::warn!(
                    object = event.object.name,
                    reason = event.reason,
                    error = &error as &dyn std::error::Error,
                    "cannot send an event"
                );
                self.metrics.count_event(EventResult::Failed);
                return;
            }
            sleep(backoff.next_wait()).await;
        }
    }

    async fn request(&self, correlated: &Correlated) -> Result<Event, kube::Error> {
        let namespace = match correlated.event.object.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        };
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if let Some(name) = &correlated.update {
            let patch = json!({
                "count": correlated.count,
                "lastTimestamp": api_time(correlated.last),
                "message": truncated(&correlated.event.message),
            });
            let patched = events
                .patch(name, &PatchParams::default(), &Patch::Merge(patch))
                .await;
            match patched {
                // It has expired: the event is created again.
                Err(error) if status_code(&error) == Some(404) => {}
                result => return result,
            }
        }
        let event = self.object(correlated, namespace);
        events.create(&PostParams::default(), &event).await
    }

    fn object(&self, correlated: &Correlated, namespace: &str) -> Event {
        let event = &correlated.event;
        let object = &event.object;
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Event {
            metadata: ObjectMeta {
                name: Some(correlated.name.clone()),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some(object.kind.to_owned()),
                namespace: text(&object.namespace),
                name: Some(object.name.clone()),
                uid: text(&object.uid),
                field_path: text(&object.field_path),
                ..ObjectReference::default()
            },
            type_: Some(
                if event.is_warning {
                    "Warning"
                } else {
                    "Normal"
                }
                .to_owned(),
            ),
            reason: Some(event.reason.clone()),
            message: Some(truncated(&event.message)),
            count: Some(correlated.count),
            first_timestamp: Some(api_time(correlated.first)),
            last_timestamp: Some(api_time(correlated.last)),
            source: Some(EventSource {
                component: Some(COMPONENT.to_owned()),
                host: Some(self.host.clone()),
            }),
            reporting_component: Some(COMPONENT.to_owned()),
            reporting_instance: Some(self.host.clone()),
            ..Event::default()
        }
    }
}

impl Limiter {
    async fn wait(&mut self) {
        let elapsed = self.updated.elapsed();
        let earned = elapsed.as_millis() / INTERVAL.as_millis();
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        self.tokens = self.tokens.saturating_add(earned).min(BURST);
        if earned > 0 {
            self.updated = Instant::now();
        }
        if self.tokens == 0 {
            sleep_until(self.updated + INTERVAL).await;
            self.updated = Instant::now();
            return;
        }
        self.tokens -= 1;
    }
}

/// Truncates a message at a character, as the API server rejects longer ones.
fn truncated(message: &str) -> String {
    let mut end = message.len().min(MAX_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_at_a_character() {
        assert_eq!(truncated("short"), "short");
        let long = format!("{}é", "x".repeat(MAX_MESSAGE - 1));
        assert_eq!(truncated(&long), "x".repeat(MAX_MESSAGE - 1));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_limited_after_a_burst() {
        let mut limiter = Limiter {
            tokens: BURST,
            updated: Instant::now(),
        };
        let start = Instant::now();
        for _ in 0..BURST {
            limiter.wait().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..50 {
            limiter.wait().await;
        }
        assert_eq!(start.elapsed(), Duration::from_secs(1));
    }
}
