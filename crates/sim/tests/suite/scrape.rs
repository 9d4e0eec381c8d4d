//! Kubelet responses over real sockets, compared with recordings and with the true usage.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::SteppedClock;
use kubevitals_promtext::{Item, parse};
use kubevitals_sim::kubelet::{Binding, Fleet, FleetConfig};
use kubevitals_sim::node_set::NodeSet;
use kubevitals_sim::seed::Seed;
use kubevitals_sim::workload::{ChurnRate, Workload, WorkloadConfig};
use kubevitals_tls::Alpn;
use serde_json::Value;

use crate::node_support::{START, Store, at, fixture, get, tls};
use crate::recording::paths;

type Samples = BTreeMap<String, (f64, Option<i64>)>;

/// A cluster of two nodes with pods, with a stepped clock.
struct Cluster {
    fleet: Fleet,
    clock: SteppedClock,
    workload: Workload,
    store: Store,
}

impl Cluster {
    async fn start(churn: ChurnRate) -> Self {
        let node_set = NodeSet::new(2, "node", Seed::new(4));
        let clock = SteppedClock::new(at(START));
        let config = FleetConfig {
            binding: Binding::Ports,
            ..FleetConfig::default()
        };
        let fleet = Fleet::start(config, Arc::clone(&node_set), clock.clock())
            .await
            .unwrap();
        let config = WorkloadConfig {
            pods_per_node: 6,
            churn,
            ..WorkloadConfig::default()
        };
        let store = Store::default();
        let mut workload = Workload::new(config, node_set, Seed::new(4));
        workload.populate(at(START), &store);
        Self {
            fleet,
            clock,
            workload,
            store,
        }
    }

    fn advance(&mut self, by: Duration) {
        let now = self.clock.advance(by);
        self.workload.step(now, &self.store);
    }

    async fn get(&self, path: &str) -> String {
        let address = self.fleet.address("node-00000").unwrap();
        let client = tls(Some(self.fleet.authority_pem()), Alpn::Http11);
        let response = get(address, path, None, &client).await.unwrap();
        assert_eq!(response.status, 200);
        String::from_utf8(response.body.to_vec()).unwrap()
    }

    async fn samples(&self) -> Samples {
        samples(&self.get("/metrics/resource").await)
    }
}

fn samples(body: &str) -> Samples {
    let mut samples = BTreeMap::new();
    let summary = parse(body.as_bytes(), |item| match item {
        Item::Sample(sample) => {
            let labels: Vec<String> = sample
                .labels
                .iter()
                .map(|label| format!("{}={}", label.name, label.value()))
                .collect();
            let key = format!("{} {}", sample.name, labels.join(","));
            let earlier = samples.insert(key, (sample.value, sample.timestamp_ms));
            assert_eq!(earlier, None, "a series occurs once");
        }
        Item::Error(error) => panic!("{error}"),
        _ => {}
    });
    assert_eq!(summary.errors, 0);
    samples
}

/// The lines of a body without values that differ between clusters.
fn shape(body: &str) -> Vec<String> {
    let mut shape = Vec::new();
    for line in body.lines() {
        let line = if line.starts_with('#') {
            line.to_owned()
        } else {
            let (series, rest) = line.split_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            let labels: Vec<&str> = series
                .split(['{', ',', '}'])
                .skip(1)
                .filter_map(|label| label.split('=').next())
                .filter(|label| !label.is_empty())
                .collect();
            format!("{name} {labels:?} with {} numbers", rest.split(' ').count())
        };
        if shape.last() != Some(&line) {
            shape.push(line);
        }
    }
    shape
}

#[tokio::test]
async fn metrics_have_the_recorded_shape_line_by_line() {
    let cluster = Cluster::start(ChurnRate::NONE).await;
    let body = cluster.get("/metrics/resource").await;
    assert_eq!(shape(&body), shape(&fixture("metrics-resource.txt")));
    cluster.fleet.shutdown().await;
}

#[tokio::test]
async fn rates_between_scrapes_equal_the_true_usage() {
    let mut cluster = Cluster::start(ChurnRate::NONE).await;
    let before = cluster.samples().await;
    cluster.advance(Duration::from_mins(1));
    let after = cluster.samples().await;
    let mut checked = 0;
    for (key, (value, stamp)) in &after {
        if !key.starts_with("container_cpu") {
            continue;
        }
        let (had, earlier) = before[key];
        let (from, to) = (earlier.unwrap(), stamp.unwrap());
        assert!((45_000..=75_000).contains(&(to - from)), "{}", to - from);
        let rate = (value - had) * 1e3 / f64::from(i32::try_from(to - from).unwrap());
        let truth = cluster
            .workload
            .usage(key_of(key).0, key_of(key).1, key_of(key).2)
            .unwrap();
        let stated = truth.cpu_rate(at(from), at(to)).unwrap() / 1e9;
        assert!(
            (rate - stated).abs() <= stated * 1e-6 + 1e-9,
            "{key}: {rate} {stated}"
        );
        checked += 1;
    }
    assert!(checked >= 10, "{checked}");
    cluster.fleet.shutdown().await;
}

