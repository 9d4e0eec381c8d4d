//! Custom hooks: closures for two of them, a type for a third.
//!
//! `cargo run --example custom_adapter` uses the cluster of your kubeconfig.

#![expect(clippy::print_stdout, reason = "the example prints its report")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube_client_metrics::hooks::{RequestEnd, RequestReport};
use kube_client_metrics::{Call, Code, Hooks};
use parking_lot::Mutex;

/// The number and total duration of requests by verb and URL template.
#[derive(Clone, Default)]
struct Totals(Arc<Mutex<BTreeMap<String, (u64, Duration)>>>);

impl RequestEnd for Totals {
    fn observe(&self, call: &Call, report: &RequestReport) {
        // The template has no name, no namespace and no query, so there are few of them.
        let kind = format!("{} {}", call.verb, call.endpoint.template());
        let mut totals = self.0.lock();
        let (count, total) = totals.entry(kind).or_default();
        *count += 1;
        *total += report.duration;
    }
}

#[tokio::main]
#[cfg_attr(test, expect(dead_code, reason = "a test calls `run`"))]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    print!("{}", run(kube::Config::infer().await?).await?);
    Ok(())
}

/// Lists pods, gets one that does not exist, and returns a summary.
pub(crate) async fn run(config: kube::Config) -> Result<String, Box<dyn std::error::Error>> {
    let totals = Totals::default();
    let (failed, received) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
    let (failures, bytes) = (Arc::clone(&failed), Arc::clone(&received));
    let hooks = Hooks::default()
        .with_request_end(totals.clone())
        .with_request_result(move |_: &Call, code: Code| {
            if !matches!(code, Code::Status(status) if status.is_success()) {
                *failures.lock() += 1;
            }
        })
        .with_response_size(move |_: &Call, size: u64| {
            *bytes.lock() += size;
        });
    let client = kube_client_metrics::client(config, hooks)?;

    let pods: Api<Pod> = Api::all(client.clone());
    pods.list(&ListParams::default().limit(10)).await?;
    let pods: Api<Pod> = Api::default_namespaced(client);
    pods.get_opt("there-is-no-such-pod").await?;

    let mut report = String::new();
    for (kind, (count, total)) in &*totals.0.lock() {
        writeln!(report, "{count} × {kind}, {total:?} in total")?;
    }
    let failed = *failed.lock();
    let received: u64 = *received.lock();
    writeln!(report, "{failed} failed, {received} bytes received")?;
    Ok(report)
}
