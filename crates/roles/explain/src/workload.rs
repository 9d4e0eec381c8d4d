//! Names of workloads, and their revisions.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kube::api::ListParams;
use kubevitals_cli::RunError;
use kubevitals_model::Pod;
use kubevitals_transitions::{Workload, owner};
use kubevitals_watch::Resource;
use serde::Deserialize;

use crate::Notices;
use crate::api::{ApiError, ApiReader, Operation};

/// Revisions read of one namespace. A Deployment keeps ten by default.
const MAX_REVISIONS: usize = 50_000;

const REVISION_PAGE: u32 = 200;

/// The annotation of a `ReplicaSet` with the number of its revision.
const REVISION: &str = "deployment.kubernetes.io/revision";

/// The labels of pods for their revision.
const TEMPLATE_HASH: &str = "pod-template-hash";
const REVISION_HASH: &str = "controller-revision-hash";

/// The kind of a workload whose pods are explained together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkloadKind {
    Deployment,
    StatefulSet,
    DaemonSet,
    Job,
}

/// The name of one workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadName {
    pub kind: WorkloadKind,
    pub namespace: String,
    pub name: String,
}

/// A revision of a workload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Revision {
    /// `None` if it could not be read.
    pub number: Option<u64>,
    /// The hash in the labels of its pods; empty where there are no revisions.
    pub hash: Arc<str>,
}

/// The fields of a workload that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WorkloadWire {
    spec: SpecWire,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SpecWire {
    selector: SelectorWire,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SelectorWire {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<RequirementWire>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RequirementWire {
    key: String,
    operator: String,
    values: Vec<String>,
}

/// The fields of a `ReplicaSet` or a `ControllerRevision` that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RevisionWire {
    metadata: RevisionMetaWire,
    revision: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RevisionMetaWire {
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    owner_references: Vec<OwnerWire>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OwnerWire {
    kind: String,
    name: String,
}

impl WorkloadKind {
    /// The kind of a word, as in kubectl.
    pub fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "deployment" | "deployments" | "deploy" => Self::Deployment,
            "statefulset" | "statefulsets" | "sts" => Self::StatefulSet,
            "daemonset" | "daemonsets" | "ds" => Self::DaemonSet,
            "job" | "jobs" => Self::Job,
            _ => return None,
        })
    }

    /// The kind, as in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::Job => "Job",
        }
    }

    pub const fn has_revisions(self) -> bool {
        !matches!(self, Self::Job)
    }

    const fn resource(self) -> Resource {
        match self {
            Self::Deployment => Resource::new("apps", "v1", "deployments"),
            Self::StatefulSet => Resource::new("apps", "v1", "statefulsets"),
            Self::DaemonSet => Resource::new("apps", "v1", "daemonsets"),
            Self::Job => Resource::new("batch", "v1", "jobs"),
        }
    }

    /// The name of the resource, as in roles.
    const fn plural(self) -> &'static str {
        match self {
            Self::Deployment => "deployments.apps",
            Self::StatefulSet => "statefulsets.apps",
            Self::DaemonSet => "daemonsets.apps",
            Self::Job => "jobs.batch",
        }
    }
}

impl WorkloadName {
    /// Whether a pod belongs to the workload.
    pub(crate) fn owns(&self, pod: &Pod) -> bool {
        let name = match self.kind {
            WorkloadKind::Deployment => Workload::deployment_of(pod),
            kind => owner(pod)
                .filter(|owner| *owner.kind == *kind.as_str())
                .map(|owner| &*owner.name),
        };
        name == Some(&*self.name)
    }

    /// The revision of one of its pods, as its label has it; empty without one.
    pub(crate) fn hash_of(&self, pod: &Pod) -> Arc<str> {
        let label = match self.kind {
            WorkloadKind::Deployment => TEMPLATE_HASH,
            WorkloadKind::StatefulSet | WorkloadKind::DaemonSet => REVISION_HASH,
            WorkloadKind::Job => return Arc::default(),
        };
        pod.summary.labels.get(label).cloned().unwrap_or_default()
    }

    /// Returns a label selector for its pods; `None` if it has none, or may not be read.
    pub(crate) async fn selector(
        &self,
        api: &ApiReader,
        notices: &mut dyn Notices,
    ) -> Result<Option<String>, RunError> {
        let resource = self.kind.resource();
        let operation = Operation {
            verb: "get",
            resource: self.kind.plural(),
            namespace: Some(&self.namespace),
        };
        match api.get_as(&resource, &self.namespace, &self.name).await {
            Ok(WorkloadWire { spec }) => Ok(spec.selector.text()),
            Err(ApiError::NotFound) => Err(RunError::runtime(format!("{self} not found"))),
            Err(error @ ApiError::Forbidden(_)) => {
                let reason = error.message(operation);
                notices.warn(&format!("all pods of the namespace are read: {reason}"));
                Ok(None)
            }
            Err(error) => Err(error.during(operation)),
        }
    }

