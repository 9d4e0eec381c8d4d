//! `/stats/summary`: `stats/v1alpha1` as the kubelet writes it, indented, with the order of fields
//! and the omissions of Go's structs.
//!
//! Written by hand rather than by serde: the same bytes need Go's indent of one blank, Go's escapes
//! and Go's numbers, and a summary of a hundred pods is written without a tree.

mod json;

use kubevitals_model::node_stats::{
    CgroupStats, ContainerStats, CpuStats, FsStats, InterfaceStats, MemoryStats, NetworkStats,
    NodeStats, PodStats, Pressure, PressureLine, SwapStats, VolumeStats,
};
use kubevitals_model::{Bytes, CpuUsage, Timestamp};

use self::json::Json;

/// How a summary is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SummaryOptions {
    /// Leaves out file systems, networks, input and output, volumes and process counts
    /// (`only_cpu_and_memory`).
    pub only_cpu_and_memory: bool,
    /// Writes the totals of pressure in microseconds, as kubelets up to 1.37 do by mistake, instead
    /// of the documented nanoseconds.
    pub pressure_in_micros: bool,
}

/// Encodes the statistics of a node.
pub fn encode(stats: &NodeStats, options: SummaryOptions) -> Vec<u8> {
    let writer = Writer { options };
    let mut out = Vec::with_capacity(4096 + stats.pods.len() * 4096);
    let mut json = Json::new(&mut out);
    json.root(|json| {
        json.object("node", |json| writer.node(json, stats));
        json.array("pods", &stats.pods, |json, pod| writer.pod(json, pod));
    });
    out
}

/// Go's zero value.
const NO_PRESSURE: PressureLine = PressureLine {
    total_micros: 0,
    avg10: 0.0,
    avg60: 0.0,
    avg300: 0.0,
};

/// Writes the parts of a summary.
#[derive(Clone, Copy)]
struct Writer {
    options: SummaryOptions,
}

impl Writer {
    fn node(self, json: &mut Json<'_>, node: &NodeStats) {
        json.text("nodeName", &node.name);
        if !node.system_containers.is_empty() {
            json.array("systemContainers", &node.system_containers, |json, one| {
                self.container(json, one);
            });
        }
        start(json, node.started);
        self.usage(json, &node.usage);
        if !self.options.only_cpu_and_memory {
            network(json, node.network.as_ref());
            fs(json, "fs", node.fs.as_ref());
            if node.image_fs.is_some() || node.container_fs.is_some() {
                json.object("runtime", |json| {
                    fs(json, "imageFs", node.image_fs.as_ref());
                    fs(json, "containerFs", node.container_fs.as_ref());
                });
            }
            if let Some(processes) = &node.processes {
                json.object("rlimit", |json| {
                    time(json, processes.at);
                    json.number("maxpid", processes.max);
                    json.number("curproc", processes.current);
                });
            }
        }
        swap(json, node.usage.swap.as_ref());
    }

    fn pod(self, json: &mut Json<'_>, pod: &PodStats) {
        json.object("podRef", |json| {
            json.text("name", pod.key.name());
            json.text("namespace", pod.key.namespace());
            json.text("uid", &pod.uid.to_string());
        });
        start(json, pod.started);
        json.array("containers", &pod.containers, |json, one| {
            self.container(json, one);
        });
        self.usage(json, &pod.usage);
        if !self.options.only_cpu_and_memory {
            network(json, pod.network.as_ref());
            if !pod.volumes.is_empty() {
                json.array("volume", &pod.volumes, |json, one| {
                    volume(json, one, pod.key.namespace());
                });
            }
            fs(json, "ephemeral-storage", pod.ephemeral_storage.as_ref());
            if let Some(count) = pod.process_count {
                json.object("process_stats", |json| json.number("process_count", count));
            }
        }
        swap(json, pod.usage.swap.as_ref());
    }

    fn container(self, json: &mut Json<'_>, container: &ContainerStats) {
        json.text("name", &container.name);
        start(json, container.started);
        self.usage(json, &container.usage);
        if !self.options.only_cpu_and_memory {
            fs(json, "rootfs", container.rootfs.as_ref());
            fs(json, "logs", container.logs.as_ref());
        }
        swap(json, container.usage.swap.as_ref());
    }

    /// CPU, memory, input and output; swap comes last in its parent.
    fn usage(self, json: &mut Json<'_>, usage: &CgroupStats) {
        if let Some(cpu) = &usage.cpu {
            json.object("cpu", |json| self.cpu(json, cpu));
        }
        if let Some(memory) = &usage.memory {
            json.object("memory", |json| self.memory(json, memory));
        }
        if let Some(io) = &usage.io
            && !self.options.only_cpu_and_memory
        {
            json.object("io", |json| {
                time(json, io.at);
                self.pressure(json, io.pressure.as_ref());
            });
        }
    }

