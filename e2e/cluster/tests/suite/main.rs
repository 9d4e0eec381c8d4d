//! The tool as it is called: `kubevitals-e2e-cluster fetch`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod programs;
