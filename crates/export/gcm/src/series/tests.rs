use std::sync::Arc;

use kubevitals_model::Timestamp;
use kubevitals_sink::Exemplar;
use proptest::prelude::*;

use super::*;

fn place(cluster: Option<&str>) -> Place {
    Place {
        project: "p".to_owned(),
        location: "l".to_owned(),
        cluster: cluster.map(str::to_owned),
        instance: "i".to_owned(),
    }
}

fn attributes(pairs: &[(&str, &str)]) -> Attributes {
    let pairs = pairs.iter();
    Attributes::new(pairs.map(|(name, value)| ((*name).into(), (*value).into())))
}

fn point(pairs: &[(&str, &str)], measurement: Measurement) -> DataPoint {
    DataPoint {
        name: "a/b".into(),
        unit: "1".into(),
        attributes: attributes(pairs),
        timestamp: Timestamp::from_unix_millis(60_000),
        measurement,
    }
}

fn one() -> Measurement {
    Measurement::Gauge(Number::Integer(1))
}

fn converted(place: &Place, point: &DataPoint) -> Result<Series, Code> {
    series(
        "custom.googleapis.com",
        place,
        &DefaultHashBuilder::default(),
        point,
    )
}

#[test]
fn attributes_choose_the_resource_and_the_rest_are_labels() {
    let pod = [("k8s.namespace.name", "n"), ("k8s.pod.name", "p-0")];
    let container = [pod[0], pod[1], ("k8s.container.name", "c")];
    let node = [("k8s.node.name", "n1")];
    for (cluster, pairs, kind, keys) in [
        (Some("c"), &[][..], "k8s_cluster", vec!["zone"]),
        (Some("c"), &node[..], "k8s_node", vec!["zone"]),
        (Some("c"), &pod[..], "k8s_pod", vec!["zone"]),
        (Some("c"), &container[..], "k8s_container", vec!["zone"]),
        (
            Some("c"),
            &pod[..1],
            "k8s_cluster",
            vec!["k8s_namespace_name", "zone"],
        ),
        (
            Some("c"),
            &pod[1..],
            "k8s_cluster",
            vec!["k8s_pod_name", "zone"],
        ),
        (None, &node[..], "generic_node", vec!["zone"]),
        (None, &[][..], "generic_task", vec!["zone"]),
        (
            None,
            &[("k8s.cluster.name", "c2")],
            "k8s_cluster",
            vec!["zone"],
        ),
    ] {
        let mut pairs = pairs.to_vec();
        pairs.push(("zone", "z"));
        let found = converted(&place(cluster), &point(&pairs, one())).unwrap();
        assert_eq!(found.json["resource"]["type"], kind, "{pairs:?}");
        assert_eq!(found.label_keys, keys, "{pairs:?}");
        assert_eq!(found.json["resource"]["labels"]["project_id"], "p");
    }
}

#[test]
fn what_the_backend_would_refuse_is_refused_here() {
    let place = place(Some("c"));
    let refused = |point: DataPoint| converted(&place, &point).unwrap_err();
    let many: Vec<String> = (0..31).map(|number| format!("l{number}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|key| (key.as_str(), "v")).collect();
    assert_eq!(refused(point(&many, one())), Code::Labels);
    assert!(converted(&place, &point(&many[1..], one())).is_ok());
    assert_eq!(
        refused(point(&[(&"k".repeat(101), "v")], one())),
        Code::Labels
    );
    assert_eq!(
        refused(point(&[("a.b", "v"), ("a_b", "v")], one())),
        Code::Labels
    );
    for number in [f64::NAN, f64::INFINITY] {
        let float = Measurement::Gauge(Number::Float(number));
        assert_eq!(refused(point(&[], float)), Code::Value);
    }
    for start in [60_000, 60_001] {
        let start = Timestamp::from_unix_millis(start);
        let total = Number::Integer(1);
        let counter = Measurement::Counter { start, total };
        assert_eq!(refused(point(&[], counter)), Code::Interval);
    }
    let bounds: Vec<f64> = (0..200).map(f64::from).collect();
    let value = Distribution::new(bounds.into(), vec![0; 201], 0.0).unwrap();
    let start = Timestamp::from_unix_millis(0);
    let wide = Measurement::Distribution { start, value };
    assert_eq!(refused(point(&[], wide)), Code::Value);
}

#[test]
fn keys_and_values_of_labels_are_made_valid() {
    let long = "é".repeat(600);
    let pairs = [
        ("9lives", "a"),
        ("error.type", "b"),
        ("long", long.as_str()),
    ];
    let found = converted(&place(None), &point(&pairs, one())).unwrap();
    let labels = &found.json["metric"]["labels"];
    assert_eq!(
        (&labels["key_9lives"], &labels["error_type"]),
        (&json!("a"), &json!("b"))
    );
    assert_eq!(labels["long"].as_str().unwrap(), "é".repeat(512));
}

#[test]
fn exemplars_are_sorted_and_name_what_they_are_about() {
    let bounds: Arc<[f64]> = Arc::from([1.0, 2.0]);
    let mut value = Distribution::new(bounds, vec![1, 2, 0], 4.0).unwrap();
    let exemplar = |value, name: &str| Exemplar {
        value,
        timestamp: Timestamp::from_unix_millis(1_500),
        attributes: attributes(&[("target", name)]),
    };
    value.exemplars = vec![
        exemplar(1.7, "b"),
        exemplar(0.5, "a"),
        exemplar(f64::NAN, "c"),
    ];
    let start = Timestamp::from_unix_millis(0);
    let found = point(&[], Measurement::Distribution { start, value });
    let found = converted(&place(None), &found).unwrap();
    let value = &found.json["points"][0]["value"]["distributionValue"];
    let dropped = |label: &str| {
        json!([{"@type": "type.googleapis.com/google.monitoring.v3.DroppedLabels",
            "label": {"target": label}}])
    };
    let time = "1970-01-01T00:00:01.500Z";
    assert_eq!(
        *value,
        json!({"count": "3", "mean": 4.0 / 3.0,
            "bucketOptions": {"explicitBuckets": {"bounds": [1.0, 2.0]}},
            "bucketCounts": ["1", "2", "0"],
            "exemplars": [
                {"value": 0.5, "timestamp": time, "attachments": dropped("a")},
                {"value": 1.7, "timestamp": time, "attachments": dropped("b")}]})
    );
}

#[test]
fn a_distribution_without_values_or_bounds_is_valid() {
    let value = Distribution::new(Arc::from([]), vec![0], 0.0).unwrap();
    assert_eq!(distribution(&value), Ok(json!({"count": "0", "mean": 0.0})));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Two points have one key if and only if the backend takes them for one series.
    #[test]
    fn keys_are_those_of_series(
        one in proptest::collection::btree_map("[ab.]{1,2}", "[xy]{0,2}", 0..4),
        two in proptest::collection::btree_map("[ab.]{1,2}", "[xy]{0,2}", 0..4),
    ) {
        let hasher = DefaultHashBuilder::default();
        let place = place(Some("c"));
        let convert = |labels: &BTreeMap<String, String>| {
            let pairs: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            series("p", &place, &hasher, &point(&pairs, Measurement::Gauge(Number::Integer(1))))
        };
        if let (Ok(one), Ok(two)) = (convert(&one), convert(&two)) {
            let is_same = one.json["metric"] == two.json["metric"];
            prop_assert_eq!(one.key == two.key, is_same);
        }
    }
}
