//! Statistics of the node and its pods, from our cgroups, or from `/proc` without them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use hashbrown::HashMap;
use kubevitals_kubelet_api::ProviderError;
use kubevitals_kubelet_api::provider::{ProviderFuture, Stats};
use kubevitals_model::node_stats::{
    CgroupStats, ContainerStats, CpuStats, MemoryStats, NodeStats, PidStats, PodStats, RateBase,
};
use kubevitals_model::{Bytes, CoreNanos, Timestamp};

use crate::cgroup::Cgroup;
use crate::instance::Instance;
use crate::runtime::{PodHandle, ProcessRuntime};

/// The nanoseconds of a tick of `/proc`, which is always a hundredth of a second.
const TICK_NANOS: u64 = 10_000_000;

/// The rates of each container, pod and of the node.
#[derive(Debug)]
pub(crate) struct Rates {
    since: Instant,
    bases: HashMap<String, RateBase>,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            bases: HashMap::new(),
        }
    }
}

impl Stats for ProcessRuntime {
    fn stats(&self, _only_cpu_and_memory: bool) -> ProviderFuture<'_, Arc<NodeStats>> {
        let runtime = self.clone();
        Box::pin(async move {
            let sample = tokio::task::spawn_blocking(move || runtime.sample()).await;
            sample
                .map(Arc::new)
                .map_err(|_| ProviderError::Unavailable("the sample was cancelled".to_owned()))
        })
    }
}

impl ProcessRuntime {
    fn sample(&self) -> NodeStats {
        let mut rates = self.inner.rates.lock();
        let mut next = HashMap::new();
        let mut node = NodeStats {
            name: self.inner.config.node_name.clone(),
            usage: node_usage(),
            ..NodeStats::default()
        };
        rate(&mut node.usage, "/", &rates, &mut next);
        node.machine.cores = Some(self.inner.config.cpu_milli / 1000);
        node.machine.memory = Some(Bytes::new(self.inner.config.memory_bytes));
        for handle in self.handles() {
            if let Some(pod) = self.pod_stats(&handle, &rates, &mut next) {
                node.pods.push(pod);
            }
        }
        node.pods.sort_by(|a, b| {
            (a.key.namespace(), a.key.name()).cmp(&(b.key.namespace(), b.key.name()))
        });
        // What is gone is forgotten.
        rates.bases = next;
        node
    }

    fn pod_stats(
        &self,
        handle: &PodHandle,
        rates: &Rates,
        next: &mut HashMap<String, RateBase>,
    ) -> Option<PodStats> {
        let uid = handle.id.uid.to_string();
        let (instances, started) = {
            let shared = handle.shared.read();
            let instances: Vec<Arc<Instance>> = shared.instances.values().cloned().collect();
            let started = shared
                .status
                .start_time
                .as_ref()
                .map(|time| time.0.as_millisecond());
            (instances, started.map(Timestamp::from_unix_millis))
        };
        if instances.is_empty() {
            return None;
        }
        let mut containers: Vec<ContainerStats> = instances
            .iter()
            .map(|instance| {
                let mut usage = match &instance.launch.cgroup {
                    Some(cgroup) => cgroup_usage(cgroup),
                    None => instance.pid().map(process_usage).unwrap_or_default(),
                };
                rate(&mut usage, &instance.id, rates, next);
                ContainerStats {
                    name: instance.container.clone(),
                    id: instance.id.clone(),
                    started: instance.started_ms().map(Timestamp::from_unix_millis),
                    usage,
                    ..ContainerStats::default()
                }
            })
            .collect();
        containers.sort_by(|a, b| a.name.cmp(&b.name));
        let mut usage = match &self.inner.cgroups {
            Some(cgroups) => cgroup_usage(&cgroups.pod(&uid)),
            None => sum(&containers),
        };
        if let Some(cgroups) = &self.inner.cgroups {
            usage.path = format!("/{}/pod{uid}", cgroups.parent().display());
            for container in &mut containers {
                container.usage.path = format!("{}/{}", usage.path, container.id);
            }
        }
        rate(&mut usage, &uid, rates, next);
        let processes = containers
            .iter()
            .filter_map(|one| one.usage.pids.as_ref()?.processes);
        Some(PodStats {
            key: handle.id.key.clone(),
            uid: handle.id.uid.clone(),
            started,
            process_count: Some(processes.sum()),
            usage,
            network: None,
            volumes: Vec::new(),
            ephemeral_storage: None,
            containers,
        })
    }
}

/// Adds the rate since the last sample, and keeps this one.
fn rate(usage: &mut CgroupStats, key: &str, rates: &Rates, next: &mut HashMap<String, RateBase>) {
    let Some(cpu) = &mut usage.cpu else {
        return;
    };
    let mut base = rates.bases.get(key).copied().unwrap_or_default();
    cpu.rate = base.add(rates.since.elapsed(), cpu.total);
    next.insert(key.to_owned(), base);
}

fn now() -> Timestamp {
    Timestamp::from_unix_millis(crate::shim::record::now_ms())
}

