//! A controller with metrics of its requests, queue, reconciliations, lists and watches.
//!
//! ```sh
//! cargo run --example controller
//! ```
//!
//! It reconciles every ConfigMap in the namespace of the current context a few times and prints its
//! metrics.

#![expect(clippy::print_stdout, reason = "the example prints its metrics")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use kube_client_metrics::Registry;
use kube_client_metrics::reflector::Reflector;
// In place of `kube::runtime::controller::{Action, Controller}`:
use kube_workqueue::{Action, Controller};

const MAX_RECONCILIATIONS: usize = 10;

#[derive(Debug, thiserror::Error)]
#[error("a ConfigMap without data")]
struct NoData;

async fn reconcile(map: Arc<ConfigMap>, _: Arc<()>) -> Result<Action, NoData> {
    match &map.data {
        Some(data) => {
            tracing::info!(name = map.name_any(), keys = data.len(), "reconciled");
            Ok(Action::requeue(Duration::from_millis(50)))
        }
        None => Err(NoData),
    }
}

fn error_policy(_: Arc<ConfigMap>, _: &NoData, _: Arc<()>) -> Action {
    Action::requeue(Duration::from_millis(100))
}

#[tokio::main]
#[cfg_attr(test, expect(dead_code, reason = "a test calls `run`"))]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", run(kube::Config::infer().await?).await?);
    Ok(())
}

/// Runs the controller for [`MAX_RECONCILIATIONS`] and returns its metrics.
pub(crate) async fn run(config: kube::Config) -> Result<String, Box<dyn Error>> {
    let registry = Registry::new();
    let hooks = registry.hooks();
    let client = kube_client_metrics::client(config, &registry)?;

    // The controller reports its lists; its watches are recognized by the reflector's client.
    let reflector = Reflector::new("configmaps", &hooks);
    let maps: Api<ConfigMap> = Api::default_namespaced(reflector.client(&client));
    let controller = Controller::new("configmaps", &hooks, maps, watcher::Config::default())
        .concurrency(4)
        .shutdown_on_signal();
    let mut reconciliations = controller
        .run(reconcile, error_policy, Arc::new(()))
        .take(MAX_RECONCILIATIONS)
        .boxed();
    while let Some(reconciled) = reconciliations.next().await {
        if let Err(error) = reconciled {
            tracing::info!(%error, "reconciliation failed");
        }
    }
    // Dropping the controller closes its queue.
    drop(reconciliations);
    Ok(registry.encode())
}
