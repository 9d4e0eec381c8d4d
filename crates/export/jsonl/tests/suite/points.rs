//! Data points as lines.

use std::sync::{Arc, Mutex};

use kubevitals_jsonl::{POINT_SCHEMA, PointLines, point_line};
use kubevitals_model::Timestamp;
use kubevitals_sink::{
    Attributes, DataPoint, Distribution, Exemplar, Measurement, Number, SinkMetrics,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::schema::Schema;
use crate::{LONG, ScriptedOutput};

fn attributes(pairs: &[(&str, &str)]) -> Attributes {
    let pairs = pairs.iter();
    Attributes::new(pairs.map(|(name, value)| ((*name).into(), (*value).into())))
}

fn point(measurement: Measurement) -> DataPoint {
    DataPoint {
        name: "cluster/node_condition".into(),
        unit: "{node}".into(),
        attributes: attributes(&[("zone", "a"), ("nodepool", "b")]),
        timestamp: Timestamp::from_unix_millis(1_794_773_520_250),
        measurement,
    }
}

/// The object of a line that the schema allows.
fn read(point: &DataPoint) -> Value {
    let line = point_line(point);
    assert_eq!(
        line.iter().position(|byte| *byte == b'\n'),
        Some(line.len() - 1)
    );
    let value = serde_json::from_slice(&line).unwrap();
    assert_eq!(Schema::new(POINT_SCHEMA).violation(&value), None);
    value
}

#[test]
fn a_point_is_one_object_with_its_series_time_and_value() {
    let start = Timestamp::from_unix_millis(1_794_773_500_000);
    let common = json!({"time": "2026-11-15T20:12:00.250Z", "name": "cluster/node_condition",
        "unit": "{node}", "attributes": {"nodepool": "b", "zone": "a"}});
    let expected = |more: Value| {
        let mut line = common.clone();
        for (key, value) in more.as_object().unwrap() {
            line[key] = value.clone();
        }
        line
    };
    let gauge = point(Measurement::Gauge(Number::Integer(i64::MAX)));
    assert_eq!(
        read(&gauge),
        expected(json!({"kind": "gauge", "value": i64::MAX}))
    );
    let total = Number::Float(0.5);
    let counter = point(Measurement::Counter { start, total });
    let began = "2026-11-15T20:11:40.000Z";
    assert_eq!(
        read(&counter),
        expected(json!({"kind": "counter", "start": began, "value": 0.5}))
    );
    let mut value = Distribution::new([0.1, 1.0].into(), vec![1, 0, 2], 9.5).unwrap();
    value.exemplars.push(Exemplar {
        value: 4.5,
        timestamp: start,
        attributes: attributes(&[("target", "dns")]),
    });
    let distribution = point(Measurement::Distribution { start, value });
    assert_eq!(
        read(&distribution),
        expected(
            json!({"kind": "distribution", "start": began, "count": 3, "sum": 9.5,
            "bounds": [0.1, 1.0], "counts": [1, 0, 2],
            "exemplars": [{"time": began, "value": 4.5, "attributes": {"target": "dns"}}]})
        )
    );
}

#[test]
fn numbers_that_json_does_not_have_are_texts() {
    for (number, text) in [
        (f64::NAN, "NaN"),
        (f64::INFINITY, "Infinity"),
        (f64::NEG_INFINITY, "-Infinity"),
    ] {
        let gauge = point(Measurement::Gauge(Number::Float(number)));
        assert_eq!(read(&gauge)["value"], text);
    }
}

#[tokio::test]
async fn points_are_written_in_order_and_counted() {
    let written = Arc::new(Mutex::new(Vec::new()));
    let out = ScriptedOutput {
        written: Arc::clone(&written),
        script: Vec::new(),
    };
    let lines = PointLines::start(out, 1 << 20, SinkMetrics::unregistered()).unwrap();
    for number in 0..3 {
        assert!(lines.push(&point(Measurement::Gauge(Number::Integer(number)))));
    }
    let counts = lines.shutdown(LONG).await;
    assert_eq!((counts.exported, counts.dropped), (3, 0));
    let written = written.lock().unwrap();
    let values: Vec<Value> = serde_json::Deserializer::from_slice(&written)
        .into_iter::<Value>()
        .map(|line| line.unwrap()["value"].clone())
        .collect();
    assert_eq!(values, [0, 1, 2]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_point_is_one_line_by_the_schema(
        name in ".{0,30}",
        pairs in proptest::collection::btree_map(".{0,10}", ".{0,30}", 0..5),
        millis in -1_000_000_000_000_i64..4_000_000_000_000,
        number in any::<f64>(),
        counts in proptest::collection::vec(0_u64..1 << 40, 1..6),
    ) {
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let start = Timestamp::from_unix_millis(millis);
        let bounds: Arc<[f64]> = (1..counts.len()).map(|at| f64::from(u32::try_from(at).unwrap())).collect();
        let value = Distribution::new(bounds, counts, number).unwrap();
        for measurement in [
            Measurement::Gauge(Number::Float(number)),
            Measurement::Counter { start, total: Number::Float(number) },
            Measurement::Distribution { start, value: value.clone() },
        ] {
            let point = DataPoint {
                name: name.as_str().into(),
                attributes: attributes(&pairs),
                timestamp: start,
                ..point(measurement)
            };
            let line = read(&point);
            prop_assert_eq!(&line["name"], &json!(name));
            let labels = line["attributes"].as_object().unwrap();
            prop_assert_eq!(labels.len(), pairs.len());
            for (key, value) in &pairs {
                prop_assert_eq!(&labels[*key], value);
            }
        }
    }
}
