//! The sink with scripted exporters, in paused time.

mod batches;
mod failures;
mod shutdown;
mod support;
