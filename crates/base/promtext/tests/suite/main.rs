//! The public face of the crate: what it reads and writes, against real bodies and real Go.
#![expect(clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod differences;
mod fixtures;
mod properties;
mod reference;
mod vectors;
