//! Bodies compared with those of a real kubelet, byte by byte.

use kubevitals_kubelet_api::cadvisor;
use kubevitals_kubelet_api::resource_metrics::{encode_error, encode_families, encode_stats};
use kubevitals_kubelet_api::summary::{SummaryOptions, encode};
use kubevitals_model::node_stats::{
    CgroupStats, ContainerStats, CpuQuota, CpuStats, CpuThrottling, DeviceIo, FsStats,
    InterfaceStats, IoStats, MachineInfo, MemoryStats, NetworkStats, NodeStats, PidStats, Pressure,
    PressureLine, SwapStats, VolumeStats,
};
use kubevitals_model::{Bytes, CoreNanos, CpuUsage, Timestamp};
use kubevitals_promtext::Document;

use crate::recorded::{self, RESOURCE_METRICS, SUMMARY, families, stats};

const START: &str = "container_start_time_seconds{";

#[test]
fn families_of_a_kubelet_are_written_in_its_bytes() {
    for body in RESOURCE_METRICS {
        let (text, invalid) = encode_families(&families(body));
        assert_eq!(String::from_utf8(text).unwrap(), body);
        assert_eq!(invalid, 0);
    }
}

/// Start times are compared to the millisecond: that is what the statistics keep.
#[test]
fn statistics_are_written_in_the_bytes_of_a_kubelet() {
    for body in RESOURCE_METRICS {
        let text = String::from_utf8(encode_stats(&stats(body), false)).unwrap();
        assert_eq!(text.lines().count(), body.lines().count());
        for (ours, theirs) in text.lines().zip(body.lines()) {
            if !theirs.starts_with(START) {
                assert_eq!(ours, theirs);
                continue;
            }
            let (our_series, our_value) = ours.rsplit_once(' ').unwrap();
            let (their_series, their_value) = theirs.rsplit_once(' ').unwrap();
            assert_eq!(our_series, their_series);
            let [ours, theirs] = [our_value, their_value].map(|one| one.parse::<f64>().unwrap());
            assert!((ours - theirs).abs() <= 0.001, "{ours} {theirs}");
        }
    }
}

#[test]
fn a_summary_is_written_in_the_bytes_of_a_kubelet() {
    let text = encode(&recorded::summary(SUMMARY), SummaryOptions::default());
    assert_eq!(String::from_utf8(text).unwrap(), SUMMARY);
}

#[test]
fn a_failed_scrape_is_one_metric_and_the_old_one_by_request() {
    let text = |hidden| String::from_utf8(encode_error(hidden)).unwrap();
    insta::assert_snapshot!(text(true), @r"
    # HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, 0 otherwise
    # TYPE resource_scrape_error gauge
    resource_scrape_error 1
    # HELP scrape_error [ALPHA] (Deprecated since 1.29.0) 1 if there was an error while getting container metrics, 0 otherwise
    # TYPE scrape_error gauge
    scrape_error 1
    ");
    assert!(text(true).starts_with(&text(false)));
    assert!(!text(false).contains(" scrape_error"));
}

#[test]
fn what_is_unknown_is_left_out() {
    let mut node = NodeStats::default();
    assert_eq!(encode_stats(&node, false), {
        let failed = String::from_utf8(encode_error(false)).unwrap();
        failed.replace("error 1\n", "error 0\n").into_bytes()
    });
    let mut pod = recorded::empty_pod("ns", "a");
    let container = ContainerStats {
        name: String::from("app"),
        started: Some(Timestamp::from_unix_millis(0)),
        ..ContainerStats::default()
    };
    // A second instance of the same name must not repeat a series.
    let second = ContainerStats {
        started: Some(Timestamp::from_unix_millis(1500)),
        ..container.clone()
    };
    pod.containers = vec![second.clone(), second, container];
    node.pods = vec![pod.clone(), pod];
    let text = String::from_utf8(encode_stats(&node, false)).unwrap();
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        "container_start_time_seconds{container=\"app\",namespace=\"ns\",pod=\"a\"} 1.5",
        "resource_scrape_error 0",
    ];
    assert_eq!(samples, expected);
}

const AT: Timestamp = Timestamp::from_unix_millis(1_794_773_483_261);

const PRESSURE: Pressure = Pressure {
    full: None,
    some: PressureLine {
        total_micros: 1_234_567,
        avg10: 0.07,
        avg60: 12.5,
        avg300: f64::NAN,
    },
};

