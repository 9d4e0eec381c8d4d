//! The runtime: the pods of a node and their workers.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use k8s_openapi::api::core::v1::Pod;
use kubevitals_model::{PodKey, Uid};
use kubevitals_virtual_node::runtime::{
    PodId, PodInputs, PodRuntime, RuntimeChanges, RuntimeError, RuntimeFuture, RuntimePod,
};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, oneshot};

use crate::admission::{Powers, admit};
use crate::cgroup::Hierarchies;
use crate::config::ProcessConfig;
use crate::context::PodContext;
use crate::error::ProcessError;
use crate::launch::DEFAULT_TERMINATION_PATH;
use crate::metrics::ProcessMetrics;
use crate::provider::Rates;
use crate::resources::Limits;
use crate::shim::record::{PROCESS_FILE, ProcessRecord, read_record, write_record};
use crate::state::PodState;
use crate::worker::{Command, POD_FILE, STATE_FILE, Shared, Worker};

/// Commands that wait for a worker.
const MAX_COMMANDS: usize = 16;
/// How long the processes of a pod that cannot be adopted have to end.
const SWEEP: Duration = Duration::from_secs(10);

/// Runs pods as processes. Clones share the pods. Dropping it leaves the containers running.
#[derive(Clone)]
pub struct ProcessRuntime {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) config: Arc<ProcessConfig>,
    inputs: Arc<dyn PodInputs>,
    changes: RuntimeChanges,
    pub(crate) cgroups: Option<Arc<Hierarchies>>,
    pub(crate) metrics: ProcessMetrics,
    pods: RwLock<HashMap<Uid, PodHandle>>,
    powers: Powers,
    /// Where workers run, whoever calls.
    tasks: tokio::runtime::Handle,
    pub(crate) rates: Mutex<Rates>,
}

/// A pod and the way to its worker.
#[derive(Clone)]
pub(crate) struct PodHandle {
    pub id: PodId,
    pub shared: Arc<RwLock<Shared>>,
    commands: mpsc::Sender<Command>,
}

impl ProcessRuntime {
    /// Opens the folder of the runtime, adopts the pods of an earlier process, and kills what
    /// cannot be adopted. Must be called within a tokio runtime.
    pub async fn open(
        config: ProcessConfig,
        inputs: Arc<dyn PodInputs>,
        changes: RuntimeChanges,
        metrics: ProcessMetrics,
    ) -> Result<Self, ProcessError> {
        for folder in [&config.root, &config.root.join("pods"), &config.logs] {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .map_err(ProcessError::file("create", folder))?;
        }
        fs::set_permissions(&config.root, fs::Permissions::from_mode(0o700))
            .map_err(ProcessError::file("change the mode of", &config.root))?;
        let cgroups = open_cgroups(&config);
        if config.mount_volumes {
            make_termination_path();
        }
        let runtime = Self {
            inner: Arc::new(Inner {
                config: Arc::new(config),
                inputs,
                changes,
                cgroups,
                metrics,
                pods: RwLock::default(),
                powers: Powers::own(),
                tasks: tokio::runtime::Handle::current(),
                rates: Mutex::default(),
            }),
        };
        let sweeper = runtime.clone();
        let found = tokio::task::spawn_blocking(move || sweeper.inner.find_pods())
            .await
            .map_err(|_| ProcessError::Config("the start was cancelled".to_owned()))??;
        for (id, pod, state) in found {
            tracing::info!(pod = %id.key, uid = %id.uid, "adopted a pod of an earlier process");
            runtime.inner.metrics.adopted();
            runtime.inner.start(id, Arc::new(pod), Some(state));
        }
        Ok(runtime)
    }

    /// The pod of a UID, or of a name.
    pub(crate) fn find(&self, key: &PodKey, uid: Option<&Uid>) -> Option<PodHandle> {
        let pods = self.inner.pods.read();
        match uid {
            Some(uid) => pods.get(uid).filter(|one| one.id.key == *key).cloned(),
            // Of several of one name, the one that has not ended.
            None => pods
                .values()
                .filter(|one| one.id.key == *key)
                .min_by_key(|one| one.shared.read().is_terminated)
                .cloned(),
        }
    }

    pub(crate) fn handles(&self) -> Vec<PodHandle> {
        self.inner.pods.read().values().cloned().collect()
    }

    fn handle(&self, pod: &PodId) -> Result<PodHandle, RuntimeError> {
        let found = self.inner.pods.read().get(&pod.uid).cloned();
        found.ok_or_else(|| RuntimeError::NotFound(pod.key.clone()))
    }

