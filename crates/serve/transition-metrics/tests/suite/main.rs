//! Families of pod records, from recordings and from built pods.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![expect(
    clippy::float_cmp,
    reason = "counts are exact, and so are sums of durations that are multiples of 1/8 second"
)]

mod documents;
mod exposition;
mod lifecycles;
mod limits;
mod properties;
mod starts;
mod support;
