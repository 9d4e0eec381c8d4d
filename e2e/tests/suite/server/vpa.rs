//! The recommender of the `VerticalPodAutoscaler` reads our server.

use std::time::Duration;

use kubevitals_e2e::{Background, TestNamespace};
use kubevitals_model::{Quantity, Scale};
use serde_json::{Value, json};

use crate::in_time;

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The recommender as a process, which ends with the test.
#[derive(Debug)]
pub(super) struct Recommender(Background);

/// Returns a definition without a schema: the recommender's own validates, and this test reads.
fn definition(kind: &str, plural: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.autoscaling.k8s.io"),
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/63797"},
        },
        "spec": {
            "group": "autoscaling.k8s.io",
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}

/// Returns the recommended CPU of the one container in millicores, once there is one.
async fn recommended(namespace: &TestNamespace) -> Option<i64> {
    let read = [
        "get",
        "verticalpodautoscalers.autoscaling.k8s.io",
        "web",
        "--output=json",
    ];
    let vpa: Value = serde_json::from_str(&namespace.kubectl(&read).await.ok()?).unwrap();
    let target = "/status/recommendation/containerRecommendations/0/target/cpu";
    let target: Quantity = vpa.pointer(target)?.as_str()?.parse().unwrap();
    target.scaled_value(Scale::Milli)
}

impl Recommender {
    /// Starts it for the Deployment `web`, of which it changes nothing.
    pub(super) async fn start(namespace: &TestNamespace) -> anyhow::Result<Self> {
        for (kind, plural) in [
            ("VerticalPodAutoscaler", "verticalpodautoscalers"),
            (
                "VerticalPodAutoscalerCheckpoint",
                "verticalpodautoscalercheckpoints",
            ),
        ] {
            namespace.apply(&definition(kind, plural)).await?;
            let name = format!("customresourcedefinitions/{plural}.autoscaling.k8s.io");
            let established = ["wait", "--for=condition=Established", &name];
            namespace.kubectl(&established).await?;
        }
        namespace
            .apply(&json!({
                "apiVersion": "autoscaling.k8s.io/v1",
                "kind": "VerticalPodAutoscaler",
                "metadata": {"name": "web"},
                "spec": {
                    "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                    "updatePolicy": {"updateMode": "Off"},
                },
            }))
            .await?;
        let cluster = namespace.cluster();
        let arguments = [
            format!("--kubeconfig={}", cluster.kubeconfig().display()),
            "--recommender-interval=5s".to_owned(),
            "--address=127.0.0.1:0".to_owned(),
        ];
        let output = namespace.folder().join("vpa-recommender.log");
        let program = cluster.program("vpa-recommender")?;
        Ok(Self(Background::start(&program, &arguments, &output)?))
    }

    /// Waits for the recommendation for pods that burn 100m. Without samples it is the minimum,
    /// 25m; the margin is 15 %, and it is rounded up. A first sample may be of a container's start.
    pub(super) async fn assert_cpu_of_100_millicores(
        mut self,
        namespace: &TestNamespace,
    ) -> anyhow::Result<()> {
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        in_time("a recommendation of what the pods use", async {
            loop {
                ticks.tick().await;
                self.0.must_run()?;
                let millicores = recommended(namespace).await;
                println!("recommended: {millicores:?} millicores");
                if millicores.is_some_and(|millicores| (100..=200).contains(&millicores)) {
                    return Ok(());
                }
            }
        })
        .await
    }
}
