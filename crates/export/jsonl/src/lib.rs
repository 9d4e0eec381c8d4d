//! Records as lines of JSON.
//!
//! ```text
//!  Output of a tracker ──► TransitionLines: lines ──► JsonLines: a sink ──thread──► standard output
//!  DataPoint ──► PointLines: lines ──► JsonLines
//! ```
//!
//! **The schema.** [`TransitionLines`] writes the records of kube-transition-metrics (`pod`,
//! `container`, `image_pull`) in its closed schema, and our own `lifecycle` on request. [`SCHEMA`]
//! describes them all; every line that the tests see is checked against it. [`POINT_SCHEMA`] does
//! the same for data points.
//!
//! **Whole or not at all.** [`JsonLines`] never waits for the reader: lines that do not fit its
//! queue are dropped and counted, and a line that was begun is finished before any other.
//!
//! **And back.** [`LineStarts`] reads the starts in such lines, to compare two files of them.

mod lifecycle;
mod lines;
mod points;
mod starts;
mod transitions;

pub use lines::JsonLines;
pub use points::{POINT_SCHEMA, PointLines, point_line};
pub use starts::LineStarts;
pub use transitions::{LifecycleLines, TransitionLines};

/// The JSON Schema (2020-12) of the lines of [`TransitionLines`].
pub const SCHEMA: &str = include_str!("../../../../docs/schemas/transitions.schema.json");
