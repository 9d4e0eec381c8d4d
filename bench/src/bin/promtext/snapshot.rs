//! Bodies as a kubelet serves them, the same in every run.

use fastrand::Rng;
use kubevitals_promtext::{Document, Encoder, LabelName, MetricName, MetricType};

const PODS: u64 = 110;

const CONTAINER: LabelName<'_> = LabelName::from_static("container");
const NAMESPACE: LabelName<'_> = LabelName::from_static("namespace");
const POD: LabelName<'_> = LabelName::from_static("pod");

/// One kubelet's snapshot, in the order in which it is served.
pub(crate) struct Snapshot {
    families: Vec<Family>,
}

struct Family {
    name: MetricName<'static>,
    help: &'static str,
    kind: MetricType,
    series: Vec<Series>,
}

struct Series {
    labels: Vec<(LabelName<'static>, String)>,
    value: f64,
    timestamp_ms: Option<i64>,
}

impl Snapshot {
    /// Pods of two containers each, named and measured as in a real cluster.
    pub(crate) fn random(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let apps = [
            "checkout",
            "web-frontend",
            "ingest-worker",
            "db",
            "kube-proxy",
            "metrics-exporter",
        ];
        let namespaces = ["default", "kube-system", "payments", "team-observability"];
        let mut pods: Vec<[String; 3]> = Vec::new();
        for _ in 0..PODS {
            let app = random.choice(apps).unwrap_or_default();
            let namespace = random.choice(namespaces).unwrap_or_default().to_owned();
            let pod = format!(
                "{app}-{:09x}-{:05x}",
                random.u64(..1 << 36),
                random.u64(..1 << 20)
            );
            for container in [app.to_owned(), "istio-proxy".to_owned()] {
                pods.push([container, namespace.clone(), pod.clone()]);
            }
        }
        pods.sort();
        let now = 1_794_773_483_261 + random.i64(0..1 << 20);
        let mut families = Vec::new();
        for (name, help, kind, width, timed) in FAMILIES {
            let mut keys: Vec<Vec<(LabelName<'static>, String)>> = pods
                .iter()
                .map(|key| {
                    [CONTAINER, NAMESPACE, POD]
                        .into_iter()
                        .zip(key.clone())
                        .skip(3 - width)
                        .collect()
                })
                .collect();
            keys.sort();
            keys.dedup();
            let series = keys.into_iter().map(|labels| Series {
                labels,
                value: value(&mut random, name.as_str()),
                timestamp_ms: timed.then(|| now - random.i64(0..1 << 14)),
            });
            families.push(Family {
                name,
                help,
                kind,
                series: series.collect(),
            });
        }
        Self { families }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut encoder = Encoder::new(out);
        for family in &self.families {
            let mut samples = encoder.family(family.name, Some(family.help), Some(family.kind));
            for series in &family.series {
                samples.sample(&series.labels, series.value, series.timestamp_ms);
            }
        }
    }

    pub(crate) fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    pub(crate) fn shuffled(&self) -> Document<'_> {
        let mut document = Document::new();
        let mut random = Rng::with_seed(7);
        for family in self.families.iter().rev() {
            let mut to = document.family(family.name);
            to.set_help(family.help).set_kind(family.kind);
            let mut series: Vec<&Series> = family.series.iter().collect();
            series.sort_by_cached_key(|_| random.u64(..));
            for one in series {
                let labels = one.labels.iter().rev().map(|(name, value)| (*name, value));
                to.add(labels, one.value, one.timestamp_ms)
                    .expect("labels differ");
            }
        }
        document
    }
}

type Description = (MetricName<'static>, &'static str, MetricType, usize, bool);

/// Families of a kubelet: name, help, type, number of labels, whether they have timestamps.
const FAMILIES: [Description; 9] = [
    (
        MetricName::from_static("container_cpu_usage_seconds_total"),
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        MetricType::Counter,
        3,
        true,
    ),
    (
        MetricName::from_static("container_memory_working_set_bytes"),
        "[STABLE] Current working set of the container in bytes",
        MetricType::Gauge,
        3,
        true,
    ),
    (
        MetricName::from_static("container_start_time_seconds"),
        "[STABLE] Start time of the container since unix epoch in seconds",
        MetricType::Gauge,
        3,
        false,
    ),
    (
        MetricName::from_static("container_swap_usage_bytes"),
        "[ALPHA] Current amount of the container swap usage in bytes",
        MetricType::Gauge,
        3,
        true,
    ),
    (
        MetricName::from_static("node_cpu_usage_seconds_total"),
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
        MetricType::Counter,
        0,
        true,
    ),
    (
        MetricName::from_static("node_memory_working_set_bytes"),
        "[STABLE] Current working set of the node in bytes",
        MetricType::Gauge,
        0,
        true,
    ),
    (
        MetricName::from_static("pod_cpu_usage_seconds_total"),
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
        MetricType::Counter,
        2,
        true,
    ),
    (
        MetricName::from_static("pod_memory_working_set_bytes"),
        "[STABLE] Current working set of the pod in bytes",
        MetricType::Gauge,
        2,
        true,
    ),
    (
        MetricName::from_static("resource_scrape_error"),
        "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
        MetricType::Gauge,
        0,
        false,
    ),
];

/// Values of very different magnitudes, as usage is.
#[expect(clippy::cast_precision_loss, reason = "any number will do")]
fn value(random: &mut Rng, name: &str) -> f64 {
    let shift = random.u32(..16);
    match name {
        name if name.ends_with("_seconds_total") => (random.u64(..1 << 48) >> shift) as f64 / 1e9,
        name if name.ends_with("_set_bytes") => {
            ((random.u64(..1 << 22) >> (shift / 2)) * 4096) as f64
        }
        name if name.starts_with("container_start") => {
            1_794_773_000.0 + random.u64(..1 << 24) as f64 / 1e7
        }
        _ => 0.0,
    }
}
