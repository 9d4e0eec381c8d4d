//! A controller whose requests, queue and lists are measured.
//!
//! ```sh
//! cargo run --example controller --features runtime
//! ```
//!
//! It looks at every ConfigMap of the current context's namespace a few times and prints what a
//! dashboard would be given.

#![expect(clippy::print_stdout, reason = "it is what the example is for")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use kube_client_metrics::Registry;
// In place of `kube::runtime::controller::{Action, Controller}`:
use kube_client_metrics::queue::{Action, Controller};
use kube_client_metrics::reflector::Reflector;

/// After so many reconciliations it has seen enough.
const ENOUGH: usize = 10;

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

fn try_again(_: Arc<ConfigMap>, _: &NoData, _: Arc<()>) -> Action {
    Action::requeue(Duration::from_millis(100))
}

#[tokio::main]
#[cfg_attr(test, expect(dead_code, reason = "a test calls `run`"))]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", run(kube::Config::infer().await?).await?);
    Ok(())
}

/// Runs the controller until it has seen enough; gives its metrics.
pub(crate) async fn run(config: kube::Config) -> Result<String, Box<dyn Error>> {
    let registry = Registry::new();
    let hooks = registry.hooks();
    let client = kube_client_metrics::client(config, &registry)?;

    // The controller tells of its lists by itself; its watches are seen in its requests.
    let reflector = Reflector::new("configmaps", &hooks);
    let maps: Api<ConfigMap> = Api::default_namespaced(reflector.client(&client));
    let controller = Controller::new("configmaps", &hooks, maps, watcher::Config::default());
    let mut reconciliations = controller
        .run(reconcile, try_again, Arc::new(()))
        .take(ENOUGH)
        .boxed();
    while let Some(reconciled) = reconciliations.next().await {
        if let Err(error) = reconciled {
            tracing::info!(%error, "not reconciled");
        }
    }
    // With the controller goes its queue: nothing waits in it any more.
    drop(reconciliations);
    Ok(registry.encode())
}
