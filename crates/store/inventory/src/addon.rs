//! Which pods belong to which addon.

use std::sync::Arc;

use kubevitals_model::{LabelSelector, Labels, OwnerReference, Pod, Workload};

use crate::catalogue::CATALOGUE;
use crate::node::UNKNOWN;

/// The annotations of GKE's components. Both must be there.
const GKE_NAME: &str = "components.gke.io/component-name";
const GKE_VERSION: &str = "components.gke.io/component-version";

/// Labels that commonly hold the name of a component, best first.
const NAME_LABELS: [&str; 4] = ["app.kubernetes.io/name", "k8s-app", "component", "app"];

const VERSION_LABEL: &str = "app.kubernetes.io/version";

/// Longer names and versions are cut: they become values of labels.
const MAX_TEXT: usize = 128;

/// The identity of an addon, as its metrics have it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Addon {
    pub name: Arc<str>,
    /// `Unknown` if neither an annotation nor a label nor the tag of an image says it.
    pub version: Arc<str>,
    /// The kind of the object that manages the pods: `DaemonSet`, `Deployment`, `StaticPod`.
    pub controller: Arc<str>,
}

/// What makes a pod a pod of an addon. Selectors come first, then GKE's annotations, the catalogue,
/// common labels and the names of static pods.
#[derive(Debug, Clone)]
pub struct AddonRules {
    /// Namespaces in which all rules apply; empty for all namespaces.
    pub namespaces: Vec<String>,
    /// Addons of the configuration, in their own namespaces.
    pub selectors: Vec<SelectorRule>,
    pub apply: ApplyTo,
}

/// Which pods are addons beyond those of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ApplyTo {
    /// Pods with GKE's annotations only, as gke-prober has it.
    Annotated,
    /// Also those of the catalogue.
    Known,
    /// Also those with a common label, and static pods.
    #[default]
    Named,
}

/// An addon of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectorRule {
    pub name: Arc<str>,
    /// `None` for the namespaces of the rules.
    pub namespace: Option<String>,
    pub selector: LabelSelector,
}

/// The parts of a pod, or of the template of pods, that rules look at.
struct Subject<'a> {
    namespace: &'a str,
    labels: &'a Labels,
    annotations: &'a Labels,
    image: Option<&'a str>,
    /// The name of a static pod without that of its node.
    static_name: Option<&'a str>,
}

impl Default for AddonRules {
    fn default() -> Self {
        Self {
            namespaces: vec!["kube-system".to_owned()],
            selectors: Vec::new(),
            apply: ApplyTo::Named,
        }
    }
}

impl AddonRules {
    /// The annotations that watches of pods and workloads must keep.
    pub const ANNOTATIONS: [&'static str; 2] = [GKE_NAME, GKE_VERSION];

    /// The only namespace that addons can be in, if there is one: a watch needs no more.
    pub fn only_namespace(&self) -> Option<&str> {
        let mut all = self.namespaces.iter().map(String::as_str).chain(
            self.selectors
                .iter()
                .filter_map(|rule| rule.namespace.as_deref()),
        );
        let first = all.next().filter(|_| !self.namespaces.is_empty())?;
        all.all(|other| other == first).then_some(first)
    }

    /// The addon that a pod belongs to.
    pub fn of_pod(&self, pod: &Pod) -> Option<Addon> {
        let subject = Subject {
            namespace: &pod.summary.identity.namespace,
            labels: &pod.summary.labels,
            annotations: &pod.meta.annotations,
            image: pod.containers.first().and_then(|one| one.image.as_deref()),
            static_name: pod.static_uid.as_ref().map(|_| static_name(pod)),
        };
        let name = self.name(&subject)?;
        Some(Addon {
            name,
            version: subject.version(),
            controller: controller(pod),
        })
    }

    /// The addon that a workload of a kind belongs to.
    pub fn of_workload(&self, workload: &Workload, kind: &str) -> Option<Addon> {
        let subject = Subject {
            namespace: &workload.identity.namespace,
            labels: &workload.template_labels,
            annotations: &workload.template_annotations,
            image: workload.template_image.as_deref(),
            static_name: None,
        };
        let name = self.name(&subject)?;
        Some(Addon {
            name,
            version: subject.version(),
            controller: kind.into(),
        })
    }

    fn name(&self, subject: &Subject<'_>) -> Option<Arc<str>> {
        let is_own = self.namespaces.is_empty()
            || self.namespaces.iter().any(|own| own == subject.namespace);
        let selected = self.selectors.iter().find(|rule| {
            let is_there = rule
                .namespace
                .as_deref()
                .map_or(is_own, |namespace| namespace == subject.namespace);
            is_there && rule.selector.matches(|key| subject.label(key))
        });
        if let Some(rule) = selected {
            return Some(Arc::clone(&rule.name));
        }
        if !is_own {
            return None;
        }
        let annotation = |key: &str| subject.annotations.get(key).filter(|text| !text.is_empty());
        if let (Some(name), Some(_)) = (annotation(GKE_NAME), annotation(GKE_VERSION)) {
            return Some(bounded(name));
        }
        if self.apply == ApplyTo::Annotated {
            return None;
        }
        let is_known = |(key, value): &(&str, &str)| subject.label(key) == Some(*value);
        let known = CATALOGUE
            .iter()
            .find(|known| known.labels.iter().any(is_known));
        if let Some(known) = known {
            return Some(known.name.into());
        }
        if self.apply == ApplyTo::Known {
            return None;
        }
        NAME_LABELS
            .iter()
            .find_map(|key| subject.label(key).filter(|name| !name.is_empty()))
            .or(subject.static_name)
            .map(bounded)
    }
}

impl<'a> Subject<'a> {
    fn label(&self, key: &str) -> Option<&'a str> {
        self.labels.get(key).map(|value| &**value)
    }

    fn version(&self) -> Arc<str> {
        let annotated = self.annotations.get(GKE_VERSION).map(|value| &**value);
        annotated
            .or_else(|| self.label(VERSION_LABEL))
            .filter(|version| !version.is_empty())
            .or_else(|| self.image.and_then(image_tag))
            .map_or_else(|| UNKNOWN.into(), bounded)
    }
}

/// The kind that manages a pod. A `ReplicaSet` stands for its Deployment.
fn controller(pod: &Pod) -> Arc<str> {
    if pod.static_uid.is_some() {
        return "StaticPod".into();
    }
    match pod.meta.controller() {
        Some(OwnerReference { kind, .. }) if &**kind == "ReplicaSet" => "Deployment".into(),
        Some(OwnerReference { kind, .. }) => Arc::clone(kind),
        None => "Pod".into(),
    }
}

/// The kubelet appends the name of the node to that of a static pod.
fn static_name(pod: &Pod) -> &str {
    let name = &*pod.summary.identity.name;
    let node = pod.summary.node.as_deref().unwrap_or_default();
    name.strip_suffix(node)
        .and_then(|name| name.strip_suffix('-'))
        .filter(|name| !name.is_empty())
        .unwrap_or(name)
}

/// The tag of an image; `None` if it has a digest only. A port of the registry is no tag.
fn image_tag(image: &str) -> Option<&str> {
    let image = image.split('@').next()?;
    let last = image.rsplit('/').next()?;
    let (_, tag) = last.split_once(':')?;
    (!tag.is_empty()).then_some(tag)
}

fn bounded(text: impl AsRef<str>) -> Arc<str> {
    text.as_ref()
        .chars()
        .take(MAX_TEXT)
        .collect::<String>()
        .into()
}

#[cfg(test)]
mod tests;
