//! Recordings of the pods and events of a namespace, from its beginning.

use std::fmt::Debug;
use std::path::PathBuf;

use futures_util::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Resource;
use kube::api::{ListParams, WatchParams};
use kube::core::WatchEvent;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::error::E2eError;
use crate::namespace::TestNamespace;

/// Names the folder that recordings are kept in; `cargo xtask e2e --record` sets it.
const FOLDER_VARIABLE: &str = "KUBEVITALS_E2E_RECORDINGS";

/// Fields without a meaning for the lifecycle of a pod, which make up most of its size.
const DROPPED: [&str; 23] = [
    "/metadata/generation",
    "/spec/automountServiceAccountToken",
    "/spec/dnsPolicy",
    "/spec/enableServiceLinks",
    "/spec/preemptionPolicy",
    "/spec/priority",
    "/spec/schedulerName",
    "/spec/securityContext",
    "/spec/serviceAccount",
    "/spec/serviceAccountName",
    "/spec/tolerations",
    "/status/hostIP",
    "/status/hostIPs",
    "/status/observedGeneration",
    "/status/podIP",
    "/status/podIPs",
    "/status/qosClass",
    "/action",
    "/involvedObject/apiVersion",
    "/involvedObject/resourceVersion",
    "/reportingComponent",
    "/reportingInstance",
    "/source",
];

/// The same of each container and of its status.
const DROPPED_OF_CONTAINERS: [&str; 9] = [
    "command",
    "containerID",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "imageID",
    "allocatedResources",
    "volumeMounts",
    "user",
];

/// Records watch events of pods and events until it is dropped.
#[derive(Debug)]
pub struct Recorder {
    pods: watch::Receiver<Vec<Value>>,
    events: watch::Receiver<Vec<Value>>,
    /// Aborted when it is dropped.
    _streams: JoinSet<()>,
}

impl Recorder {
    /// Starts to record. Nothing that happens after this is missed.
    pub async fn start(namespace: &TestNamespace) -> Result<Self, E2eError> {
        let mut streams = JoinSet::new();
        Ok(Self {
            pods: record::<Pod>(namespace, &mut streams).await?,
            events: record::<Event>(namespace, &mut streams).await?,
            _streams: streams,
        })
    }

    /// Waits until the deletion of these pods is recorded.
    pub async fn until_deleted(&mut self, names: &[&str]) {
        let is_deleted = |pods: &Vec<Value>, name: &str| {
            let mut states = pods.iter();
            states.any(|state| {
                let of = state.pointer("/object/metadata/name");
                state["type"] == "DELETED" && of.is_some_and(|of| of == name)
            })
        };
        // The stream ends at the time limit of the watch, which is longer than any test.
        let _ = self
            .pods
            .wait_for(|pods| names.iter().all(|name| is_deleted(pods, name)))
            .await;
    }

    /// Writes `NAME.pods.jsonl` and `NAME.events.jsonl`, if recordings are to be kept.
    pub fn keep(&self, name: &str) -> Result<(), E2eError> {
        let Some(folder) = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from) else {
            return Ok(());
        };
        for (kind, recorded) in [("pods", &self.pods), ("events", &self.events)] {
            let path = folder.join(format!("{name}.{kind}.jsonl"));
            let lines: Vec<String> = recorded.borrow().iter().map(Value::to_string).collect();
            let lines = lines.join("\n") + "\n";
            let written = std::fs::create_dir_all(&folder);
            let written = written.and_then(|()| std::fs::write(&path, lines));
            written.map_err(|source| E2eError::Write { path, source })?;
        }
        Ok(())
    }
}

async fn record<K>(
    namespace: &TestNamespace,
    streams: &mut JoinSet<()>,
) -> Result<watch::Receiver<Vec<Value>>, E2eError>
where
    K: Clone + Debug + DeserializeOwned,
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let doing = format!("recording {}", K::plural(&()));
    let listed = namespace
        .api::<K>()
        .list_metadata(&ListParams::default())
        .await;
    let listed = listed.map_err(E2eError::api(doing.clone()))?;
    let version = listed.metadata.resource_version.unwrap_or_default();
    let path = K::url_path(&(), Some(namespace.name()));
    let request = kube::core::Request::new(path).watch(&WatchParams::default(), &version);
    let request =
        request.map_err(|error| E2eError::api(doing.clone())(kube::Error::BuildRequest(error)))?;
    let stream = namespace
        .cluster()
        .client()
        .request_events::<Value>(request)
        .await;
    let stream = stream.map_err(E2eError::api(doing))?;
    let (sender, receiver) = watch::channel(Vec::new());
    streams.spawn(async move {
        let mut stream = std::pin::pin!(stream);
        while let Some(Ok(event)) = stream.next().await {
            let (kind, mut object) = match event {
                WatchEvent::Added(object) => ("ADDED", object),
                WatchEvent::Modified(object) => ("MODIFIED", object),
                WatchEvent::Deleted(object) => ("DELETED", object),
                WatchEvent::Bookmark(_) | WatchEvent::Error(_) => continue,
            };
            trim(&mut object);
            sender.send_modify(|recorded: &mut Vec<Value>| {
                recorded.push(json!({"type": kind, "object": object}));
            });
        }
    });
    Ok(receiver)
}

/// Drops what makes a recording large.
fn trim(object: &mut Value) {
    for pointer in DROPPED {
        let (parent, field) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        let parent = object.pointer_mut(parent).and_then(Value::as_object_mut);
        if let Some(parent) = parent {
            parent.remove(field);
        }
    }
    let lists = [
        "/spec/containers",
        "/spec/initContainers",
        "/status/containerStatuses",
        "/status/initContainerStatuses",
    ];
    for list in lists {
        let list = object.pointer_mut(list).and_then(Value::as_array_mut);
        for container in list.into_iter().flatten().filter_map(Value::as_object_mut) {
            container.retain(|field, _| !DROPPED_OF_CONTAINERS.contains(&field.as_str()));
        }
    }
    // When a state was written is known from the newest of these alone.
    let managers = object.pointer_mut("/metadata/managedFields");
    if let Some(managers) = managers.and_then(Value::as_array_mut) {
        let times = managers
            .iter()
            .filter_map(|manager| manager["time"].as_str());
        let newest = times.max().map(|time| json!({"time": time}));
        *managers = newest.into_iter().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trimmed_pod_keeps_its_states_and_the_times_of_writes() {
        let mut pod = json!({
            "metadata": {"name": "a", "managedFields": [
                {"manager": "kubelet", "time": "2026-11-17T08:10:27Z", "fieldsV1": {"f:status": {}}},
                {"manager": "test", "time": "2026-11-17T08:10:26Z"},
            ]},
            "spec": {"tolerations": [], "containers": [{"name": "app", "volumeMounts": []}]},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "app", "imageID": "sha256:00", "ready": true},
            ]},
        });
        trim(&mut pod);
        let expected = json!({
            "metadata": {"name": "a", "managedFields": [
                {"time": "2026-11-17T08:10:27Z"},
            ]},
            "spec": {"containers": [{"name": "app"}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "app", "ready": true}]},
        });
        assert_eq!(pod, expected);
    }
}
