//! Cloud Monitoring and the servers of tokens, over real sockets.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod credentials;
mod denied;
mod failures;
mod place;
mod series;
mod support;
