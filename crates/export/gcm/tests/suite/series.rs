//! What arrives: series, labels, units, intervals, values and descriptors.

use std::collections::BTreeMap;
use std::time::Duration;

use kubevitals_gcm::{Code, Description, GcmSettings};
use kubevitals_sim::google::{MonitoringFault, WrittenPoint};
use kubevitals_sink::{DataPoint, Distribution, Exemplar, Measurement, Number};
use serde_json::json;

use crate::support::{
    Pipeline, Results, at, attributes, backend, clock, counter, gauge, settings, written,
};

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// A gauge of each type, a counter and a distribution.
fn one_of_each_kind() -> [DataPoint; 4] {
    let mut value = Distribution::new([0.1, 1.0].into(), vec![2, 1, 1], 3.5).unwrap();
    value.exemplars.push(Exemplar {
        value: 2.5,
        timestamp: at(-3),
        attributes: attributes(&[("target", "dns")]),
    });
    let node = [("k8s.node.name", "n1"), ("probe", "dns")];
    [
        DataPoint {
            timestamp: at(-1),
            ..gauge(1, 0)
        },
        DataPoint {
            name: "node/load".into(),
            unit: "1".into(),
            attributes: attributes(&node),
            measurement: Measurement::Gauge(Number::Float(0.5)),
            ..gauge(1, 0)
        },
        counter(2, -100_000, 0, 7),
        DataPoint {
            name: "node/probe_latency".into(),
            unit: "s".into(),
            attributes: attributes(&node),
            measurement: Measurement::Distribution {
                start: at(-60),
                value,
            },
            ..gauge(1, 0)
        },
    ]
}

fn metric(name: &str) -> String {
    format!("workload.googleapis.com/kube-prober/{name}")
}

/// What the backend has of [`one_of_each_kind`].
fn written_of_each_kind() -> [WrittenPoint; 4] {
    let cluster = labels(&[
        ("cluster_name", "sim-cluster"),
        ("location", "europe-west1"),
        ("project_id", "sim-project"),
    ]);
    let mut of_node = cluster.clone();
    of_node.insert("node_name".to_owned(), "n1".to_owned());
    let condition = WrittenPoint {
        metric_type: metric("cluster/node_condition"),
        metric_labels: labels(&[("nodepool", "pool-1")]),
        resource_type: "k8s_cluster".to_owned(),
        resource_labels: cluster,
        kind: "GAUGE".to_owned(),
        value_type: "INT64".to_owned(),
        unit: "{node}".to_owned(),
        start: None,
        end: at(-1),
        value: json!({"int64Value": "0"}),
    };
    let load = WrittenPoint {
        metric_type: metric("node/load"),
        metric_labels: labels(&[("probe", "dns")]),
        resource_type: "k8s_node".to_owned(),
        resource_labels: of_node,
        value_type: "DOUBLE".to_owned(),
        unit: "1".to_owned(),
        end: at(0),
        value: json!({"doubleValue": 0.5}),
        ..condition.clone()
    };
    let restarts = WrittenPoint {
        metric_type: metric("addon/restart"),
        metric_labels: labels(&[("nodepool", "pool-2")]),
        kind: "CUMULATIVE".to_owned(),
        unit: "1".to_owned(),
        start: Some(at(-100_000)),
        end: at(0),
        value: json!({"int64Value": "7"}),
        ..condition.clone()
    };
    let latency = WrittenPoint {
        metric_type: metric("node/probe_latency"),
        kind: "CUMULATIVE".to_owned(),
        value_type: "DISTRIBUTION".to_owned(),
        unit: "s".to_owned(),
        start: Some(at(-60)),
        value: json!({"distributionValue": {
            "count": "4", "mean": 0.875,
            "bucketOptions": {"explicitBuckets": {"bounds": [0.1, 1.0]}},
            "bucketCounts": ["2", "1", "1"],
            "exemplars": [{"value": 2.5, "timestamp": at(-3).rfc3339_millis().as_str(),
                "attachments": [{"@type": "type.googleapis.com/google.monitoring.v3.DroppedLabels",
                    "label": {"target": "dns"}}]}]}}),
        ..load.clone()
    };
    [condition, load, restarts, latency]
}

#[tokio::test]
async fn every_series_label_unit_and_interval_arrives_as_it_was_recorded() {
    let clock = clock();
    let backend = backend(&clock).await;
    let settings = GcmSettings {
        descriptions: vec![Description {
            name: "node/probe_latency".into(),
            text: "Latency of probes".to_owned(),
            labels: vec![("probe".to_owned(), "The name of the probe".to_owned())],
        }],
        ..settings(backend.address)
    };
    let pipeline = Pipeline::start(settings, &clock);
    let pushed = pipeline.push(one_of_each_kind());
    assert_eq!(pipeline.flush(pushed).await, Results::sent(4));
    let received = backend.received();
    assert_eq!(received.calls.len(), 1);
    assert_eq!(received.points, written_of_each_kind());

    let plain = |name: &str, kind: &str, value: &str, unit: &str, key: &str| {
        json!({"type": metric(name), "metricKind": kind, "valueType": value, "unit": unit,
            "displayName": name, "labels": [{"key": key, "valueType": "STRING"}]})
    };
    let mut described = plain(
        "node/probe_latency",
        "CUMULATIVE",
        "DISTRIBUTION",
        "s",
        "probe",
    );
    described["description"] = json!("Latency of probes");
    described["labels"][0]["description"] = json!("The name of the probe");
    assert_eq!(
        received.descriptors,
        [
            plain("addon/restart", "CUMULATIVE", "INT64", "1", "nodepool"),
            plain(
                "cluster/node_condition",
                "GAUGE",
                "INT64",
                "{node}",
                "nodepool"
            ),
            plain("node/load", "GAUGE", "DOUBLE", "1", "probe"),
            described,
        ]
    );
}

