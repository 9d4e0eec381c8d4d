//! A runtime with a folder and cgroups of its own, and a list of what it reports.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, ContainerStatus, Pod, PodStatus, Secret};
use kubevitals_model::{PodKey, Uid};
use kubevitals_process::cgroup::Hierarchies;
use kubevitals_process::{CrashBackoffConfig, ProcessConfig, ProcessMetrics, ProcessRuntime};
use kubevitals_virtual_node::runtime::{
    PodEvent, PodId, PodInputs, PodRuntime as _, RuntimeChange, RuntimeFuture, RuntimePod,
    ServiceToken, TokenRequest,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// A regression fails instead of hanging; a loaded machine has time.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A runtime under test.
pub(crate) struct Node {
    pub runtime: ProcessRuntime,
    pub config: ProcessConfig,
    log: Arc<parking_lot::Mutex<Log>>,
    changed: Arc<tokio::sync::Notify>,
    /// The runtime of this process of the node: its end is the end of the process.
    tasks: Option<tokio::runtime::Runtime>,
    folder: Option<tempfile::TempDir>,
}

#[derive(Default)]
struct Log {
    events: Vec<PodEvent>,
    statuses: Vec<RuntimePod>,
}

/// What the API server would have.
#[derive(Default)]
pub(crate) struct Inputs {
    pub config_maps: parking_lot::Mutex<BTreeMap<String, ConfigMap>>,
    pub secrets: BTreeMap<String, Secret>,
    pub services: Vec<(String, String)>,
}

impl PodInputs for Inputs {
    fn config_map(&self, _: &str, name: &str) -> RuntimeFuture<'_, Option<Arc<ConfigMap>>> {
        let found = self.config_maps.lock().get(name).cloned().map(Arc::new);
        Box::pin(async move { Ok(found) })
    }

    fn secret(&self, _: &str, name: &str) -> RuntimeFuture<'_, Option<Arc<Secret>>> {
        let found = self.secrets.get(name).cloned().map(Arc::new);
        Box::pin(async move { Ok(found) })
    }

    fn service_account_token(&self, request: TokenRequest) -> RuntimeFuture<'_, ServiceToken> {
        let token = format!("token-of-{}", request.service_account);
        Box::pin(async move {
            Ok(ServiceToken {
                token,
                renew_after: Duration::from_mins(50),
            })
        })
    }

    fn service_environment(&self, _: &str) -> RuntimeFuture<'_, Vec<(String, String)>> {
        let services = self.services.clone();
        Box::pin(async move { Ok(services) })
    }
}

