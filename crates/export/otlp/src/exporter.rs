//! Sends traces through a sink.

use std::time::Duration;

use kubevitals_sink::{
    ExportError, Exporter, RetryPolicy, Sink, SinkConfig, SinkCounts, SinkItem, SinkMetrics, Worker,
};
use kubevitals_transitions::Output;

use crate::client::OtlpClient;
use crate::encode::{encode_spans, request};
use crate::resource::Resource;
use crate::span::Span;
use crate::traces::pod_trace;

/// Size of the queue: the traces of some ten thousand starts.
const CAPACITY: usize = 32 << 20;

/// Maximum size of a request before compression; receivers limit it to 4 MiB and more.
const MAX_BATCH: usize = 1 << 20;

/// Time for which spans are gathered after the first.
const LINGER: Duration = Duration::from_secs(2);

/// Queues traces. Clones share the queue.
#[derive(Debug, Clone)]
pub struct TraceQueue {
    sink: Sink<SpanBatch>,
}

/// The encoded spans of one trace: all are queued, or none.
#[derive(Debug)]
pub struct SpanBatch {
    bytes: Vec<u8>,
    spans: u64,
}

/// Sends batches of traces.
#[derive(Debug)]
pub struct TraceExporter {
    client: OtlpClient,
    resource: Resource,
}

impl TraceQueue {
    /// Creates a queue and its worker, which must run with a [`TraceExporter`].
    pub fn new(metrics: SinkMetrics) -> (Self, Worker<SpanBatch>) {
        let config = SinkConfig {
            name: "otlp-traces",
            capacity: CAPACITY,
            max_batch: MAX_BATCH,
            linger: LINGER,
            // The defaults of the Collector's own exporters: 5 s to 30 s, for five minutes.
            retry: RetryPolicy::default(),
        };
        let (sink, worker) = Sink::new(config, metrics);
        (Self { sink }, worker)
    }

    /// Queues the trace of a start; other records have none.
    pub fn record(&self, output: &Output) {
        if let Output::Startup(record) = output {
            self.push(&pod_trace(record));
        }
    }

    /// Queues spans that belong together, and returns whether there was room.
    pub fn push(&self, spans: &[Span]) -> bool {
        if spans.is_empty() {
            return true;
        }
        let mut bytes = Vec::new();
        encode_spans(&mut bytes, spans);
        // Spans that do not fit the queue are counted there.
        self.sink.push(SpanBatch {
            bytes,
            spans: spans.len() as u64,
        })
    }

    pub fn counts(&self) -> SinkCounts {
        self.sink.counts()
    }

    /// Accepts no more traces, and waits up to `grace` for the queued ones to be sent.
    pub async fn shutdown(&self, grace: Duration) -> SinkCounts {
        self.sink.shutdown(grace).await
    }
}

impl SinkItem for SpanBatch {
    fn size(&self) -> usize {
        self.bytes.len()
    }

    fn records(&self) -> u64 {
        self.spans
    }
}

impl TraceExporter {
    pub fn new(client: OtlpClient, resource: Resource) -> Self {
        Self { client, resource }
    }
}

impl Exporter<SpanBatch> for TraceExporter {
    async fn export(&mut self, batch: &[SpanBatch]) -> Result<(), ExportError> {
        let encoded = batch.iter().map(|item| item.bytes.as_slice());
        let message = request(&self.resource, encoded);
        let spans = batch.iter().map(SinkItem::records).sum();
        self.client.send(message, spans).await
    }
}
