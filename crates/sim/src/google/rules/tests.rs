use serde_json::json;

use super::*;

fn now() -> Timestamp {
    "2026-11-15T20:00:00Z".parse().unwrap()
}

/// A gauge that every rule allows.
fn gauge() -> Json {
    json!({
        "metric": {"type": "custom.googleapis.com/a/b", "labels": {"zone": "z"}},
        "resource": {"type": "k8s_node", "labels": {"project_id": "p", "location": "l",
            "cluster_name": "c", "node_name": "n"}},
        "metricKind": "GAUGE", "valueType": "INT64", "unit": "1",
        "points": [{"interval": {"endTime": "2026-11-15T19:59:30.000Z"},
            "value": {"int64Value": "7"}}],
    })
}

fn changed(change: impl Fn(&mut Json)) -> Json {
    let mut series = gauge();
    change(&mut series);
    series
}

fn refusal(change: impl Fn(&mut Json)) -> Option<String> {
    read(&changed(change), "p", now()).err()
}

#[test]
fn what_breaks_no_rule_is_written() {
    let point = read(&gauge(), "p", now()).unwrap();
    assert_eq!((point.start, point.kind.as_str()), (None, "GAUGE"));
    let cumulative = changed(|series| {
        series["metricKind"] = json!("CUMULATIVE");
        series["points"][0]["interval"]["startTime"] = json!("2026-11-01T00:00:00Z");
    });
    assert!(read(&cumulative, "p", now()).is_ok());
}

#[test]
fn each_rule_refuses_what_breaks_it() {
    let many: BTreeMap<String, &str> = (0..31).map(|at| (format!("l{at}"), "v")).collect();
    let (metric, label) = ("/metric", "/metric/labels");
    let (resource, interval) = ("/resource", "/points/0/interval");
    for (reason, object, key, value) in [
        ("metric type", metric, "type", json!("kubernetes.io/x")),
        (
            "metric type",
            metric,
            "type",
            json!("custom.googleapis.com/a//b"),
        ),
        ("resource type", resource, "type", json!("k8s_thing")),
        ("incomplete", resource, "type", json!("k8s_pod")),
        (
            "another project",
            "/resource/labels",
            "project_id",
            json!("q"),
        ),
        ("at most 30", metric, "labels", json!(many)),
        ("too long", label, "zone", json!("v".repeat(1_025))),
        ("label key", label, &*"k".repeat(101), json!("v")),
        ("label key", label, "a.b", json!("v")),
        (
            "25 hours",
            interval,
            "endTime",
            json!("2026-11-14T18:59:59Z"),
        ),
        (
            "5 minutes",
            interval,
            "endTime",
            json!("2026-11-15T20:05:01Z"),
        ),
        ("end time is required", interval, "endTime", json!("")),
        (
            "before the end",
            interval,
            "startTime",
            json!("2026-11-15T19:00:00Z"),
        ),
        ("before the end", "", "metricKind", json!("CUMULATIVE")),
        ("cannot be written", "", "metricKind", json!("DELTA")),
        ("not of type", "", "valueType", json!("DOUBLE")),
        ("One point", "", "points", json!([{}, {}])),
    ] {
        let found = refusal(|series| {
            series.pointer_mut(object).unwrap()[key] = value.clone();
        });
        let found = found.unwrap();
        assert!(found.contains(reason), "{reason}: {found}");
    }
}

#[test]
fn a_distribution_must_be_sound() {
    let with = |value: Json| {
        refusal(|series| {
            series["valueType"] = json!("DISTRIBUTION");
            series["points"][0]["value"] = json!({"distributionValue": value});
        })
    };
    let good = json!({"count": "3", "bucketOptions": {"explicitBuckets": {"bounds": [1, 2]}},
        "bucketCounts": ["1", "0", "2"], "exemplars": [{"value": 0.5}, {"value": 3.5}]});
    assert_eq!(with(good.clone()), None);
    for (path, value) in [
        ("/count", json!("4")),
        ("/count", json!(3)),
        ("/bucketCounts", json!(["1", "2"])),
        ("/bucketOptions/explicitBuckets/bounds", json!([2, 1])),
        ("/exemplars", json!([{"value": 3.5}, {"value": 0.5}])),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(path).unwrap() = value;
        assert!(with(bad).is_some(), "{path}");
    }
}

#[test]
fn points_follow_one_another_in_order_and_apart() {
    let point = |kind: &str, start: Option<i64>, end: i64| WrittenPoint {
        kind: kind.to_owned(),
        start: start.map(Timestamp::from_unix_millis),
        end: Timestamp::from_unix_millis(end),
        ..read(&gauge(), "p", now()).unwrap()
    };
    let known = |start: Option<i64>| Known {
        start: start.map(Timestamp::from_unix_millis),
        end: Timestamp::from_unix_millis(10_000),
    };
    let gauge = |end| follow(&point("GAUGE", None, end), Some(&known(None)));
    assert_eq!(gauge(15_000), Ok(()));
    assert_eq!(gauge(14_999), Err(RATE.to_owned()));
    for end in [10_000, 9_000] {
        assert_eq!(gauge(end), Err(ORDER.to_owned()));
    }
    let counter = |start| {
        let point = point("CUMULATIVE", Some(start), 70_000);
        follow(&point, Some(&known(Some(1_000))))
    };
    assert_eq!((counter(1_000), counter(10_001)), (Ok(()), Ok(())));
    for start in [999, 1_001, 10_000] {
        assert_eq!(counter(start), Err(START.to_owned()), "{start}");
    }
    assert_eq!(follow(&point("GAUGE", None, 1), None), Ok(()));
}