#[tokio::test]
async fn a_metric_is_described_once_and_points_do_not_depend_on_it() {
    let clock = clock();
    let backend = backend(&clock).await;
    // Not now, then not at all; the third metric exists already.
    backend.fail_descriptors([503, 403, 409]);
    let pipeline = Pipeline::start(settings(backend.address), &clock);
    let three = |second| {
        ["a", "b", "c"].map(|name| DataPoint {
            name: name.into(),
            ..gauge(0, second)
        })
    };
    let mut pushed = pipeline.push(three(-120));
    backend.until(|received| received.points.len() == 3).await;
    pushed += pipeline.push(three(-60));
    backend.until(|received| received.points.len() == 6).await;
    pushed += pipeline.push(three(0));
    assert_eq!(pipeline.flush(pushed).await, Results::sent(9));
    // The second attempt finds what the first point made.
    assert_eq!(backend.received().descriptors, [json!(null); 0]);
}

/// Both are denied while the interface is disabled.
#[tokio::test]
async fn a_metric_is_described_as_soon_as_points_are_allowed() {
    let clock = clock();
    let backend = backend(&clock).await;
    backend.fail_descriptors([403, 404]);
    let denied = || MonitoringFault::Status(403, Vec::new());
    backend.fail([denied(), denied()]);
    let pipeline = Pipeline::start(settings(backend.address), &clock);
    let pushed = pipeline.push([gauge(0, 0)]);
    assert_eq!(pipeline.flush(pushed).await, Results::sent(1));
    assert_eq!(backend.received().descriptors.len(), 1);
}

#[tokio::test]
async fn a_call_has_at_most_200_series_and_one_point_of_each_in_order() {
    let clock = clock();
    let backend = backend(&clock).await;
    let mut config = crate::support::quick();
    config.max_batch = 2_000;
    config.linger = Duration::from_millis(500);
    let pipeline = Pipeline::start_as(
        settings(backend.address),
        &clock,
        kubevitals_gcm::Credentials::Anonymous,
        crate::support::no_metadata(),
        config,
    );
    let points = [-60, 0].into_iter();
    let pushed =
        pipeline.push(points.flat_map(|second| (0..450).map(move |one| gauge(one, second))));
    assert_eq!(pipeline.flush(pushed).await, Results::sent(900));
    let received = backend.received();
    let sizes: Vec<usize> = received.calls.iter().map(|call| call.series).collect();
    assert_eq!(sizes, [200, 200, 50, 200, 200, 50]);
    let mut last = BTreeMap::new();
    for (pool, second) in written(&received) {
        assert!(last.insert(pool, second) < Some(second));
    }
    assert_eq!(last.len(), 450);
}

#[tokio::test]
async fn points_that_are_nearer_than_the_pace_are_left_out_and_counted() {
    let clock = clock();
    let backend = backend(&clock).await;
    let pipeline = Pipeline::start(settings(backend.address), &clock);
    let mut pushed = pipeline.push([
        gauge(1, -120),
        gauge(1, -119),
        gauge(1, -120),
        gauge(2, -119),
    ]);
    backend.until(|received| received.points.len() == 2).await;
    // A tick of a minute may come early; the flush at the end comes whenever it likes.
    pushed += pipeline.push([gauge(1, -65), gauge(1, -60)]);
    let rejected = pipeline.results.clone();
    let results = pipeline.flush(pushed).await;
    assert_eq!((results.sent, results.rejected), (3, 3));
    assert_eq!(rejected.rejected(Code::Paced).get(), 3);
    let pool = |number: usize, second| (format!("pool-{number}"), second);
    assert_eq!(
        written(&backend.received()),
        [pool(1, -120), pool(2, -119), pool(1, -65)]
    );
}

#[tokio::test]
async fn a_pace_is_never_below_five_seconds() {
    let clock = clock();
    let backend = backend(&clock).await;
    let settings = GcmSettings {
        interval: Duration::from_secs(1),
        ..settings(backend.address)
    };
    let pipeline = Pipeline::start(settings, &clock);
    let pushed = pipeline.push((-20..=0).map(|second| gauge(1, second)));
    let results = pipeline.flush(pushed).await;
    assert_eq!((results.sent, results.rejected), (5, 16));
    assert!(
        backend
            .received()
            .calls
            .iter()
            .all(|call| call.status == 200)
    );
}

#[tokio::test]
async fn points_that_are_too_old_or_invalid_cost_nothing_else() {
    let clock = clock();
    let backend = backend(&clock).await;
    let pipeline = Pipeline::start(settings(backend.address), &clock);
    let long = "k".repeat(101);
    let points = [
        gauge(1, -25 * 3_600),
        counter(1, 0, 0, 1),
        DataPoint {
            attributes: attributes(&[(&long, "v")]),
            ..gauge(1, 0)
        },
        DataPoint {
            measurement: Measurement::Gauge(Number::Float(f64::NAN)),
            ..gauge(1, 0)
        },
        gauge(2, 0),
    ];
    let pushed = pipeline.push(points);
    let counted = pipeline.results.clone();
    let results = pipeline.flush(pushed).await;
    assert_eq!((results.sent, results.rejected), (1, 4));
    for code in [Code::TooOld, Code::Interval, Code::Labels, Code::Value] {
        assert_eq!(counted.rejected(code).get(), 1, "{code:?}");
    }
    assert_eq!(backend.received().calls.len(), 1);
}
