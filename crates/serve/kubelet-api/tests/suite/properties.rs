//! What is encoded is what a scraper reads.

use std::collections::BTreeMap;

use kubevitals_kubelet_api::provider::{MetricFamily, MetricKind, MetricSample};
use kubevitals_kubelet_api::resource_metrics::{encode_families, encode_stats};
use kubevitals_kubelet_api::summary::{SummaryOptions, encode};
use kubevitals_model::node_stats::{
    CgroupStats, ContainerStats, CpuStats, MemoryStats, NodeStats, SwapStats,
};
use kubevitals_model::{Bytes, CoreNanos, Timestamp};
use kubevitals_promtext::{Item, parse};
use proptest::prelude::*;

use crate::recorded;

type Samples = BTreeMap<String, (u64, Option<i64>)>;

/// Reads all samples by name and labels. Values are compared by their bits.
fn samples(body: &[u8]) -> Samples {
    let mut samples = Samples::new();
    parse(body, |item| match item {
        Item::Sample(sample) => {
            let labels: Vec<String> = sample
                .labels
                .iter()
                .map(|label| format!("{}={:?}", label.name, label.value()))
                .collect();
            let series = format!("{}{labels:?}", sample.name);
            let value = (sample.value.to_bits(), sample.timestamp_ms);
            assert_eq!(samples.insert(series, value), None, "a series occurs twice");
        }
        Item::Error(error) => panic!("{error}"),
        _ => {}
    });
    samples
}

fn usage() -> impl Strategy<Value = CgroupStats> {
    let at = (0_i64..4_000_000_000_000).prop_map(Timestamp::from_unix_millis);
    let cpu = proptest::option::of((at.clone(), any::<u64>()));
    let memory = proptest::option::of((at.clone(), proptest::option::of(any::<u64>())));
    let swap = proptest::option::of((at, any::<u64>(), proptest::option::of(any::<u64>())));
    (cpu, memory, swap).prop_map(|(cpu, memory, swap)| CgroupStats {
        cpu: cpu.map(|(at, total)| CpuStats::new(at, CoreNanos::new(total))),
        memory: memory.map(|(at, working_set)| MemoryStats {
            working_set: working_set.map(Bytes::new),
            ..MemoryStats::new(at)
        }),
        swap: swap.map(|(at, usage, limit)| SwapStats {
            at,
            usage: Bytes::new(usage),
            limit: limit.map(Bytes::new),
        }),
        ..CgroupStats::default()
    })
}

