//! The public face of the crate: what a user types and what comes of it.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod layers;
