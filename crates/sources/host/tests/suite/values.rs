use std::fs;
use std::time::Duration;

use kubevitals_host::CgroupVersion;
use kubevitals_host::fixture::{Driver, Runtime, Values};
use kubevitals_model::node_stats::{CpuQuota, CpuThrottling, DeviceIo};
use kubevitals_model::{Bytes, CoreNanos, CpuUsage, PodKey, Timestamp};

use crate::{TestHost, UID, id_of};

const CONTAINERD: (Driver, Runtime) = (Driver::Systemd, Runtime::Containerd);

#[test]
fn a_container_of_version_2_is_read_by_the_rules_of_cadvisor() {
    let test = TestHost::new(CgroupVersion::V2);
    let path = test.pod(CONTAINERD, "", "web", UID);
    test.host.network(100, 777).unwrap();
    let sample = test.reader().sample();
    assert_eq!((sample.faults.total(), sample.unresolved), (0, 0));
    let pod = &sample.stats.pods[0];
    assert_eq!(pod.key, PodKey::new("default", "web"));
    assert_eq!(pod.uid, UID.into());
    assert_eq!(pod.process_count, Some(2));
    let network = pod.network.as_ref().unwrap();
    assert_eq!(network.default_interface().unwrap().rx_bytes, 777);
    assert_eq!(network.interfaces.len(), 1);

    let container = &pod.containers[0];
    assert_eq!(
        (container.name.as_str(), &container.id),
        ("app", &id_of("web"))
    );
    assert_eq!(container.usage.path, path);
    let cpu = container.usage.cpu.unwrap();
    assert_eq!(cpu.total, CoreNanos::new(1_500_000_000));
    assert_eq!(cpu.user, Some(CoreNanos::new(750_000_000)));
    assert_eq!(cpu.system, Some(CoreNanos::new(375_000_000)));
    assert_eq!(cpu.rate, None, "there is only one sample");
    assert_eq!(
        cpu.throttling,
        Some(CpuThrottling {
            periods: 20,
            throttled_periods: 5,
            throttled_nanos: 2_500_000
        })
    );
    assert_eq!(
        cpu.quota,
        Some(CpuQuota {
            quota_micros: 50_000,
            period_micros: 100_000
        })
    );
    assert_eq!(cpu.shares, Some(1024));
    assert_eq!(cpu.pressure.unwrap().some.total_micros, 123_456);
    let memory = container.usage.memory.unwrap();
    assert_eq!(memory.usage, Some(Bytes::new(64 << 20)));
    assert_eq!(memory.working_set, Some(Bytes::new(48 << 20)));
    assert_eq!(memory.rss, Some(Bytes::new(32 << 20)));
    assert_eq!(memory.cache, Some(Bytes::new(16 << 20)));
    assert_eq!(memory.mapped_file, Some(Bytes::new(4096)));
    assert_eq!(memory.peak, Some(Bytes::new((64 << 20) + 4096)));
    assert_eq!(memory.limit, Some(Bytes::new(128 << 20)));
    assert_eq!(memory.available(), Some(Bytes::new(80 << 20)));
    assert_eq!(
        (memory.page_faults, memory.major_page_faults),
        (Some(100), Some(2))
    );
    assert_eq!(
        (memory.failures, container.usage.oom_kills),
        (Some(6), Some(1))
    );
    let swap = container.usage.swap.unwrap();
    assert_eq!((swap.usage, swap.limit), (Bytes::new(4096), None));
    let io = container.usage.io.as_ref().unwrap();
    let device = DeviceIo {
        major: 259,
        minor: 0,
        read_bytes: 4096,
        written_bytes: 8192,
        reads: 1,
        writes: 2,
    };
    assert_eq!(io.devices, [device]);
    assert_eq!(io.pressure.unwrap().full.unwrap().total_micros, 7);
    let pids = container.usage.pids.unwrap();
    assert_eq!(
        (pids.processes, pids.threads, pids.threads_limit),
        (Some(2), Some(7), None)
    );
    assert_eq!(container.logs.unwrap().used, Some(Bytes::new(5)));
    assert!(container.started.unwrap() > Timestamp::from_unix_millis(1_700_000_000_000));
}

#[test]
fn a_container_of_version_1_is_read_by_the_rules_of_cadvisor() {
    let test = TestHost::new(CgroupVersion::V1);
    test.pod((Driver::Cgroupfs, Runtime::Docker), "", "web", UID);
    let mut reader = test.reader();
    assert_eq!(reader.version(), CgroupVersion::V1);
    let sample = reader.sample();
    assert_eq!((sample.faults.total(), sample.unresolved), (0, 0));
    let usage = &sample.stats.pods[0].containers[0].usage;
    let cpu = usage.cpu.unwrap();
    assert_eq!(cpu.total, CoreNanos::new(1_500_000_000));
    assert_eq!(cpu.user, Some(CoreNanos::new(750_000_000)));
    assert_eq!(cpu.throttling.unwrap().throttled_nanos, 2_500_000);
    assert_eq!(
        (cpu.quota.unwrap().quota_micros, cpu.shares),
        (50_000, Some(1024))
    );
    assert_eq!(cpu.pressure, None);
    let memory = usage.memory.unwrap();
    assert_eq!(memory.working_set, Some(Bytes::new(48 << 20)));
    assert_eq!(memory.rss, Some(Bytes::new(32 << 20)));
    assert_eq!(memory.failures, Some(6));
    assert_eq!(usage.oom_kills, Some(1));
    // The limit of both less that of memory.
    assert_eq!(usage.swap.unwrap().limit, Some(Bytes::new(64 << 20)));
    assert_eq!(usage.io.as_ref().unwrap().devices[0].writes, 2);
    assert_eq!(usage.pids.unwrap().processes, Some(2));
    // The root has files like any other.
    let root = &sample.stats.usage;
    assert_eq!(root.cpu.unwrap().total, CoreNanos::new(90_000_000_000));
    assert_eq!(root.memory.unwrap().usage, Some(Bytes::new(4 << 30)));
}

