use super::*;
use crate::logs::{LogCapture, LogOptions};

fn sample() -> (Health, HealthCell, HealthCell) {
    let health = Health::new();
    let storage = health
        .cell(
            "metric-storage-ready",
            Probe::READINESS,
            Status::warming_up("waiting for the first scrape"),
        )
        .unwrap();
    let watch = health
        .cell("poststarthook/watch", Probe::ALL, Status::Ok)
        .unwrap();
    (health, storage, watch)
}

#[test]
fn reports_have_the_format_of_kubernetes() {
    let (health, storage, watch) = sample();
    let warming = health.report(Probe::Readyz, &[]).body(false);
    let live = health.report(Probe::Livez, &[]).body(true);
    storage.set_ok();
    let brief = health.report(Probe::Readyz, &[]).body(false);
    let ready = health.report(Probe::Readyz, &[]).body(true);
    watch.set_failing("nodes: 401 Unauthorized\nfrom 10.0.0.1");
    let failing = health.report(Probe::Livez, &[]).body(false);
    let excludes = ["poststarthook/watch", "zeta", "alpha"].map(String::from);
    let excluded = health.report(Probe::Healthz, &excludes).body(true);
    insta::assert_snapshot!([warming, live, brief, ready, failing, excluded].join("\n---\n"));
}

#[test]
fn warming_up_fails_readiness_but_not_liveness() {
    let (health, _storage, watch) = sample();
    watch.set_warming_up("waiting for the node list");
    assert!(health.report(Probe::Livez, &[]).passed());
    assert!(!health.report(Probe::Readyz, &[]).passed());
    assert_eq!(
        health
            .report_one(Probe::Readyz, "poststarthook/watch")
            .unwrap()
            .reason(),
        Some("warming up: waiting for the node list")
    );
    assert_eq!(
        health.report_one(Probe::Livez, "metric-storage-ready"),
        None
    );
}

#[test]
fn shutdown_fails_readiness_alone() {
    let (health, storage, _watch) = sample();
    storage.set_ok();
    assert!(health.report(Probe::Readyz, &[]).passed());
    health.start_shutdown();
    assert!(health.report(Probe::Livez, &[]).passed());
    assert_eq!(
        health.report(Probe::Readyz, &[]).reasons(),
        "shutdown: process is shutting down"
    );
    assert!(
        health
            .report(Probe::Readyz, &["shutdown".to_owned()])
            .passed()
    );
    assert_eq!(
        health
            .report_one(Probe::Readyz, "shutdown")
            .unwrap()
            .reason(),
        Some("process is shutting down")
    );
}

#[test]
fn names_are_unique_bounded_and_plain() {
    let health = Health::new();
    let add = |name: &str| health.check(name, Probe::ALL, || Status::Ok);
    for bad in [
        "",
        "Upper",
        "two words",
        "-edge",
        "edge/",
        "brace}",
        &"x".repeat(65),
    ] {
        assert!(
            matches!(add(bad), Err(TelemetryError::BadCheckName(_))),
            "{bad}"
        );
    }
    for taken in ["ping", "shutdown"] {
        assert!(
            matches!(add(taken), Err(TelemetryError::DuplicateCheck(_))),
            "{taken}"
        );
    }
    for index in 1..Health::MAX_CHECKS {
        add(&format!("check-{index}")).unwrap();
    }
    assert!(matches!(
        add("one-more"),
        Err(TelemetryError::TooManyChecks { .. })
    ));
}

#[test]
fn liveness_and_readiness_may_have_checks_of_the_same_name() {
    let health = Health::new();
    health
        .check("sync", Probe::LIVENESS, || Status::Ok)
        .unwrap();
    health
        .check("sync", Probe::READINESS, || Status::failing("no data"))
        .unwrap();
    let again = health.check("sync", Probe::ALL, || Status::Ok);
    assert!(matches!(again, Err(TelemetryError::DuplicateCheck(_))));
    assert_eq!(
        health.report_one(Probe::Livez, "sync"),
        Some(Verdict::Passed)
    );
    let ready = health.report_one(Probe::Readyz, "sync");
    assert_eq!(ready, Some(Verdict::Failed("no data".to_owned())));
}

#[test]
fn a_check_may_register_another() {
    let health = Health::new();
    let inner = health.clone();
    health
        .check("outer", Probe::ALL, move || {
            let _ = inner.check("inner", Probe::ALL, || Status::Ok);
            Status::Ok
        })
        .unwrap();
    health.report(Probe::Livez, &[]);
    assert!(health.report_one(Probe::Livez, "inner").is_some());
}

#[test]
fn changes_are_logged_and_not_each_probe() {
    let log = LogCapture::start(&LogOptions::default());
    let (health, storage, watch) = sample();
    let probe_thrice = || {
        for _ in 0..3 {
            health.report(Probe::Readyz, &[]);
            health.report(Probe::Livez, &[]);
            health.report(Probe::Readyz, &["metric-storage-ready".to_owned()]);
        }
    };
    probe_thrice();
    storage.set_ok();
    probe_thrice();
    watch.set_failing("connection refused");
    probe_thrice();
    watch.set_failing("connection reset");
    probe_thrice();
    watch.set_ok();
    probe_thrice();
    health.start_shutdown();
    probe_thrice();
    let lines = log.lines();
    let messages: Vec<&str> = lines
        .iter()
        .map(|line| line.split_once(' ').unwrap().1.trim_start())
        .collect();
    assert_eq!(
        messages,
        [
            "INFO kubevitals_telemetry::health: not ready reasons=metric-storage-ready: \
             warming up: waiting for the first scrape",
            "INFO kubevitals_telemetry::health: ready",
            "WARN kubevitals_telemetry::health: not ready reasons=poststarthook/watch: \
             connection refused",
            "INFO kubevitals_telemetry::health: ready",
            "INFO kubevitals_telemetry::health: not ready reasons=shutdown: \
             process is shutting down",
        ]
    );
}

#[test]
fn a_failure_cell_is_listed_only_while_it_fails() {
    let health = Health::new();
    let cell = health.failure_cell("tasks", Probe::LIVENESS).unwrap();
    let livez = |excluded: &[String]| health.report(Probe::Livez, excluded).body(true);
    assert_eq!(livez(&[]), "[+]ping ok\nlivez check passed\n");
    cell.set_failing("task scrape ended unexpectedly");
    assert!(livez(&[]).contains("[-]tasks failed: task scrape ended unexpectedly"));
    assert!(livez(&["tasks".to_owned()]).ends_with("livez check passed\n"));
}

#[test]
fn a_warning_passes_and_is_shown() {
    let health = Health::new();
    health
        .check("files", Probe::READINESS, || {
            Status::warning("few are\nleft")
        })
        .unwrap();
    let report = health.report(Probe::Readyz, &[]);
    assert!(report.passed());
    assert_eq!(report.body(false), "ok");
    assert!(
        report.body(true).contains("[+]files ok: few are left\n"),
        "{}",
        report.body(true)
    );
}