    fn cpu(self, json: &mut Json<'_>, cpu: &CpuStats) {
        time(json, cpu.at);
        optional(json, "usageNanoCores", cpu.rate.map(CpuUsage::nanocores));
        json.number("usageCoreNanoSeconds", cpu.total.get());
        self.pressure(json, cpu.pressure.as_ref());
    }

    fn memory(self, json: &mut Json<'_>, memory: &MemoryStats) {
        time(json, memory.at);
        bytes(json, "availableBytes", memory.available());
        bytes(json, "usageBytes", memory.usage);
        bytes(json, "workingSetBytes", memory.working_set);
        bytes(json, "rssBytes", memory.rss);
        optional(json, "pageFaults", memory.page_faults);
        optional(json, "majorPageFaults", memory.major_page_faults);
        self.pressure(json, memory.pressure.as_ref());
    }

    fn pressure(self, json: &mut Json<'_>, pressure: Option<&Pressure>) {
        let Some(pressure) = pressure else {
            return;
        };
        json.object("psi", |json| {
            // Both are structs in Go, which are never omitted.
            for (name, line) in [
                ("full", pressure.full.unwrap_or(NO_PRESSURE)),
                ("some", pressure.some),
            ] {
                json.object(name, |json| {
                    let unit = if self.options.pressure_in_micros {
                        1
                    } else {
                        1000
                    };
                    json.number("total", line.total_micros.saturating_mul(unit));
                    json.float("avg10", line.avg10);
                    json.float("avg60", line.avg60);
                    json.float("avg300", line.avg300);
                });
            }
        });
    }
}

fn swap(json: &mut Json<'_>, swap: Option<&SwapStats>) {
    if let Some(swap) = swap {
        json.object("swap", |json| {
            time(json, swap.at);
            bytes(json, "swapAvailableBytes", swap.available());
            bytes(json, "swapUsageBytes", Some(swap.usage));
        });
    }
}

/// The counters of the default interface, then those of all. Without a default interface there is
/// an empty name and no counter, as in Go.
fn network(json: &mut Json<'_>, network: Option<&NetworkStats>) {
    let Some(network) = network else {
        return;
    };
    json.object("network", |json| {
        time(json, network.at);
        match network.default_interface() {
            Some(default) => interface(json, default),
            None => json.text("name", ""),
        }
        if !network.interfaces.is_empty() {
            json.array("interfaces", &network.interfaces, interface);
        }
    });
}

fn interface(json: &mut Json<'_>, interface: &InterfaceStats) {
    json.text("name", &interface.name);
    json.number("rxBytes", interface.rx_bytes);
    json.number("rxErrors", interface.rx_errors);
    json.number("txBytes", interface.tx_bytes);
    json.number("txErrors", interface.tx_errors);
}

fn volume(json: &mut Json<'_>, volume: &VolumeStats, namespace: &str) {
    fs_fields(json, &volume.fs);
    json.text("name", &volume.name);
    if let Some(claim) = &volume.claim {
        json.object("pvcRef", |json| {
            json.text("name", claim);
            json.text("namespace", namespace);
        });
    }
}

fn fs(json: &mut Json<'_>, name: &'static str, fs: Option<&FsStats>) {
    if let Some(fs) = fs {
        json.object(name, |json| fs_fields(json, fs));
    }
}

fn fs_fields(json: &mut Json<'_>, fs: &FsStats) {
    time(json, fs.at);
    bytes(json, "availableBytes", fs.available);
    bytes(json, "capacityBytes", fs.capacity);
    bytes(json, "usedBytes", fs.used);
    optional(json, "inodesFree", fs.inodes_free);
    optional(json, "inodes", fs.inodes);
    optional(json, "inodesUsed", fs.inodes_used);
}

/// A `metav1.Time` that is not set is `null`.
fn start(json: &mut Json<'_>, started: Option<Timestamp>) {
    match started {
        Some(started) => json.text("startTime", started.rfc3339_seconds().as_str()),
        None => json.null("startTime"),
    }
}

fn time(json: &mut Json<'_>, at: Timestamp) {
    json.text("time", at.rfc3339_seconds().as_str());
}

fn bytes(json: &mut Json<'_>, name: &'static str, value: Option<Bytes>) {
    optional(json, name, value.map(Bytes::count));
}

fn optional(json: &mut Json<'_>, name: &'static str, value: Option<u64>) {
    if let Some(value) = value {
        json.number(name, value);
    }
}
