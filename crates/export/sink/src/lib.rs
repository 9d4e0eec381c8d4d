//! The bounded queue in front of an exporter.
//!
//! ```text
//!                    bounded queue          batch
//!  Sink::push ──► ░░░░░░░░░░░░░░░░ ──► Worker::run ──► Exporter::export ──► backend
//!   never waits   full: dropped,         │    ▲
//!                 counted                └────┘ retryable: back-off with jitter
//! ```
//!
//! **Non-blocking.** [`Sink::push`] takes a lock for a few instructions, whatever the backend does.
//! Items that do not fit the queue are dropped and counted.
//!
//! **Batches.** The worker exports a batch when it is full, or [`SinkConfig::linger`] after its
//! first item. A worker is a plain future: it runs as a task, or alone on a thread where its
//! exporter blocks.
//!
//! **Retries.** An exporter says whether a failed batch can be retried ([`ExportError`]). A retried
//! batch is exported again, whole or the part that the exporter names, before any other.
//!
//! **Accounting.** Every record is exported or dropped for one [`DropReason`], also at shutdown
//! ([`Sink::shutdown`]) and if the worker is aborted. [`SinkMetrics`] counts them.
//!
//! [`DataPoint`] is what metric exporters are written against, whatever the backend.

mod config;
mod exporter;
mod metrics;
mod point;
mod queue;
mod worker;

pub use config::{RetryPolicy, SinkConfig};
pub use exporter::{ExportError, Exporter, SinkItem};
pub use metrics::{DropReason, SinkMetrics};
pub use point::{
    Attributes, DataPoint, Distribution, DistributionError, Exemplar, Kind, Measurement, Number,
};
pub use queue::{Sink, SinkCounts};
pub use worker::Worker;
