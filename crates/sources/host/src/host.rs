//! Reads a whole host: one sample of the node, its pods and containers.

use std::sync::Arc;

use hashbrown::HashSet;
use kubevitals_model::node_stats::{ContainerStats, FsStats, NetworkStats, NodeStats, PodStats};
use kubevitals_model::{Bytes, Clock, Timestamp};

use crate::cgroup::{Cgroup, CgroupVersion, Context, Hierarchies};
use crate::error::{Fault, Faults, HostError};
use crate::machine::{HostPaths, Machine};
use crate::names::{Names, PodNames};
use crate::parse::MemInfo;
use crate::read::Scope;
use crate::tree::{ContainerEntry, PodEntry, Tree};

/// How often a container without a name is looked up in log folders. Its cgroup appears before its
/// log does; a sandbox never has one.
const MAX_NAMELESS_SCANS: u32 = 5;

/// How often sizes of log files are read, in samples.
const LOG_SIZE_INTERVAL: u64 = 6;

/// System services whose cgroups are read, and their names in the kubelet's summary.
const SERVICES: [(&str, &str); 4] = [
    ("kubelet", "/system.slice/kubelet.service"),
    ("runtime", "/system.slice/containerd.service"),
    ("runtime", "/system.slice/crio.service"),
    ("runtime", "/system.slice/docker.service"),
];

/// How a host is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostOptions {
    /// The name of the Node.
    pub node: String,
    pub paths: HostPaths,
    /// The number of files that are kept open between samples, which is cheaper than to open them
    /// again. Each costs a page of memory in the kernel. Limited to half of what the process may
    /// open.
    pub keep_files: usize,
}

/// Reads a host, sample by sample.
pub struct HostReader {
    node: String,
    hierarchies: Hierarchies,
    machine: Machine,
    root: Cgroup,
    /// Cgroups that are not pods.
    services: Vec<(&'static str, Cgroup)>,
    tree: Tree,
    names: Names,
    context: Context,
    samples: u64,
}

/// One sample, and how it went.
#[derive(Debug, Clone)]
pub struct Sample {
    pub stats: Arc<NodeStats>,
    pub faults: Faults,
    /// The number of cgroups that were read.
    pub cgroups: u64,
    /// Containers and pods that run and have no name; one container of a pod is its sandbox.
    pub unresolved: u64,
    /// The number of files that are kept open.
    pub kept_files: usize,
}

impl HostOptions {
    /// The default for a node whose root is mounted at `/`.
    pub fn new(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            paths: HostPaths::below(std::path::Path::new("/")),
            keep_files: 4096,
        }
    }
}

impl HostReader {
    /// Opens the file systems of a host.
    pub fn open(options: HostOptions, names: Names, clock: Clock) -> Result<Self, HostError> {
        let HostOptions {
            node,
            paths,
            keep_files,
        } = options;
        let hierarchies = Hierarchies::open(&paths.cgroup)?;
        let root = hierarchies
            .cgroup("/", 0)
            .map_err(|error| HostError::Cgroups {
                path: paths.cgroup.clone(),
                source: error.into(),
            })?;
        let keep_files = keep_files.min(open_files_limit() / 2);
        let mut context = Context::new(hierarchies.version, clock, keep_files);
        let machine = Machine::open(paths, &mut context.buffer)?;
        Ok(Self {
            node,
            hierarchies,
            machine,
            root,
            services: Vec::new(),
            tree: Tree::default(),
            names,
            context,
            samples: 0,
        })
    }

    pub fn version(&self) -> CgroupVersion {
        self.hierarchies.version
    }

