//! The public face of the crate, over in-memory streams and temporary files.
//!
//! Certificates are made when the tests run, and all clocks stand still unless a test moves them.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a helper that cannot go on should fail its test on the spot"
)]

mod files;
mod names;
mod pins;
mod refresh;
mod rotation;
mod self_signed;
mod support;
mod unbuffered;
mod versions;
