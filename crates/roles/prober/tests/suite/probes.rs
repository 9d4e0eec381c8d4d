//! Results of probes, from the scheduler to the providers.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_inventory::{Addon, Healthy};
use kubevitals_model::Timestamp;
use kubevitals_prober::{ProbeBoard, ProbeTarget, PrometheusProvider, Providers};
use kubevitals_probes::{
    Completed, Facts, Failure, Outcome, OutcomeSink as _, Phase, PhaseTime, ProbeInfo, Reason,
    Statistics, Threshold, Verdict,
};
use kubevitals_telemetry::Metrics;
use kubevitals_telemetry::exposition::Format;

fn info(name: &str) -> ProbeInfo {
    ProbeInfo {
        name: name.into(),
        module: "http_2xx".into(),
        kind: "http",
        labels: vec![("team".into(), "net".into())],
        interval: Duration::from_secs(30),
        jitter: Duration::ZERO,
        timeout: Duration::from_secs(5),
        threshold: Threshold {
            failures: 1,
            successes: 1,
        },
    }
}

fn outcome(reason: Option<Reason>) -> Outcome {
    Outcome {
        started: Timestamp::from_unix_millis(30_000),
        duration: Duration::from_millis(30),
        failure: reason.map(|reason| Failure {
            reason,
            phase: Some(Phase::Connect),
            message: "dial tcp 10.0.0.1:40312".to_owned(),
        }),
        phases: vec![PhaseTime {
            phase: Phase::Connect,
            duration: Duration::from_millis(10),
        }],
        facts: Facts::default(),
    }
}

fn completed(name: &str, target: &str, reason: Option<Reason>) -> Completed {
    Completed {
        probe: Arc::new(info(name)),
        target: target.into(),
        scheduled: Timestamp::from_unix_millis(29_000),
        lag: Duration::from_secs(1),
        outcome: outcome(reason),
        verdict: Verdict::Unknown,
        previous: None,
    }
}

fn with(name: &str, reason: Option<Reason>) -> ProbeTarget {
    let mut statistics = Statistics::default();
    statistics.record(&outcome(reason), info(name).threshold);
    ProbeTarget {
        probe: Arc::new(info(name)),
        target: "t:80".into(),
        start: Timestamp::from_unix_millis(29_000),
        statistics,
    }
}

pub(crate) fn target(name: &str) -> ProbeTarget {
    with(name, None)
}

pub(crate) fn failing_target(name: &str) -> ProbeTarget {
    with(name, Some(Reason::ConnectTimeout))
}

#[test]
fn runs_are_counted_by_probe_target_and_reason_and_end_with_the_target() {
    let mut metrics = Metrics::new();
    let provider = PrometheusProvider::register(&mut metrics);
    let registry = metrics.freeze();
    let board = ProbeBoard::new(&Providers::new(vec![Arc::new(provider)]));
    board.completed(&completed("web", "a:80", None));
    board.completed(&completed("web", "a:80", Some(Reason::ConnectTimeout)));
    board.completed(&completed("web", "b:80", Some(Reason::ConnectRefused)));
    let text = || {
        let text = registry.encode(Format::Prometheus).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines = text
            .lines()
            .filter(|line| line.starts_with("kubevitals_probe_"));
        let lines = lines.filter(|line| !line.contains("_bucket"));
        lines.collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(text());
    assert_eq!(board.targets().len(), 2);
    board.removed(&info("web"), "a:80");
    board.removed(&info("web"), "b:80");
    assert_eq!(text(), "");
    assert!(board.targets().is_empty());
}

#[test]
fn a_probe_by_the_name_of_an_addon_judges_the_pods_of_the_addon() {
    let board = ProbeBoard::new(&Providers::default());
    let addon = |name: &str| Addon {
        name: name.into(),
        version: "1".into(),
        controller: "DaemonSet".into(),
    };
    let mut pod = pod();
    let fluentbit = addon("fluentbit");
    assert_eq!(board.health(&fluentbit, &pod), Healthy::Unknown);
    board.completed(&completed("fluentbit", "http://192.0.2.1:2020/", None));
    assert_eq!(board.health(&fluentbit, &pod), Healthy::True);
    assert_eq!(board.health(&addon("netd"), &pod), Healthy::Unknown);
    // The pod of another node.
    let refused = Some(Reason::ConnectRefused);
    board.completed(&completed("fluentbit", "http://192.0.2.2:2020/", refused));
    assert_eq!(board.health(&fluentbit, &pod), Healthy::True);
    pod.host_ip = Some("192.0.2.2".into());
    assert_eq!(board.health(&fluentbit, &pod), Healthy::Error);
    let status = Some(Reason::HttpStatus);
    board.completed(&completed("fluentbit", "http://192.0.2.2:2020/", status));
    assert_eq!(board.health(&fluentbit, &pod), Healthy::False);
}

fn pod() -> kubevitals_model::Pod {
    use kubevitals_watch::{Decoder, Kind as _};
    let object = serde_json::json!({
        "metadata": {"name": "fluentbit-x", "namespace": "kube-system"},
        "status": {"hostIP": "192.0.2.1"},
    });
    kubevitals_model::Pod::read(&object, &Decoder::default()).unwrap()
}
