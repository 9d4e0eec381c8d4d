//! One logical request from the call to the end of its body, or until it is dropped.

use std::sync::Arc;
use std::time::Duration;

use http::header::UPGRADE;
use http::{Request, StatusCode};
use http_body::Body;
use tokio::time::Instant;

use crate::hooks::{
    AttemptReport, Outcome, RequestHead, RequestReport, StreamEnd, StreamKind, StreamReport,
};
use crate::request_info::is_set;
use crate::{Call, Classifier, Code, Hooks, Verb};

/// The hooks and the classifier of a layer, shared by its requests.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) hooks: Hooks,
    pub(crate) classifier: Classifier,
}

/// A request in progress. Reports once: when it ends, or when it is dropped.
#[derive(Debug)]
pub(crate) struct Recording {
    meter: Arc<Meter>,
    call: Call,
    expects: Option<StreamKind>,
    started: Instant,
    attempts: u32,
    phase: Phase,
    bytes: u64,
    events: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Between attempts.
    Idle(Code),
    /// Waiting for the response head.
    Waiting {
        sent: Option<u64>,
        since: Instant,
    },
    /// Reading a body.
    Body(StatusCode),
    /// Reading a stream.
    Stream {
        kind: StreamKind,
        opened: Instant,
    },
    Over,
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    Complete,
    Broken,
    Dropped,
}

impl Recording {
    /// Starts to record a request and its first attempt; `None` if nobody listens.
    pub(crate) fn begin<B: Body>(meter: &Arc<Meter>, request: &Request<B>) -> Option<Self> {
        if meter.hooks.is_idle() {
            return None;
        }
        let call = call_of(&meter.classifier, &meter.hooks, request);
        let started = Instant::now();
        Some(Self {
            expects: expected_stream(&call, request),
            meter: Arc::clone(meter),
            call,
            started,
            attempts: 1,
            phase: Phase::Waiting {
                sent: request.body().size_hint().exact(),
                since: started,
            },
            bytes: 0,
            events: 0,
        })
    }

    /// Records the start of a further attempt.
    pub(crate) fn sent_again<B: Body>(&mut self, request: &Request<B>) {
        self.attempts = self.attempts.saturating_add(1);
        self.phase = Phase::Waiting {
            sent: request.body().size_hint().exact(),
            since: Instant::now(),
        };
    }

    /// Records the status of an attempt.
    pub(crate) fn attempt_ended(&mut self, code: Code) {
        let Phase::Waiting { sent, since } = self.phase else {
            return;
        };
        let Meter { hooks, .. } = &*self.meter;
        if let Some(bytes) = sent {
            hooks.request_size.observe(&self.call, bytes);
        }
        hooks.request_result.increment(&self.call, code);
        if self.attempts > 1 {
            hooks.request_retry.increment(&self.call, code);
        }
        let report = AttemptReport {
            attempt: self.attempts,
            code,
            duration: since.elapsed(),
            sent,
        };
        hooks.attempt_end.observe(&self.call, &report);
        self.phase = Phase::Idle(code);
    }

    /// Records that the response of the last attempt is returned to the caller.
    pub(crate) fn head(&mut self, status: StatusCode) {
        let stream = match self.expects {
            Some(StreamKind::Upgrade) => status == StatusCode::SWITCHING_PROTOCOLS,
            Some(StreamKind::Watch | StreamKind::Log) => status.is_success(),
            None => false,
        };
        match self.expects {
            Some(kind) if stream => {
                self.meter.hooks.streams.opened(&self.call, kind);
                self.phase = match kind {
                    // The connection is passed to the caller in the extensions of the response.
                    StreamKind::Upgrade => Phase::Over,
                    StreamKind::Watch | StreamKind::Log => Phase::Stream {
                        kind,
                        opened: Instant::now(),
                    },
                };
            }
            _ => self.phase = Phase::Body(status),
        }
    }

    /// Records that the last attempt had no response.
    pub(crate) fn failed(&mut self) {
        self.end_request(Code::Error, Outcome::Failed);
    }