fn node() -> impl Strategy<Value = NodeStats> {
    let container = (
        "[a-c]{1,2}",
        usage(),
        proptest::option::of(0_i64..4_000_000_000_000),
    );
    let containers = proptest::collection::vec(container, 0..4);
    let pod = ("[ab]", "[a-z\"\\\\\n]{0,3}", usage(), containers);
    let pods = proptest::collection::vec(pod, 0..5);
    (usage(), pods).prop_map(|(usage, pods)| NodeStats {
        name: String::from("n"),
        usage,
        pods: pods
            .into_iter()
            .map(|(namespace, name, usage, containers)| {
                let mut pod = recorded::empty_pod(&namespace, &name);
                pod.usage = usage;
                pod.containers = containers
                    .into_iter()
                    .map(|(name, usage, started)| ContainerStats {
                        name,
                        usage,
                        started: started.map(Timestamp::from_unix_millis),
                        ..ContainerStats::default()
                    })
                    .collect();
                pod
            })
            .collect(),
        ..NodeStats::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn statistics_are_read_back(node in node()) {
        let read = samples(&encode_stats(&node, true));
        let find = |name: &str, labels: &[String]| read.get(&format!("{name}{labels:?}")).copied();
        let mut expected = 2;
        let mut pods = std::collections::BTreeSet::new();
        let mut containers = std::collections::BTreeSet::new();
        let parts = |usage: &CgroupStats| {
            usize::from(usage.cpu.is_some())
                + usize::from(usage.memory.is_some_and(|memory| memory.working_set.is_some()))
                + usize::from(usage.swap.is_some())
        };
        expected += parts(&node.usage);
        for pod in &node.pods {
            let labels = [
                format!("namespace={:?}", pod.key.namespace()),
                format!("pod={:?}", pod.key.name()),
            ];
            if pods.insert(labels.clone()) {
                expected += parts(&pod.usage);
                let cpu = pod.usage.cpu.map(|cpu| {
                    #[expect(clippy::cast_precision_loss, reason = "as in the kubelet")]
                    let seconds = cpu.total.get() as f64 / 1e9;
                    (seconds.to_bits(), Some(cpu.at.unix_millis()))
                });
                prop_assert_eq!(find("pod_cpu_usage_seconds_total", &labels), cpu);
            }
            for container in &pod.containers {
                let labels = [
                    format!("container={:?}", container.name),
                    labels[0].clone(),
                    labels[1].clone(),
                ];
                if containers.insert(labels.clone()) {
                    expected += parts(&container.usage);
                    let limit = container.usage.swap.and_then(|swap| swap.limit);
                    expected += usize::from(limit.is_some());
                    let started = container.started.filter(|at| at.unix_millis() > 0);
                    expected += usize::from(started.is_some());
                    let found = find("container_start_time_seconds", &labels);
                    prop_assert_eq!(found.is_some(), started.is_some());
                    if let (Some((bits, None)), Some(started)) = (found, started) {
                        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
                        let millis = started.unix_millis() as f64;
                        prop_assert!((f64::from_bits(bits) * 1e3 - millis).abs() < 0.01);
                    }
                }
            }
        }
        prop_assert_eq!(read.len(), expected);
    }

    #[test]
    fn families_are_read_back(
        values in proptest::collection::vec((any::<f64>(), any::<Option<i32>>()), 1..5),
        label in "\\PC{0,10}", help in "\\PC{0,10}",
    ) {
        let family = |name: &str, kind| MetricFamily {
            name: name.to_owned(),
            help: help.clone(),
            kind,
            samples: values.iter().enumerate().map(|(at, (value, time))| MetricSample {
                labels: vec![(String::from("a"), label.clone()), (String::from("n"), at.to_string())],
                value: *value,
                timestamp: time.map(|time| Timestamp::from_unix_millis(i64::from(time))),
            }).collect(),
        };
        let given = [
            family("one", MetricKind::Counter),
            family("one", MetricKind::Gauge),
            family("1", MetricKind::Gauge),
            family("two", MetricKind::Untyped),
        ];
        let (text, invalid) = encode_families(&given);
        prop_assert_eq!(invalid, 2, "the second of a name, and an invalid name");
        let read = samples(&text);
        prop_assert_eq!(read.len(), 2 * values.len());
        for (at, (value, time)) in values.iter().enumerate() {
            let series = format!("one{:?}", [format!("a={label:?}"), format!("n={:?}", at.to_string())]);
            let (bits, found) = read[&series];
            let read = f64::from_bits(bits);
            // Go writes no negative zero.
            let value = value + 0.0;
            prop_assert!(read.to_bits() == value.to_bits() || read.is_nan() && value.is_nan());
            prop_assert_eq!(found, time.map(i64::from));
        }
    }

    #[test]
    fn a_summary_is_json(node in node()) {
        let text = encode(&node, SummaryOptions::default());
        let summary: serde_json::Value = serde_json::from_slice(&text).unwrap();
        prop_assert_eq!(summary["pods"].as_array().unwrap().len(), node.pods.len());
        for (pod, written) in node.pods.iter().zip(summary["pods"].as_array().unwrap()) {
            prop_assert_eq!(written["podRef"]["name"].as_str().unwrap(), &**pod.key.name());
            let total = pod.usage.cpu.map(|cpu| cpu.total.get());
            prop_assert_eq!(written["cpu"]["usageCoreNanoSeconds"].as_u64(), total);
        }
    }
}
