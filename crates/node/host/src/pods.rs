//! The pods of this node, as the API server has them.

use std::future::Future;
use std::sync::Arc;

use hashbrown::HashMap;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevitals_host::{ContainerNames, PodNames, PodTable};
use kubevitals_kubelet_api::provider::{PodLister, ProviderFuture};
use kubevitals_model::{Identity, PodKey, Timestamp};
use kubevitals_watch::{
    Decoder, Kind, Mirror, ObjectEvent, Reflector, Resource, TypedKind, WatchSpec,
};
use parking_lot::RwLock;
use serde::de::{Deserialize, Deserializer, Error};
use tokio::sync::watch;

/// Annotations of the mirror of a static pod: the UID of its manifest, which names its cgroup.
const STATIC_UID: [&str; 2] = ["kubernetes.io/config.hash", "kubernetes.io/config.mirror"];

/// A whole pod, without `managedFields`.
#[derive(Debug, Clone)]
pub struct NodePod {
    identity: Identity,
    pod: Arc<Pod>,
}

/// The pods of this node. Clones share them.
#[derive(Debug, Clone)]
pub struct HostPods {
    pods: Arc<RwLock<HashMap<PodKey, Arc<Pod>>>>,
    table: PodTable,
    /// Incremented with every change.
    changes: Arc<watch::Sender<u64>>,
}

/// Watches the pods that are bound to a node.
pub fn pod_watch(node: &str) -> WatchSpec<NodePod> {
    WatchSpec::new("node_pods").fields(format!("spec.nodeName={node}"))
}

impl NodePod {
    pub fn pod(&self) -> &Arc<Pod> {
        &self.pod
    }

    fn new(mut pod: Pod) -> Option<Self> {
        let meta = &mut pod.metadata;
        // Larger than the rest of many pods, and of no use on a node.
        meta.managed_fields = None;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let identity = Identity {
            namespace: text(&meta.namespace).into(),
            name: meta.name.as_deref()?.into(),
            uid: text(&meta.uid).as_str().into(),
            resource_version: text(&meta.resource_version).as_str().into(),
        };
        Some(Self {
            identity,
            pod: Arc::new(pod),
        })
    }
}

impl Kind for NodePod {
    fn read<'de, D: Deserializer<'de>>(object: D, _: &Decoder) -> Result<Self, D::Error> {
        let pod = Pod::deserialize(object)?;
        Self::new(pod).ok_or_else(|| D::Error::custom("object has no metadata.name"))
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl TypedKind for NodePod {
    const RESOURCE: Resource = Resource::new("", "v1", "pods");
}

impl Default for HostPods {
    fn default() -> Self {
        Self {
            pods: Arc::default(),
            table: PodTable::default(),
            changes: Arc::new(watch::channel(0).0),
        }
    }
}

impl HostPods {
    /// The names of the pods, for a [`HostReader`](kubevitals_host::HostReader).
    pub fn table(&self) -> PodTable {
        self.table.clone()
    }

    /// Returns a pod by its name.
    pub fn get(&self, key: &PodKey) -> Option<Arc<Pod>> {
        self.pods.read().get(key).cloned()
    }

    /// Returns a receiver that is notified of every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Adds a pod or a new state of one.
    pub fn insert(&self, pod: Arc<Pod>) {
        let Some(key) = key_of(&pod) else {
            return;
        };
        let uid = cgroup_uid(&pod);
        self.table.insert(&uid, names_of(&pod, &key));
        let old = self.pods.write().insert(key, pod);
        let old = old.map(|old| cgroup_uid(&old));
        if let Some(old) = old.filter(|old| *old != uid) {
            self.table.remove(&old);
        }
        self.changes.send_modify(|count| *count += 1);
    }

    /// Removes a pod, unless another of its name has come.
    pub fn remove(&self, pod: &Pod) {
        let Some(key) = key_of(pod) else {
            return;
        };
        let mut pods = self.pods.write();
        let is_same = |old: &Arc<Pod>| old.metadata.uid == pod.metadata.uid;
        if pods.get(&key).is_some_and(is_same) {
            pods.remove(&key);
            self.table.remove(&cgroup_uid(pod));
        }
        drop(pods);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Follows a reflector until it ends or `shutdown` completes.
    pub async fn follow(&self, pods: &Reflector<NodePod>, shutdown: impl Future<Output = ()>) {
        tokio::pin!(shutdown);
        let mut updates = pods.subscribe();
        let mut mirror = Mirror::new();
        loop {
            let update = tokio::select! {
                () = &mut shutdown => return,
                update = updates.next() => update,
            };
            let Some(update) = update else {
                return;
            };
            let now = Timestamp::from_system_time(std::time::SystemTime::now());
            for change in mirror.apply(update, now) {
                match change.event {
                    ObjectEvent::Added(pod) | ObjectEvent::Modified { now: pod, .. } => {
                        self.insert(Arc::clone(pod.pod()));
                    }
                    ObjectEvent::Deleted(pod) => self.remove(pod.pod()),
                }
            }
        }
    }
}

impl PodLister for HostPods {
    fn pods(&self) -> ProviderFuture<'_, Vec<Arc<Pod>>> {
        let mut pods: Vec<_> = self.pods.read().values().cloned().collect();
        pods.sort_by(|a, b| {
            let key = |pod: &Pod| (pod.metadata.namespace.clone(), pod.metadata.name.clone());
            key(a).cmp(&key(b))
        });
        Box::pin(async move { Ok(pods) })
    }
}

/// The UID in the names of the cgroup and of the log folder of a pod.
pub(crate) fn cgroup_uid(pod: &Pod) -> String {
    let annotations = pod.metadata.annotations.as_ref();
    let hash = annotations.and_then(|annotations| {
        STATIC_UID
            .iter()
            .find_map(|name| annotations.get(*name))
            .cloned()
    });
    hash.or_else(|| pod.metadata.uid.clone())
        .unwrap_or_default()
}

/// The statuses of all containers of a pod.
pub(crate) fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    status.flat_map(|status| {
        let lists = [
            &status.container_statuses,
            &status.init_container_statuses,
            &status.ephemeral_container_statuses,
        ];
        lists.into_iter().flatten().flatten()
    })
}

fn key_of(pod: &Pod) -> Option<PodKey> {
    let meta = &pod.metadata;
    Some(PodKey::new(
        meta.namespace.as_deref()?,
        meta.name.as_deref()?,
    ))
}

fn names_of(pod: &Pod, key: &PodKey) -> PodNames {
    let containers = statuses(pod).filter_map(|status| {
        // `containerd://<id>`
        let (_, id) = status.container_id.as_deref()?.split_once("://")?;
        let running = status
            .state
            .as_ref()
            .and_then(|state| state.running.as_ref());
        Some(ContainerNames {
            id: id.to_owned(),
            name: status.name.clone(),
            image: status.image.clone(),
            started: timestamp(running.and_then(|state| state.started_at.as_ref())),
        })
    });
    let start = pod
        .status
        .as_ref()
        .and_then(|status| status.start_time.as_ref());
    let spec = pod.spec.as_ref();
    PodNames {
        key: key.clone(),
        started: timestamp(start),
        host_network: spec.is_some_and(|spec| spec.host_network == Some(true)),
        containers: containers.collect(),
    }
}

fn timestamp(time: Option<&Time>) -> Option<Timestamp> {
    let Time(time) = time?;
    Some(Timestamp::from_unix_millis(time.as_millisecond()))
}
