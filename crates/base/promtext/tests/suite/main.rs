//! Tests of the public API with bodies of a real kubelet and vectors from Go.
#![expect(clippy::unwrap_used, reason = "test helpers fail by panicking")]

mod differences;
mod fixtures;
mod properties;
mod reference;
mod vectors;
