//! Data points to Google Cloud Monitoring, over its REST interface.
//!
//! ```text
//!  DataPoint ──► Sink ──► GcmExporter ──► timeSeries.create, up to 200 series a call
//!                 ▲          │  descriptors first, pace, order       │
//!                 └──────────┘ only the series that failed  ◄────────┘ errors by series
//! ```
//!
//! **One point of a series in a call, in order.** Later points of a series wait for a later call,
//! and so do those that follow a point which must be sent again. Points that come faster than the
//! pace are left out and counted.
//!
//! **Every point has one result.** A call with one bad series is an error as a whole, although the
//! other series were written; which failed is only in the text of the error. [`judge`] reads it.
//! Sent, duplicate, rejected by [`Code`], unknown, and what the sink dropped add up to what was
//! recorded.
//!
//! **Credentials** come from a file (a service account, a user, a federated identity) or from the
//! metadata server. They are never printed.

mod api;
mod credentials;
mod descriptor;
mod exporter;
mod metadata;
mod metrics;
mod plan;
mod response;
mod series;
mod settings;

pub use credentials::{Credentials, CredentialsError};
pub use descriptor::Description;
pub use exporter::{GcmExporter, GcmHealth, sink_config};
pub use metadata::{MetadataError, MetadataServer};
pub use metrics::{Code, GcmMetrics, PointResult};
pub use response::{
    Failure, Judgement, Reason, SeriesError, Summary, Verdict, judge, parse_failure,
    parse_series_errors,
};
pub use settings::{GcmError, GcmSettings, Place, PlaceError, PlaceSource};