    async fn sync(&self, pod: Arc<Pod>) -> Result<(), RuntimeError> {
        let id = pod_id(&pod)?;
        let known = self.inner.pods.read().get(&id.uid).cloned();
        if let Some(handle) = known {
            return handle.send(Command::Sync(pod)).await;
        }
        admit(&pod, self.inner.powers)?;
        {
            let pods = self.inner.pods.read();
            if pods.len() >= self.inner.config.max_pods {
                return Err(RuntimeError::Rejected {
                    reason: "OutOfpods",
                    message: format!(
                        "Node didn't have enough resource: pods, requested: 1, used: {}, capacity: {}",
                        pods.len(),
                        self.inner.config.max_pods
                    ),
                });
            }
        }
        let folder = self.inner.config.pod_folder(&id.uid.to_string());
        fs::create_dir_all(folder.join("containers"))
            .map_err(ProcessError::file("create", &folder))?;
        let path = folder.join(POD_FILE);
        write_record(&path, pod.as_ref(), false).map_err(ProcessError::file("write", &path))?;
        self.inner.start(id, pod, None);
        Ok(())
    }
}

impl Inner {
    /// Starts the worker of a pod, unless it has one.
    fn start(&self, id: PodId, pod: Arc<Pod>, state: Option<PodState>) {
        let mut pods = self.pods.write();
        if pods.contains_key(&id.uid) {
            return;
        }
        let context = PodContext {
            id: id.clone(),
            config: Arc::clone(&self.config),
            inputs: Arc::clone(&self.inputs),
            cgroups: self.cgroups.clone(),
            metrics: self.metrics.clone(),
        };
        let (commands, received) = mpsc::channel(MAX_COMMANDS);
        let (worker, shared) = Worker::new(context, pod, state, received, self.changes.clone());
        self.tasks.spawn(worker.run());
        let handle = PodHandle {
            id: id.clone(),
            shared,
            commands,
        };
        pods.insert(id.uid, handle);
        self.metrics.set_pods(pods.len());
    }

    /// Reads the records of an earlier process, and removes what has none. Blocks.
    fn find_pods(&self) -> Result<Vec<(PodId, Pod, PodState)>, ProcessError> {
        let folder = self.config.root.join("pods");
        let entries = fs::read_dir(&folder).map_err(ProcessError::file("read", &folder))?;
        let mut found = Vec::new();
        for entry in entries.flatten() {
            let path = entry.path();
            match read_pod(&path) {
                Some((id, pod, state))
                    if entry.file_name().to_str() == Some(id.uid.to_string().as_str()) =>
                {
                    found.push((id, pod, state));
                }
                _ => self.sweep(&path),
            }
        }
        for uid in self.cgroups.iter().flat_map(|one| one.pod_uids()) {
            if !found.iter().any(|(id, ..)| id.uid.to_string() == uid) {
                tracing::warn!(uid, "killed the processes of a pod without a record");
                self.remove_cgroup(&uid);
            }
        }
        Ok(found)
    }

    /// Kills what runs for a folder that cannot be adopted, and removes it.
    fn sweep(&self, folder: &Path) {
        tracing::warn!(folder = %folder.display(), "removed a pod whose records are unusable");
        self.metrics.swept();
        let instances = fs::read_dir(folder.join("containers"));
        let records: Vec<ProcessRecord> = instances
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|one| read_record(&one.path().join(PROCESS_FILE)).ok()?)
            .collect();
        if self.cgroups.is_some() {
            // The cgroup has all processes. Without one the shim knows them, and kills what is left
            // when the main process ends.
            for record in &records {
                record.shim.kill();
            }
        }
        if let Some(uid) = folder.file_name().and_then(|one| one.to_str()) {
            self.remove_cgroup(uid);
        }
        let deadline = Instant::now() + SWEEP;
        for record in &records {
            record.main.kill();
            while record.shim.is_alive() && Instant::now() < deadline {
                crate::cgroup::pause();
            }
            record.shim.kill();
        }
        // A shim may write its last record meanwhile.
        while let Err(error) = fs::remove_dir_all(folder) {
            if error.kind() == std::io::ErrorKind::NotFound {
                break;
            }
            if Instant::now() > deadline {
                tracing::warn!(folder = %folder.display(), %error, "cannot remove a folder");
                break;
            }
            crate::cgroup::pause();
        }
    }

    fn remove_cgroup(&self, uid: &str) {
        if let Some(cgroups) = &self.cgroups
            && let Err(error) = cgroups.pod(uid).remove()
        {
            tracing::warn!(uid, %error, "cannot remove the cgroup of a pod");
        }
    }
}

impl PodHandle {
    async fn send(&self, command: Command) -> Result<(), RuntimeError> {
        let sent = self
            .commands
            .send_timeout(command, Duration::from_secs(5))
            .await;
        sent.map_err(|_| RuntimeError::Failed {
            context: format!("pod {}", self.id.key),
            source: "its worker does not respond".into(),
        })
    }

    fn view(&self) -> RuntimePod {
        let shared = self.shared.read();
        RuntimePod {
            id: self.id.clone(),
            status: shared.status.clone(),
            is_terminated: shared.is_terminated,
        }
    }
}

