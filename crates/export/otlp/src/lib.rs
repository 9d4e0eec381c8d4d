//! OTLP: starts of pods as traces, and data points as metrics, sent to an OpenTelemetry receiver.
//!
//! ```text
//!  Output of a tracker ──► pod_trace: spans ──► TraceQueue: a sink ──► OtlpClient ──► receiver
//!                          (encoded at once)     batches, retries       HTTP or gRPC, TLS, proxy
//!  DataPoint ──► a sink ──► MetricExporter ──► OtlpClient ──► receiver
//! ```
//!
//! **One trace for each pod.** The trace ID is the UID of the pod, and the IDs of spans are derived
//! from it, so that two replicas, or one that restarts, send the same trace. Spans have the times
//! of the API; a span whose beginning or end is unknown is left out.
//!
//! **By the specification.** Requests are retried only after the failures that OTLP calls
//! retryable, and not before the receiver allows it. Spans and points that a receiver rejects are
//! counted. [`Settings`] reads the `OTEL_*` variables.
//!
//! **No secret is printed.** Headers are sensitive values, and errors do not repeat them.

mod client;
mod encode;
mod exporter;
mod grpc;
mod id;
mod metrics;
mod resource;
mod response;
mod settings;
mod span;
mod traces;

pub use client::{ClientError, OtlpClient, Signal};
pub use encode::{encode_spans, request};
pub use exporter::{SpanBatch, TraceExporter, TraceQueue};
pub use id::{SpanId, TraceId};
pub use kubevitals_http_client::{IdentityFiles, parse_retry_after};
pub use metrics::{MetricExporter, metric_sink_config, metrics_request};
pub use resource::Resource;
pub use response::{grpc_failure, rejected_by};
pub use settings::{Compression, Headers, Protocol, Settings, SettingsError, SettingsSource};
pub use span::{Attribute, Span, SpanEvent, Status, Value};
pub use traces::pod_trace;
