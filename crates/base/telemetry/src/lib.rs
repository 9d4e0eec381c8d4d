//! Telemetry of every role: logs, metrics, health checks and the admin server.
//!
//! Only the log dispatcher is global; [`logs::init`] installs it once. The binary constructs
//! everything else and passes it down:
//!
//! ```text
//! LogOptions ──init──► LogHandle ───────────────┐
//! Metrics ──sub(prefix)──► each crate           ├──► AdminServer::bind ──► serve(shutdown)
//!    └──freeze──► SharedRegistry ───────────────┤
//! Health ──cell / check──► each part            │
//!    └──────────────────────────────────────────┘
//! ```
//!
//! # Metrics of a crate
//!
//! Each crate has one `metrics.rs` with one struct, one `register` function that takes a
//! sub-registry, and label values from closed enums:
//!
//! ```
//! use kubevitals_telemetry::registry::{Metrics, Registry, RegistryExt};
//! use prometheus_client::metrics::counter::Counter;
//!
//! pub struct ScrapeMetrics {
//!     pub dropped_lines: Counter,
//! }
//!
//! impl ScrapeMetrics {
//!     pub fn register(registry: &mut Registry) -> Self {
//!         Self {
//!             // Exposed as `kubevitals_scrape_dropped_lines_total`, help text with a full stop.
//!             dropped_lines: registry.counter("dropped_lines", "Number of lines that did not parse"),
//!         }
//!     }
//! }
//!
//! let mut metrics = Metrics::new();
//! let scrape = ScrapeMetrics::register(metrics.sub("kubevitals_scrape"));
//! scrape.dropped_lines.inc();
//! assert_eq!(metrics.freeze().families()?, ["counter kubevitals_scrape_dropped_lines_total"]);
//! # Ok::<(), kubevitals_telemetry::TelemetryError>(())
//! ```
//!
//! Two pitfalls of `prometheus_client`: it appends `_total` to every counter, `_info` to every info
//! and the unit to every name registered with one, so none of them belongs in the registered name;
//! and a family without series is left out of the exposition.

pub mod admin;
mod error;
pub mod exposition;
pub mod health;
pub mod histogram;
pub mod logs;
mod metrics;
mod outage;
mod panics;
pub mod process;
#[cfg(feature = "pprof")]
pub mod profile;
mod redacted;
pub mod registry;

pub use admin::{Admin, AdminServer, Limits, Page, PageRequest, PageResponse, Profiling};
pub use error::TelemetryError;
pub use health::{Health, HealthCell, Probe, Status};
pub use histogram::{HistogramFamily, HistogramSeries, HistogramSpec, LabelSet, NativeOptions};
pub use logs::{LogFilter, LogFormat, LogHandle, LogOptions};
pub use metrics::{AdminMetrics, BuildInfo};
pub use outage::{OutageLog, OutagePart, RequestFailure};
pub use panics::panic_message;
pub use redacted::Redacted;
pub use registry::{Buckets, Metrics, RegistryExt, SharedRegistry};
