//! Series of many workloads, over days.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::OwnerReference;
use kubevitals_transition_metrics::{FamilyConfig, Topology};
use kubevitals_transitions::{Output, PodRecord};
use serde_json::json;

use crate::support::{Harness, PodBuilder, at, container, running, stamp};

const DAY: Duration = Duration::from_hours(24);

/// The outputs of a pod that pulled an image, was ready and was deleted.
fn outputs() -> Vec<Output> {
    let mut pod = PodBuilder::new(json!({"containers": [container("main")]}));
    pod.observe(Some(100));
    let message = "Successfully pulled image \"i\" in 900ms (1.1s including waiting). Image size: 20000000 bytes.";
    pod.event("main", "Pulled", message, 3);
    pod.status = json!({"phase": "Running", "startTime": stamp(1), "containerStatuses": [running("main", 4)]});
    pod.conditions(&[
        "PodScheduled=True@1",
        "PodReadyToStartContainers=True@2",
        "Initialized=True@2",
        "ContainersReady=True@6",
        "Ready=True@6",
    ]);
    pod.observe(Some(6_100));
    pod.meta = json!({"deletionTimestamp": stamp(40), "deletionGracePeriodSeconds": 30});
    pod.observe(Some(10_100));
    pod.meta = json!({"deletionTimestamp": stamp(20), "deletionGracePeriodSeconds": 0});
    pod.delete(Some(20_100));
    pod.finish()
}

/// The same pod, of another owner.
fn owned(output: &Output, kind: &str, name: &str) -> Output {
    let elsewhere = |record: &Arc<PodRecord>| {
        let mut record = PodRecord::clone(record);
        let pod = Arc::make_mut(&mut record.pod);
        let owner = OwnerReference {
            api_version: "v1".into(),
            kind: kind.into(),
            name: name.into(),
            uid: "u".into(),
            controller: true,
        };
        pod.meta.owners = [owner].into();
        Arc::new(record)
    };
    match output {
        Output::Startup(record) => Output::Startup(elsewhere(record)),
        Output::Lifecycle(record) => Output::Lifecycle(elsewhere(record)),
        other => other.clone(),
    }
}

fn record(harness: &Harness, outputs: &[Output], kind: &str, name: &str) {
    for output in outputs {
        let output = owned(output, kind, name);
        harness.metrics.record(&output, Topology::default());
    }
}

fn starts(harness: &Harness, kind: &str, name: &str) -> f64 {
    let labels = format!("namespace=default,result=ready,workload={name},workload_kind={kind}");
    harness
        .samples()
        .get(&format!("startups_total{{{labels}}}"))
}

#[test]
fn five_hundred_unique_jobs_a_day_leave_room_for_a_new_deployment() {
    let harness = Harness::with(FamilyConfig::default());
    let outputs = outputs();
    for day in 0..10_u32 {
        for number in 0..500_u32 {
            let now = DAY * day + (DAY / 500) * number;
            harness.metrics.advance(now);
            // Half have a number, and half a name that is unique in another way: words, of which no
            // part looks generated.
            let name = match number % 2 {
                0 => format!("import-{:05}", day * 500 + number),
                _ => format!("report-for-{}", words(day * 500 + number)),
            };
            record(&harness, &outputs, "Job", &name);
        }
    }
    record(&harness, &outputs, "StatefulSet", "new");
    assert_eq!(starts(&harness, "StatefulSet", "new"), 1.0);
    assert_eq!(starts(&harness, "Job", "import"), 2_500.0);
    let found = harness.samples();
    assert_eq!(found.sum("metrics_overflow_total"), 0.0);
    let sets = found.sum("metrics_label_sets");
    assert!((250.0..=260.0).contains(&sets), "{sets}");
}

/// A number in letters, without one that looks generated.
fn words(number: u32) -> String {
    let letters = number.to_string().into_bytes().into_iter();
    letters
        .map(|digit| char::from(b'a' + (digit - b'0') * 2))
        .collect::<String>()
        + "aeiou"
}