/// A cgroup in either version.
fn cgroup_usage(cgroup: &Cgroup) -> CgroupStats {
    let dirs = cgroup.dirs();
    let at = now();
    let total = number(dirs, "cpuacct.usage")
        .or_else(|| Some(field(dirs, "cpu.stat", "usage_usec")?.saturating_mul(1000)));
    let usage = number(dirs, "memory.current").or_else(|| number(dirs, "memory.usage_in_bytes"));
    let stat = |v2: &str, v1: &str| {
        field(dirs, "memory.stat", v1).or_else(|| field(dirs, "memory.stat", v2))
    };
    let inactive = stat("inactive_file", "total_inactive_file");
    let limit = number(dirs, "memory.max")
        .or_else(|| number(dirs, "memory.limit_in_bytes"))
        .filter(|one| *one < 1 << 62);
    CgroupStats {
        cpu: total.map(|total| CpuStats::new(at, CoreNanos::new(total))),
        memory: usage.map(|usage| MemoryStats {
            usage: Some(Bytes::new(usage)),
            working_set: inactive.map(|one| Bytes::new(usage.saturating_sub(one))),
            rss: stat("anon", "total_rss").map(Bytes::new),
            inactive_file: inactive.map(Bytes::new),
            page_faults: stat("pgfault", "total_pgfault"),
            major_page_faults: stat("pgmajfault", "total_pgmajfault"),
            limit: limit.map(Bytes::new),
            ..MemoryStats::new(at)
        }),
        pids: Some(PidStats {
            processes: u64::try_from(cgroup.processes().len()).ok(),
            threads: number(dirs, "pids.current"),
            threads_limit: number(dirs, "pids.max"),
        }),
        oom_kills: Some(cgroup.oom_kills()),
        ..CgroupStats::default()
    }
}

fn sum(containers: &[ContainerStats]) -> CgroupStats {
    let cpu_total = containers
        .iter()
        .filter_map(|one| one.usage.cpu.as_ref())
        .map(|one| one.total.get());
    let memory = |read: fn(&MemoryStats) -> Option<Bytes>| {
        let values = containers
            .iter()
            .filter_map(|one| read(one.usage.memory.as_ref()?));
        Some(Bytes::new(values.map(Bytes::count).sum()))
    };
    let at = now();
    CgroupStats {
        cpu: Some(CpuStats::new(at, CoreNanos::new(cpu_total.sum()))),
        memory: Some(MemoryStats {
            working_set: memory(|one| one.working_set),
            rss: memory(|one| one.rss),
            ..MemoryStats::new(at)
        }),
        ..CgroupStats::default()
    }
}

/// A process and its descendants, where there is no cgroup. What has ended and was reaped by its
/// parent counts by the parent's sum of it.
fn process_usage(pid: i32) -> CgroupStats {
    let (mut ticks, mut pages, mut count) = (0_u64, 0_u64, 0_u64);
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        let fields: Vec<u64> = stat
            .rsplit_once(')')
            .map(|(_, rest)| {
                rest.split_ascii_whitespace()
                    .skip(1)
                    .map(|one| one.parse().unwrap_or(0))
                    .collect()
            })
            .unwrap_or_default();
        // utime, stime, cutime, cstime, and the resident pages.
        ticks += fields.get(10..14).unwrap_or_default().iter().sum::<u64>();
        pages += fields.get(20).copied().unwrap_or(0);
        count += 1;
        let children =
            fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        found.extend(
            children
                .split_ascii_whitespace()
                .filter_map(|one| one.parse::<i32>().ok()),
        );
        if found.len() > 10_000 {
            break;
        }
    }
    let at = now();
    let resident =
        Bytes::new(pages.saturating_mul(u64::try_from(rustix::param::page_size()).unwrap_or(4096)));
    CgroupStats {
        cpu: Some(CpuStats::new(
            at,
            CoreNanos::new(ticks.saturating_mul(TICK_NANOS)),
        )),
        memory: Some(MemoryStats {
            working_set: Some(resident),
            rss: Some(resident),
            ..MemoryStats::new(at)
        }),
        pids: Some(PidStats {
            processes: Some(count),
            threads: None,
            threads_limit: None,
        }),
        ..CgroupStats::default()
    }
}

/// The node, by `/proc`.
fn node_usage() -> CgroupStats {
    let at = now();
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq, steal.
    let total = stat.lines().next().and_then(|line| {
        let fields: Vec<u64> = line
            .split_ascii_whitespace()
            .skip(1)
            .filter_map(|one| one.parse().ok())
            .collect();
        let busy = [0, 1, 2, 5, 6, 7]
            .into_iter()
            .filter_map(|one: usize| fields.get(one));
        (fields.len() >= 8).then(|| busy.sum::<u64>().saturating_mul(TICK_NANOS))
    });
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let value = |name: &str| -> Option<u64> {
        let line = memory.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line
            .trim_start_matches(':')
            .trim()
            .strip_suffix(" kB")?
            .parse()
            .ok()?;
        kib.checked_mul(1024)
    };
    let working_set = value("MemTotal")
        .zip(value("MemAvailable"))
        .map(|(all, free)| all.saturating_sub(free));
    CgroupStats {
        path: "/".to_owned(),
        cpu: total.map(|total| CpuStats::new(at, CoreNanos::new(total))),
        memory: working_set.map(|one| MemoryStats {
            working_set: Some(Bytes::new(one)),
            ..MemoryStats::new(at)
        }),
        ..CgroupStats::default()
    }
}

fn number(dirs: &[PathBuf], file: &str) -> Option<u64> {
    dirs.iter()
        .find_map(|dir| read(dir, file)?.trim().parse().ok())
}

fn field(dirs: &[PathBuf], file: &str, name: &str) -> Option<u64> {
    dirs.iter().find_map(|dir| {
        let text = read(dir, file)?;
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(' ')?;
            (key == name).then(|| value.trim().parse().ok())?
        })
    })
}

fn read(dir: &Path, file: &str) -> Option<String> {
    fs::read_to_string(dir.join(file)).ok()
}
