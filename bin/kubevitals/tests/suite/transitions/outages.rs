//! Outages, lost history, and closed outputs.

use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use kubevitals_sim::api::History;

use super::{Cluster, LineCollector, RoleHarness};

/// An output closed by its reader.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_restart_that_loses_history_loses_no_pod() {
    for history in [History::Keep, History::Lose] {
        let mut cluster = Cluster::start().await;
        let mut role = RoleHarness::ready(&cluster, &["--lifecycle"]).await;
        for name in ["ready-meanwhile", "gone-meanwhile", "ready-later"] {
            cluster.create(name);
        }
        role.until_metric("pod_statistics_tracked", |count| count == 3)
            .await;
        cluster.api.stop().await;
        cluster.make_ready("ready-meanwhile");
        cluster.create("came-meanwhile");
        cluster.make_ready("came-meanwhile");
        cluster.delete("gone-meanwhile");
        if history == History::Lose {
            cluster.api.expire_history();
        }
        cluster.api.resume().await.unwrap();
        role.until_pods(3).await;
        cluster.make_ready("ready-later");
        let counts = role.until_pods(4).await;
        assert!(counts.values().all(|times| *times == 1), "{counts:?}");
        cluster.until_watches(2).await;
        assert!(role.metric("pod_collector_restarts_total").await >= Some(1));

        let lines = role.stop().await;
        let gone = lines.iter().find(|line| {
            let metrics = &line["kube_transition_metrics"];
            metrics["type"] == "lifecycle" && metrics["pod_name"] == "gone-meanwhile"
        });
        let end = &gone.unwrap()["kube_transition_metrics"]["lifecycle"]["end"];
        let expected = if history == History::Keep {
            "deleted"
        } else {
            "vanished"
        };
        assert_eq!(end, expected);
    }
}

#[tokio::test]
async fn relisted_events_change_nothing_and_old_ones_of_unknown_pods_are_ignored() {
    let cluster = Cluster::start().await;
    for _ in 0..20 {
        cluster.event(
            "gone",
            "Pulling",
            "Pulling image \"x\"",
            Duration::from_mins(5),
        );
    }
    let mut role = RoleHarness::ready(&cluster, &[]).await;
    role.until_metric(
        "kubevitals_transitions_events_total{result=\"stale\"}",
        |count| count == 20,
    )
    .await;
    assert_eq!(
        role.metric("kubevitals_transitions_early_pods").await,
        Some(0)
    );
    cluster.create("web");
    cluster.event("web", "Pulling", "Pulling image \"web:2\"", Duration::ZERO);
    role.until_metric(
        "kubevitals_transitions_events_total{result=\"accepted\"}",
        |count| count == 1,
    )
    .await;
    // Something must have happened since the last event, for its version to be too old.
    cluster.create("other");
    cluster.api.expire_history();
    cluster.api.drop_watches();
    role.until_metric(
        "kubevitals_transitions_events_total{result=\"accepted\"}",
        |count| count == 2,
    )
    .await;
    cluster.event(
        "web",
        "Pulled",
        "Successfully pulled image \"web:2\" in 2s",
        Duration::ZERO,
    );
    role.until_metric(
        "kubevitals_transitions_events_total{result=\"accepted\"}",
        |count| count == 3,
    )
    .await;
    cluster.make_ready("web");
    let lines = role.until_lines(|lines| lines.len() >= 3).await;
    let pull = lines
        .iter()
        .find(|line| line["kube_transition_metrics"]["type"] == "image_pull");
    assert_eq!(
        pull.unwrap()["kube_transition_metrics"]["image_pull"]["duration_seconds"],
        2.0
    );
    role.stop().await;
}

#[tokio::test]
async fn a_closed_output_stops_nothing_and_dropped_lines_are_counted() {
    let cluster = Cluster::start().await;
    let (_, lines) = LineCollector::new();
    let role = RoleHarness::start_with(&cluster, &[], Box::new(Closed), lines).await;
    role.until("/readyz", |text| text.starts_with("200")).await;
    for number in 0..10 {
        let name = format!("pod-{number}");
        cluster.create(&name);
        cluster.make_ready(&name);
    }
    role.until_metric(
        "kubevitals_transitions_lines_dropped_total{reason=\"rejected\"}",
        |count| count == 20,
    )
    .await;
    let startups = "kubevitals_transitions_records_total{record=\"startup\"}";
    role.until_metric(startups, |count| count == 10).await;
    assert!(role.ask("/livez").await.starts_with("200"));
    role.stop().await;
}
