use std::sync::Arc;

use kubevitals_model::Timestamp;
use kubevitals_sim::otlp::{ReceivedPoint, ReceivedValue, decode_metrics};
use kubevitals_sink::Exemplar;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn attributes(pairs: &[(&str, &str)]) -> Attributes {
    let pairs = pairs.iter();
    Attributes::new(pairs.map(|(name, value)| ((*name).into(), (*value).into())))
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_unix_millis(1_794_773_520_000 + millis)
}

fn point(name: &str, pairs: &[(&str, &str)], measurement: Measurement) -> DataPoint {
    DataPoint {
        name: name.into(),
        unit: "s".into(),
        attributes: attributes(pairs),
        timestamp: at(0),
        measurement,
    }
}

fn gauge(number: i64) -> Measurement {
    Measurement::Gauge(Number::Integer(number))
}

fn sent(points: &[DataPoint]) -> Vec<ReceivedPoint> {
    let resource = Resource::new("a-0", |_| None);
    decode_metrics(&metrics_request(&resource, points)).unwrap()
}

#[test]
fn attributes_of_process_cluster_and_node_are_of_the_resource() {
    let of_node = |node: &'static str| {
        [
            ("k8s.cluster.name", "c"),
            ("k8s.node.name", node),
            ("k8s.node.condition.type", "Ready"),
            ("k8s.pod.name", "p"),
            ("service.name", "prober"),
        ]
    };
    let points = [
        point("a", &of_node("n1"), gauge(1)),
        point("a", &of_node("n2"), gauge(2)),
        point("b", &of_node("n1"), gauge(3)),
        point("a", &of_node("n1"), gauge(4)),
        point("a", &[], gauge(5)),
    ];
    let received = sent(&points);
    let order: Vec<_> = received
        .iter()
        .map(|point| (point.name.as_str(), point.resource.get("k8s.node.name")))
        .collect();
    let [n1, n2] = [Some(json!("n1")), Some(json!("n2"))];
    let [n1, n2] = [n1.as_ref(), n2.as_ref()];
    assert_eq!(
        order,
        [("a", n1), ("a", n1), ("b", n1), ("a", n2), ("a", None)]
    );
    let first = &received[0];
    assert_eq!(first.resource["service.name"], "prober");
    assert_eq!(first.resource["service.instance.id"], "a-0");
    assert_eq!(first.resource["k8s.cluster.name"], "c");
    let keys: Vec<&String> = first.attributes.keys().collect();
    assert_eq!(keys, ["k8s.node.condition.type", "k8s.pod.name"]);
    assert_eq!(received[4].resource["service.name"], "kubevitals");
    assert_eq!(received[4].value, ReceivedValue::Gauge(json!(5)));
}

/// The bytes are those that the official Go types write for the same request.
#[test]
fn a_request_is_encoded_as_by_go() {
    let node = ("k8s.node.name", "n1");
    let end = at(60_250);
    let point = |name: &str, unit: &str, pairs: &[_], measurement| DataPoint {
        unit: unit.into(),
        timestamp: end,
        ..point(name, pairs, measurement)
    };
    let mut value = Distribution::new([0.1, 1.0].into(), vec![2, 300, 1], 3.5).unwrap();
    value.exemplars.push(Exemplar {
        value: 2.5,
        timestamp: end,
        attributes: attributes(&[("server.address", "wéb")]),
    });
    let condition = "k8s.node.condition.status";
    let ready = ("k8s.node.condition.type", "Ready");
    let float = Measurement::Gauge(Number::Float(0.25));
    let (start, total) = (at(0), Number::Integer(300));
    let points = [
        point(condition, "{node}", &[node, ready], gauge(-7)),
        point(
            "http.client.request.duration",
            "s",
            &[("error.type", "timeout")],
            Measurement::Distribution { start, value },
        ),
        point(
            "k8s.container.restart.count",
            "{restart}",
            &[node],
            Measurement::Counter { start, total },
        ),
        point(condition, "{node}", &[node], float),
    ];
    let resource = Resource::new("a-0", |name| {
        (name == "OTEL_RESOURCE_ATTRIBUTES").then(|| "service.version=1.2.3".to_owned())
    });
    let points = [0, 2, 3, 1].map(|at: usize| points[at].clone());
    let encoded = request_of_version("1.2.3", &resource, &points);
    assert!(
        encoded == include_bytes!("../../tests/vectors/metrics.pb"),
        "{encoded:?}"
    );
}

