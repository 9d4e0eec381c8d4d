//! Logs of containers, from the files that the kubelet and the runtime keep.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kubevitals_container_logs::{LogPath, read};
use kubevitals_host::HostStats;
use kubevitals_kubelet_api::ProviderError;
use kubevitals_kubelet_api::provider::{
    ContainerLogs, ContainerTarget, LogOptions, ProviderFuture,
};
use kubevitals_model::PodKey;
use tokio::sync::watch;

use crate::pods::{HostPods, cgroup_uid, statuses};

/// The maximum number of log folders that are looked at.
const MAX_FOLDERS: usize = 20_000;

/// Reads logs in `/var/log/pods`.
#[derive(Debug, Clone)]
pub struct HostLogs {
    root: PathBuf,
    stats: HostStats,
    pods: Option<HostPods>,
}

/// A log and when it ends.
struct Found {
    folder: PathBuf,
    instance: Instance,
    /// The id of the container, if it runs.
    running: Option<String>,
}

/// Which of the instances that have a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instance {
    /// This one, or the newest before it.
    UpTo(u32),
    Newest,
    Previous,
}

impl HostLogs {
    /// Logs below the folder in which the root of the host is mounted. Without `pods` containers
    /// are found by the names of folders.
    pub fn new(root: &Path, stats: HostStats, pods: Option<HostPods>) -> Self {
        Self {
            root: root.to_owned(),
            stats,
            pods,
        }
    }

    async fn open(
        &self,
        target: ContainerTarget,
        options: LogOptions,
    ) -> Result<BoxStream<'static, io::Result<Bytes>>, ProviderError> {
        let found = if let Some(pods) = &self.pods {
            self.find_by_object(pods, &target, options.previous)?
        } else {
            let (this, target, previous) = (self.clone(), target.clone(), options.previous);
            let find = move || this.find_by_folder(&target, previous);
            tokio::task::spawn_blocking(find)
                .await
                .map_err(|error| ProviderError::Internal(error.to_string()))??
        };
        let Found {
            folder,
            instance,
            running,
        } = found;
        let number = instance_number(folder.clone(), instance).await;
        let number = number.map_err(|error| log_error(&error, &target))?;
        let path = LogPath::new(folder, number).with_root(&self.root);
        let ended = match running {
            Some(id) if options.follow => self.until_ended(&target, id),
            // Nothing more will be written.
            _ => watch::channel(true).1,
        };
        read(path, options, ended)
            .await
            .map_err(|error| log_error(&error, &target))
    }

    /// Finds a log by the status of the pod, as the kubelet does.
    fn find_by_object(
        &self,
        pods: &HostPods,
        target: &ContainerTarget,
        previous: bool,
    ) -> Result<Found, ProviderError> {
        let (key, container) = (&target.pod.key, &target.container);
        let pod = pods.get(key).filter(|pod| {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            let wanted = target.pod.uid.as_ref().map(ToString::to_string);
            wanted.is_none_or(|wanted| wanted == uid || wanted == cgroup_uid(pod))
        });
        let pod = pod.ok_or_else(|| {
            ProviderError::NotFound(format!("pod {} is not on this node", key.as_text()))
        })?;
        if !has_container(&pod, container) {
            let message = format!("container {container:?} is not in pod {:?}", &**key.name());
            return Err(ProviderError::NotFound(message));
        }
        let status = statuses(&pod).find(|status| status.name == *container);
        let (instance, running) = instance_of(status, key, container, previous)?;
        let folder = self.folder(key, &cgroup_uid(&pod));
        Ok(Found {
            folder: folder.join(container),
            instance,
            running,
        })
    }

    /// Finds a log by its folder.
    fn find_by_folder(
        &self,
        target: &ContainerTarget,
        previous: bool,
    ) -> Result<Found, ProviderError> {
        let (key, container) = (&target.pod.key, &target.container);
        let not_found = || {
            let message = format!(
                "container {container:?} of pod {} has no log",
                key.as_text()
            );
            ProviderError::NotFound(message)
        };
        // They become parts of a path.
        let names = [&**key.namespace(), &**key.name(), container.as_str()];
        if !names.into_iter().all(is_object_name) {
            return Err(not_found());
        }
        let sample = self.stats.latest();
        let sampled = sample
            .iter()
            .flat_map(|stats| &stats.pods)
            .find(|pod| pod.key == *key);
        let uid = match (&target.pod.uid, sampled) {
            (Some(uid), _) => uid.to_string(),
            (None, Some(pod)) => pod.uid.to_string(),
            (None, None) => newest_folder(&self.root, key).ok_or_else(not_found)?,
        };
        if !is_object_name(&uid) {
            return Err(not_found());
        }
        let running = sampled
            .filter(|pod| pod.uid.to_string() == uid)
            .and_then(|pod| pod.containers.iter().find(|one| one.name == *container))
            .map(|container| container.id.clone());
        Ok(Found {
            folder: self.folder(key, &uid).join(container),
            instance: if previous {
                Instance::Previous
            } else {
                Instance::Newest
            },
            running: running.filter(|_| !previous),
        })
    }

    fn folder(&self, key: &PodKey, uid: &str) -> PathBuf {
        let name = format!("{}_{}_{uid}", key.namespace(), key.name());
        self.root.join("var/log/pods").join(name)
    }

    /// Returns what becomes true once the container no longer runs.
    fn until_ended(&self, target: &ContainerTarget, id: String) -> watch::Receiver<bool> {
        let (ended, receiver) = watch::channel(false);
        let (key, name) = (target.pod.key.clone(), target.container.clone());
        let (pods, mut stats) = (self.pods.clone(), self.stats.clone());
        tokio::spawn(async move {
            let mut changes = pods.as_ref().map(HostPods::changes);
            loop {
                let runs = match &pods {
                    Some(pods) => pods
                        .get(&key)
                        .is_some_and(|pod| running_id(&pod, &name).as_deref() == Some(&*id)),
                    None => stats.latest().is_none_or(|stats| {
                        let mut of_key = stats.pods.iter().filter(|pod| pod.key == key);
                        of_key.any(|pod| pod.containers.iter().any(|one| one.id == id))
                    }),
                };
                if !runs {
                    break;
                }
                let changed = async {
                    match &mut changes {
                        Some(changes) => changes.changed().await.is_ok(),
                        None => stats.changed().await,
                    }
                };
                // The task ends with the stream.
                let goes_on = tokio::select! {
                    () = ended.closed() => false,
                    changed = changed => changed,
                };
                if !goes_on {
                    break;
                }
            }
            ended.send_replace(true);
        });
        receiver
    }
}

