//! In-memory services with scripted responses, and hooks that record their calls.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use kube_client_metrics::hooks::{RequestReport, StreamKind, StreamReport, Streams};
use kube_client_metrics::{Call, Classifier, Code, Hooks, Measured, MetricsLayer};
use tower::{Layer, Service, ServiceExt};

/// The calls of hooks, as text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<String>>>);

/// A step of a scripted body.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Data(&'static str),
    /// Waits.
    Wait(Duration),
    Break,
    /// Waits forever.
    Hang,
}

/// A scripted body.
#[derive(Debug)]
pub(crate) struct Script {
    steps: VecDeque<Step>,
    wait: Option<Pin<Box<tokio::time::Sleep>>>,
}

#[derive(Debug, thiserror::Error)]
#[error("connection reset")]
pub(crate) struct Broken;

impl Recorder {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    pub(crate) fn record(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    pub(crate) fn hooks(&self) -> Hooks {
        let note = |what: &'static str| {
            let calls = self.clone();
            move |call: &Call, value: String| {
                calls.record(format!("{what} {} {}{value}", call.method, call.host));
            }
        };
        let (latency, sent, received) =
            (note("latency"), note("request_size"), note("response_size"));
        let (result, retry, calls) = (note("result"), note("retry"), self.clone());
        Hooks::default()
            .with_request_latency(move |call: &Call, time: Duration| {
                latency(call, format!(" {}ms", time.as_millis()));
            })
            .with_request_size(move |call: &Call, bytes: u64| sent(call, format!(" {bytes}")))
            .with_response_size(move |call: &Call, bytes: u64| received(call, format!(" {bytes}")))
            .with_request_result(move |call: &Call, code: Code| result(call, format!(" {code}")))
            .with_request_retry(move |call: &Call, code: Code| retry(call, format!(" {code}")))
            .with_request_end(move |call: &Call, report: &RequestReport| {
                calls.record(format!(
                    "end {} {} {} {} after {} and {}ms, {} bytes",
                    call.verb,
                    call.endpoint.template(),
                    report.code,
                    report.outcome.as_str(),
                    report.attempts,
                    report.duration.as_millis(),
                    report.bytes
                ));
            })
            .with_streams(self.clone())
    }
}

impl Streams for Recorder {
    fn opened(&self, call: &Call, kind: StreamKind) {
        let resource = call.endpoint.resource();
        self.record(format!("opened {} of {resource}", kind.as_str()));
    }

    fn received(&self, _: &Call, kind: StreamKind, events: u64, bytes: u64) {
        self.record(format!("{} +{events} +{bytes}", kind.as_str()));
    }

    fn ended(&self, _: &Call, report: &StreamReport) {
        self.record(format!(
            "{} ended by {} after {}ms, {} events, {} bytes",
            report.kind.as_str(),
            report.end.as_str(),
            report.duration.as_millis(),
            report.events,
            report.bytes
        ));
    }
}

impl Script {
    pub(crate) fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self {
            steps: steps.into_iter().collect(),
            wait: None,
        }
    }

    pub(crate) fn text(text: &'static str) -> Self {
        Self::new([Step::Data(text)])
    }

    pub(crate) fn empty() -> Self {
        Self::new([])
    }
}

impl Body for Script {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            if let Some(wait) = &mut self.wait {
                if wait.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.wait = None;
            }
            match self.steps.pop_front() {
                None => return Poll::Ready(None),
                Some(Step::Data(text)) => {
                    return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(text.as_bytes())))));
                }
                Some(Step::Wait(time)) => self.wait = Some(Box::pin(tokio::time::sleep(time))),
                Some(Step::Break) => return Poll::Ready(Some(Err(Broken))),
                Some(Step::Hang) => {
                    self.steps.push_front(Step::Hang);
                    return Poll::Pending;
                }
            }
        }
    }
}

/// An instrumented service that calls a function.
pub(crate) fn measured<F, A>(
    calls: &Recorder,
    respond: F,
) -> Measured<impl Service<Request<String>, Response = Response<Script>, Error = Broken>>
where
    F: FnMut(Request<String>) -> A,
    A: Future<Output = Result<Response<Script>, Broken>>,
{
    let layer = MetricsLayer::new(calls.hooks(), Classifier::new("cluster:6443"));
    layer.layer(tower::service_fn(respond))
}

pub(crate) fn request(method: &str, uri: &str) -> Request<String> {
    let body = if method == "POST" { "0123456789" } else { "" };
    let builder = Request::builder().method(method).uri(uri);
    builder.body(body.to_owned()).unwrap()
}

pub(crate) fn respond(status: u16, body: Script) -> Response<Script> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

/// Sends a request and reads its response to the end.
pub(crate) async fn exchange<S, R>(service: S, request: Request<String>) -> Option<Response<()>>
where
    S: Service<Request<String>, Response = Response<R>>,
    S::Error: std::fmt::Debug,
    R: Body<Data = Bytes> + Unpin,
{
    let response = service.oneshot(request).await.ok()?;
    let (head, mut body) = response.into_parts();
    while let Some(Ok(_)) = frame(&mut body).await {}
    Some(Response::from_parts(head, ()))
}

/// Returns the next frame of a body.
pub(crate) async fn frame<R: Body + Unpin>(
    body: &mut R,
) -> Option<Result<Frame<R::Data>, R::Error>> {
    std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await
}

/// Unwraps an infallible result.
pub(crate) type Sure<T> = Result<T, Infallible>;
