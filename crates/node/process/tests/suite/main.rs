//! Tests with real processes, sockets and, where they are permitted, cgroups.
#![expect(
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::print_stdout,
    reason = "a helper that cannot go on should fail its test on the spot, and a skipped test says why"
)]

mod adoption;
mod churn;
mod harness;
mod health;
mod lifecycle;
mod limits;
mod order;
mod sessions;
mod volumes;
