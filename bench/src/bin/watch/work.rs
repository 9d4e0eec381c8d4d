//! The workers in Rust.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use clap::ValueEnum;
use futures_util::StreamExt;
use http::{Request, Response};
use http_body::{Body, Frame};
use k8s_openapi::api::core::v1 as core;
use kube::api::WatchEvent as TypedEvent;
use kubevitals_bench::{pods, worker};
use kubevitals_model::{PartialObjectMeta, Pod, PodSummary};
use kubevitals_watch::{
    BoxBody, Decoder, Kind, ResponseFuture, Transport, TypedKind, WatchClient, WatchSpec,
    decode_event,
};

/// Size of one read of a TLS connection.
const CHUNK: usize = 16 << 10;

/// Operation on the recorded stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    DecodeTyped,
    DecodePod,
    DecodePodSummary,
    DecodeMetadata,
    StreamTyped,
    StreamPod,
    StreamPodSummary,
}

/// Responds to each request with the same chunks.
#[derive(Debug, Clone)]
struct Canned(Arc<Vec<Bytes>>);

/// The chunks, then no further data.
#[derive(Debug)]
struct CannedBody {
    chunks: Canned,
    next: usize,
}

/// Runs a worker.
pub(crate) fn serve(mode: Mode, passes: u32, file: &Path) -> io::Result<()> {
    let lines = pods::read(file)?;
    let count = lines.len();
    let found = u64::try_from(count).unwrap_or(u64::MAX);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let canned = || Canned(Arc::new(chunks(&lines)));
    match mode {
        Mode::DecodeTyped => worker::serve(passes, || decode_typed(&lines)),
        Mode::DecodePod => worker::serve(passes, || decode::<Pod>(&lines)),
        Mode::DecodePodSummary => worker::serve(passes, || decode::<PodSummary>(&lines)),
        Mode::DecodeMetadata => worker::serve(passes, || decode::<PartialObjectMeta>(&lines)),
        Mode::StreamTyped => {
            let canned = canned();
            worker::serve(passes, || runtime.block_on(watch_typed(&canned)))
        }
        Mode::StreamPod => {
            let canned = canned();
            worker::serve(passes, || {
                runtime.block_on(watch_slim::<Pod>(&canned, count));
                found
            })
        }
        Mode::StreamPodSummary => {
            let canned = canned();
            worker::serve(passes, || {
                runtime.block_on(watch_slim::<PodSummary>(&canned, count));
                found
            })
        }
    }
}

impl Transport for Canned {
    fn get(&self, _: Request<()>) -> ResponseFuture<'_> {
        let body = Box::pin(self.body()) as BoxBody;
        Box::pin(std::future::ready(Ok(Response::new(body))))
    }
}

impl Canned {
    fn body(&self) -> CannedBody {
        CannedBody {
            chunks: self.clone(),
            next: 0,
        }
    }
}

impl Body for CannedBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(chunk) = self.chunks.0.get(self.next).cloned() else {
            // An open watch without events.
            return Poll::Pending;
        };
        self.next += 1;
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }
}

fn decode<K: Kind>(lines: &[Vec<u8>]) -> u64 {
    let decoder = Decoder::default();
    let mut found = 0;
    for line in lines {
        black_box(decode_event::<K>(line, &decoder).expect("a watch event"));
        found += 1;
    }
    found
}

/// Decodes as kube does: a line becomes a String, and that an object.
fn decode_typed(lines: &[Vec<u8>]) -> u64 {
    let mut found = 0;
    for line in lines {
        let line = String::from_utf8(line.clone()).expect("JSON is UTF-8");
        let event: TypedEvent<core::Pod> = serde_json::from_str(&line).expect("a watch event");
        black_box(event);
        found += 1;
    }
    found
}

/// All lines and the bookmark that ends a streaming list, split regardless of lines.
fn chunks(lines: &[Vec<u8>]) -> Vec<Bytes> {
    let mut all = lines.concat();
    all.extend_from_slice(
        br#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"99999","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
    );
    all.push(b'\n');
    all.chunks(CHUNK).map(Bytes::copy_from_slice).collect()
}

async fn watch_slim<K: TypedKind>(chunks: &Canned, pods: usize) {
    let stream = WatchClient::new(chunks.clone()).reflector(WatchSpec::<K>::new("pods"));
    assert!(stream.synced().await, "the list is complete");
    assert_eq!(stream.state().objects, pods);
    stream.shutdown().await;
}

async fn watch_typed(chunks: &Canned) -> u64 {
    let chunks = chunks.clone();
    let service = tower::service_fn(move |_: Request<kube::client::Body>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(chunks.body())))
    });
    let client = kube::Client::new(service, "default");
    let request = Request::get("/api/v1/pods?watch=true")
        .body(Vec::new())
        .expect("a valid path");
    let events = client
        .request_events::<core::Pod>(request)
        .await
        .expect("an answer");
    let mut events = pin!(events);
    let mut view = HashMap::new();
    while let Some(Ok(TypedEvent::Added(pod))) = events.next().await {
        let key = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        view.insert(key, Arc::new(pod));
    }
    u64::try_from(view.len()).unwrap_or(u64::MAX)
}
