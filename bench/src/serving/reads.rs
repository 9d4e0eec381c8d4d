//! The read load: requests of autoscalers, `kubectl top` and dashboards.

use std::time::Duration;

use crate::https::GetRequest;
use crate::load::{Kind, LoadPlan};
use serde_json::Value;

/// The API's root; both the peer and its clients use this version.
pub const API: &str = "/apis/metrics.k8s.io/v1beta1";

/// All pods of the cluster.
pub const API_PODS: &str = "/apis/metrics.k8s.io/v1beta1/pods";

/// Kinds of reads: key, and label in the table.
pub const KINDS: [(&str, &str); 4] = [
    (SELECTED, "pods of a workload, protobuf"),
    (PODS_JSON, "all pods, JSON"),
    (PODS_PROTOBUF, "all pods, protobuf"),
    (NODES, "all nodes, JSON"),
];

const SELECTED: &str = "selected";
const PODS_JSON: &str = "pods_json";
const PODS_PROTOBUF: &str = "pods_protobuf";
const NODES: &str = "nodes";

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf,application/json;q=0.5";

/// Autoscaled workloads, for any size of the cluster.
const WORKLOADS: u32 = 100;

/// Maximum requests in flight: far more than a healthy server ever has.
const CONCURRENCY: usize = 64;

/// 100 lists by label every 15 s, as the horizontal pod autoscaler sends; the full list every 6 s
/// in each format; nodes every 5 s.
pub fn plan(workloads: &[(String, String)], duration: Duration, gzip: bool) -> LoadPlan {
    let request = |path: String, accept| GetRequest { path, accept, gzip };
    let selected = workloads.iter().map(|(namespace, selector)| {
        request(
            format!("{API}/namespaces/{namespace}/pods?labelSelector={selector}"),
            PROTOBUF,
        )
    });
    let kind = |key, requests, count, seconds| Kind {
        key,
        requests,
        count,
        period: Duration::from_secs(seconds),
    };
    LoadPlan {
        kinds: vec![
            kind(SELECTED, selected.collect(), WORKLOADS, 15),
            kind(PODS_JSON, vec![request(format!("{API}/pods"), JSON)], 1, 6),
            kind(
                PODS_PROTOBUF,
                vec![request(format!("{API}/pods"), PROTOBUF)],
                1,
                6,
            ),
            kind(NODES, vec![request(format!("{API}/nodes"), JSON)], 1, 5),
        ],
        duration,
        concurrency: CONCURRENCY,
    }
}

/// Namespace and label selector of each workload in a list of Deployments, the selector ready for a
/// query.
pub fn workloads(deployments: &Value) -> Vec<(String, String)> {
    let items = deployments.get("items").and_then(Value::as_array);
    let workload = |item: &Value| {
        let namespace = item.pointer("/metadata/namespace")?.as_str()?;
        let labels = item.pointer("/spec/selector/matchLabels")?.as_object()?;
        let pairs: Option<Vec<String>> = labels
            .iter()
            .map(|(name, value)| Some(format!("{}%3D{}", escaped(name), escaped(value.as_str()?))))
            .collect();
        let selector = pairs?.join("%2C");
        (!selector.is_empty()).then(|| (namespace.to_owned(), selector))
    };
    items.into_iter().flatten().filter_map(workload).collect()
}

/// Labels hold letters, digits, dots, dashes, underscores and one slash.
fn escaped(label: &str) -> String {
    label.replace('/', "%2F")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_workload_is_selected_by_its_labels() {
        let deployments = json!({"items": [
            {"metadata": {"namespace": "a"}, "spec": {"selector": {"matchLabels": {"app.kubernetes.io/name": "x", "t": "1"}}}},
            {"metadata": {"namespace": "b"}, "spec": {"selector": {"matchLabels": {}}}},
        ]});
        let found = workloads(&deployments);
        assert_eq!(
            found,
            [(
                "a".to_owned(),
                "app.kubernetes.io%2Fname%3Dx%2Ct%3D1".to_owned()
            )]
        );
        let plan = plan(&found, Duration::from_secs(30), false);
        let requested_at = plan
            .kinds
            .first()
            .and_then(|kind| kind.requests.first())
            .unwrap();
        assert_eq!(
            requested_at.path,
            "/apis/metrics.k8s.io/v1beta1/namespaces/a/pods?labelSelector=app.kubernetes.io%2Fname%3Dx%2Ct%3D1"
        );
    }

    #[test]
    fn the_load_is_that_of_a_hundred_autoscaled_workloads() {
        let workloads = [("a".to_owned(), "x%3D1".to_owned())];
        let arrivals = plan(&workloads, Duration::from_secs(30), false).arrivals();
        let counts = [0, 1, 2, 3].map(|kind| arrivals.iter().filter(|a| a.kind == kind).count());
        assert_eq!(counts, [200, 5, 5, 6]);
    }
}
