//! Data points of the provider for sinks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_inventory::{
    Addon, AddonCount, AddonPods, Healthy, NodeAvailabilityCount, NodeCondition,
    NodeConditionCount, NodeStatus, NotReadyCount, RestartCount, Silence, SilentNode,
};
use kubevitals_model::{PodKey, Timestamp};
use kubevitals_prober::{Naming, PointsProvider, Provider};
use kubevitals_sink::{
    DataPoint, ExportError, Exporter, Measurement, Sink, SinkConfig, SinkMetrics,
};
use tokio::sync::mpsc;

use crate::probes::{failing_target, target};

/// Keeps what is exported.
struct Kept(mpsc::Sender<DataPoint>);

impl Exporter<DataPoint> for Kept {
    async fn export(&mut self, batch: &[DataPoint]) -> Result<(), ExportError> {
        for point in batch {
            self.0.try_send(point.clone()).expect("room for all points");
        }
        Ok(())
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_millis(seconds * 1_000)
}

fn status() -> NodeStatus {
    NodeStatus {
        name: "n1".into(),
        pool: "pool".into(),
        zone: "z".into(),
        ready: true,
        schedulable: true,
        done_warming: true,
    }
}

fn addon() -> Addon {
    Addon {
        name: "netd".into(),
        version: "v1".into(),
        controller: "DaemonSet".into(),
    }
}

/// Records one of everything and returns it as lines.
#[expect(clippy::too_many_lines, reason = "one of everything is much")]
async fn record(naming: Naming) -> Vec<String> {
    let (sink, worker) = Sink::new(SinkConfig::new("test"), SinkMetrics::unregistered());
    let (kept, mut points) = mpsc::channel(100);
    let worker = tokio::spawn(worker.run(Kept(kept)));
    let resource = vec![("k8s.cluster.name".into(), Arc::from("c"))];
    let provider = PointsProvider::new("test", sink, naming, resource);
    assert_eq!(provider.name(), "test");
    let condition = NodeCondition {
        kind: "Ready".into(),
        status: "True",
    };
    let cluster = provider.cluster_recorder();
    cluster.node_conditions(
        at(60),
        &[NodeConditionCount {
            pool: "pool".into(),
            zone: "z".into(),
            condition: condition.clone(),
            nodes: 3,
        }],
    );
    cluster.node_availabilities(
        at(60),
        &[NodeAvailabilityCount {
            pool: "pool".into(),
            zone: "z".into(),
            ready: true,
            schedulable: false,
            done_warming: true,
            nodes: 2,
        }],
    );
    cluster.addons_expected(
        at(60),
        &[AddonCount {
            addon: addon(),
            pods: 5,
        }],
    );
    cluster.not_ready(
        at(60),
        &[NotReadyCount {
            pool: "pool".into(),
            zone: "z".into(),
            start: at(0),
            total: 4,
        }],
    );
    cluster.silent_nodes(
        at(60),
        &[SilentNode {
            node: "n2".into(),
            pool: "pool".into(),
            zone: "z".into(),
            silence: Silence::NotReady,
            since: at(0),
        }],
    );
    let node = provider.node_recorder();
    node.conditions(at(60), &status(), &[condition]);
    node.availability(at(60), &status());
    node.addons(
        at(60),
        &status(),
        &[AddonPods {
            addon: addon(),
            running: true,
            healthy: Healthy::Unknown,
            stable: false,
            pods: 1,
        }],
    );
    node.control_plane(at(60), &status(), Some(false));
    node.control_plane(at(60), &status(), None);
    node.restarts(
        at(60),
        &status(),
        &[RestartCount {
            addon: addon(),
            pod: PodKey::new("kube-system", "netd-x"),
            container: "main".into(),
            reason: "OOMKilled".into(),
            exit_code: Some(137),
            start: at(10),
            total: 7,
        }],
    );
    let probes = provider.probe_recorder();
    probes.targets(at(60), &[target("http_get"), failing_target("kube_dns")]);
    provider.shutdown(Duration::from_mins(1)).await;
    worker.await.unwrap();
    let mut lines = Vec::new();
    while let Ok(point) = points.try_recv() {
        assert_eq!(point.timestamp, at(60));
        assert_eq!(
            point.attributes.get("k8s.cluster.name").map(|one| &**one),
            Some("c")
        );
        lines.push(line(&point));
    }
    lines
}

fn line(point: &DataPoint) -> String {
    let attributes: BTreeMap<_, _> = point
        .attributes
        .iter()
        .filter(|(name, _)| &***name != "k8s.cluster.name")
        .collect();
    let attributes: Vec<_> = attributes
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let value = match &point.measurement {
        Measurement::Gauge(value) => format!("{value:?}"),
        Measurement::Counter { start, total } => {
            format!("{total:?} since {}", start.unix_seconds())
        }
        Measurement::Distribution { start, value } => {
            format!(
                "{} in {} s since {}",
                value.count(),
                value.sum,
                start.unix_seconds()
            )
        }
    };
    let (name, unit) = (&point.name, &point.unit);
    format!("{name} [{unit}] {{{}}} {value}", attributes.join(" "))
}

#[tokio::test]
async fn cloud_monitoring_and_json_lines_have_the_names_of_the_peer() {
    insta::assert_snapshot!(record(Naming::Peer).await.join("\n"));
}

#[tokio::test]
async fn opentelemetry_has_the_names_of_its_conventions() {
    insta::assert_snapshot!(record(Naming::SemanticConventions).await.join("\n"));
}
