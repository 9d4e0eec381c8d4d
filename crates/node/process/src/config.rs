//! Settings of the runtime.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The settings of a [`crate::ProcessRuntime`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProcessConfig {
    /// The folder of pods: volumes, records, sockets. It has mode 0700.
    pub root: PathBuf,
    /// The folder of logs, laid out as `/var/log/pods`.
    pub logs: PathBuf,
    /// The program of the shim and the arguments that make it call [`crate::shim::main`].
    pub shim: Vec<String>,
    /// Where cgroups are mounted; `None` runs without cgroups.
    pub cgroup_mount: Option<PathBuf>,
    /// The parent of the cgroups of all pods. Never that of a kubelet, which kills unknown pods.
    pub cgroup_parent: String,
    pub node_name: String,
    /// The addresses of the node, which all its pods share.
    pub node_ips: Vec<IpAddr>,
    /// What containers without limits see as their limit.
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub max_pods: usize,
    /// Processes and threads of a pod.
    pub max_pids: Option<u64>,
    pub log_max_bytes: u64,
    pub log_max_files: usize,
    pub crash_backoff: CrashBackoffConfig,
    /// Whether volumes appear at their paths, in a mount namespace for each container. Needs root.
    /// Otherwise containers find them by the variables `KUBEVITALS_MOUNT_<NAME>`.
    pub mount_volumes: bool,
    /// How often files of ConfigMaps, Secrets and the downward API are read again.
    pub volume_refresh: Duration,
    /// How long to wait before a failed volume or configuration is tried again.
    pub retry: Duration,
}

/// The waits before a container that has ended is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashBackoffConfig {
    pub initial: Duration,
    pub max: Duration,
}

impl ProcessConfig {
    /// The defaults, for a shim that is started as `shim`.
    pub fn new(root: impl Into<PathBuf>, shim: Vec<String>, node_name: impl Into<String>) -> Self {
        let root = root.into();
        Self {
            logs: root.join("logs"),
            root,
            shim,
            cgroup_mount: Some(PathBuf::from("/sys/fs/cgroup")),
            cgroup_parent: "kubevitals".to_owned(),
            node_name: node_name.into(),
            node_ips: Vec::new(),
            cpu_milli: std::thread::available_parallelism()
                .map_or(1000, |n| u64::try_from(n.get()).unwrap_or(1) * 1000),
            memory_bytes: total_memory().unwrap_or(1 << 30),
            max_pods: 110,
            max_pids: None,
            log_max_bytes: 10 << 20,
            log_max_files: 5,
            crash_backoff: CrashBackoffConfig::default(),
            mount_volumes: rustix::process::geteuid().is_root(),
            volume_refresh: Duration::from_mins(1),
            retry: Duration::from_secs(2),
        }
    }

    pub(crate) fn pod_folder(&self, uid: &str) -> PathBuf {
        self.root.join("pods").join(uid)
    }
}

impl Default for CrashBackoffConfig {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(10),
            max: Duration::from_mins(5),
        }
    }
}

fn total_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}
