//! The families of cAdvisor that are written, with their help texts.

use kubevitals_model::node_stats::{
    CgroupStats, CpuStats, DeviceIo, FsStats, InterfaceStats, MachineInfo, MemoryStats, Pressure,
};
use kubevitals_model::{Bytes, Timestamp};
use kubevitals_promtext::{Document, LabelName, MetricName, MetricType};

use super::{CgroupFamily, Head, Labels, PartFamily, Value, add, float, pressure_seconds};

const CPU: LabelName<'_> = LabelName::from_static("cpu");
const FAILURE_TYPE: LabelName<'_> = LabelName::from_static("failure_type");
const SCOPE: LabelName<'_> = LabelName::from_static("scope");

/// Families with one series for each cgroup.
pub(super) const CGROUP: &[CgroupFamily] = &[
    CgroupFamily {
        label: Some((CPU, "total")),
        ..cgroup(
            counter(
                "container_cpu_usage_seconds_total",
                "Cumulative cpu time consumed in seconds.",
            ),
            |one| cpu(one, |cpu| Some(float(cpu.total.get()) / 1e9)),
        )
    },
    cgroup(
        counter(
            "container_cpu_user_seconds_total",
            "Cumulative user cpu time consumed in seconds.",
        ),
        |one| cpu(one, |cpu| Some(float(cpu.user?.get()) / 1e9)),
    ),
    cgroup(
        counter(
            "container_cpu_system_seconds_total",
            "Cumulative system cpu time consumed in seconds.",
        ),
        |one| cpu(one, |cpu| Some(float(cpu.system?.get()) / 1e9)),
    ),
    cgroup(
        counter(
            "container_cpu_cfs_periods_total",
            "Number of elapsed enforcement period intervals.",
        ),
        |one| cpu(one, |cpu| Some(float(cpu.throttling?.periods))),
    ),
    cgroup(
        counter(
            "container_cpu_cfs_throttled_periods_total",
            "Number of throttled period intervals.",
        ),
        |one| cpu(one, |cpu| Some(float(cpu.throttling?.throttled_periods))),
    ),
    cgroup(
        counter(
            "container_cpu_cfs_throttled_seconds_total",
            "Total time duration the container has been throttled.",
        ),
        |one| {
            cpu(one, |cpu| {
                Some(float(cpu.throttling?.throttled_nanos) / 1e9)
            })
        },
    ),
    cgroup(
        gauge("container_spec_cpu_period", "CPU period of the container."),
        |one| Some((float(one.cpu?.quota?.period_micros), None)),
    ),
    cgroup(
        gauge("container_spec_cpu_quota", "CPU quota of the container."),
        |one| Some((float(one.cpu?.quota?.quota_micros), None)),
    ),
    cgroup(
        gauge("container_spec_cpu_shares", "CPU share of the container."),
        |one| Some((float(one.cpu?.shares?), None)),
    ),
    cgroup(
        gauge(
            "container_spec_memory_limit_bytes",
            "Memory limit for the container.",
        ),
        |one| Some((float(one.memory?.limit?.count()), None)),
    ),
    cgroup(
        gauge(
            "container_spec_memory_swap_limit_bytes",
            "Memory swap limit for the container.",
        ),
        |one| Some((float(one.swap?.limit?.count()), None)),
    ),
    cgroup(
        gauge(
            "container_memory_usage_bytes",
            "Current memory usage in bytes, including all memory regardless of when it was accessed",
        ),
        |one| memory(one, |memory| memory.usage),
    ),
    cgroup(
        gauge(
            "container_memory_working_set_bytes",
            "Current working set in bytes.",
        ),
        |one| memory(one, |memory| memory.working_set),
    ),
    cgroup(
        gauge("container_memory_rss", "Size of RSS in bytes."),
        |one| memory(one, |memory| memory.rss),
    ),
    cgroup(
        gauge(
            "container_memory_cache",
            "Number of bytes of page cache memory.",
        ),
        |one| memory(one, |memory| memory.cache),
    ),
    cgroup(
        gauge(
            "container_memory_mapped_file",
            "Size of memory mapped files in bytes.",
        ),
        |one| memory(one, |memory| memory.mapped_file),
    ),
    cgroup(
        gauge(
            "container_memory_total_active_file_bytes",
            "Current total active file in bytes.",
        ),
        |one| memory(one, |memory| memory.active_file),
    ),
    cgroup(
        gauge(
            "container_memory_total_inactive_file_bytes",
            "Current total inactive file in bytes.",
        ),
        |one| memory(one, |memory| memory.inactive_file),
    ),
    cgroup(
        gauge(
            "container_memory_kernel_usage",
            "Size of kernel memory allocated in bytes.",
        ),
        |one| memory(one, |memory| memory.kernel),
    ),
    cgroup(
        gauge(
            "container_memory_max_usage_bytes",
            "Maximum memory usage recorded in bytes",
        ),
        |one| memory(one, |memory| memory.peak),
    ),
    cgroup(
        counter(
            "container_memory_failcnt",
            "Number of memory usage hits limits",
        ),
        |one| memory(one, |memory| memory.failures.map(Bytes::new)),
    ),
    cgroup(
        gauge("container_memory_swap", "Container swap usage in bytes."),
        |one| {
            one.swap
                .map(|swap| (float(swap.usage.count()), Some(swap.at)))
        },
    ),
    cgroup(
        gauge(
            "container_processes",
            "Number of processes running inside the container.",
        ),
        |one| Some((float(one.pids?.processes?), None)),
    ),
    cgroup(
        gauge(
            "container_threads",
            "Number of threads running inside the container",
        ),
        |one| Some((float(one.pids?.threads?), None)),
    ),
    cgroup(
        gauge(
            "container_threads_max",
            "Maximum number of threads allowed inside the container, infinity if value is zero",
        ),
        |one| Some((float(one.pids?.threads_limit?), None)),
    ),
    cgroup(
        counter(
            "container_oom_events_total",
            "Count of out of memory events observed for the container",
        ),
        |one| Some((float(one.oom_kills?), None)),
    ),
    cgroup(
        counter(
            "container_pressure_cpu_stalled_seconds_total",
            "Total time duration no tasks in the container could make progress due to CPU congestion.",
        ),
        |one| {
            one.cpu
                .as_ref()
                .and_then(|cpu| stalled(cpu.pressure, cpu.at))
        },
    ),
    cgroup(
        counter(
            "container_pressure_cpu_waiting_seconds_total",
            "Total time duration tasks in the container have waited due to CPU congestion.",
        ),
        |one| {
            one.cpu
                .as_ref()
                .and_then(|cpu| waiting(cpu.pressure, cpu.at))
        },
    ),
    cgroup(
        counter(
            "container_pressure_memory_stalled_seconds_total",
            "Total time duration no tasks in the container could make progress due to memory congestion.",
        ),
        |one| {
            one.memory
                .as_ref()
                .and_then(|memory| stalled(memory.pressure, memory.at))
        },
    ),
    cgroup(
        counter(
            "container_pressure_memory_waiting_seconds_total",
            "Total time duration tasks in the container have waited due to memory congestion.",
        ),
        |one| {
            one.memory
                .as_ref()
                .and_then(|memory| waiting(memory.pressure, memory.at))
        },
    ),
    cgroup(
        counter(
            "container_pressure_io_stalled_seconds_total",
            "Total time duration no tasks in the container could make progress due to IO congestion.",
        ),
        |one| one.io.as_ref().and_then(|io| stalled(io.pressure, io.at)),
    ),
    cgroup(
        counter(
            "container_pressure_io_waiting_seconds_total",
            "Total time duration tasks in the container have waited due to IO congestion.",
        ),
        |one| one.io.as_ref().and_then(|io| waiting(io.pressure, io.at)),
    ),
];