/// A node with one pod and one container that have everything.
#[expect(clippy::too_many_lines, reason = "every field has a value")]
fn full() -> NodeStats {
    let fs = FsStats {
        at: AT,
        available: Some(Bytes::new(1)),
        capacity: Some(Bytes::new(2)),
        used: Some(Bytes::new(3)),
        inodes_free: Some(4),
        inodes: Some(5),
        inodes_used: Some(6),
    };
    let usage = CgroupStats {
        path: String::from("/kubepods.slice"),
        cpu: Some(CpuStats {
            user: Some(CoreNanos::new(1_000_000_000)),
            system: Some(CoreNanos::new(500_000_000)),
            rate: Some(CpuUsage::from_nanocores(7)),
            throttling: Some(CpuThrottling {
                periods: 10,
                throttled_periods: 2,
                throttled_nanos: 3_000_000,
            }),
            quota: Some(CpuQuota {
                quota_micros: 50_000,
                period_micros: 100_000,
            }),
            shares: Some(512),
            pressure: Some(PRESSURE),
            ..CpuStats::new(AT, CoreNanos::new(1_500_000_000))
        }),
        memory: Some(MemoryStats {
            usage: Some(Bytes::new(100)),
            working_set: Some(Bytes::new(80)),
            rss: Some(Bytes::new(60)),
            cache: Some(Bytes::new(40)),
            mapped_file: Some(Bytes::new(30)),
            active_file: Some(Bytes::new(20)),
            inactive_file: Some(Bytes::new(10)),
            kernel: Some(Bytes::new(5)),
            peak: Some(Bytes::new(120)),
            page_faults: Some(9),
            major_page_faults: Some(1),
            failures: Some(2),
            limit: Some(Bytes::new(1000)),
            pressure: Some(PRESSURE),
            ..MemoryStats::new(AT)
        }),
        swap: Some(SwapStats {
            at: AT,
            usage: Bytes::new(11),
            limit: Some(Bytes::new(22)),
        }),
        io: Some(IoStats {
            at: AT,
            devices: vec![DeviceIo {
                major: 8,
                minor: 16,
                read_bytes: 1,
                written_bytes: 2,
                reads: 3,
                writes: 4,
            }],
            pressure: Some(PRESSURE),
        }),
        pids: Some(PidStats {
            processes: Some(2),
            threads: Some(3),
            threads_limit: Some(4),
        }),
        oom_kills: Some(1),
    };
    let network = NetworkStats {
        at: AT,
        interfaces: vec![InterfaceStats {
            name: String::from("eth1"),
            rx_bytes: 1,
            rx_packets: 2,
            rx_errors: 3,
            rx_dropped: 4,
            tx_bytes: 5,
            tx_packets: 6,
            tx_errors: 7,
            tx_dropped: 8,
        }],
    };
    let mut pod = recorded::empty_pod("ns", "web");
    pod.usage = usage.clone();
    pod.network = Some(network);
    pod.process_count = Some(2);
    let volume = |name: &str, claim: Option<&str>| VolumeStats {
        name: name.to_owned(),
        claim: claim.map(str::to_owned),
        fs,
    };
    pod.volumes = vec![volume("data", Some("claim-1")), volume("tmp", None)];
    pod.containers = vec![ContainerStats {
        name: String::from("app<"),
        id: String::from("c0ffee"),
        image: String::from("registry/app:1"),
        started: Some(AT),
        usage,
        rootfs: Some(fs),
        logs: Some(fs),
    }];
    NodeStats {
        name: String::from("n"),
        image_fs: Some(fs),
        machine: MachineInfo {
            cores: Some(4),
            memory: Some(Bytes::new(1 << 30)),
            swap: None,
            boot_id: String::from("boot"),
            machine_id: String::from("machine"),
            kernel_version: String::from("6.1"),
            os_image: String::from("Debian"),
        },
        pods: vec![pod],
        ..NodeStats::default()
    }
}

#[test]
fn a_summary_has_every_field_in_the_order_of_go() {
    let text = encode(&full(), SummaryOptions::default());
    insta::assert_snapshot!(String::from_utf8(text).unwrap());
}

#[test]
fn a_short_summary_has_only_cpu_and_memory() {
    let options = SummaryOptions {
        only_cpu_and_memory: true,
        pressure_in_micros: true,
    };
    let text = String::from_utf8(encode(&full(), options)).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&text).unwrap();
    let keys = |value: &serde_json::Value| {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys.join(" ")
    };
    assert_eq!(keys(&summary["node"]), "nodeName startTime");
    assert!(summary["node"]["startTime"].is_null());
    let pod = &summary["pods"][0];
    assert_eq!(keys(pod), "containers cpu memory podRef startTime swap");
    assert_eq!(
        keys(&pod["containers"][0]),
        "cpu memory name startTime swap"
    );
    assert_eq!(
        pod["cpu"]["psi"]["some"]["total"], 1_234_567,
        "as kubelets write it"
    );
    let documented = encode(&full(), SummaryOptions::default());
    let documented: serde_json::Value = serde_json::from_slice(&documented).unwrap();
    let total = &documented["pods"][0]["cpu"]["psi"]["some"]["total"];
    assert_eq!(*total, 1_234_567_000_u64, "nanoseconds");
}

#[test]
fn cadvisor_families_have_its_names_and_labels() {
    let text = cadvisor::encode(&full());
    let mut again = Vec::new();
    let mut document = Document::parse(&text);
    assert_eq!(document.errors(), []);
    document.encode(&mut again);
    assert!(text == again, "sorted as Go sorts");
    insta::assert_snapshot!(String::from_utf8(text).unwrap());
}

#[test]
fn a_cadvisor_series_occurs_once() {
    let mut node = full();
    let mut container = node.pods[0].containers[0].clone();
    container.started = None;
    node.pods[0].containers.push(container);
    node.pods.push(node.pods[0].clone());
    assert!(cadvisor::encode(&node) == cadvisor::encode(&full()));
}

#[test]
fn cadvisor_metrics_of_a_real_node_are_readable() {
    let text = cadvisor::encode(&recorded::summary(SUMMARY));
    let document = Document::parse(&text);
    assert_eq!(document.errors(), []);
    let cpu = document
        .families()
        .iter()
        .find(|family| family.name().as_str() == "container_cpu_usage_seconds_total");
    // Seven pods with ten containers, the root and the cgroup of all pods.
    assert_eq!(cpu.unwrap().series().count(), 7 + 10 + 2);
}