    /// Records a chunk of the body.
    pub(crate) fn received(&mut self, piece: &[u8]) {
        let bytes = piece.len() as u64;
        self.bytes = self.bytes.saturating_add(bytes);
        if let Phase::Stream { kind, .. } = self.phase {
            let events = memchr::memchr_iter(b'\n', piece).count() as u64;
            self.events = self.events.saturating_add(events);
            let streams = &self.meter.hooks.streams;
            streams.received(&self.call, kind, events, bytes);
        }
    }

    /// Records the end of the body. Later calls have no effect.
    pub(crate) fn ended(&mut self, how: BodyEnd) {
        match self.phase {
            Phase::Body(status) => self.end_body(status, how),
            Phase::Stream { kind, opened } => self.end_stream(kind, opened.elapsed(), how),
            Phase::Idle(_) | Phase::Waiting { .. } | Phase::Over => {}
        }
    }

    fn end_body(&mut self, status: StatusCode, how: BodyEnd) {
        // As in client-go: an empty body is reported only for a successful response.
        if how == BodyEnd::Complete
            && self.expects.is_none()
            && (status.is_success() || self.bytes > 0)
        {
            let hooks = &self.meter.hooks;
            hooks.response_size.observe(&self.call, self.bytes);
        }
        let outcome = match how {
            BodyEnd::Complete => Outcome::Completed,
            BodyEnd::Broken => Outcome::Failed,
            BodyEnd::Dropped => Outcome::Cancelled,
        };
        self.end_request(Code::Status(status), outcome);
    }

    fn end_request(&mut self, code: Code, outcome: Outcome) {
        let duration = self.started.elapsed();
        let hooks = &self.meter.hooks;
        // client-go times neither watches nor streams nor upgrades, not even rejected ones.
        if self.expects.is_none() {
            hooks.request_latency.observe(&self.call, duration);
        }
        let report = RequestReport {
            code,
            outcome,
            attempts: self.attempts,
            duration,
            bytes: self.bytes,
        };
        hooks.request_end.observe(&self.call, &report);
        self.phase = Phase::Over;
    }

    fn end_stream(&mut self, kind: StreamKind, duration: Duration, how: BodyEnd) {
        let report = StreamReport {
            kind,
            end: match how {
                BodyEnd::Complete => StreamEnd::Server,
                BodyEnd::Broken => StreamEnd::Error,
                BodyEnd::Dropped => StreamEnd::Client,
            },
            duration,
            events: self.events,
            bytes: self.bytes,
        };
        self.meter.hooks.streams.ended(&self.call, &report);
        self.phase = Phase::Over;
    }
}

impl Drop for Recording {
    /// A request that has not ended yet is cancelled.
    fn drop(&mut self) {
        if let Phase::Waiting { .. } = self.phase {
            self.attempt_ended(Code::Error);
        }
        match self.phase {
            Phase::Idle(code) => self.end_request(code, Outcome::Cancelled),
            Phase::Body(_) | Phase::Stream { .. } => self.ended(BodyEnd::Dropped),
            Phase::Waiting { .. } | Phase::Over => {}
        }
    }
}

/// Describes a request, with what the program captures of it.
pub(crate) fn call_of<B>(classifier: &Classifier, hooks: &Hooks, request: &Request<B>) -> Call {
    let mut call = classifier.call(request.method(), request.uri());
    let head = RequestHead {
        method: request.method(),
        uri: request.uri(),
        headers: request.headers(),
        extensions: request.extensions(),
    };
    hooks.request_context.capture(&head, &mut call.context);
    call
}

/// The kind of stream that a successful response will be.
fn expected_stream<B>(call: &Call, request: &Request<B>) -> Option<StreamKind> {
    if request.headers().contains_key(UPGRADE) {
        return Some(StreamKind::Upgrade);
    }
    if call.verb == Verb::Watch {
        return Some(StreamKind::Watch);
    }
    // kube marks requests with the method that made them; one of them streams logs without
    // following them.
    let streamed = || {
        is_set(request.uri().query(), "follow")
            || request.extensions().get::<&'static str>() == Some(&"log_stream")
    };
    (call.endpoint.subresource() == "log" && streamed()).then_some(StreamKind::Log)
}
