//! `/metrics/resource` in the bytes of the kubelet: from statistics without building families, or
//! from the families of a provider.
//!
//! Families are ordered by name, series by the values of their labels. A value that is unknown has
//! no series, a family without series is left out. Each sample has the time at which it was taken.

use std::collections::HashSet;

use kubevitals_model::Timestamp;
use kubevitals_model::node_stats::{CgroupStats, ContainerStats, NodeStats, PodStats};
use kubevitals_promtext::{Encoder, LabelName, MetricName, MetricType};

use crate::provider::{MetricFamily, MetricKind, MetricSample};

/// The `Content-Type` of the kubelet.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

const CONTAINER: LabelName<'_> = LabelName::from_static("container");
const NAMESPACE: LabelName<'_> = LabelName::from_static("namespace");
const POD: LabelName<'_> = LabelName::from_static("pod");

/// Bytes of a container's samples, and of everything else of a pod.
const BYTES_OF_CONTAINER: usize = 640;
const BYTES_OF_POD: usize = 320;
const BYTES_OF_HEADS: usize = 2048;

/// The name, the type and the help of a family.
struct Description {
    name: MetricName<'static>,
    kind: MetricType,
    help: &'static str,
}

/// A value and the time at which it was taken, if that is stated.
type Value = Option<(f64, Option<Timestamp>)>;

/// A container with the values of its labels, in their order.
struct ContainerRow<'a> {
    labels: [(LabelName<'static>, &'a str); 3],
    stats: &'a ContainerStats,
}

/// A pod with the values of its labels, in their order.
struct PodRow<'a> {
    labels: [(LabelName<'static>, &'a str); 2],
    stats: &'a PodStats,
}