    /// Reads everything once. A cgroup that cannot be read is missing from the sample.
    pub fn sample(&mut self) -> Sample {
        let context = &mut self.context;
        context.faults = Faults::default();
        context.cgroups = 0;
        let walked = self.tree.update(&self.hierarchies, context);
        if walked {
            self.find_services();
        }
        self.look_up_names();
        let reads_logs = self.samples.is_multiple_of(LOG_SIZE_INTERVAL);
        self.samples += 1;

        let Self {
            machine,
            context,
            hierarchies,
            root,
            services,
            tree,
            names,
            ..
        } = self;
        let memory = machine.meminfo(&mut context.buffer);
        let usage = context.stats(root, Scope::Root, &memory);
        let system_containers = services
            .iter_mut()
            .map(|(name, cgroup)| ContainerStats {
                name: (*name).to_owned(),
                started: started(cgroup.created_millis(), machine.booted),
                usage: context.stats(cgroup, Scope::Pod, &memory),
                ..ContainerStats::default()
            })
            .collect();
        let network = machine.network(1, &mut context.buffer, &context.clock);
        let mut unresolved = 0;
        let mut pods = Vec::new();
        let mut pass = Pass {
            log_fs: machine.log_fs(&context.clock),
            machine,
            context,
            hierarchies,
            memory: &memory,
            node_network: network.as_ref(),
            reads_logs,
        };
        // Whoever owns a cgroup can give the ones below it the names of others' pods. Those of a
        // kubelet are nearer to the root, and come first.
        let mut seen: HashSet<String> = HashSet::new();
        for pod in tree.pods_mut() {
            if !seen.insert(pod.uid.clone()) {
                pass.context.faults.add(Fault::Duplicate);
                continue;
            }
            let Some(names) = names.get(&pod.uid) else {
                unresolved += 1;
                continue;
            };
            let (mut stats, mut nameless) = pass.pod(pod, &names);
            if pod.has_stale() {
                // A container ended meanwhile, and perhaps another has taken its place.
                pod.update(pass.context, true);
                (stats, nameless) = pass.pod(pod, &names);
            }
            unresolved += nameless;
            let is_gone = stats.usage.cpu.is_none() && stats.containers.is_empty();
            if !is_gone {
                pods.push(stats);
            }
        }
        pods.sort_unstable_by(|a, b| {
            let (a, b) = (&a.key, &b.key);
            (a.namespace(), a.name()).cmp(&(b.namespace(), b.name()))
        });
        let image_fs = machine.image_fs(&context.clock);
        let stats = NodeStats {
            name: self.node.clone(),
            started: machine.booted,
            usage,
            system_containers,
            network,
            fs: machine.kubelet_fs(&context.clock),
            image_fs,
            container_fs: image_fs,
            processes: machine.processes(&mut context.buffer, &context.clock),
            machine: machine.info.clone(),
            pods,
        };
        let of_pods: usize = tree.pods_mut().map(|pod| pod.kept_files()).sum();
        let of_services: usize = services.iter().map(|(_, cgroup)| cgroup.kept).sum();
        context.kept = of_pods + of_services + root.kept;
        Sample {
            stats: Arc::new(stats),
            faults: context.faults,
            cgroups: context.cgroups,
            unresolved,
            kept_files: context.kept,
        }
    }

    /// Opens the cgroups of system services and of all pods.
    fn find_services(&mut self) {
        let pods = self.tree.pods_roots().map(|path| ("pods", path));
        let wanted = pods.take(1).chain(SERVICES);
        let mut found = Vec::new();
        let mut known = std::mem::take(&mut self.services);
        for (name, path) in wanted {
            let is_known = |(_, cgroup): &(_, Cgroup)| cgroup.path == path && !cgroup.is_stale;
            if let Some(at) = known.iter().position(is_known) {
                found.push(known.swap_remove(at));
            } else if let Ok(cgroup) = self.hierarchies.cgroup(path, 0) {
                found.push((name, cgroup));
            }
        }
        self.services = found;
    }

    /// Scans log folders if there is a container that may have a name by now.
    fn look_up_names(&mut self) {
        if !self.names.has_logs() {
            return;
        }
        let mut scans = false;
        for pod in self.tree.pods_mut() {
            let names = self.names.get(&pod.uid);
            for container in pod.containers.values_mut() {
                let name = names
                    .as_ref()
                    .and_then(|names| names.container(&container.id));
                if name.is_none() && container.nameless < MAX_NAMELESS_SCANS {
                    container.nameless += 1;
                    scans = true;
                }
            }
        }
        if scans {
            self.names.scan();
        }
    }
}

/// What the pods of one sample share.
struct Pass<'a> {
    machine: &'a Machine,
    context: &'a mut Context,
    hierarchies: &'a Hierarchies,
    memory: &'a MemInfo,
    node_network: Option<&'a NetworkStats>,
    log_fs: Option<FsStats>,
    reads_logs: bool,
}

