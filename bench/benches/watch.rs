//! Pods from the wire: slim types next to `kube` with `k8s-openapi`, as programs commonly use them.
//!
//! `cargo bench -p kubevitals-bench --bench watch` prints a table of CPU time on one core; the bar is three times the
//! speed of the typed decode. `--bench watch_heap` does the same for memory.
#![expect(clippy::print_stdout, reason = "the table is the output")]

#[path = "watch/pods.rs"]
mod pods;

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::{Request, Response};
use http_body::{Body, Frame};
use k8s_openapi::api::core::v1 as core;
use kube::api::WatchEvent as TypedEvent;
use kubevitals_bench::Timing;
use kubevitals_watch::{
    Answer, BoxBody, Decoder, Kind, Metadata, Pod, PodBrief, Server, StreamSpec, Transport,
    TypedKind, decode_event,
};

const PODS: usize = 2_000;
const RUNS: usize = 15;
/// What one read of a TLS connection brings.
const CHUNK: usize = 16 << 10;

/// Answers each request with the same chunks.
#[derive(Debug, Clone)]
struct Canned(Arc<Vec<Bytes>>);

/// The chunks, then nothing more.
#[derive(Debug)]
struct CannedBody {
    chunks: Canned,
    next: usize,
}

fn main() {
    let lines = pods::lines(PODS);
    let bytes: usize = lines.iter().map(Vec::len).sum();
    println!(
        "{PODS} pods of {} bytes on average, one core\n",
        bytes / PODS
    );
    println!(
        "{:<44} {:>10} {:>10} {:>8}",
        "from the wire", "µs/pod", "pods/s", "ratio"
    );

    let typed = row("kube + k8s-openapi: decode", None, || {
        for line in &lines {
            // As kube does: a line becomes a String, and that an object.
            let line = String::from_utf8(line.clone()).expect("JSON is UTF-8");
            let event: TypedEvent<core::Pod> = serde_json::from_str(&line).expect("a watch event");
            black_box(event);
        }
    });
    row("kubevitals: decode, Pod", Some(typed), || {
        decode::<Pod>(&lines);
    });
    row("kubevitals: decode, PodBrief", Some(typed), || {
        decode::<PodBrief>(&lines);
    });
    row("kubevitals: decode, Metadata", Some(typed), || {
        decode::<Metadata>(&lines);
    });

    let chunks = Canned(Arc::new(chunks(&lines)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime needs nothing but memory");
    let typed = row("kube + k8s-openapi: watch into a map", None, || {
        runtime.block_on(watch_typed(&chunks));
    });
    row("kubevitals: stream into its view, Pod", Some(typed), || {
        runtime.block_on(watch_slim::<Pod>(&chunks));
    });
    row(
        "kubevitals: stream into its view, PodBrief",
        Some(typed),
        || {
            runtime.block_on(watch_slim::<PodBrief>(&chunks));
        },
    );
}

impl Transport for Canned {
    fn get(&self, _: Request<()>) -> Answer<'_> {
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
            // An open watch on which nothing happens.
            return Poll::Pending;
        };
        self.next += 1;
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }
}

fn row(name: &str, against: Option<Duration>, mut run: impl FnMut()) -> Duration {
    let best = Timing::of_cpu(RUNS, |_| run()).best;
    let count = u32::try_from(PODS).expect("a few thousand");
    let each = best / count;
    let ratio = against.map_or_else(String::new, |other| {
        format!("{:.1}x", other.as_secs_f64() / best.as_secs_f64())
    });
    let (micros, rate) = (each.as_secs_f64() * 1e6, 1.0 / each.as_secs_f64());
    println!("{name:<44} {micros:>10.2} {rate:>10.0} {ratio:>8}");
    best
}

fn decode<K: Kind>(lines: &[Vec<u8>]) {
    let decoder = Decoder::default();
    for line in lines {
        black_box(decode_event::<K>(line, &decoder).expect("a watch event"));
    }
}

/// All lines and the bookmark that ends a streaming list, cut without regard to lines.
fn chunks(lines: &[Vec<u8>]) -> Vec<Bytes> {
    let mut all = lines.concat();
    all.extend_from_slice(
        br#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"99999","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
    );
    all.push(b'\n');
    all.chunks(CHUNK).map(Bytes::copy_from_slice).collect()
}

async fn watch_slim<K: TypedKind>(chunks: &Canned) {
    let stream = Server::new(chunks.clone()).watch(StreamSpec::<K>::new("pods"));
    assert!(stream.synced().await, "the list is complete");
    assert_eq!(stream.state().objects, PODS);
    stream.shutdown().await;
}

async fn watch_typed(chunks: &Canned) {
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
    assert_eq!(view.len(), PODS);
}