/// Encodes the statistics of a node. With `hidden` there is the old `scrape_error` too, which
/// kubelets show with `--show-hidden-metrics`.
pub fn encode_stats(stats: &NodeStats, hidden: bool) -> Vec<u8> {
    let (pods, containers) = (pod_rows(stats), container_rows(stats));
    let mut out = Vec::with_capacity(
        BYTES_OF_HEADS + containers.len() * BYTES_OF_CONTAINER + pods.len() * BYTES_OF_POD,
    );
    let mut encoder = Encoder::new(&mut out);
    let of_containers = |value: fn(&ContainerStats) -> Value| {
        containers
            .iter()
            .filter_map(move |row| Some((row.labels, value(row.stats)?)))
    };
    let of_pods = |value: fn(&CgroupStats) -> Value| {
        pods.iter()
            .filter_map(move |row| Some((row.labels, value(&row.stats.usage)?)))
    };
    let of_node = |value: fn(&CgroupStats) -> Value| {
        value(&stats.usage).map(|value| ([] as [(LabelName<'_>, &str); 0], value))
    };
    write(
        &mut encoder,
        &CONTAINER_CPU,
        of_containers(|one| cpu(&one.usage)),
    );
    write(
        &mut encoder,
        &CONTAINER_MEMORY,
        of_containers(|one| memory(&one.usage)),
    );
    write(&mut encoder, &CONTAINER_START, of_containers(start));
    write(
        &mut encoder,
        &CONTAINER_SWAP_LIMIT,
        of_containers(|one| swap_limit(&one.usage)),
    );
    write(
        &mut encoder,
        &CONTAINER_SWAP,
        of_containers(|one| swap(&one.usage)),
    );
    write(&mut encoder, &NODE_CPU, of_node(cpu));
    write(&mut encoder, &NODE_MEMORY, of_node(memory));
    write(&mut encoder, &NODE_SWAP, of_node(swap));
    write(&mut encoder, &POD_CPU, of_pods(cpu));
    write(&mut encoder, &POD_MEMORY, of_pods(memory));
    write(&mut encoder, &POD_SWAP, of_pods(swap));
    scrape_result(&mut encoder, false, hidden);
    out
}

/// Encodes a failure, as the kubelet does: with status 200 and without any statistics.
pub fn encode_error(hidden: bool) -> Vec<u8> {
    let mut out = Vec::new();
    scrape_result(&mut Encoder::new(&mut out), true, hidden);
    out
}

/// Encodes families in their order. Returns the text, and how many families and samples have
/// invalid or repeated names: those are left out, so that a mistake costs only itself.
pub fn encode_families(families: &[MetricFamily]) -> (Vec<u8>, usize) {
    let mut out = Vec::new();
    let mut invalid = 0;
    let mut names = HashSet::with_capacity(families.len());
    let mut encoder = Encoder::new(&mut out);
    for family in families {
        let (Ok(name), true) = (
            MetricName::new(&family.name),
            names.insert(family.name.as_str()),
        ) else {
            invalid += 1;
            continue;
        };
        let mut samples = family.samples.iter().filter_map(|sample| {
            let labels = labels_of(sample);
            invalid += usize::from(labels.is_none());
            Some((labels?, sample))
        });
        let Some(first) = samples.next() else {
            continue;
        };
        let kind = match family.kind {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge => MetricType::Gauge,
            MetricKind::Untyped => MetricType::Untyped,
        };
        let mut written = encoder.family(name, Some(&family.help), Some(kind));
        for (labels, sample) in std::iter::once(first).chain(samples) {
            let time = sample.timestamp.map(Timestamp::unix_millis);
            written.sample(&labels, sample.value, time);
        }
    }
    (out, invalid)
}

fn write<'a, const N: usize>(
    encoder: &mut Encoder<'_>,
    description: &Description,
    samples: impl IntoIterator<Item = ([(LabelName<'static>, &'a str); N], (f64, Option<Timestamp>))>,
) {
    let mut samples = samples.into_iter();
    let Some(first) = samples.next() else {
        return;
    };
    let Description { name, kind, help } = *description;
    let mut family = encoder.family(name, Some(help), Some(kind));
    for (labels, (value, at)) in std::iter::once(first).chain(samples) {
        family.sample(&labels, value, at.map(Timestamp::unix_millis));
    }
}

fn scrape_result(encoder: &mut Encoder<'_>, failed: bool, hidden: bool) {
    let value = if failed { 1.0 } else { 0.0 };
    let sample = || [([] as [(LabelName<'static>, &str); 0], (value, None))];
    write(encoder, &RESOURCE_SCRAPE_ERROR, sample());
    if hidden {
        write(encoder, &SCRAPE_ERROR, sample());
    }
}

/// Sorted as `client_golang` sorts. Of two with the same names the first is kept: a scraper
/// rejects a body in which a series occurs twice.
fn container_rows(stats: &NodeStats) -> Vec<ContainerRow<'_>> {
    let mut rows: Vec<ContainerRow<'_>> = stats
        .pods
        .iter()
        .flat_map(|pod| {
            pod.containers.iter().map(|stats| ContainerRow {
                labels: [
                    (CONTAINER, stats.name.as_str()),
                    (NAMESPACE, &**pod.key.namespace()),
                    (POD, &**pod.key.name()),
                ],
                stats,
            })
        })
        .collect();
    rows.sort_by_key(|row| row.labels.map(|(_, value)| value));
    rows.dedup_by_key(|row| row.labels);
    rows
}

fn pod_rows(stats: &NodeStats) -> Vec<PodRow<'_>> {
    let mut rows: Vec<PodRow<'_>> = stats
        .pods
        .iter()
        .map(|stats| PodRow {
            labels: [
                (NAMESPACE, &**stats.key.namespace()),
                (POD, &**stats.key.name()),
            ],
            stats,
        })
        .collect();
    rows.sort_by_key(|row| row.labels.map(|(_, value)| value));
    rows.dedup_by_key(|row| row.labels);
    rows
}

fn cpu(usage: &CgroupStats) -> Value {
    let cpu = usage.cpu.as_ref()?;
    Some((seconds(cpu.total.get()), Some(cpu.at)))
}

fn memory(usage: &CgroupStats) -> Value {
    let memory = usage.memory.as_ref()?;
    Some((float(memory.working_set?.count()), Some(memory.at)))
}

fn swap(usage: &CgroupStats) -> Value {
    let swap = usage.swap.as_ref()?;
    Some((float(swap.usage.count()), Some(swap.at)))
}

fn swap_limit(usage: &CgroupStats) -> Value {
    let swap = usage.swap.as_ref()?;
    Some((float(swap.limit?.count()), Some(swap.at)))
}

fn start(container: &ContainerStats) -> Value {
    let started = u64::try_from(container.started?.unix_millis()).ok()?;
    // By way of nanoseconds, as in Go: the last digit is then the same.
    let nanos = started.checked_mul(1_000_000)?;
    (nanos > 0).then(|| (seconds(nanos), None))
}

fn labels_of(sample: &MetricSample) -> Option<Vec<(LabelName<'_>, &str)>> {
    let mut labels = Vec::with_capacity(sample.labels.len());
    for (name, value) in &sample.labels {
        let name = LabelName::new(name).ok()?;
        if labels.iter().any(|(known, _)| *known == name) {
            return None;
        }
        labels.push((name, value.as_str()));
    }
    Some(labels)
}

/// Go's `float64(nanoseconds) / float64(time.Second)`.
fn seconds(nanos: u64) -> f64 {
    float(nanos) / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "a sample is a float")]
const fn float(number: u64) -> f64 {
    number as f64
}

const fn describe(name: &'static str, kind: MetricType, help: &'static str) -> Description {
    Description {
        name: MetricName::from_static(name),
        kind,
        help,
    }
}

const CONTAINER_CPU: Description = describe(
    "container_cpu_usage_seconds_total",
    MetricType::Counter,
    "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
);
const CONTAINER_MEMORY: Description = describe(
    "container_memory_working_set_bytes",
    MetricType::Gauge,
    "[STABLE] Current working set of the container in bytes",
);
const CONTAINER_START: Description = describe(
    "container_start_time_seconds",
    MetricType::Gauge,
    "[STABLE] Start time of the container since unix epoch in seconds",
);
const CONTAINER_SWAP_LIMIT: Description = describe(
    "container_swap_limit_bytes",
    MetricType::Gauge,
    "[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems",
);
const CONTAINER_SWAP: Description = describe(
    "container_swap_usage_bytes",
    MetricType::Gauge,
    "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems",
);
const NODE_CPU: Description = describe(
    "node_cpu_usage_seconds_total",
    MetricType::Counter,
    "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
);
const NODE_MEMORY: Description = describe(
    "node_memory_working_set_bytes",
    MetricType::Gauge,
    "[STABLE] Current working set of the node in bytes",
);
const NODE_SWAP: Description = describe(
    "node_swap_usage_bytes",
    MetricType::Gauge,
    "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems",
);
const POD_CPU: Description = describe(
    "pod_cpu_usage_seconds_total",
    MetricType::Counter,
    "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
);
const POD_MEMORY: Description = describe(
    "pod_memory_working_set_bytes",
    MetricType::Gauge,
    "[STABLE] Current working set of the pod in bytes",
);
const POD_SWAP: Description = describe(
    "pod_swap_usage_bytes",
    MetricType::Gauge,
    "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
);
const RESOURCE_SCRAPE_ERROR: Description = describe(
    "resource_scrape_error",
    MetricType::Gauge,
    "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
);
const SCRAPE_ERROR: Description = describe(
    "scrape_error",
    MetricType::Gauge,
    "[ALPHA] (Deprecated since 1.29.0) 1 if there was an error while getting container metrics, 0 otherwise",
);
