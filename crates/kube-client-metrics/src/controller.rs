//! `controller_runtime_*`: the reconciliations of controllers, with controller-runtime's names.
#![cfg_attr(
    feature = "runtime",
    doc = "
kube's own `Controller` takes a reconciler, and [`ControllerObserver::reconciler`] wraps it:

```no_run
# use std::{convert::Infallible, sync::Arc, time::Duration};
# use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::controller::{Action, Config, Controller};
use kube::{Api, runtime::watcher};
use kube_client_metrics::controller::ControllerObserver;

async fn reconcile(_: Arc<ConfigMap>, _: Arc<()>) -> Result<Action, Infallible> {
    Ok(Action::requeue(Duration::from_secs(300)))
}

# async fn run(client: kube::Client) {
let observer = ControllerObserver::new(\"configmaps\", &kube_client_metrics::global());
observer.limit(4);
Controller::new(Api::<ConfigMap>::all(client), watcher::Config::default())
    .with_config(Config::default().concurrency(4))
    .shutdown_on_signal()
    .run(observer.reconciler(reconcile), |_, _, _| Action::await_change(), Arc::new(()))
    .for_each(|_| std::future::ready(()))
    .await;
# }
```
"
)]
//!
//! A reconciliation lasts until its future returns, panics or is dropped. kube keeps the queue of a
//! `Controller` to itself: `workqueue_*` needs the controller of the crate `kube-workqueue`, which
//! reports these families too.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use crate::hooks::{ControllerMetrics, Hooks, ReconcileResult};

#[cfg(feature = "runtime")]
mod reconciler;

#[cfg(feature = "runtime")]
pub use reconciler::ObservedReconcile;

/// Reports the reconciliations of one controller. Clones share the metrics.
#[derive(Clone)]
pub struct ControllerObserver {
    metrics: Arc<dyn ControllerMetrics>,
}

/// A reconciliation in progress. Dropping it before it is [finished](Reconciling::finish) means
/// that it was cancelled, or that it panicked.
#[must_use = "dropping a reconciliation means that it was cancelled"]
pub struct Reconciling {
    metrics: Arc<dyn ControllerMetrics>,
    started: Instant,
    result: Option<ReconcileResult>,
}

impl ControllerObserver {
    /// Observes a controller. `name` is the value of the label `controller` and must come from the
    /// program, not from the cluster.
    pub fn new(name: &str, hooks: &Hooks) -> Self {
        Self {
            metrics: hooks.controllers.controller(name),
        }
    }

    /// Reports the maximum number of reconciliations at once, which kube's configuration does not
    /// tell. Zero is no limit, as there, and not reported.
    pub fn limit(&self, concurrency: u16) {
        if concurrency > 0 {
            self.metrics.max_concurrent(concurrency.into());
        }
    }

    /// Reports the start of a reconciliation, for controllers that are not kube's.
    pub fn start(&self) -> Reconciling {
        self.metrics.started();
        Reconciling {
            metrics: Arc::clone(&self.metrics),
            started: Instant::now(),
            result: None,
        }
    }
}

impl Reconciling {
    /// Reports the end of the reconciliation.
    pub fn finish(mut self, result: ReconcileResult) {
        self.result = Some(result);
    }
}

impl Drop for Reconciling {
    fn drop(&mut self) {
        let unfinished = if std::thread::panicking() {
            ReconcileResult::Panic
        } else {
            ReconcileResult::Cancelled
        };
        let result = self.result.unwrap_or(unfinished);
        self.metrics.finished(result, self.started.elapsed());
    }
}

impl fmt::Debug for ControllerObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerObserver").finish_non_exhaustive()
    }
}

impl fmt::Debug for Reconciling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconciling")
            .field("started", &self.started)
            .finish_non_exhaustive()
    }
}
