//! Tests on a real control plane and a real node. Run them with `cargo xtask e2e`.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking; what it says is captured, and shown if it fails"
)]

mod apiserver_restart;
mod chart;
mod client_metrics;
mod combined;
mod demo;
mod deploy;
mod documents;
mod image;
mod install;
mod kubelet_facts;
mod metrics_server;
mod monitoring;
mod node;
mod pod_life;
mod prober;
mod profiles;
mod server;
mod server_beside_metrics_server;
mod silent_apiserver;
mod starts;
mod traces;
mod transitions;
mod upstream;
mod usage;

use std::fmt::Debug;
use std::time::Duration;

use kubevitals_e2e::DEADLINE;

/// Waits for a future; fails after the timeout of all waits.
async fn in_time<T>(what: &str, event: impl Future<Output = T>) -> T {
    let seen = tokio::time::timeout(DEADLINE, event).await;
    seen.unwrap_or_else(|_| panic!("{what}: nothing after {DEADLINE:?}"))
}

/// Asserts that a measured value is within a tenth of the true one.
#[track_caller]
fn assert_within_a_tenth(what: &str, measured: u64, truth: u64, context: &dyn Debug) {
    let tolerated = truth / 10;
    println!("{what}: {measured} for {truth}");
    assert!(
        measured.abs_diff(truth) <= tolerated,
        "{what}: {measured} is not {truth} ± {tolerated}; {context:?}"
    );
}

/// Long enough that a short loss of the CPU to other processes has little effect.
const MIN_WINDOW: Duration = Duration::from_secs(10);

/// A shorter window is of a container's start, in which its limit allows a burst and its memory is
/// not held yet.
const SHORTEST_WINDOW: Duration = Duration::from_secs(8);