    /// Reads the numbers of the revisions, by the value that the label of their pods has.
    pub(crate) async fn revisions(
        &self,
        api: &ApiReader,
        selector: Option<&str>,
        notices: &mut dyn Notices,
    ) -> BTreeMap<String, u64> {
        let (resource, plural) = match self.kind {
            WorkloadKind::Deployment => (
                Resource::new("apps", "v1", "replicasets"),
                "replicasets.apps",
            ),
            WorkloadKind::StatefulSet | WorkloadKind::DaemonSet => (
                Resource::new("apps", "v1", "controllerrevisions"),
                "controllerrevisions.apps",
            ),
            WorkloadKind::Job => return BTreeMap::new(),
        };
        let mut params = ListParams::default().limit(REVISION_PAGE);
        params.label_selector = selector.map(ToOwned::to_owned);
        let listed = api.list_as::<RevisionWire>(&resource, &self.namespace, params, MAX_REVISIONS);
        match listed.await {
            Ok(revisions) => revisions
                .into_iter()
                .filter(|revision| revision.belongs_to(self))
                .filter_map(|revision| revision.numbered(self.kind))
                .collect(),
            Err(error) => {
                let reason = error.message(Operation {
                    verb: "list",
                    resource: plural,
                    namespace: Some(&self.namespace),
                });
                notices.warn(&format!(
                    "revisions have no numbers and are ordered by their newest pods: {reason}"
                ));
                BTreeMap::new()
            }
        }
    }
}

impl RevisionWire {
    fn belongs_to(&self, workload: &WorkloadName) -> bool {
        let mut owners = self.metadata.owner_references.iter();
        owners.any(|owner| owner.kind == workload.kind.as_str() && owner.name == workload.name)
    }

    fn numbered(mut self, kind: WorkloadKind) -> Option<(String, u64)> {
        let labels = &mut self.metadata.labels;
        Some(match kind {
            WorkloadKind::Deployment => {
                let number = self.metadata.annotations.get(REVISION)?.parse().ok()?;
                (labels.remove(TEMPLATE_HASH)?, number)
            }
            // Pods of a StatefulSet have the name of the revision, those of a DaemonSet its hash.
            WorkloadKind::StatefulSet => (self.metadata.name, self.revision?),
            _ => (labels.remove(REVISION_HASH)?, self.revision?),
        })
    }
}

impl SelectorWire {
    /// The selector as a parameter of a list; `None` if it is empty, or has an unknown operator.
    fn text(&self) -> Option<String> {
        let labels = self.match_labels.iter();
        let labels = labels.map(|(key, value)| Some(format!("{key}={value}")));
        let expressions = self.match_expressions.iter().map(|one| {
            let RequirementWire {
                key,
                operator,
                values,
            } = one;
            let values = values.join(",");
            Some(match operator.as_str() {
                "In" => format!("{key} in ({values})"),
                "NotIn" => format!("{key} notin ({values})"),
                "Exists" => key.clone(),
                "DoesNotExist" => format!("!{key}"),
                _ => return None,
            })
        });
        let terms: Vec<String> = labels.chain(expressions).collect::<Option<_>>()?;
        (!terms.is_empty()).then(|| terms.join(","))
    }
}

impl fmt::Display for WorkloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.as_str().to_ascii_lowercase();
        write!(f, "{kind} {}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            Some(number) => write!(f, "revision {number} ({})", self.hash),
            None => write!(f, "revision {}", self.hash),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(text: &str) -> Option<String> {
        let wire: WorkloadWire = serde_json::from_str(text).unwrap();
        wire.spec.selector.text()
    }

    #[test]
    fn selectors_are_written_as_parameters() {
        let text = r#"{"spec": {"selector": {"matchLabels": {"app": "web", "tier": "front"},
            "matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "y"]},
                {"key": "b", "operator": "NotIn", "values": ["z"]},
                {"key": "c", "operator": "Exists"}, {"key": "d", "operator": "DoesNotExist"}]}}}"#;
        assert_eq!(
            selector(text).as_deref(),
            Some("app=web,tier=front,a in (x,y),b notin (z),c,!d")
        );
        assert_eq!(selector("{}"), None);
        let unknown = r#"{"spec": {"selector": {"matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}}}"#;
        assert_eq!(selector(unknown), None);
    }

    #[test]
    fn revisions_have_the_value_of_the_label_of_their_pods() {
        let wire = |text: &str| serde_json::from_str::<RevisionWire>(text).unwrap();
        let set = r#"{"metadata": {"name": "web-7d4b", "labels": {"pod-template-hash": "7d4b"},
            "annotations": {"deployment.kubernetes.io/revision": "4"},
            "ownerReferences": [{"kind": "Deployment", "name": "web"}]}}"#;
        let web = |kind| WorkloadName {
            kind,
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
        };
        assert!(wire(set).belongs_to(&web(WorkloadKind::Deployment)));
        assert!(!wire(set).belongs_to(&web(WorkloadKind::StatefulSet)));
        let numbered = |text, kind| wire(text).numbered(kind);
        let expected = |hash: &str, number| Some((hash.to_owned(), number));
        assert_eq!(numbered(set, WorkloadKind::Deployment), expected("7d4b", 4));
        let revision = r#"{"metadata": {"name": "web-5c", "labels": {"controller-revision-hash": "5c"}},
            "revision": 9}"#;
        let (stateful, daemon) = (WorkloadKind::StatefulSet, WorkloadKind::DaemonSet);
        assert_eq!(numbered(revision, stateful), expected("web-5c", 9));
        assert_eq!(numbered(revision, daemon), expected("5c", 9));
        assert_eq!(numbered("{}", WorkloadKind::Deployment), None);
    }
}
