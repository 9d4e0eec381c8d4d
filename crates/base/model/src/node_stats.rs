//! Statistics of a node, its pods and its containers at one moment: what a kubelet's stats
//! endpoints are encoded from.
//!
//! A provider takes one [`NodeStats`], and `/metrics/resource`, `/stats/summary` and
//! `/metrics/cadvisor` show the same numbers. Every part is optional: what is unknown is absent,
//! never zero. Each group of values has the time at which it was read.

use std::time::Duration;

use crate::amount::{Bytes, CoreNanos, CpuUsage};
use crate::key::PodKey;
use crate::objects::identity::Uid;
use crate::timestamp::Timestamp;

/// The statistics of a node and everything on it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeStats {
    /// The name of the Node.
    pub name: String,
    /// The boot time.
    pub started: Option<Timestamp>,
    /// The root cgroup.
    pub usage: CgroupStats,
    /// Cgroups that are not pods, such as `pods`, `kubelet` and `runtime`.
    pub system_containers: Vec<ContainerStats>,
    pub network: Option<NetworkStats>,
    /// The file system that holds the files of pods.
    pub fs: Option<FsStats>,
    /// The file system that holds images.
    pub image_fs: Option<FsStats>,
    /// The file system that holds writable layers.
    pub container_fs: Option<FsStats>,
    pub processes: Option<ProcessLimits>,
    pub machine: MachineInfo,
    pub pods: Vec<PodStats>,
}

/// The statistics of a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodStats {
    pub key: PodKey,
    pub uid: Uid,
    pub started: Option<Timestamp>,
    /// The cgroup of the pod.
    pub usage: CgroupStats,
    pub network: Option<NetworkStats>,
    pub volumes: Vec<VolumeStats>,
    /// Writable layers, logs and local volumes together.
    pub ephemeral_storage: Option<FsStats>,
    pub process_count: Option<u64>,
    /// The running containers, init containers included.
    pub containers: Vec<ContainerStats>,
}

/// The statistics of a container.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ContainerStats {
    pub name: String,
    /// The id that the runtime gave it, without the scheme; empty if unknown.
    pub id: String,
    pub image: String,
    pub started: Option<Timestamp>,
    pub usage: CgroupStats,
    pub rootfs: Option<FsStats>,
    pub logs: Option<FsStats>,
}

/// What the files of a cgroup say.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CgroupStats {
    /// The path below the root of the hierarchy, as cAdvisor's `id`.
    pub path: String,
    pub cpu: Option<CpuStats>,
    pub memory: Option<MemoryStats>,
    pub swap: Option<SwapStats>,
    pub io: Option<IoStats>,
    pub pids: Option<PidStats>,
    /// Number of processes that the kernel killed for want of memory.
    pub oom_kills: Option<u64>,
}

/// CPU time of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuStats {
    pub at: Timestamp,
    pub total: CoreNanos,
    pub user: Option<CoreNanos>,
    pub system: Option<CoreNanos>,
    /// The average over the time since the previous sample.
    pub rate: Option<CpuUsage>,
    pub throttling: Option<CpuThrottling>,
    /// The bandwidth limit.
    pub quota: Option<CpuQuota>,
    pub shares: Option<u64>,
    pub pressure: Option<Pressure>,
}

impl CpuStats {
    /// The total alone.
    pub const fn new(at: Timestamp, total: CoreNanos) -> Self {
        Self {
            at,
            total,
            user: None,
            system: None,
            rate: None,
            throttling: None,
            quota: None,
            shares: None,
            pressure: None,
        }
    }
}

/// The last reading of a counter of CPU time, and the rate up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateBase {
    previous: Option<(Duration, CoreNanos)>,
    rate: Option<CpuUsage>,
}

impl RateBase {
    /// The shortest window of a rate. The kernel grants CPU time in slices, which a shorter window
    /// shows instead of the usage.
    const MIN_WINDOW: Duration = Duration::from_secs(1);

    /// Whether there is a reading.
    pub const fn is_known(&self) -> bool {
        self.previous.is_some()
    }

    /// Adds a reading at a monotonic time, and returns the rate since the one before. The rate
    /// stays until its window is long enough, and is absent after a reset of the counter.
    pub fn add(&mut self, at: Duration, total: CoreNanos) -> Option<CpuUsage> {
        let Some((before, old)) = self.previous else {
            self.previous = Some((at, total));
            return None;
        };
        let window = at.saturating_sub(before);
        if window < Self::MIN_WINDOW && total >= old {
            return self.rate;
        }
        self.previous = Some((at, total));
        self.rate = total.get().checked_sub(old.get()).and_then(|used| {
            let nanocores = u128::from(used)
                .checked_mul(1_000_000_000)?
                .checked_div(window.as_nanos())?;
            u64::try_from(nanocores).ok().map(CpuUsage::from_nanocores)
        });
        self.rate
    }
}

/// How often the bandwidth limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuThrottling {
    pub periods: u64,
    pub throttled_periods: u64,
    pub throttled_nanos: u64,
}

/// A CPU bandwidth limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuQuota {
    pub quota_micros: u64,
    pub period_micros: u64,
}