#[test]
fn the_root_of_version_2_is_made_of_what_there_is() {
    let test = TestHost::new(CgroupVersion::V2);
    let sample = test.reader().sample();
    let stats = &sample.stats;
    assert_eq!(stats.name, "node-1");
    assert_eq!(
        stats.started,
        Some(Timestamp::from_unix_millis(1_700_000_000_000))
    );
    assert_eq!(
        stats.usage.cpu.unwrap().total,
        CoreNanos::new(90_000_000_000)
    );
    let memory = stats.usage.memory.unwrap();
    assert_eq!(memory.usage, Some(Bytes::new(4 << 30)));
    assert_eq!(memory.working_set, Some(Bytes::new((4 << 30) - (1 << 29))));
    assert_eq!(memory.limit, Some(Bytes::new(8 << 30)));
    let swap = stats.usage.swap.unwrap();
    assert_eq!(
        (swap.usage, swap.limit),
        (Bytes::new(1 << 20), Some(Bytes::new(2 << 20)))
    );
    assert_eq!(stats.usage.pids, None);
    let processes = stats.processes.unwrap();
    assert_eq!((processes.max, processes.current), (62_000, 345));
    let network = stats.network.as_ref().unwrap();
    assert_eq!(network.default_interface().unwrap().rx_bytes, 5_000);
    let fs = stats.fs.unwrap();
    assert!(fs.capacity.unwrap() >= fs.available.unwrap());
    assert!(stats.image_fs.is_some());
    let machine = &stats.machine;
    assert_eq!(
        (machine.cores, machine.memory),
        (Some(2), Some(Bytes::new(8 << 30)))
    );
    assert_eq!(machine.boot_id, "boot");
    assert_eq!(machine.machine_id, "machine");
    assert_eq!(machine.kernel_version, "6.12.0");
    assert_eq!(machine.os_image, "Fixture 1");
    assert!(stats.pods.is_empty());
}

#[test]
fn rates_are_of_the_true_time_between_samples() {
    let test = TestHost::new(CgroupVersion::V2);
    let path = test.pod(CONTAINERD, "", "web", UID);
    let mut reader = test.reader();
    let mut rate = |seconds: u64, cpu_micros: u64| {
        test.clock.advance(Duration::from_millis(seconds * 1000));
        let values = Values {
            cpu_micros,
            ..Values::default()
        };
        test.host.write_cgroup(&path, values).unwrap();
        let sample = reader.sample();
        let cpu = sample.stats.pods[0].containers[0].usage.cpu.unwrap();
        assert_eq!(cpu.at, test.clock.now());
        cpu.rate.map(CpuUsage::nanocores)
    };
    assert_eq!(rate(10, 1_000_000), None);
    assert_eq!(rate(8, 5_000_000), Some(500_000_000));
    // Too soon for a window of its own.
    assert_eq!(rate(0, 5_000_001), Some(500_000_000));
    assert_eq!(rate(10, 25_000_000), Some(2_000_000_000));
    // A counter that restarts has no rate, and then one again.
    assert_eq!(rate(10, 1_000_000), None);
    assert_eq!(rate(10, 2_000_000), Some(100_000_000));
    // A wall clock that is set back changes no rate.
    test.clock.set(Timestamp::from_unix_millis(0));
    assert_eq!(rate(10, 3_000_000), Some(100_000_000));
}

#[test]
fn what_is_absent_is_left_out_and_no_fault() {
    let test = TestHost::new(CgroupVersion::V2);
    let path = test.pod(CONTAINERD, "", "web", UID);
    for name in [
        "cpu.pressure",
        "memory.swap.current",
        "memory.peak",
        "io.stat",
        "io.pressure",
        "pids.current",
        "memory.max",
    ] {
        fs::remove_file(test.host.file(&path, name)).unwrap();
    }
    let sample = test.reader().sample();
    assert_eq!(sample.faults.total(), 0);
    let usage = &sample.stats.pods[0].containers[0].usage;
    assert_eq!(usage.cpu.unwrap().pressure, None);
    assert_eq!((usage.swap, &usage.io), (None, &None));
    let memory = usage.memory.unwrap();
    assert_eq!(
        (memory.peak, memory.limit, memory.available()),
        (None, None, None)
    );
    assert_eq!(usage.pids.unwrap().threads, None);
}

#[test]
fn limits_follow_a_resize_within_six_samples() {
    let test = TestHost::new(CgroupVersion::V2);
    let path = test.pod(CONTAINERD, "", "web", UID);
    let mut reader = test.reader();
    let mut limit = || {
        let sample = reader.sample();
        sample.stats.pods[0].containers[0]
            .usage
            .memory
            .unwrap()
            .limit
    };
    assert_eq!(limit(), Some(Bytes::new(128 << 20)));
    fs::write(test.host.file(&path, "memory.max"), "max\n").unwrap();
    let seen: Vec<_> = (0..7).map(|_| limit()).collect();
    assert_eq!(seen.last(), Some(&None));
}