/// Families of block devices.
pub(super) const IO: &[PartFamily<DeviceIo>] = &[
    part(
        counter(
            "container_fs_reads_bytes_total",
            "Cumulative count of bytes read",
        ),
        |one| count(one.read_bytes),
    ),
    part(
        counter(
            "container_fs_reads_total",
            "Cumulative count of reads completed",
        ),
        |one| count(one.reads),
    ),
    part(
        counter(
            "container_fs_writes_bytes_total",
            "Cumulative count of bytes written",
        ),
        |one| count(one.written_bytes),
    ),
    part(
        counter(
            "container_fs_writes_total",
            "Cumulative count of writes completed",
        ),
        |one| count(one.writes),
    ),
];

/// Families of network interfaces.
pub(super) const INTERFACE: &[PartFamily<InterfaceStats>] = &[
    part(
        counter(
            "container_network_receive_bytes_total",
            "Cumulative count of bytes received",
        ),
        |one| count(one.rx_bytes),
    ),
    part(
        counter(
            "container_network_receive_packets_total",
            "Cumulative count of packets received",
        ),
        |one| count(one.rx_packets),
    ),
    part(
        counter(
            "container_network_receive_packets_dropped_total",
            "Cumulative count of packets dropped while receiving",
        ),
        |one| count(one.rx_dropped),
    ),
    part(
        counter(
            "container_network_receive_errors_total",
            "Cumulative count of errors encountered while receiving",
        ),
        |one| count(one.rx_errors),
    ),
    part(
        counter(
            "container_network_transmit_bytes_total",
            "Cumulative count of bytes transmitted",
        ),
        |one| count(one.tx_bytes),
    ),
    part(
        counter(
            "container_network_transmit_packets_total",
            "Cumulative count of packets transmitted",
        ),
        |one| count(one.tx_packets),
    ),
    part(
        counter(
            "container_network_transmit_packets_dropped_total",
            "Cumulative count of packets dropped while transmitting",
        ),
        |one| count(one.tx_dropped),
    ),
    part(
        counter(
            "container_network_transmit_errors_total",
            "Cumulative count of errors encountered while transmitting",
        ),
        |one| count(one.tx_errors),
    ),
];

