//! client-go's `workqueue_*` metrics for controllers of kube-runtime.
//!
//! kube-runtime has a work queue, its scheduler, but exposes nothing of it. This crate observes the
//! items that enter and leave the queue, and tracks its state in between:
//!
//! ```text
//!  triggers ──► added ──► kube-runtime: scheduler ──► reconciler: started … done ──► Action: retried
//!                               ▲                                                      │
//!                               └──────────────── after the delay: added ◄─────────────┘
//! ```
//!
//! That requires access to the trigger stream, which kube's `Controller` creates internally.
//! [`Controller`] is a builder like kube's that creates the triggers itself and passes them to
//! kube's own `applier`; [`Workqueue::applier`] is for programs that call that one directly.
//! Scheduling, de-duplication, debouncing, concurrency and shutdown remain kube's.
//!
//! ```no_run
//! # use std::{convert::Infallible, sync::Arc, time::Duration};
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::{Api, runtime::watcher};
//! use kube_client_metrics::Hooks;
//! // In place of `kube::runtime::controller::{Action, Controller}`:
//! use kube_workqueue::{Action, Controller};
//!
//! async fn reconcile(_: Arc<ConfigMap>, _: Arc<()>) -> Result<Action, Infallible> {
//!     Ok(Action::requeue(Duration::from_secs(300)))
//! }
//!
//! # fn run(client: kube::Client, hooks: &Hooks) {
//! let controller = Controller::new("configmaps", hooks, Api::<ConfigMap>::all(client), watcher::Config::default())
//!     .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(5)), Arc::new(()));
//! # drop(controller);
//! # }
//! ```
//!
//! # Metrics
//!
//! | family | client-go | here |
//! |---|---|---|
//! | `workqueue_adds_total` | adds of a key that is not queued yet | the same: a trigger for a queued object is not counted, one for an object in progress is |
//! | `workqueue_depth` | queued keys, including those added while in progress | the same |
//! | `workqueue_queue_duration_seconds` | from the first add to the start of processing | the same; includes a debounce time |
//! | `workqueue_work_duration_seconds` | from there to `Done` | from there until the reconciler returns, fails, panics or is dropped |
//! | `workqueue_retries_total` | calls of `AddAfter` and `AddRateLimited` | each [`Action`] with a delay, of the reconciler and of the error policy |
//! | `workqueue_unfinished_work_seconds`, `workqueue_longest_running_processor_seconds` | updated every 500 ms | the same while there is work, and once after it |
//!
//! Reconciliations are reported with controller-runtime's names, as by
//! [`ControllerObserver`], which works for
//! kube's own `Controller` too: `controller_runtime_reconcile_total{controller,result}`,
//! `_reconcile_errors_total`, `_reconcile_panics_total`, `_reconcile_time_seconds`,
//! `_active_workers` and, if [it is set here](Controller::concurrency),
//! `_max_concurrent_reconciles`.
//!
//! # Limits
//!
//! - The delay in kube's own `Action` cannot be read. A reconciler that returns [`Action`] of this
//!   crate is counted exactly. One that returns kube's is counted too, but an object with a delay
//!   is seen only when its reconciliation starts: while the concurrency limit holds it back, it is
//!   missing from depth and queue duration.
//! - If a trigger arrives before such a delay is over, kube's scheduler merges the two, while
//!   client-go's queue keeps both. The metrics follow kube: one add.
//! - Events are not counted until the trigger stream is polled. kube polls it whenever anything
//!   happens, also while all workers are busy.
//! - kube calls no reconciler for an object that has left the store. It counts as started and done
//!   when kube reports it.
//! - A cluster-scoped object that was triggered under two namespaces, as owners of namespaced
//!   objects are, is two items to kube and one here; the second counts as added when its
//!   reconciliation starts.

#![warn(missing_docs)]

mod action;
mod applier;
mod controller;
mod ledger;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use action::Action;
pub use controller::Controller;
use kube::Resource;
use kube_client_metrics::Hooks;
use kube_client_metrics::controller::{ControllerObserver, Reconciling};
use kube_client_metrics::hooks::ReconcileResult;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use self::ledger::{Key, Ledger, Requeue, RunId};

