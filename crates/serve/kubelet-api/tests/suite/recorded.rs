//! Statistics read from the bodies of a real kubelet.

use std::collections::BTreeMap;

use kubevitals_kubelet_api::provider::{MetricFamily, MetricKind, MetricSample};
use kubevitals_model::node_stats::{
    CgroupStats, ContainerStats, CpuStats, FsStats, InterfaceStats, IoStats, MemoryStats,
    NetworkStats, NodeStats, PodStats, Pressure, PressureLine, ProcessLimits, SwapStats,
};
use kubevitals_model::{Bytes, CoreNanos, CpuUsage, PodKey, Timestamp, Uid};
use kubevitals_promtext::{Item, MetricType, parse};
use serde_json::Value;

pub(crate) const RESOURCE_METRICS: [&str; 2] = [
    include_str!("../fixtures/kubernetes-1.37/metrics-resource.txt"),
    include_str!("../fixtures/kubernetes-1.37/metrics-resource-2.txt"),
];
pub(crate) const SUMMARY: &str = include_str!("../fixtures/kubernetes-1.37/stats-summary.json");

/// Reads a body of `/metrics/resource` into families.
pub(crate) fn families(body: &str) -> Vec<MetricFamily> {
    let mut families: Vec<MetricFamily> = Vec::new();
    parse(body.as_bytes(), |item| match item {
        Item::Help(help) => families.push(MetricFamily {
            name: help.name.as_str().to_owned(),
            help: help.text().into_owned(),
            kind: MetricKind::Untyped,
            samples: Vec::new(),
        }),
        Item::Type(one) => {
            families.last_mut().unwrap().kind = match one.kind {
                MetricType::Counter => MetricKind::Counter,
                MetricType::Gauge => MetricKind::Gauge,
                _ => MetricKind::Untyped,
            };
        }
        Item::Sample(sample) => {
            let labels = sample.labels.iter();
            let labels = labels.map(|one| (one.name.as_str().to_owned(), one.value().into_owned()));
            families.last_mut().unwrap().samples.push(MetricSample {
                labels: labels.collect(),
                value: sample.value,
                timestamp: sample.timestamp_ms.map(Timestamp::from_unix_millis),
            });
        }
        Item::Comment(_) => {}
        Item::Error(error) => panic!("{error}"),
    });
    families
}

/// Reads a body of `/metrics/resource` into statistics, in an order that is not that of the body.
pub(crate) fn stats(body: &str) -> NodeStats {
    let mut node = CgroupStats::default();
    let mut pods: BTreeMap<(String, String), PodStats> = BTreeMap::new();
    parse(body.as_bytes(), |item| {
        let Item::Sample(sample) = item else { return };
        let [container, namespace, pod] = sample
            .pick(["container", "namespace", "pod"])
            .map(|label| label.map(|label| label.value().into_owned()));
        let (value, at) = (sample.value, sample.timestamp_ms);
        let name = sample.name.as_str();
        let (Some(namespace), Some(pod)) = (namespace, pod) else {
            read(&mut node, name, value, at);
            return;
        };
        let stats = pods
            .entry((namespace.clone(), pod.clone()))
            .or_insert_with(|| empty_pod(&namespace, &pod));
        let Some(container) = container else {
            read(&mut stats.usage, name, value, at);
            return;
        };
        let containers = &mut stats.containers;
        let position = containers.iter().position(|one| one.name == container);
        let position = position.unwrap_or_else(|| {
            containers.push(ContainerStats {
                name: container,
                ..ContainerStats::default()
            });
            containers.len() - 1
        });
        if name == "container_start_time_seconds" {
            containers[position].started = Some(Timestamp::from_unix_seconds(value).unwrap());
        } else {
            read(&mut containers[position].usage, name, value, at);
        }
    });
    NodeStats {
        name: String::from("real-1"),
        usage: node,
        pods: pods.into_values().rev().collect(),
        ..NodeStats::default()
    }
}

fn read(usage: &mut CgroupStats, name: &str, value: f64, at: Option<i64>) {
    let bytes = Bytes::from_f64(value).unwrap_or(Bytes::new(0));
    let Some(at) = at.map(Timestamp::from_unix_millis) else {
        assert_eq!(name, "resource_scrape_error");
        return;
    };
    if name.ends_with("_cpu_usage_seconds_total") {
        usage.cpu = Some(CpuStats::new(at, CoreNanos::from_seconds(value).unwrap()));
    } else if name.ends_with("_memory_working_set_bytes") {
        usage.memory = Some(MemoryStats {
            working_set: Some(bytes),
            ..MemoryStats::new(at)
        });
    } else if name.ends_with("_swap_usage_bytes") {
        let limit = usage.swap.and_then(|swap| swap.limit);
        usage.swap = Some(SwapStats {
            at,
            usage: bytes,
            limit,
        });
    } else {
        // The limit comes before the usage, which replaces its own here.
        assert_eq!(name, "container_swap_limit_bytes");
        usage.swap = Some(SwapStats {
            at,
            usage: Bytes::new(0),
            limit: Some(bytes),
        });
    }
}

