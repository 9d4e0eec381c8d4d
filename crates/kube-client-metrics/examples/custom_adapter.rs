//! Hooks of one's own: closures for two of them, a type for a third.
//!
//! `cargo run --example custom_adapter` asks the cluster of your kubeconfig.

#![expect(clippy::print_stdout, reason = "it is what the example is for")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube_client_metrics::hooks::{RequestEnd, RequestReport};
use kube_client_metrics::{Call, Code, Hooks};

/// How many requests of each kind there were, and how long they took together.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<BTreeMap<String, (u64, Duration)>>>);

impl RequestEnd for Ledger {
    fn observe(&self, call: &Call, report: &RequestReport) {
        // The template is bounded: it holds no name, no namespace and no query.
        let kind = format!("{} {}", call.verb, call.endpoint.template());
        let mut ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, total) = ledger.entry(kind).or_default();
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

/// Lists pods, looks for one that is not there, and says what was told.
pub(crate) async fn run(config: kube::Config) -> Result<String, Box<dyn std::error::Error>> {
    let ledger = Ledger::default();
    let (refused, counted) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
    let (refusals, bytes) = (Arc::clone(&refused), Arc::clone(&counted));
    let hooks = Hooks::default()
        .with_request_end(ledger.clone())
        .with_request_result(move |_: &Call, code: Code| {
            if !matches!(code, Code::Status(status) if status.is_success()) {
                *refusals.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            }
        })
        .with_response_size(move |_: &Call, size: u64| {
            *bytes.lock().unwrap_or_else(PoisonError::into_inner) += size;
        });
    let client = kube_client_metrics::client(config, hooks)?;

    let pods: Api<Pod> = Api::all(client.clone());
    pods.list(&ListParams::default().limit(10)).await?;
    let pods: Api<Pod> = Api::default_namespaced(client);
    pods.get_opt("there-is-no-such-pod").await?;

    let mut report = String::new();
    for (kind, (count, total)) in &*ledger.0.lock().unwrap_or_else(PoisonError::into_inner) {
        writeln!(report, "{count} × {kind}, {total:?} together")?;
    }
    let refused = *refused.lock().unwrap_or_else(PoisonError::into_inner);
    let received: u64 = *counted.lock().unwrap_or_else(PoisonError::into_inner);
    writeln!(
        report,
        "{refused} not answered with success, {received} bytes received"
    )?;
    Ok(report)
}