impl Node {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}, Inputs::default()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut ProcessConfig), inputs: Inputs) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let shim = vec![env!("CARGO_BIN_EXE_kubevitals-process-shim").to_owned()];
        let mut config = ProcessConfig::new(folder.path(), shim, "node");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        config.cgroup_parent = format!("kubevitals-test-{}-{number}", std::process::id());
        config.crash_backoff = CrashBackoffConfig {
            initial: Duration::from_millis(50),
            max: Duration::from_millis(200),
        };
        config.retry = Duration::from_millis(50);
        change(&mut config);
        Self::open(config, Some(folder), inputs).await
    }

    async fn open(
        config: ProcessConfig,
        folder: Option<tempfile::TempDir>,
        inputs: Inputs,
    ) -> Self {
        let (changes, mut received) = mpsc::channel(64);
        let tasks = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let metrics = ProcessMetrics::default();
        let runtime = tasks
            .spawn(ProcessRuntime::open(
                config.clone(),
                Arc::new(inputs),
                changes,
                metrics,
            ))
            .await
            .expect("no panic")
            .expect("the runtime opens");
        let log = Arc::new(parking_lot::Mutex::new(Log::default()));
        let changed = Arc::new(tokio::sync::Notify::new());
        let (seen, notify) = (Arc::clone(&log), Arc::clone(&changed));
        tasks.spawn(async move {
            while let Some(change) = received.recv().await {
                match change {
                    RuntimeChange::Event(event) => seen.lock().events.push(event),
                    RuntimeChange::Status(status) => seen.lock().statuses.push(status),
                }
                notify.notify_waiters();
            }
        });
        Self {
            runtime,
            config,
            log,
            changed,
            tasks: Some(tasks),
            folder,
        }
    }

    /// Ends this process of the node without a word to the containers, and starts the next.
    pub(crate) async fn restart(mut self) -> Self {
        let folder = self.folder.take();
        let config = self.config.clone();
        let tasks = self.tasks.take().expect("it runs");
        tokio::task::spawn_blocking(move || tasks.shutdown_timeout(DEADLINE))
            .await
            .expect("no panic");
        drop(self);
        Self::open(config, folder, Inputs::default()).await
    }

    pub(crate) async fn sync(&self, pod: &Pod) -> PodId {
        self.runtime
            .sync_pod(Arc::new(pod.clone()))
            .await
            .expect("the pod is accepted");
        id_of(pod)
    }

    /// Waits for a status of a pod.
    pub(crate) async fn wait(
        &self,
        pod: &PodId,
        what: &str,
        is_it: impl Fn(&RuntimePod) -> bool,
    ) -> RuntimePod {
        let mut last = None;
        let wait = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                let found = self
                    .log
                    .lock()
                    .statuses
                    .iter()
                    .rev()
                    .find(|one| one.id == *pod)
                    .cloned();
                if let Some(found) = found {
                    if is_it(&found) {
                        return found;
                    }
                    last = Some(found);
                }
                changed.await;
            }
        };
        let found = tokio::time::timeout(DEADLINE, wait).await;
        found.unwrap_or_else(|_| {
            panic!(
                "{what}: not within the deadline; last status: {last:#?}; events: {:#?}",
                self.events(pod)
            )
        })
    }

    /// Waits until any status that the pod had matches.
    pub(crate) async fn wait_ever(
        &self,
        pod: &PodId,
        what: &str,
        is_it: impl Fn(&PodStatus) -> bool,
    ) -> PodStatus {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                let found = self
                    .log
                    .lock()
                    .statuses
                    .iter()
                    .filter(|one| one.id == *pod)
                    .map(|one| one.status.clone())
                    .find(|one| is_it(one));
                if let Some(found) = found {
                    return found;
                }
                changed.await;
            }
        };
        let found = tokio::time::timeout(DEADLINE, wait).await;
        found.unwrap_or_else(|_| {
            panic!(
                "{what}: not within the deadline; events: {:#?}",
                self.events(pod)
            )
        })
    }

    pub(crate) async fn wait_phase(&self, pod: &PodId, phase: &str) -> PodStatus {
        self.wait(pod, phase, |one| one.status.phase.as_deref() == Some(phase))
            .await
            .status
    }

    pub(crate) async fn wait_event(&self, pod: &PodId, reason: &str) -> PodEvent {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if let Some(found) = self
                    .events(pod)
                    .into_iter()
                    .find(|one| one.reason == reason)
                {
                    return found;
                }
                changed.await;
            }
        };
        let found = tokio::time::timeout(DEADLINE, wait).await;
        found.unwrap_or_else(|_| panic!("no event {reason}; events: {:#?}", self.events(pod)))
    }

    pub(crate) fn events(&self, pod: &PodId) -> Vec<PodEvent> {
        self.log
            .lock()
            .events
            .iter()
            .filter(|one| one.pod == *pod)
            .cloned()
            .collect()
    }

    /// `reason: message` of all events.
    pub(crate) fn event_texts(&self, pod: &PodId) -> Vec<String> {
        self.events(pod)
            .iter()
            .map(|one| format!("{}: {}", one.reason, one.message))
            .collect()
    }

    /// Terminates a pod and removes it.
    pub(crate) async fn end(&self, pod: &PodId) -> PodStatus {
        self.runtime
            .terminate_pod(pod, Duration::from_secs(1))
            .await
            .expect("it terminates");
        let status = self
            .wait(pod, "terminated", |one| one.is_terminated)
            .await
            .status;
        self.runtime.remove_pod(pod).await.expect("it is removed");
        status
    }

    /// Checks that nothing is left of any pod, and removes the cgroups.
    pub(crate) async fn finish(self) {
        let pods = self.config.root.join("pods");
        let left: Vec<PathBuf> = std::fs::read_dir(&pods)
            .expect("the folder")
            .flatten()
            .map(|one| one.path())
            .collect();
        assert!(left.is_empty(), "folders are left: {left:?}");
        let root = self.config.root.display().to_string();
        // A shim reports the end of its container a moment before its own.
        let wait = async {
            while !processes_with(&root).is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let is_gone = tokio::time::timeout(DEADLINE, wait).await.is_ok();
        assert!(is_gone, "processes are left: {:?}", processes_with(&root));
        if let Some(cgroups) = cgroups(&self.config) {
            for root in cgroups.roots() {
                let dir = root.join(cgroups.parent());
                let left: Vec<PathBuf> = folders(&dir)
                    .into_iter()
                    .filter(|one| !one.ends_with("shims"))
                    .collect();
                assert!(left.is_empty(), "cgroups are left: {left:?}");
                // A process leaves its cgroup a moment after its end is seen.
                let removed = async {
                    while dir.exists() {
                        let _ = std::fs::remove_dir(dir.join("shims"));
                        let _ = std::fs::remove_dir(&dir);
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                let removed = tokio::time::timeout(DEADLINE, removed).await;
                removed.expect("the cgroup of the test is empty");
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A test that failed leaves no process behind.
        if std::thread::panicking()
            && let Some(cgroups) = cgroups(&self.config)
        {
            for root in cgroups.roots() {
                let dir = root.join(cgroups.parent());
                let _ = std::fs::write(dir.join("cgroup.kill"), "1");
                let pods = folders(&dir).into_iter().flat_map(|one| folders(&one));
                for file in pods.map(|one| one.join("cgroup.procs")) {
                    let text = std::fs::read_to_string(file).unwrap_or_default();
                    let pids = text.lines().filter_map(|line| line.parse().ok());
                    for pid in pids.filter_map(rustix::process::Pid::from_raw) {
                        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                    }
                }
            }
        }
        // A runtime must not end by waiting for its tasks on a thread of another.
        if let Some(tasks) = self.tasks.take() {
            tasks.shutdown_background();
        }
    }
}

/// The cgroups of a test, or `None` with a printed reason.
pub(crate) fn cgroups(config: &ProcessConfig) -> Option<Hierarchies> {
    match Hierarchies::open(config.cgroup_mount.as_deref()?, &config.cgroup_parent) {
        Ok(found) => Some(found),
        Err(error) => {
            println!("skipped: cgroups cannot be used here: {error}");
            None
        }
    }
}

fn folders(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|one| one.path())
        .filter(|one| one.is_dir())
        .collect()
}

/// Processes whose command line has a text, zombies left out.
pub(crate) fn processes_with(text: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    folders(Path::new("/proc"))
        .into_iter()
        .filter(|one| !one.ends_with(&own))
        .filter_map(|one| std::fs::read_to_string(one.join("cmdline")).ok())
        .filter(|line| line.contains(text))
        .collect()
}

/// Zombies among the children of this process.
pub(crate) fn zombies() -> Vec<String> {
    let own = std::process::id().to_string();
    folders(Path::new("/proc"))
        .into_iter()
        .filter_map(|one| std::fs::read_to_string(one.join("stat")).ok())
        .filter(|stat| {
            let rest = stat.rsplit_once(')').map_or("", |one| one.1);
            let mut fields = rest.split_whitespace();
            fields.next() == Some("Z") && fields.next() == Some(own.as_str())
        })
        .collect()
}

/// A pod with one container that runs a script.
pub(crate) fn script(name: &str, text: &str) -> Pod {
    pod(
        name,
        json!({"restartPolicy": "Never", "containers": [container("c", text)]}),
    )
}

/// A container that runs a script.
pub(crate) fn container(name: &str, text: &str) -> Value {
    json!({"name": name, "image": "example/image:1", "command": ["/bin/sh", "-c", text]})
}

/// A pod with a specification.
pub(crate) fn pod(name: &str, spec: Value) -> Pod {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let uid = format!("{:08x}-0000-4000-8000-{number:012x}", std::process::id());
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": uid, "labels": {"app": "a"}},
        "spec": spec,
    }))
    .expect("a pod")
}