/// Namespace, pod and container of a series.
fn key_of(key: &str) -> (&str, &str, &str) {
    let of = |name: &str| {
        let labels = key.split_once(' ').unwrap().1;
        labels
            .split(',')
            .find_map(|label| label.strip_prefix(name))
            .unwrap()
    };
    (of("namespace="), of("pod="), of("container="))
}

#[tokio::test]
async fn a_scrape_between_two_samples_repeats_the_last_one() {
    let cluster = Cluster::start(ChurnRate::NONE).await;
    let first = cluster.samples().await;
    let mut repeated = 0;
    for _ in 0..20 {
        cluster.clock.advance(Duration::from_secs(1));
        for (key, (value, stamp)) in cluster.samples().await {
            let (had, earlier) = first[&key];
            if stamp == earlier && stamp.is_some() {
                assert_eq!(value.to_bits(), had.to_bits(), "{key}");
                repeated += 1;
            }
        }
    }
    assert!(repeated > 100, "{repeated}");
    cluster.fleet.shutdown().await;
}

#[tokio::test]
async fn counters_of_pods_and_nodes_never_decrease() {
    let mut cluster = Cluster::start(ChurnRate::per_second(3)).await;
    let mut before = Samples::new();
    for _ in 0..50 {
        cluster.advance(Duration::from_secs(3));
        let now = cluster.samples().await;
        for (key, (value, stamp)) in &now {
            let Some((had, earlier)) = before.get(key) else {
                continue;
            };
            assert!(stamp >= earlier, "{key}: time goes back");
            if key.starts_with("pod_cpu") || key.starts_with("node_cpu") {
                assert!(value >= had, "{key} goes back from {had} to {value}");
                if stamp == earlier {
                    assert_eq!(
                        value.to_bits(),
                        had.to_bits(),
                        "{key} changed within a sample"
                    );
                }
            }
        }
        let sum = |family: &str| -> f64 {
            now.iter()
                .filter(|(key, _)| key.starts_with(family))
                .map(|(_, (value, _))| value)
                .sum()
        };
        assert!(
            sum("node_memory") * 1.2 > sum("pod_memory"),
            "a node holds its pods"
        );
        before.extend(now);
    }
    cluster.fleet.shutdown().await;
}

#[tokio::test]
async fn the_summary_has_the_recorded_structure() {
    let cluster = Cluster::start(ChurnRate::NONE).await;
    let theirs: Value = serde_json::from_str(&fixture("stats-summary.json")).unwrap();
    let ours: Value = serde_json::from_str(&cluster.get("/stats/summary").await).unwrap();
    let mut differences = Vec::new();
    paths(&theirs, &ours, "", &mut differences);
    assert_eq!(differences, Vec::<String>::new());
    paths(&ours, &theirs, "", &mut differences);
    // The recorded pods have no memory limit, so `availableBytes` is absent.
    differences.retain(|path| path != ".pods[].memory.availableBytes");
    assert_eq!(differences, Vec::<String>::new());
    let brief = cluster.get("/stats/summary?only_cpu_and_memory=true").await;
    let brief: Value = serde_json::from_str(&brief).unwrap();
    assert!(brief["node"]["fs"].is_null() && brief["node"]["cpu"].is_object());
    assert_eq!(brief["node"]["cpu"], ours["node"]["cpu"]);
    cluster.fleet.shutdown().await;
}

#[tokio::test]
async fn pods_match_the_api_server() {
    let cluster = Cluster::start(ChurnRate::NONE).await;
    let list: Value = serde_json::from_str(&cluster.get("/pods").await).unwrap();
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 6);
    let stored = cluster.store.list(kubevitals_sim::objects::Resource::Pods);
    for item in items {
        let uid = &item["metadata"]["uid"];
        let same = stored
            .iter()
            .find(|pod| pod["metadata"]["uid"] == *uid)
            .unwrap();
        assert_eq!(item["spec"], same["spec"]);
        assert_eq!(item["status"], same["status"]);
        assert_eq!(
            item["metadata"]["annotations"]["kubernetes.io/config.source"],
            "api"
        );
    }
    cluster.fleet.shutdown().await;
}