impl ContainerLogs for HostLogs {
    fn logs(
        &self,
        container: ContainerTarget,
        options: LogOptions,
    ) -> ProviderFuture<'_, BoxStream<'static, io::Result<Bytes>>> {
        Box::pin(self.open(container, options))
    }
}

/// Which instance the status of a container means, and its id if it runs.
fn instance_of(
    status: Option<&ContainerStatus>,
    key: &PodKey,
    container: &str,
    previous: bool,
) -> Result<(Instance, Option<String>), ProviderError> {
    let pod = &**key.name();
    let waiting = |reason: &str| {
        let message =
            format!("container {container:?} in pod {pod:?} is waiting to start: {reason}");
        Err(ProviderError::InvalidInput(message))
    };
    let Some(status) = status else {
        return waiting("no status yet");
    };
    let count = u32::try_from(status.restart_count).unwrap_or(0);
    let state = status.state.as_ref();
    let has_run = state.is_some_and(|state| state.running.is_some() || state.terminated.is_some());
    let last = status.last_state.as_ref();
    let has_last = last.is_some_and(|state| state.terminated.is_some());
    if previous {
        if !has_last {
            let message =
                format!("previous terminated container {container:?} in pod {pod:?} not found");
            return Err(ProviderError::InvalidInput(message));
        }
        // While it waits for its restart, the last one is the previous one.
        let number = if has_run {
            count.saturating_sub(1)
        } else {
            count
        };
        return Ok((Instance::UpTo(number), None));
    }
    if has_run || has_last {
        return Ok((Instance::UpTo(count), id_of_running(status)));
    }
    let reason = state.and_then(|state| state.waiting.as_ref()?.reason.as_deref());
    waiting(reason.unwrap_or("unknown"))
}

fn id_of_running(status: &ContainerStatus) -> Option<String> {
    status.state.as_ref()?.running.as_ref()?;
    status.container_id.clone()
}

fn running_id(pod: &Pod, container: &str) -> Option<String> {
    let status = statuses(pod).find(|status| status.name == container)?;
    id_of_running(status)
}

fn has_container(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else {
        return false;
    };
    let init = spec.init_containers.iter().flatten();
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    spec.containers
        .iter()
        .chain(init)
        .any(|one| one.name == name)
        || ephemeral.into_iter().any(|one| one.name == name)
}

/// Finds the number of an instance among the files of a folder.
async fn instance_number(folder: PathBuf, instance: Instance) -> io::Result<u32> {
    let instances = tokio::task::spawn_blocking(move || LogPath::instances(&folder))
        .await
        .map_err(io::Error::other)??;
    let mut newest = instances.into_iter().rev();
    let number = match instance {
        Instance::UpTo(number) => newest.find(|one| *one <= number),
        Instance::Newest => newest.next(),
        Instance::Previous => newest.nth(1),
    };
    number.ok_or_else(|| io::Error::from(ErrorKind::NotFound))
}

/// The UID in the newest log folder of a pod that no longer runs.
fn newest_folder(root: &Path, key: &PodKey) -> Option<String> {
    let prefix = format!("{}_{}_", key.namespace(), key.name());
    let entries = fs::read_dir(root.join("var/log/pods")).ok()?;
    let entries = entries.take(MAX_FOLDERS).flatten();
    let of_pod = entries.filter_map(|entry| {
        let name = entry.file_name();
        let uid = name.to_str()?.strip_prefix(&prefix)?.to_owned();
        Some((entry.metadata().ok()?.modified().ok()?, uid))
    });
    of_pod.max().map(|(_, uid)| uid)
}

/// Whether a text can be the name of an object, and so a part of the name of a file.
fn is_object_name(name: &str) -> bool {
    let is_valid = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(is_valid)
}

fn log_error(error: &io::Error, target: &ContainerTarget) -> ProviderError {
    let ContainerTarget { pod, container } = target;
    let message = format!(
        "cannot read the log of container {container:?} in pod {:?}: {error}",
        &**pod.key.name()
    );
    match error.kind() {
        ErrorKind::NotFound => ProviderError::NotFound(message),
        _ => ProviderError::Internal(message),
    }
}

/// The text of a key in messages.
trait AsText {
    fn as_text(&self) -> String;
}

impl AsText for PodKey {
    fn as_text(&self) -> String {
        format!("{}/{}", self.namespace(), self.name())
    }
}