impl PodRuntime for ProcessRuntime {
    fn sync_pod(&self, pod: Arc<Pod>) -> RuntimeFuture<'_, ()> {
        Box::pin(self.sync(pod))
    }

    fn terminate_pod(&self, pod: &PodId, grace: Duration) -> RuntimeFuture<'_, ()> {
        let handle = self.handle(pod);
        Box::pin(async move { handle?.send(Command::Terminate(grace)).await })
    }

    fn remove_pod(&self, pod: &PodId) -> RuntimeFuture<'_, ()> {
        let handle = self.handle(pod);
        Box::pin(async move {
            let handle = handle?;
            let (done, result) = oneshot::channel();
            handle.send(Command::Remove(done)).await?;
            match result.await {
                Ok(result) => result?,
                Err(_) => return Err(RuntimeError::NotFound(handle.id.key)),
            }
            let mut pods = self.inner.pods.write();
            pods.remove(&handle.id.uid);
            self.inner.metrics.set_pods(pods.len());
            Ok(())
        })
    }

    fn pods(&self) -> RuntimeFuture<'_, Vec<RuntimePod>> {
        let pods = self.handles().iter().map(PodHandle::view).collect();
        Box::pin(async move { Ok(pods) })
    }

    fn ping(&self) -> RuntimeFuture<'_, ()> {
        let config = Arc::clone(&self.inner.config);
        let cgroups = self.inner.cgroups.clone();
        Box::pin(async move {
            let check = move || {
                let path = config.root.join("ping");
                write_record(&path, &"ping", false).map_err(ProcessError::file("write", &path))?;
                match cgroups {
                    Some(cgroups) if !cgroups.own().exists() => Err(ProcessError::Config(
                        "the cgroup of the pods is gone".to_owned(),
                    )),
                    _ => Ok(()),
                }
            };
            let result = tokio::task::spawn_blocking(check).await;
            result.unwrap_or_else(|_| {
                Err(ProcessError::Config("the check was cancelled".to_owned()))
            })?;
            Ok(())
        })
    }
}

/// The id of a pod. Its UID names a folder and a cgroup.
fn pod_id(pod: &Pod) -> Result<PodId, RuntimeError> {
    let invalid = |message: &str| RuntimeError::Rejected {
        reason: "InvalidPod",
        message: message.to_owned(),
    };
    let meta = &pod.metadata;
    let (Some(name), Some(namespace), Some(uid)) = (&meta.name, &meta.namespace, &meta.uid) else {
        return Err(invalid("the pod has no name, no namespace or no UID"));
    };
    let is_plain = |text: &str| {
        let is_allowed = |one: char| one.is_ascii_alphanumeric() || matches!(one, '-' | '_' | '.');
        !text.is_empty()
            && text.len() <= 253
            && text.chars().all(is_allowed)
            && !text.starts_with('.')
    };
    if ![name, namespace, uid].into_iter().all(|one| is_plain(one)) {
        return Err(invalid(
            "the name, the namespace or the UID of the pod is not usable in a path",
        ));
    }
    Ok(PodId {
        uid: Uid::from(uid.as_str()),
        key: PodKey::new(namespace.as_str(), name.as_str()),
    })
}

fn read_pod(folder: &Path) -> Option<(PodId, Pod, PodState)> {
    let pod: Pod = read_record(&folder.join(POD_FILE)).ok()??;
    let state: PodState = read_record(&folder.join(STATE_FILE)).ok()??;
    let names = crate::state::containers(&pod).map(|(_, one)| one.name.as_str());
    if !names.eq(state.containers.iter().map(|one| one.name.as_str())) {
        return None;
    }
    Some((pod_id(&pod).ok()?, pod, state))
}

fn open_cgroups(config: &ProcessConfig) -> Option<Arc<Hierarchies>> {
    let mount = config.cgroup_mount.as_ref()?;
    let open = || {
        let hierarchies = Hierarchies::open(mount, &config.cgroup_parent)?;
        hierarchies.shims().create(&Limits::default(), false)?;
        Ok::<_, std::io::Error>(hierarchies)
    };
    match open() {
        Ok(found) => Some(Arc::new(found)),
        Err(error) => {
            tracing::warn!(
                mount = %mount.display(),
                %error,
                "cannot use cgroups: limits are not enforced, and processes are tracked by their parents"
            );
            None
        }
    }
}

/// The usual path of termination messages, so that a file can be bound to it in each container's
/// mount namespace without covering all of `/dev`.
fn make_termination_path() {
    let path = Path::new(DEFAULT_TERMINATION_PATH);
    if !path.exists()
        && let Err(error) = fs::File::create(path)
    {
        tracing::debug!(%error, "cannot create the path of termination messages");
    }
}
