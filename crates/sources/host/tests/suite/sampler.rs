use std::sync::Arc;
use std::time::Duration;

use kubevitals_host::fixture::{Driver, Runtime};
use kubevitals_host::{CgroupVersion, HostMetrics, HostStats, Sampler, SamplerOptions};
use kubevitals_telemetry::Status;
use kubevitals_telemetry::registry::Metrics;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::{TestHost, UID};

/// A regression fails by this deadline instead of hanging.
const DEADLINE: Duration = Duration::from_mins(1);

fn start(
    test: &TestHost,
    metrics: HostMetrics,
) -> (
    HostStats,
    oneshot::Sender<()>,
    JoinHandle<Result<(), kubevitals_host::HostError>>,
) {
    // Samples on demand only: the interval is longer than any test.
    let options = SamplerOptions {
        interval: Duration::from_hours(1),
        min_age: Duration::from_secs(5),
    };
    let (sampler, stats) = Sampler::new(test.reader(), options, test.clock(), metrics);
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(sampler.run(async {
        let _ = stopped.await;
    }));
    (stats, stop, task)
}

async fn fresh(stats: &HostStats) -> Arc<kubevitals_model::node_stats::NodeStats> {
    let fresh = tokio::time::timeout(DEADLINE, stats.fresh());
    fresh.await.unwrap().unwrap()
}

#[tokio::test]
async fn one_sample_is_shared_until_it_is_too_old() {
    let test = TestHost::new(CgroupVersion::V2);
    test.pod((Driver::Systemd, Runtime::Containerd), "", "web", UID);
    let (stats, stop, task) = start(&test, HostMetrics::unregistered());
    let (first, second) = tokio::join!(fresh(&stats), fresh(&stats));
    assert!(Arc::ptr_eq(&first, &second));
    test.clock.advance(Duration::from_secs(5));
    assert!(Arc::ptr_eq(&first, &fresh(&stats).await));
    test.clock.advance(Duration::from_secs(1));
    let third = fresh(&stats).await;
    assert!(!Arc::ptr_eq(&first, &third));
    assert!(Arc::ptr_eq(&third, &stats.latest().unwrap()));
    let cpu = |stats: &kubevitals_model::node_stats::NodeStats| stats.usage.cpu.unwrap();
    assert_eq!(
        cpu(&third).at.since(cpu(&first).at),
        Some(Duration::from_secs(6))
    );
    drop(stop);
    task.await.unwrap().unwrap();
    test.clock.advance(Duration::from_secs(6));
    let stopped = tokio::time::timeout(DEADLINE, stats.fresh()).await.unwrap();
    assert!(stopped.is_err());
}

#[tokio::test]
async fn the_check_follows_the_age_of_the_sample() {
    let test = TestHost::new(CgroupVersion::V2);
    let (stats, _stop, _task) = start(&test, HostMetrics::unregistered());
    let check = stats.health_check();
    fresh(&stats).await;
    assert_eq!(check(), Status::Ok);
    test.clock.advance(Duration::from_secs(3 * 3600 + 1));
    assert!(matches!(check(), Status::Failing(_)));
}

#[tokio::test]
async fn samples_are_counted() {
    let test = TestHost::new(CgroupVersion::V2);
    let path = test.pod((Driver::Systemd, Runtime::Containerd), "", "web", UID);
    std::fs::write(test.host.file(&path, "memory.current"), "x").unwrap();
    let mut metrics = Metrics::new();
    let own = HostMetrics::register(metrics.sub("kubevitals_host"));
    let (stats, _stop, _task) = start(&test, own);
    fresh(&stats).await;
    let families = metrics.freeze().families().unwrap();
    for name in [
        "histogram kubevitals_host_sample_duration_seconds",
        "counter kubevitals_host_cgroups_read_total",
        "counter kubevitals_host_read_errors_total",
        "gauge kubevitals_host_unresolved_containers",
        "gauge kubevitals_host_pods",
        "gauge kubevitals_host_kept_files",
    ] {
        assert!(families.iter().any(|family| family == name), "{families:?}");
    }
}
