//! Servers that go away, histories that are lost, and outputs that nobody reads.

use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use kubevitals_sim::api::History;

use super::{Cluster, Follower, Sink};

/// An output that was closed on the other side.
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
        let mut follower = Follower::ready(&cluster, &["--lifecycle"]).await;
        for name in ["ready-meanwhile", "gone-meanwhile", "ready-later"] {
            cluster.create(name);
        }
        follower
            .until_metric("pod_statistics_tracked", |count| count == 3)
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
        follower.until_told(3).await;
        cluster.make_ready("ready-later");
        let told = follower.until_told(4).await;
        assert!(told.values().all(|times| *times == 1), "{told:?}");
        cluster.until_watches(2).await;
        assert!(follower.metric("pod_collector_restarts_total").await >= Some(1));

        let lines = follower.stop().await;
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
async fn events_that_are_listed_again_change_nothing_and_old_ones_of_others_are_left() {
    let cluster = Cluster::start().await;
    for _ in 0..20 {
        cluster.event(
            "gone",
            "Pulling",
            "Pulling image \"x\"",
            Duration::from_mins(5),
        );
    }
    let mut follower = Follower::ready(&cluster, &[]).await;
    follower
        .until_metric(
            "kubevitals_transitions_events_total{result=\"stale\"}",
            |count| count == 20,
        )
        .await;
    assert_eq!(
        follower.metric("kubevitals_transitions_early_pods").await,
        Some(0)
    );
    cluster.create("web");
    cluster.event("web", "Pulling", "Pulling image \"web:2\"", Duration::ZERO);
    follower
        .until_metric(
            "kubevitals_transitions_events_total{result=\"accepted\"}",
            |count| count == 1,
        )
        .await;
    // Something must have happened since the last event, for its version to be too old.
    cluster.create("other");
    cluster.api.expire_history();
    cluster.api.drop_watches();
    follower
        .until_metric(
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
    follower
        .until_metric(
            "kubevitals_transitions_events_total{result=\"accepted\"}",
            |count| count == 3,
        )
        .await;
    cluster.make_ready("web");
    let lines = follower.until_lines(|lines| lines.len() >= 3).await;
    let pull = lines
        .iter()
        .find(|line| line["kube_transition_metrics"]["type"] == "image_pull");
    assert_eq!(
        pull.unwrap()["kube_transition_metrics"]["image_pull"]["duration_seconds"],
        2.0
    );
    follower.stop().await;
}

#[tokio::test]
async fn an_output_that_is_closed_stops_nothing_and_what_is_lost_is_counted() {
    let cluster = Cluster::start().await;
    let (_, lines) = Sink::new();
    let follower = Follower::start_with(&cluster, &[], Box::new(Closed), lines).await;
    follower
        .until("/readyz", |text| text.starts_with("200"))
        .await;
    for number in 0..10 {
        let name = format!("pod-{number}");
        cluster.create(&name);
        cluster.make_ready(&name);
    }
    follower
        .until_metric(
            "kubevitals_transitions_lines_dropped_total{reason=\"rejected\"}",
            |count| count == 20,
        )
        .await;
    let startups = "kubevitals_transitions_records_total{record=\"startup\"}";
    follower.until_metric(startups, |count| count == 10).await;
    assert!(follower.ask("/livez").await.starts_with("200"));
    follower.stop().await;
}
