//! The public face of the crate: what it reads and writes, against real bodies and real Go.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test helpers fail by panicking"
)]

mod differences;
mod fixtures;
mod vectors;
