//! `workqueue_*` for controllers of kube-runtime, with client-go's meaning.
//!
//! kube-runtime has a work queue, its scheduler, and shows nothing of it. So the queue is observed
//! where its items go in and come out, and its state between is kept beside it in a ledger:
//!
//! ```text
//!  triggers ──► seen: added ──► kube-runtime: scheduler ──► reconciler: taken … done ──► Action: retried
//!                                     ▲                                                     │
//!                                     └──────────────── when its delay is over: added ◄─────┘
//! ```
//!
//! That needs the trigger stream, which kube's `Controller` makes inside and hides. [`Controller`]
//! is therefore a builder like kube's that makes the triggers itself and hands them to kube's own
//! `applier`; [`Workqueue::applier`] is for those who call that one directly. Scheduling,
//! de-duplication, debouncing, concurrency and shutdown remain kube's.
//!
//! ```no_run
//! # use std::{convert::Infallible, sync::Arc, time::Duration};
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::{Api, runtime::watcher};
//! use kube_client_metrics::Hooks;
//! // In place of `kube::runtime::controller::{Action, Controller}`:
//! use kube_client_metrics::queue::{Action, Controller};
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
//! # What is counted
//!
//! | family | client-go | here |
//! |---|---|---|
//! | `workqueue_adds_total` | an add of a key that is not waiting yet | the same: a trigger while the object waits counts nothing, one while it is worked on counts |
//! | `workqueue_depth` | keys that wait, those that were added while they are worked on too | the same |
//! | `workqueue_queue_duration_seconds` | from the first add to the moment it is taken | the same; a debounce time is part of it |
//! | `workqueue_work_duration_seconds` | from there to `Done` | from there until the reconciler ends, fails, panics or is dropped |
//! | `workqueue_retries_total` | calls of `AddAfter` and `AddRateLimited` | each [`Action`] with a delay, of the reconciler and of the error policy |
//! | `workqueue_unfinished_work_seconds`, `workqueue_longest_running_processor_seconds` | told every 500 ms | the same while there is work, and once more after it |
//!
//! # What kube-runtime hides
//!
//! - The delay in kube's own `Action` cannot be read. A reconciler that returns [`Action`] of this
//!   module is counted exactly. One that returns kube's is counted too, but what it put off is seen
//!   only when work on it begins: while a limit of the concurrency holds it back, depth and waiting
//!   time lack it.
//! - Where a trigger comes before such a delay is over, kube's scheduler merges the two and
//!   client-go's queue keeps both. The ledger follows kube: one add.
//! - Up to the moment at which a trigger stream is polled, its events are in nobody's queue. kube
//!   polls it whenever anything happens, also while all workers are busy.
//! - For an object that has left the store kube calls no reconciler. It counts as taken and done at
//!   once when kube says so.
//! - An object without a namespace that was asked for under two namespaces, as owners of namespaced
//!   objects are, is two items to kube and one here; the second counts as added when work on it
//!   begins.

mod action;
mod applier;
mod controller;
mod ledger;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use action::Action;
pub use controller::Controller;
use kube::Resource;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use self::ledger::{Again, Key, Ledger, Run};
use crate::hooks::Hooks;

/// How often unfinished work is told, as in client-go.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// The metrics of one queue. It is for one [applier](Workqueue::applier).
#[derive(Debug)]
pub struct Workqueue {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    ledger: Mutex<Ledger>,
    /// There is something to tell sooner than was known.
    sooner: Notify,
}

/// Work on one object; it ends when this is dropped, whatever the reason.
struct Work {
    shared: Arc<Shared>,
    key: Key,
    run: Run,
}

/// The queue ends when this is dropped.
struct Closing(Arc<Shared>);

impl Workqueue {
    /// A queue of this name, which is the value of the label `name`: one of a few that the program
    /// knows.
    pub fn new(name: &str, hooks: &Hooks) -> Self {
        let ledger = Ledger::new(hooks.workqueues.queue(name));
        Self {
            shared: Arc::new(Shared {
                ledger: Mutex::new(ledger),
                sooner: Notify::new(),
            }),
        }
    }
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(self: &Arc<Self>, key: Key) -> Work {
        let mut ledger = self.ledger();
        let was_idle = !ledger.is_working();
        let run = ledger.begin(&key, Instant::now());
        drop(ledger);
        if was_idle {
            self.sooner.notify_one();
        }
        Work {
            shared: Arc::clone(self),
            key,
            run,
        }
    }

    fn requeue(&self, key: Key, again: Again) {
        let is_sooner = self.ledger().requeue(key, again, Instant::now());
        if is_sooner {
            self.sooner.notify_one();
        }
    }

    /// Brings up to date what changes with time alone; ends when the queue is closed and the last
    /// work done.
    async fn keep_up(self: Arc<Self>) {
        loop {
            let wake = {
                let mut ledger = self.ledger();
                let now = Instant::now();
                ledger.advance(now);
                ledger.tell_unfinished(now);
                if ledger.is_closed() && !ledger.is_working() {
                    return;
                }
                let tell = ledger.is_working().then(|| now + TELL_EVERY);
                tell.into_iter().chain(ledger.next_due()).min()
            };
            let waited = async {
                match wake {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = waited => {}
                () = self.sooner.notified() => {}
            }
        }
    }
}

impl Work {
    /// The reconciler came to its end: what it wishes goes to kube.
    fn settle<A: Into<Action>, E>(
        self,
        result: Result<A, E>,
    ) -> Result<kube::runtime::controller::Action, E> {
        let action: Action = result?.into();
        self.shared.requeue(self.key.clone(), action.again());
        Ok(action.into())
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.shared.ledger().end(self.run, Instant::now());
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.ledger().close();
        self.0.sooner.notify_one();
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Work").field(&self.key).finish()
    }
}

fn key_of<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    Key {
        name: meta.name.clone().unwrap_or_default(),
        namespace: meta.namespace.clone(),
    }
}

// Two attributes: clippy knows a test by the first.
#[cfg(test)]
#[cfg(feature = "prometheus")]
mod tests;
