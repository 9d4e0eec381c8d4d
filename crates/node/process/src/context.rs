//! What the tasks of one pod share.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Container;
use kubevitals_virtual_node::runtime::{PodEvent, PodId, PodInputs};

use crate::cgroup::Hierarchies;
use crate::config::ProcessConfig;
use crate::metrics::ProcessMetrics;
use crate::state::Role;

/// The context of a pod.
pub(crate) struct PodContext {
    pub id: PodId,
    pub config: Arc<ProcessConfig>,
    pub inputs: Arc<dyn PodInputs>,
    pub cgroups: Option<Arc<Hierarchies>>,
    pub metrics: ProcessMetrics,
}

impl PodContext {
    /// An event of a container.
    pub(crate) fn event(
        &self,
        role: Role,
        container: &Container,
        is_warning: bool,
        reason: &'static str,
        message: String,
    ) -> PodEvent {
        let field = match role {
            Role::Main => "spec.containers",
            Role::Init | Role::Sidecar => "spec.initContainers",
        };
        PodEvent {
            pod: self.id.clone(),
            field_path: format!("{field}{{{}}}", container.name),
            is_warning,
            reason,
            message,
        }
    }

    /// An event of the pod.
    pub(crate) fn pod_event(
        &self,
        is_warning: bool,
        reason: &'static str,
        message: String,
    ) -> PodEvent {
        PodEvent {
            pod: self.id.clone(),
            field_path: String::new(),
            is_warning,
            reason,
            message,
        }
    }

    /// `name_namespace(uid)`, as the kubelet writes pods.
    pub(crate) fn display(&self) -> String {
        let key = &self.id.key;
        format!("{}_{}({})", key.name(), key.namespace(), self.id.uid)
    }

    /// The folder of the pod's logs.
    pub(crate) fn log_folder(&self) -> std::path::PathBuf {
        let key = &self.id.key;
        let name = format!("{}_{}_{}", key.namespace(), key.name(), self.id.uid);
        self.config.logs.join(name)
    }

    /// The log of an instance.
    pub(crate) fn log_path(&self, container: &str, attempt: u32) -> std::path::PathBuf {
        self.log_folder()
            .join(container)
            .join(format!("{attempt}.log"))
    }

    /// The folder of an instance.
    pub(crate) fn instance_folder(&self, id: &str) -> std::path::PathBuf {
        let pod = self.config.pod_folder(&self.id.uid.to_string());
        pod.join("containers").join(id)
    }
}