/// Families of file systems.
pub(super) const FS: &[PartFamily<FsStats>] = &[
    part(
        gauge(
            "container_fs_usage_bytes",
            "Number of bytes that are consumed by the container on this filesystem.",
        ),
        |one| Some((float(one.used?.count()), Some(one.at))),
    ),
    part(
        gauge(
            "container_fs_limit_bytes",
            "Number of bytes that can be consumed by the container on this filesystem.",
        ),
        |one| Some((float(one.capacity?.count()), Some(one.at))),
    ),
    part(
        gauge("container_fs_inodes_free", "Number of available Inodes"),
        |one| Some((float(one.inodes_free?), Some(one.at))),
    ),
    part(
        gauge("container_fs_inodes_total", "Number of Inodes"),
        |one| Some((float(one.inodes?), Some(one.at))),
    ),
];

/// Of all cgroups, also of those without statistics.
pub(super) const START_TIME: Head = gauge(
    "container_start_time_seconds",
    "Start time of the container since unix epoch in seconds.",
);

const MEMORY_FAILURES: Head = counter(
    "container_memory_failures_total",
    "Cumulative count of memory allocation failures.",
);

/// Page faults.
pub(super) fn memory_failures<'a>(
    document: &mut Document<'a>,
    labels: Labels<'a>,
    memory: Option<&MemoryStats>,
) {
    let Some(memory) = memory else {
        return;
    };
    for (kind, faults) in [
        ("pgfault", memory.page_faults),
        ("pgmajfault", memory.major_page_faults),
    ] {
        let value = faults.map(|faults| (float(faults), Some(memory.at)));
        // The kernel counts what is below too; cAdvisor repeats the value.
        for scope in ["container", "hierarchy"] {
            let extra = [(FAILURE_TYPE, kind), (SCOPE, scope)];
            add(document, &MEMORY_FAILURES, labels, extra, value);
        }
    }
}