/// Interval at which unfinished work is reported, as in client-go.
const UPDATE_INTERVAL: Duration = Duration::from_millis(500);

/// The metrics of one queue, for one [applier](Workqueue::applier).
#[derive(Debug)]
pub struct Workqueue {
    inner: Arc<QueueInner>,
}

#[derive(Debug)]
struct QueueInner {
    ledger: Mutex<Ledger>,
    observer: ControllerObserver,
    /// Wakes [`QueueInner::run_updates`] before the time it sleeps until.
    wake: Notify,
}

/// The reconciliation of one object, which ends when this is dropped.
struct WorkGuard {
    queue: Arc<QueueInner>,
    key: Key,
    run: RunId,
    /// `None` if no reconciler is called.
    reconciling: Option<Reconciling>,
}

/// Closes the queue when dropped.
struct CloseOnDrop(Arc<QueueInner>);

impl Workqueue {
    /// Creates the metrics of a queue. `name` is the value of the labels `name` and `controller`
    /// and must come from the program, not from the cluster.
    pub fn new(name: &str, hooks: &Hooks) -> Self {
        let ledger = Ledger::new(hooks.workqueues.queue(name));
        Self {
            inner: Arc::new(QueueInner {
                ledger: Mutex::new(ledger),
                observer: ControllerObserver::new(name, hooks),
                wake: Notify::new(),
            }),
        }
    }
}

impl QueueInner {
    fn start(self: &Arc<Self>, key: Key) -> WorkGuard {
        let mut ledger = self.ledger.lock();
        let was_idle = !ledger.is_working();
        let run = ledger.start(&key, Instant::now());
        drop(ledger);
        if was_idle {
            self.wake.notify_one();
        }
        WorkGuard {
            queue: Arc::clone(self),
            key,
            run,
            reconciling: None,
        }
    }

    /// Starts work that a reconciler does.
    fn start_reconciler(self: &Arc<Self>, key: Key) -> WorkGuard {
        let mut work = self.start(key);
        work.reconciling = Some(self.observer.start());
        work
    }

    fn requeue(&self, key: Key, requeue: Requeue) {
        let is_sooner = self.ledger.lock().requeue(key, requeue, Instant::now());
        if is_sooner {
            self.wake.notify_one();
        }
    }

    /// Updates what changes with time alone, until the queue is closed and all work is done.
    async fn run_updates(self: Arc<Self>) {
        loop {
            let wake = {
                let mut ledger = self.ledger.lock();
                let now = Instant::now();
                ledger.advance(now);
                ledger.report_unfinished(now);
                if ledger.is_closed() && !ledger.is_working() {
                    return;
                }
                let update = ledger.is_working().then(|| now + UPDATE_INTERVAL);
                update.into_iter().chain(ledger.next_due()).min()
            };
            let timer = async {
                match wake {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = timer => {}
                () = self.wake.notified() => {}
            }
        }
    }
}

impl WorkGuard {
    /// Ends the work with the result of the reconciler and converts it for kube.
    fn complete<A: Into<Action>, E>(
        mut self,
        result: Result<A, E>,
    ) -> Result<kube::runtime::controller::Action, E> {
        let reconciling = self.reconciling.take();
        let finish = |result| reconciling.map(|reconciling| reconciling.finish(result));
        let action: Action = match result {
            Ok(action) => action.into(),
            Err(error) => {
                finish(ReconcileResult::Error);
                return Err(error);
            }
        };
        finish(match action.requeue_after() {
            Requeue::OnChange => ReconcileResult::Success,
            Requeue::After(_) | Requeue::AfterUnknownDelay => ReconcileResult::RequeueAfter,
        });
        self.queue.requeue(self.key.clone(), action.requeue_after());
        Ok(action.into())
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        self.queue.ledger.lock().end(self.run, Instant::now());
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.ledger.lock().close();
        self.0.wake.notify_one();
    }
}

impl fmt::Debug for WorkGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkGuard").field(&self.key).finish()
    }
}

fn key_of<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    Key {
        name: meta.name.clone().unwrap_or_default(),
        namespace: meta.namespace.clone(),
    }
}

/// The README's program is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests;
