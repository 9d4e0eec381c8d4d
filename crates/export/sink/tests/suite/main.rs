//! The sink with scripted exporters, in paused time.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod batches;
mod failures;
mod shutdown;
mod support;
