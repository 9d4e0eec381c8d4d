//! A client with Prometheus metrics.
//!
//! `cargo run --example plain_client` uses the cluster of your kubeconfig.

#![expect(clippy::print_stdout, reason = "the example prints its metrics")]

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};

#[tokio::main]
#[cfg_attr(test, expect(dead_code, reason = "a test calls `run`"))]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", run(kube::Config::infer().await?).await?);
    Ok(())
}

/// Lists pods, gets one that does not exist, and returns the metrics.
pub(crate) async fn run(config: kube::Config) -> Result<String, Box<dyn std::error::Error>> {
    let registry = kube_client_metrics::Registry::new();
    let client = kube_client_metrics::client(config, &registry)?;

    let pods: Api<Pod> = Api::all(client.clone());
    pods.list(&ListParams::default().limit(10)).await?;
    let pods: Api<Pod> = Api::default_namespaced(client);
    pods.get_opt("there-is-no-such-pod").await?;

    // A program with its own registry adds this one as a collector:
    // `register_collector(Box::new(registry.clone()))`.
    Ok(registry.encode())
}
