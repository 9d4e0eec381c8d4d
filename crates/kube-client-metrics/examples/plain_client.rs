//! A program with a client of its own, and what Prometheus would see of it.
//!
//! `cargo run --example plain_client` asks the cluster of your kubeconfig.

#![expect(clippy::print_stdout, reason = "it is what the example is for")]

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};

#[tokio::main]
#[cfg_attr(test, expect(dead_code, reason = "a test calls `run`"))]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", run(kube::Config::infer().await?).await?);
    Ok(())
}

/// Lists pods, looks for one that is not there, and says what was counted.
pub(crate) async fn run(config: kube::Config) -> Result<String, Box<dyn std::error::Error>> {
    let registry = kube_client_metrics::Registry::new();
    // The one line.
    let client = kube_client_metrics::client(config, &registry)?;

    let pods: Api<Pod> = Api::all(client.clone());
    pods.list(&ListParams::default().limit(10)).await?;
    let pods: Api<Pod> = Api::default_namespaced(client);
    pods.get_opt("there-is-no-such-pod").await?;

    // A program with a registry of its own adds this one:
    // `register_collector(Box::new(registry.clone()))`.
    Ok(registry.encode())
}
