//! A pod runtime in memory, for demonstrations and tests of everything around a node.
//!
//! A pod starts after a delay, uses CPU and memory by a closed form, writes a line per second and
//! ends when it is told to. Nothing is executed. Annotations of a pod change what it does:
//!
//! | annotation | meaning | without it |
//! |---|---|---|
//! | `sim.kubevitals.io/cpu` | mean CPU of each container | half of its request, or `10m` |
//! | `sim.kubevitals.io/memory` | most memory of each container | its request, or `16Mi` |
//! | `sim.kubevitals.io/run-for` | seconds after which the pod ends by itself | it runs for ever |
//! | `sim.kubevitals.io/exit-code` | the exit code of that end | 0 |
//!
//! Pods of an earlier process are not known: they start again.

mod capabilities;
mod pod;
mod usage;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubevitals_kubelet_api::Provider;
use kubevitals_model::{Clock, Moment, PodKey, Uid};
use kubevitals_virtual_node::runtime::{
    PodId, PodRuntime, RuntimeChange, RuntimeChanges, RuntimeError, RuntimeFuture, RuntimePod,
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use self::pod::SimPod;

/// The settings of a simulated runtime.
#[derive(Debug, Clone)]
pub struct SimConfig {
    pub node_name: String,
    /// The cores and the memory of the node, for its statistics.
    pub cores: u64,
    pub memory: u64,
    /// The time that a pod takes to start.
    pub start_delay: Duration,
    /// The time that a pod takes to end, within its grace.
    pub stop_delay: Duration,
    pub clock: Clock,
}

/// A simulated runtime. Clones share the pods.
#[derive(Clone)]
pub struct SimRuntime {
    inner: Arc<Inner>,
}

struct Inner {
    config: SimConfig,
    started: Moment,
    pods: Mutex<HashMap<Uid, SimPod>>,
    changes: RuntimeChanges,
    /// Wakes the driver: a pod has another time at which something happens.
    wake: Notify,
}

impl SimRuntime {
    pub fn new(config: SimConfig, changes: RuntimeChanges) -> Self {
        Self {
            inner: Arc::new(Inner {
                started: config.clock.moment(),
                config,
                pods: Mutex::default(),
                changes,
                wake: Notify::new(),
            }),
        }
    }

    /// What the runtime can do for the endpoints of a kubelet.
    pub fn provider(&self) -> Provider {
        let mut provider = Provider::default();
        provider.running_pods = Some(Arc::new(self.clone()));
        provider.stats = Some(Arc::new(self.clone()));
        provider.logs = Some(Arc::new(self.clone()));
        provider.exec = Some(Arc::new(self.clone()));
        provider
    }

    /// Lets time pass for pods, for ever.
    pub async fn run(self) {
        loop {
            let now = self.inner.config.clock.moment();
            let (changes, next) = self.inner.advance(now);
            for change in changes {
                // Nobody listens any more.
                if self.inner.changes.send(change).await.is_err() {
                    return std::future::pending().await;
                }
            }
            let timer = async {
                match next {
                    Some(due) => sleep(due.saturating_sub(now.monotonic)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = timer => {}
                () = self.inner.wake.notified() => {}
            }
        }
    }
}

impl Inner {
    /// Returns what changed, and when the next change is due.
    fn advance(&self, now: Moment) -> (Vec<RuntimeChange>, Option<Duration>) {
        let mut pods = self.pods.lock();
        let mut changes = Vec::new();
        let mut next: Option<Duration> = None;
        for pod in pods.values_mut() {
            pod.advance(now, &mut changes);
            next = next.into_iter().chain(pod.due()).min();
        }
        (changes, next)
    }

    /// Returns a pod by its name, and by its UID if that is given.
    fn find(&self, key: &PodKey, uid: Option<&Uid>) -> Option<SimPod> {
        let pods = self.pods.lock();
        let mut found = pods.values().filter(|pod| pod.id.key == *key);
        found
            .find(|pod| uid.is_none_or(|uid| pod.id.uid == *uid))
            .cloned()
    }
}

impl PodRuntime for SimRuntime {
    fn sync_pod(&self, pod: Arc<Pod>) -> RuntimeFuture<'_, ()> {
        Box::pin(async move {
            let Some(id) = id(&pod) else {
                return Err(RuntimeError::Rejected {
                    reason: "InvalidPod",
                    message: "the pod has no name or no uid".to_owned(),
                });
            };
            let now = self.inner.config.clock.moment();
            let mut pods = self.inner.pods.lock();
            if let Some(known) = pods.get_mut(&id.uid) {
                known.pod = pod;
            } else {
                let delay = self.inner.config.start_delay;
                pods.insert(id.uid.clone(), SimPod::new(id, pod, now, delay));
            }
            drop(pods);
            self.inner.wake.notify_one();
            Ok(())
        })
    }

    fn terminate_pod(&self, pod: &PodId, grace: Duration) -> RuntimeFuture<'_, ()> {
        let id = pod.clone();
        Box::pin(async move {
            let delay = grace.min(self.inner.config.stop_delay);
            let now = self.inner.config.clock.moment();
            let mut pods = self.inner.pods.lock();
            let Some(pod) = pods.get_mut(&id.uid) else {
                return Err(RuntimeError::NotFound(id.key));
            };
            pod.stop(now, delay);
            drop(pods);
            self.inner.wake.notify_one();
            Ok(())
        })
    }

    fn remove_pod(&self, pod: &PodId) -> RuntimeFuture<'_, ()> {
        let id = pod.clone();
        Box::pin(async move {
            match self.inner.pods.lock().remove(&id.uid) {
                Some(_) => Ok(()),
                None => Err(RuntimeError::NotFound(id.key)),
            }
        })
    }

    fn pods(&self) -> RuntimeFuture<'_, Vec<RuntimePod>> {
        Box::pin(async {
            let pods = self.inner.pods.lock();
            Ok(pods.values().map(SimPod::report).collect())
        })
    }

    fn ping(&self) -> RuntimeFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

fn id(pod: &Pod) -> Option<PodId> {
    Some(PodId {
        uid: pod.metadata.uid.as_deref()?.into(),
        key: PodKey::new(
            pod.metadata.namespace.as_deref()?,
            pod.metadata.name.as_deref()?,
        ),
    })
}

#[cfg(test)]
mod tests;