/// Memory of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryStats {
    pub at: Timestamp,
    pub usage: Option<Bytes>,
    pub working_set: Option<Bytes>,
    pub rss: Option<Bytes>,
    pub cache: Option<Bytes>,
    pub mapped_file: Option<Bytes>,
    pub active_file: Option<Bytes>,
    pub inactive_file: Option<Bytes>,
    pub kernel: Option<Bytes>,
    pub peak: Option<Bytes>,
    pub page_faults: Option<u64>,
    pub major_page_faults: Option<u64>,
    /// How often an allocation failed at the limit.
    pub failures: Option<u64>,
    /// The limit; absent if there is none.
    pub limit: Option<Bytes>,
    pub pressure: Option<Pressure>,
}

impl MemoryStats {
    /// Without any value yet.
    pub const fn new(at: Timestamp) -> Self {
        Self {
            at,
            usage: None,
            working_set: None,
            rss: None,
            cache: None,
            mapped_file: None,
            active_file: None,
            inactive_file: None,
            kernel: None,
            peak: None,
            page_faults: None,
            major_page_faults: None,
            failures: None,
            limit: None,
            pressure: None,
        }
    }
}

/// Swap of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwapStats {
    pub at: Timestamp,
    pub usage: Bytes,
    /// The limit of swap alone; absent if there is none.
    pub limit: Option<Bytes>,
}

/// Input and output of a cgroup.
#[derive(Debug, Clone, PartialEq)]
pub struct IoStats {
    pub at: Timestamp,
    pub devices: Vec<DeviceIo>,
    pub pressure: Option<Pressure>,
}

/// Input and output of one block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceIo {
    pub major: u32,
    pub minor: u32,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub reads: u64,
    pub writes: u64,
}

/// Processes and threads of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PidStats {
    /// Lines of `cgroup.procs`.
    pub processes: Option<u64>,
    pub threads: Option<u64>,
    pub threads_limit: Option<u64>,
}

/// Pressure stall information.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pressure {
    /// All tasks were stalled. The kernel has none for the CPU of the root.
    pub full: Option<PressureLine>,
    /// At least one task was stalled.
    pub some: PressureLine,
}

/// One line of a pressure file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PressureLine {
    /// The time stalled, in microseconds, as the kernel counts it.
    pub total_micros: u64,
    /// Shares in percent.
    pub avg10: f64,
    pub avg60: f64,
    pub avg300: f64,
}

/// Network interfaces of a node or a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkStats {
    pub at: Timestamp,
    pub interfaces: Vec<InterfaceStats>,
}

/// The counters of one network interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InterfaceStats {
    pub name: String,
    pub rx_bytes: u64,
    pub rx_packets: u64,
    pub rx_errors: u64,
    pub rx_dropped: u64,
    pub tx_bytes: u64,
    pub tx_packets: u64,
    pub tx_errors: u64,
    pub tx_dropped: u64,
}

/// A file system, or the part of it that a folder uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsStats {
    pub at: Timestamp,
    pub available: Option<Bytes>,
    pub capacity: Option<Bytes>,
    pub used: Option<Bytes>,
    pub inodes_free: Option<u64>,
    pub inodes: Option<u64>,
    pub inodes_used: Option<u64>,
}

/// A volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeStats {
    pub name: String,
    /// The claim, if the volume is one.
    pub claim: Option<String>,
    pub fs: FsStats,
}

/// Process ids of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessLimits {
    pub at: Timestamp,
    pub max: u64,
    pub current: u64,
}

/// The machine, for `machine_*`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineInfo {
    pub cores: Option<u64>,
    pub memory: Option<Bytes>,
    pub swap: Option<Bytes>,
    pub boot_id: String,
    pub machine_id: String,
    pub kernel_version: String,
    pub os_image: String,
}

impl NetworkStats {
    /// The default interface: `eth0`, as in the kubelet.
    pub fn default_interface(&self) -> Option<&InterfaceStats> {
        self.interfaces.iter().find(|one| one.name == "eth0")
    }
}

impl MemoryStats {
    /// The limit less the working set, not below zero.
    pub fn available(&self) -> Option<Bytes> {
        let free = self
            .limit?
            .count()
            .saturating_sub(self.working_set?.count());
        Some(Bytes::new(free))
    }
}

impl SwapStats {
    /// The limit less the usage, not below zero.
    pub fn available(&self) -> Option<Bytes> {
        let free = self.limit?.count().saturating_sub(self.usage.count());
        Some(Bytes::new(free))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_stays_until_its_window_is_a_second_long() {
        let mut base = RateBase::default();
        let mut at = |millis, nanos| base.add(Duration::from_millis(millis), CoreNanos::new(nanos));
        let rate = |nanocores| Some(CpuUsage::from_nanocores(nanocores));
        assert_eq!(at(0, 0), None);
        // A slice of 10 ms.
        assert_eq!(at(23, 10_000_000), None);
        assert_eq!(at(2_000, 200_000_000), rate(100_000_000));
        assert_eq!(at(2_010, 210_000_000), rate(100_000_000));
        assert_eq!(at(3_000, 300_000_000), rate(100_000_000));
        // The counter was reset.
        assert_eq!(at(3_500, 0), None);
        assert_eq!(at(4_500, 500_000_000), rate(500_000_000));
    }
}