impl Pass<'_> {
    /// Reads a pod. Returns the number of containers without a name besides the sandbox too.
    fn pod(&mut self, pod: &mut PodEntry, names: &PodNames) -> (PodStats, u64) {
        let usage = self.context.stats(&mut pod.cgroup, Scope::Pod, self.memory);
        let log_folder = self
            .reads_logs
            .then(|| format!("{}_{}_{}", names.key.namespace(), names.key.name(), pod.uid));
        let mut containers: Vec<ContainerStats> = Vec::new();
        let mut nameless: u64 = 0;
        let mut process = None;
        for entry in pod.containers.values_mut() {
            let Some(name) = names.container(&entry.id) else {
                nameless += 1;
                continue;
            };
            if let Some(folder) = &log_folder {
                let buffer = &mut self.context.buffer;
                entry.log_bytes = self.machine.log_bytes(folder, &name.name, buffer);
            }
            let Some(mut stats) = self.container(entry) else {
                continue;
            };
            let is_gone = stats.usage.cpu.is_none() && stats.usage.memory.is_none();
            if is_gone {
                continue;
            }
            process = process.or(entry.cgroup.as_ref().and_then(|cgroup| cgroup.process));
            stats.name.clone_from(&name.name);
            stats.image.clone_from(&name.image);
            stats.started = name.started.or(stats.started);
            // An earlier instance may linger for a moment.
            match containers.iter_mut().find(|other| other.name == stats.name) {
                Some(other) if other.started < stats.started => *other = stats,
                Some(_) => {}
                None => containers.push(stats),
            }
        }
        containers.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let network = if names.host_network {
            self.node_network.cloned()
        } else {
            let (buffer, clock) = (&mut self.context.buffer, &self.context.clock);
            process.and_then(|process| self.machine.network(process, buffer, clock))
        };
        let processes = containers
            .iter()
            .map(|container| container.usage.pids.and_then(|pids| pids.processes));
        let first = containers.iter().filter_map(|one| one.started).min();
        let stats = PodStats {
            key: names.key.clone(),
            uid: pod.uid.as_str().into(),
            started: names.started.or(first),
            usage,
            network,
            volumes: Vec::new(),
            ephemeral_storage: None,
            process_count: processes.sum(),
            containers,
        };
        (stats, nameless.saturating_sub(1))
    }

    fn container(&mut self, entry: &mut ContainerEntry) -> Option<ContainerStats> {
        if entry.cgroup.is_none() {
            let stagger = u32::from(entry.id.bytes().last().unwrap_or_default());
            match self.hierarchies.cgroup(&entry.path, stagger) {
                Ok(cgroup) => {
                    entry.created = cgroup.created_millis();
                    entry.cgroup = Some(cgroup);
                }
                Err(error) => {
                    self.context.faults.add(error.into());
                    return None;
                }
            }
        }
        let cgroup = entry.cgroup.as_mut()?;
        let usage = self.context.stats(cgroup, Scope::Container, self.memory);
        let logs = entry.log_bytes.map(|bytes| FsStats {
            used: Some(Bytes::new(bytes)),
            inodes_used: None,
            ..self.log_fs.unwrap_or(FsStats {
                at: self.context.clock.now(),
                available: None,
                capacity: None,
                used: None,
                inodes_free: None,
                inodes: None,
                inodes_used: None,
            })
        });
        Some(ContainerStats {
            id: entry.id.clone(),
            started: started(entry.created, self.machine.booted),
            usage,
            logs,
            ..ContainerStats::default()
        })
    }
}

impl PodEntry {
    /// The number of files that are kept open.
    fn kept_files(&self) -> usize {
        let containers = self.containers.values();
        let of_containers: usize = containers
            .filter_map(|container| container.cgroup.as_ref())
            .map(|cgroup| cgroup.kept)
            .sum();
        self.cgroup.kept + of_containers
    }
}

/// A start time, not before the boot.
fn started(millis: Option<i64>, booted: Option<Timestamp>) -> Option<Timestamp> {
    let started = Timestamp::from_unix_millis(millis?);
    Some(booted.map_or(started, |booted| started.max(booted)))
}

/// The number of files that this process may open.
fn open_files_limit() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}
