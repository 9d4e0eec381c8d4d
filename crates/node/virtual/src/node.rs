//! The Node object: registration and status.
//!
//! The status is server-side applied, so that conditions, labels and addresses of other managers
//! stay. Taints are one atomic list, which the node life cycle controller writes too: they are set
//! when the Node is created and never again, as by a kubelet.

mod report;

use k8s_openapi::api::core::v1::{Node, NodeSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{GetParams, Patch, PatchParams, PostParams};
use kubevitals_model::{Backoff, BackoffPolicy, Clock, Jitter, Rng};
use serde_json::json;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

pub(crate) use self::report::Readiness;
use self::report::StatusReport;
use crate::FIELD_MANAGER;
use crate::api_error::status_code;
use crate::error::NodeError;
use crate::events::{EventObject, NewEvent, Recorder};
use crate::metrics::{NodeMetrics, Updated};
use crate::ping::RuntimeHealth;
use crate::settings::{NodeSettings, PROVIDER_LABEL, Timing};

const RETRY: BackoffPolicy = BackoffPolicy {
    first: Duration::from_millis(200),
    second: Duration::from_millis(400),
    max: Duration::from_secs(7),
    jitter: Jitter::Added(0.1),
};

/// Keeps the Node object.
pub(crate) struct NodeKeeper {
    pub(crate) client: kube::Client,
    pub(crate) settings: NodeSettings,
    pub(crate) timing: Timing,
    pub(crate) clock: Clock,
    pub(crate) metrics: NodeMetrics,
    pub(crate) recorder: Recorder,
    pub(crate) health: watch::Receiver<RuntimeHealth>,
    /// The UID of the registered Node.
    pub(crate) uid: watch::Sender<Option<String>>,
}

impl NodeKeeper {
    /// Registers the Node and keeps its status for ever. It returns only if the Node belongs to
    /// another kubelet.
    pub(crate) async fn run(mut self) -> NodeError {
        let mut report = StatusReport::new(self.timing.status_report);
        if let Err(error) = self.register(&mut report).await {
            return error;
        }
        self.record("Starting", "Starting kubevitals node.");
        let mut is_failing = false;
        loop {
            let readiness = self.readiness();
            let now = self.clock.moment();
            if self.is_deleted().await {
                tracing::warn!("the Node was deleted: it is registered again");
                if let Err(error) = self.register(&mut report).await {
                    return error;
                }
                continue;
            }
            if let Some(status) = report.due(&self.settings, &readiness, now) {
                let result = self.apply_status(&status).await;
                self.metrics.count_update(Updated::node, result.is_ok());
                match result {
                    Ok(()) => {
                        if let Some(is_ready) = report.written(&readiness, now) {
                            self.record_readiness(is_ready);
                        }
                        is_failing = false;
                    }
                    Err(error) => {
                        if !is_failing {
                            let error = &error as &dyn std::error::Error;
                            tracing::warn!(error, "cannot write the status of the Node");
                        }
                        is_failing = true;
                    }
                }
            }
            tokio::select! {
                () = sleep(self.timing.status_check) => {}
                _ = self.health.changed() => {}
            }
        }
    }

    /// Whether the registered Node is gone. It is looked up in the API server's cache at each check
    /// of the status, as by a kubelet, and the cache may be behind. A failure says nothing.
    async fn is_deleted(&self) -> bool {
        self.is_missing(&GetParams::any()).await && self.is_missing(&GetParams::default()).await
    }

    async fn is_missing(&self, parameters: &GetParams) -> bool {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let name = &self.settings.name;
        let found = nodes.get_metadata_opt_with(name, parameters).await;
        found.is_ok_and(|node| {
            let uid = node.and_then(|node| node.metadata.uid);
            uid.is_none() || uid != *self.uid.borrow()
        })
    }

    fn readiness(&mut self) -> Readiness {
        let now = self.clock.moment().monotonic;
        let health = self.health.borrow_and_update();
        if health.is_healthy(now, &self.timing) {
            Readiness::Ready
        } else {
            Readiness::NotReady(health.reason().to_owned())
        }
    }

    /// Creates the Node or adopts an existing one, until it succeeds.
    async fn register(&mut self, report: &mut StatusReport) -> Result<(), NodeError> {
        let mut backoff = Backoff::new(RETRY, Rng::random());
        loop {
            let readiness = self.readiness();
            match self.try_register(report, &readiness).await {
                Ok(uid) => {
                    self.uid.send_replace(Some(uid));
                    return Ok(());
                }
                Err(error @ NodeError::ForeignNode { .. }) => return Err(error),
                Err(error) => {
                    if backoff.failures() == 0 {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "cannot register the Node");
                    }
                    sleep(backoff.next_wait()).await;
                }
            }
        }
    }

    async fn try_register(
        &self,
        report: &mut StatusReport,
        readiness: &Readiness,
    ) -> Result<String, NodeError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let name = &self.settings.name;
        let now = self.clock.moment();
        let created = nodes.create(&PostParams::default(), &self.object()).await;
        let node = match created {
            Ok(node) => {
                tracing::info!(node = name, "Node is registered");
                node
            }
            Err(error) if status_code(&error) == Some(409) => {
                let existing = nodes.get(name).await?;
                self.check_owner(&existing)?;
                let labels = json!({
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": name, "labels": self.settings.all_labels()},
                });
                let parameters = PatchParams::apply(FIELD_MANAGER).force();
                let adopted = nodes
                    .patch(name, &parameters, &Patch::Apply(labels))
                    .await?;
                tracing::info!(node = name, "Node is adopted");
                adopted
            }
            Err(error) => return Err(error.into()),
        };
        report.adopt(&node);
        let status = report.render(&self.settings, readiness, now);
        self.apply_status(&status).await?;
        if let Some(is_ready) = report.written(readiness, now) {
            self.record_readiness(is_ready);
        }
        Ok(node.metadata.uid.unwrap_or_default())
    }

    /// Two programs that write one Node would fight for its pods.
    fn check_owner(&self, node: &Node) -> Result<(), NodeError> {
        let labels = node.metadata.labels.as_ref();
        let is_ours = labels.is_some_and(|labels| labels.contains_key(PROVIDER_LABEL));
        let info = node
            .status
            .as_ref()
            .and_then(|status| status.node_info.as_ref());
        let version = info
            .map(|info| info.kubelet_version.as_str())
            .unwrap_or_default();
        if is_ours || version.is_empty() {
            return Ok(());
        }
        Err(NodeError::ForeignNode {
            name: self.settings.name.clone(),
            version: version.to_owned(),
        })
    }

    fn object(&self) -> Node {
        let taints = self.settings.taints.clone();
        Node {
            metadata: ObjectMeta {
                name: Some(self.settings.name.clone()),
                labels: Some(self.settings.all_labels()),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                taints: (!taints.is_empty()).then_some(taints),
                ..NodeSpec::default()
            }),
            status: None,
        }
    }

    async fn apply_status(&self, status: &serde_json::Value) -> Result<(), kube::Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let name = &self.settings.name;
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": status,
        });
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        nodes
            .patch_status(name, &parameters, &Patch::Apply(node))
            .await?;
        Ok(())
    }

    fn record_readiness(&self, is_ready: bool) {
        let (reason, text) = if is_ready {
            ("NodeReady", "NodeReady")
        } else {
            ("NodeNotReady", "NodeNotReady")
        };
        let message = format!("Node {} status is now: {text}", self.settings.name);
        self.record(reason, &message);
    }

    fn record(&self, reason: &str, message: &str) {
        self.recorder.record(NewEvent {
            object: EventObject {
                kind: "Node",
                namespace: String::new(),
                name: self.settings.name.clone(),
                // A kubelet writes the name here, and `kubectl describe node` looks for it.
                uid: self.settings.name.clone(),
                field_path: String::new(),
            },
            is_warning: false,
            reason: reason.to_owned(),
            message: message.to_owned(),
        });
    }
}
