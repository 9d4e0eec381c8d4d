//! Tests of the public API: publications in, response bodies out.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]
#![expect(
    clippy::format_push_string,
    clippy::format_collect,
    reason = "texts of tests are short"
)]

mod concurrent;
mod golden;
mod limits;
mod metrics;
mod model;
mod support;
mod watch;
