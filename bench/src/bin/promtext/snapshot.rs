//! Bodies as a kubelet serves them, the same every time.

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
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
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
            let app = random.pick(&apps);
            let namespace = random.pick(&namespaces).to_owned();
            let pod = format!(
                "{app}-{:09x}-{:05x}",
                random.next() >> 28,
                random.next() >> 44
            );
            for container in [app.to_owned(), "istio-proxy".to_owned()] {
                pods.push([container, namespace.clone(), pod.clone()]);
            }
        }
        pods.sort();
        let now = 1_794_773_483_261 + i64::try_from(random.next() >> 44).unwrap_or_default();
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
                value: random.value(name.as_str()),
                timestamp_ms: timed
                    .then(|| now - i64::try_from(random.next() >> 50).unwrap_or_default()),
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
        let mut random = Random(7);
        for family in self.families.iter().rev() {
            let mut to = document.family(family.name);
            to.set_help(family.help).set_kind(family.kind);
            let mut series: Vec<&Series> = family.series.iter().collect();
            series.sort_by_cached_key(|_| random.next());
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

/// What a kubelet serves: name, help, type, number of labels, whether there are timestamps.
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

/// Xorshift: the same bodies every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        let index = usize::try_from(self.next() >> 33).unwrap_or_default() % from.len();
        from.get(index).copied().unwrap_or_default()
    }

    #[expect(clippy::cast_precision_loss, reason = "any number will do")]
    fn value(&mut self, name: &str) -> f64 {
        // Of very different sizes, as usage is.
        let shift = self.next() % 16;
        match name {
            name if name.ends_with("_seconds_total") => ((self.next() >> 16 >> shift) as f64) / 1e9,
            name if name.ends_with("_set_bytes") => {
                ((self.next() >> 42 >> (shift / 2)) * 4096) as f64
            }
            name if name.starts_with("container_start") => {
                1_794_773_000.0 + (self.next() >> 40) as f64 / 1e7
            }
            _ => 0.0,
        }
    }
}
