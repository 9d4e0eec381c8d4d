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
    let long = "v".repeat(1_025);
    let key = "k".repeat(101);
    let many: BTreeMap<String, &str> = (0..31).map(|at| (format!("l{at}"), "v")).collect();
    let end = |text: &'static str| {
        move |series: &mut Json| series["points"][0]["interval"]["endTime"] = json!(text)
    };
    let start = |text: &'static str| {
        move |series: &mut Json| series["points"][0]["interval"]["startTime"] = json!(text)
    };
    let changes: [(&str, &dyn Fn(&mut Json)); 17] = [
        ("metric type", &|series| {
            series["metric"]["type"] = json!("kubernetes.io/x")
        }),
        ("metric type", &|series| {
            series["metric"]["type"] = json!("workload.googleapis.com/a//b");
        }),
        ("resource type", &|series| {
            series["resource"]["type"] = json!("k8s_thing")
        }),
        ("incomplete", &|series| {
            series["resource"]["type"] = json!("k8s_pod")
        }),
        ("another project", &|series| {
            series["resource"]["labels"]["project_id"] = json!("q");
        }),
        ("at most 30", &|series| {
            series["metric"]["labels"] = json!(many)
        }),
        ("too long", &|series| {
            series["metric"]["labels"]["zone"] = json!(long)
        }),
        ("Invalid label key", &|series| {
            series["metric"]["labels"][&key] = json!("v")
        }),
        ("Invalid label key", &|series| {
            series["metric"]["labels"]["a.b"] = json!("v")
        }),
        ("25 hours", &end("2026-11-14T18:59:59Z")),
        ("5 minutes", &end("2026-11-15T20:05:01Z")),
        ("end time is required", &end("")),
        ("before the end time", &start("2026-11-15T19:00:00Z")),
        ("before the end time", &|series| {
            series["metricKind"] = json!("CUMULATIVE")
        }),
        ("cannot be written", &|series| {
            series["metricKind"] = json!("DELTA")
        }),
        ("not of type", &|series| {
            series["valueType"] = json!("DOUBLE")
        }),
        ("One point", &|series| series["points"] = json!([{}, {}])),
    ];
    for (reason, change) in changes {
        let found = refusal(change).unwrap();
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