pub(crate) fn id_of(pod: &Pod) -> PodId {
    let meta = &pod.metadata;
    PodId {
        uid: Uid::from(meta.uid.as_deref().expect("a UID")),
        key: PodKey::new(
            meta.namespace.as_deref().expect("a namespace"),
            meta.name.as_deref().expect("a name"),
        ),
    }
}

/// The status of a container.
pub(crate) fn of<'a>(status: &'a PodStatus, name: &str) -> &'a ContainerStatus {
    let mains = status.container_statuses.iter().flatten();
    let inits = status.init_container_statuses.iter().flatten();
    mains
        .chain(inits)
        .find(|one| one.name == name)
        .expect("the container has a status")
}

/// The exit code and the reason of a container that has ended.
pub(crate) fn exit(status: &PodStatus, name: &str) -> (i32, String) {
    let state = of(status, name).state.as_ref().expect("a state");
    let ended = state.terminated.as_ref().expect("it has ended");
    (ended.exit_code, ended.reason.clone().unwrap_or_default())
}

/// Status and reason of a condition.
pub(crate) fn condition(status: &PodStatus, name: &str) -> (String, String) {
    let found = status
        .conditions
        .iter()
        .flatten()
        .find(|one| one.type_ == name);
    let found = found.expect("the condition");
    (
        found.status.clone(),
        found.reason.clone().unwrap_or_default(),
    )
}

/// The text of a log file, without the headers of its lines.
pub(crate) fn log_text(node: &Node, pod: &Pod, container: &str, attempt: u32) -> String {
    let meta = &pod.metadata;
    let folder = format!(
        "{}_{}_{}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
        meta.uid.as_deref().unwrap_or_default()
    );
    let path = node
        .config
        .logs
        .join(folder)
        .join(container)
        .join(format!("{attempt}.log"));
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines()
        .map(|line| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned() + "\n")
        .collect()
}