#[test]
fn series_of_idle_label_sets_leave_and_start_again() {
    let harness = Harness::with(FamilyConfig::default());
    let outputs = outputs();
    record(&harness, &outputs, "StatefulSet", "idle");
    record(&harness, &outputs, "StatefulSet", "busy");
    let before = harness.text();
    harness.metrics.advance(DAY / 2);
    record(&harness, &outputs, "StatefulSet", "busy");
    harness.metrics.advance(DAY + Duration::from_mins(1));
    let after = harness.text();
    assert!(before.contains("workload=\"idle\"") && !after.contains("workload=\"idle\""));
    assert_eq!(starts(&harness, "StatefulSet", "busy"), 2.0);
    assert_eq!(harness.samples().get("metrics_label_sets"), 1.0);
    record(&harness, &outputs, "StatefulSet", "idle");
    assert_eq!(starts(&harness, "StatefulSet", "idle"), 1.0);
}

/// The figures in docs/transitions.md.
#[test]
fn a_scrape_at_the_default_limit_has_the_documented_size() {
    let document = include_str!("../../../../../docs/transitions.md");
    let config = FamilyConfig::default();
    let limit = config.series_limit;
    let harness = Harness::with(config);
    let outputs = outputs();
    for number in 0..=limit {
        let name = format!("a-workload-of-average-length-{number}");
        record(&harness, &outputs, "StatefulSet", &name);
    }
    let text = harness.text();
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    let per_set = series / (limit + 1);
    let megabytes = text.len().div_ceil(1_000_000);
    let sentence = format!(
        "{limit} label sets of {per_set} series are {},000 series and {megabytes} MB",
        series.div_ceil(1_000)
    );
    assert!(megabytes <= 10, "{megabytes}");
    let document = document.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(document.contains(&sentence), "write: {sentence}");
}

#[test]
fn starting_pods_are_gauges_by_what_they_wait_for() {
    let harness = Harness::with(FamilyConfig {
        label_keys: "team".parse().unwrap(),
        ..FamilyConfig::default()
    });
    let pod = |millis: i64, waiting: Option<&str>| {
        let mut pod = PodBuilder::new(json!({"nodeName": "n", "containers": [container("main")]}));
        pod.meta = json!({"labels": {"team": "shop"}, "creationTimestamp": at(millis).rfc3339_seconds().to_string()});
        if let Some(reason) = waiting {
            let state = json!({"waiting": {"reason": reason}});
            pod.status = json!({"phase": "Pending", "startTime": stamp(1),
                "containerStatuses": [{"name": "main", "ready": false, "restartCount": 0, "state": state}]});
        }
        pod.observe(Some(millis));
        pod
    };
    let pods = [
        pod(0, Some("ImagePullBackOff")),
        pod(30_000, Some("ErrImagePull")),
        pod(60_000, None),
    ];
    let publish = |pods: &[PodBuilder]| {
        let mut starting = harness.metrics.starting(at(90_000));
        for record in pods.iter().flat_map(PodBuilder::records) {
            starting.add(record, Topology::default());
        }
        starting.publish();
    };
    publish(&pods);
    let found = harness.samples();
    let series = |name: &str, waiting_for: &str| {
        let labels = format!(
            "label_team=shop,namespace=default,waiting_for={waiting_for},workload=,workload_kind=Pod"
        );
        found.0.get(&format!("{name}{{{labels}}}")).copied()
    };
    for (waiting_for, pods, oldest) in [
        ("image_pull_failed", 2.0, 90.0),
        ("not_accepted", 1.0, 30.0),
    ] {
        assert_eq!(series("kubevitals_pods_starting", waiting_for), Some(pods));
        let age = series("kubevitals_pods_starting_oldest_age_seconds", waiting_for);
        assert_eq!(age, Some(oldest));
    }
    publish(&[]);
    assert!(!harness.text().contains("kubevitals_pods_starting"));
}
