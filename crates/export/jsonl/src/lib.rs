//! Records as lines of JSON.
//!
//! ```text
//!  Output of a tracker ──► TransitionLines: lines ──► JsonLines: a bounded queue ──thread──► standard output
//! ```
//!
//! **The schema.** [`TransitionLines`] writes the records of kube-transition-metrics (`pod`,
//! `container`, `image_pull`) in its closed schema, and our own `lifecycle` where asked for.
//! [`SCHEMA`] describes them all; every line that the tests see is checked against it.
//!
//! **Whole or not at all.** [`JsonLines`] never waits for whoever reads: what does not fit its
//! queue is dropped and counted, and what was begun is finished before anything else is written.

mod lifecycle;
mod lines;
mod transitions;

pub use lines::{JsonLines, LineCounts};
pub use transitions::{LifecycleLines, TransitionLines};

/// The JSON Schema (2020-12) of the lines of [`TransitionLines`].
pub const SCHEMA: &str = include_str!("../../../../docs/schemas/transitions.schema.json");