/// Reads a body of `/stats/summary`.
pub(crate) fn summary(body: &str) -> NodeStats {
    let summary: Value = serde_json::from_str(body).unwrap();
    let node = &summary["node"];
    let runtime = &node["runtime"];
    NodeStats {
        name: text(&node["nodeName"]),
        started: time(&node["startTime"]),
        usage: cgroup(node),
        system_containers: list(&node["systemContainers"], container),
        network: present(&node["network"]).map(network),
        fs: present(&node["fs"]).map(fs),
        image_fs: present(&runtime["imageFs"]).map(fs),
        container_fs: present(&runtime["containerFs"]).map(fs),
        processes: present(&node["rlimit"]).map(|limits| ProcessLimits {
            at: time(&limits["time"]).unwrap(),
            max: limits["maxpid"].as_u64().unwrap(),
            current: limits["curproc"].as_u64().unwrap(),
        }),
        pods: list(&summary["pods"], |pod| PodStats {
            key: PodKey::new(
                text(&pod["podRef"]["namespace"]),
                text(&pod["podRef"]["name"]),
            ),
            uid: Uid::from(text(&pod["podRef"]["uid"]).as_str()),
            started: time(&pod["startTime"]),
            usage: cgroup(pod),
            network: present(&pod["network"]).map(network),
            volumes: Vec::new(),
            ephemeral_storage: present(&pod["ephemeral-storage"]).map(fs),
            process_count: pod["process_stats"]["process_count"].as_u64(),
            containers: list(&pod["containers"], container),
        }),
        ..NodeStats::default()
    }
}

fn container(value: &Value) -> ContainerStats {
    ContainerStats {
        name: text(&value["name"]),
        started: time(&value["startTime"]),
        usage: cgroup(value),
        rootfs: present(&value["rootfs"]).map(fs),
        logs: present(&value["logs"]).map(fs),
        ..ContainerStats::default()
    }
}

fn cgroup(value: &Value) -> CgroupStats {
    CgroupStats {
        cpu: present(&value["cpu"]).map(|one| CpuStats {
            rate: one["usageNanoCores"].as_u64().map(CpuUsage::from_nanocores),
            pressure: present(&one["psi"]).map(pressure),
            ..CpuStats::new(
                time(&one["time"]).unwrap(),
                CoreNanos::new(one["usageCoreNanoSeconds"].as_u64().unwrap()),
            )
        }),
        memory: present(&value["memory"]).map(|one| {
            let working_set = one["workingSetBytes"].as_u64();
            let available = one["availableBytes"].as_u64();
            MemoryStats {
                usage: one["usageBytes"].as_u64().map(Bytes::new),
                working_set: working_set.map(Bytes::new),
                rss: one["rssBytes"].as_u64().map(Bytes::new),
                page_faults: one["pageFaults"].as_u64(),
                major_page_faults: one["majorPageFaults"].as_u64(),
                limit: available.map(|free| Bytes::new(free + working_set.unwrap())),
                pressure: present(&one["psi"]).map(pressure),
                ..MemoryStats::new(time(&one["time"]).unwrap())
            }
        }),
        io: present(&value["io"]).map(|one| IoStats {
            at: time(&one["time"]).unwrap(),
            devices: Vec::new(),
            pressure: present(&one["psi"]).map(pressure),
        }),
        swap: present(&value["swap"]).map(|one| {
            let usage = one["swapUsageBytes"].as_u64().unwrap();
            let available = one["swapAvailableBytes"].as_u64();
            SwapStats {
                at: time(&one["time"]).unwrap(),
                usage: Bytes::new(usage),
                limit: available.map(|free| Bytes::new(free + usage)),
            }
        }),
        ..CgroupStats::default()
    }
}

fn pressure(value: &Value) -> Pressure {
    let line = |one: &Value| PressureLine {
        total_micros: one["total"].as_u64().unwrap() / 1000,
        avg10: one["avg10"].as_f64().unwrap(),
        avg60: one["avg60"].as_f64().unwrap(),
        avg300: one["avg300"].as_f64().unwrap(),
    };
    Pressure {
        full: Some(line(&value["full"])),
        some: line(&value["some"]),
    }
}

fn network(value: &Value) -> NetworkStats {
    NetworkStats {
        at: time(&value["time"]).unwrap(),
        interfaces: list(&value["interfaces"], |one| InterfaceStats {
            name: text(&one["name"]),
            rx_bytes: one["rxBytes"].as_u64().unwrap(),
            rx_errors: one["rxErrors"].as_u64().unwrap(),
            tx_bytes: one["txBytes"].as_u64().unwrap(),
            tx_errors: one["txErrors"].as_u64().unwrap(),
            ..InterfaceStats::default()
        }),
    }
}

fn fs(value: &Value) -> FsStats {
    FsStats {
        at: time(&value["time"]).unwrap(),
        available: value["availableBytes"].as_u64().map(Bytes::new),
        capacity: value["capacityBytes"].as_u64().map(Bytes::new),
        used: value["usedBytes"].as_u64().map(Bytes::new),
        inodes_free: value["inodesFree"].as_u64(),
        inodes: value["inodes"].as_u64(),
        inodes_used: value["inodesUsed"].as_u64(),
    }
}

pub(crate) fn empty_pod(namespace: &str, name: &str) -> PodStats {
    PodStats {
        key: PodKey::new(namespace, name),
        uid: Uid::from("93de724c-696f-48c2-8206-9c069d91751c"),
        started: None,
        usage: CgroupStats::default(),
        network: None,
        volumes: Vec::new(),
        ephemeral_storage: None,
        process_count: None,
        containers: Vec::new(),
    }
}

fn list<T>(value: &Value, read: impl FnMut(&Value) -> T) -> Vec<T> {
    value.as_array().into_iter().flatten().map(read).collect()
}

fn present(value: &Value) -> Option<&Value> {
    (!value.is_null()).then_some(value)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str().map(|text| text.parse().unwrap())
}