/// Points of one name that are of two kinds are two metrics.
#[test]
fn a_metric_has_one_kind_and_one_unit() {
    let counter = Measurement::Counter {
        start: at(-5),
        total: Number::Float(0.5),
    };
    let other = DataPoint {
        unit: "By".into(),
        ..point("a", &[], gauge(2))
    };
    let received = sent(&[point("a", &[], gauge(1)), point("a", &[], counter), other]);
    let units: Vec<&str> = received.iter().map(|point| point.unit.as_str()).collect();
    assert_eq!(units, ["s", "s", "By"]);
    assert_eq!(received[1].value, ReceivedValue::Sum(json!(0.5)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The receiver of the simulated cluster has a decoder of its own.
    #[test]
    fn every_point_can_be_read_back(
        names in proptest::collection::vec("[abc]", 1..20),
        integer in any::<i64>(),
        float in proptest::num::f64::NORMAL,
        text in ".{0,300}",
        counts in proptest::collection::vec(0_u64..1 << 40, 1..20),
        sum in proptest::num::f64::NORMAL,
        time in 0_i64..1 << 40,
    ) {
        let bounds: Arc<[f64]> = (1..counts.len()).map(|at| f64::from(u32::try_from(at).unwrap())).collect();
        let mut value = Distribution::new(bounds, counts.clone(), sum).unwrap();
        value.exemplars.push(Exemplar { value: float, timestamp: at(7), attributes: attributes(&[("e", &text)]) });
        let points: Vec<DataPoint> = names.iter().enumerate().map(|(position, name)| {
            let start = at(-time);
            let measurement = match position % 4 {
                0 => Measurement::Gauge(Number::Integer(integer)),
                1 => Measurement::Gauge(Number::Float(float)),
                2 => Measurement::Counter { start, total: Number::Integer(integer) },
                _ => Measurement::Distribution { start, value: value.clone() },
            };
            point(name, &[("text", &text), ("position", &position.to_string())], measurement)
        }).collect();
        let received = sent(&points);
        prop_assert_eq!(received.len(), points.len());
        for got in &received {
            let position: usize = got.attributes["position"].as_str().unwrap().parse().unwrap();
            let point = &points[position];
            prop_assert_eq!(&got.name, &*point.name);
            prop_assert_eq!(&got.attributes["text"], &json!(text));
            prop_assert_eq!(got.time_unix_nano, nanoseconds(at(0)));
            prop_assert_eq!(got.start_unix_nano, point.start().map_or(0, nanoseconds));
            match &got.value {
                ReceivedValue::Gauge(number) if position.is_multiple_of(4) => prop_assert_eq!(number, &json!(integer)),
                ReceivedValue::Gauge(number) => prop_assert_eq!(number, &json!(float)),
                ReceivedValue::Sum(number) => prop_assert_eq!(number, &json!(integer)),
                ReceivedValue::Histogram { count, sum: total, bucket_counts, bounds, exemplars } => {
                    prop_assert_eq!(*count, counts.iter().sum::<u64>());
                    prop_assert_eq!(total.to_bits(), sum.to_bits());
                    prop_assert_eq!(bucket_counts, &counts);
                    prop_assert_eq!(bounds.len() + 1, counts.len());
                    prop_assert_eq!(&exemplars[0].attributes["e"], &json!(text));
                    prop_assert_eq!(exemplars[0].time_unix_nano, nanoseconds(at(7)));
                }
            }
        }
    }
}