/// Families of the machine.
pub(super) fn machine<'a>(document: &mut Document<'a>, machine: &'a MachineInfo) {
    const BOOT_ID: LabelName<'_> = LabelName::from_static("boot_id");
    const MACHINE_ID: LabelName<'_> = LabelName::from_static("machine_id");
    const KERNEL: LabelName<'_> = LabelName::from_static("kernelVersion");
    const OS: LabelName<'_> = LabelName::from_static("osVersion");
    for (head, value) in [
        (
            gauge("machine_cpu_cores", "Number of logical CPU cores."),
            machine.cores,
        ),
        (
            gauge(
                "machine_memory_bytes",
                "Amount of memory installed on the machine.",
            ),
            machine.memory.map(Bytes::count),
        ),
        (
            gauge(
                "machine_swap_bytes",
                "Amount of swap memory available on the machine.",
            ),
            machine.swap.map(Bytes::count),
        ),
    ] {
        let labels = [
            (BOOT_ID, machine.boot_id.as_str()),
            (MACHINE_ID, machine.machine_id.as_str()),
        ];
        if let Some(value) = value {
            put(document, &head, labels, float(value));
        }
    }
    let labels = [
        (KERNEL, machine.kernel_version.as_str()),
        (OS, machine.os_image.as_str()),
    ];
    let head = gauge(
        "cadvisor_version_info",
        "A metric with a constant '1' value labeled by kernel version, OS version, docker version, cadvisor version & cadvisor revision.",
    );
    if !machine.kernel_version.is_empty() {
        put(document, &head, labels, 1.0);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a sample is a float")]
pub(super) fn unix_seconds(at: Timestamp) -> f64 {
    // cAdvisor counts whole seconds.
    at.unix_seconds() as f64
}

fn put<'a>(
    document: &mut Document<'a>,
    head: &Head,
    labels: [(LabelName<'static>, &'a str); 2],
    value: f64,
) {
    // The names are constants, and no two are equal.
    let _added = document
        .family(head.name)
        .set_help(head.help)
        .set_kind(head.kind)
        .add(labels, value, None)
        .is_ok();
}

fn cpu(usage: &CgroupStats, value: impl FnOnce(&CpuStats) -> Option<f64>) -> Value {
    let cpu = usage.cpu.as_ref()?;
    Some((value(cpu)?, Some(cpu.at)))
}

fn memory(usage: &CgroupStats, value: impl FnOnce(&MemoryStats) -> Option<Bytes>) -> Value {
    let memory = usage.memory.as_ref()?;
    Some((float(value(memory)?.count()), Some(memory.at)))
}

fn stalled(pressure: Option<Pressure>, at: Timestamp) -> Value {
    Some((pressure_seconds(pressure?.full?), Some(at)))
}

fn waiting(pressure: Option<Pressure>, at: Timestamp) -> Value {
    Some((pressure_seconds(pressure?.some), Some(at)))
}

/// The time is that of the group.
#[expect(clippy::unnecessary_wraps, reason = "as the other values")]
const fn count(value: u64) -> Value {
    Some((float(value), None))
}

const fn cgroup(head: Head, value: fn(&CgroupStats) -> Value) -> CgroupFamily {
    CgroupFamily {
        head,
        label: None,
        value,
    }
}

const fn part<T>(head: Head, value: fn(&T) -> Value) -> PartFamily<T> {
    PartFamily { head, value }
}

const fn counter(name: &'static str, help: &'static str) -> Head {
    Head {
        name: MetricName::from_static(name),
        kind: MetricType::Counter,
        help,
    }
}

const fn gauge(name: &'static str, help: &'static str) -> Head {
    Head {
        name: MetricName::from_static(name),
        kind: MetricType::Gauge,
        help,
    }
}
