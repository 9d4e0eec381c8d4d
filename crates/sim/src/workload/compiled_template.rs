//! The common part of the pods of one workload, with its text rendered in advance.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::template::{ContainerTemplate, PodTemplate, Resources};
use crate::json::Members;
use crate::objects::{ObjectText, TOPOLOGY_REGION};
use crate::seed::Uid;

/// Members of a pod's spec that differ between pods, in the order of their names.
const OWN_MEMBERS: [&str; 4] = ["hostname", "nodeName", "schedulingGates", "subdomain"];

/// The common part of the pods of one workload.
#[derive(Debug)]
pub(crate) struct CompiledTemplate {
    pub(crate) template: PodTemplate,
    pub(crate) generate_name: Option<Arc<str>>,
    pub(crate) owner: Option<Owner>,
    /// Number of nodes, for the scheduler's messages.
    pub(crate) cluster_size: usize,
    /// Labels of the template and of the controller, in the order of their keys.
    pub(crate) labels: BTreeMap<Arc<str>, Arc<str>>,
    pub(crate) spec: SpecText,
    pub(crate) texts: TemplateTexts,
    /// By the index in [`PodTemplate::all`].
    pub(crate) containers: Box<[ContainerTexts]>,
}

/// `metadata.ownerReferences`.
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Uid,
}

/// A template's spec as text, split where a pod's own members are inserted.
#[derive(Debug)]
pub(crate) struct SpecText([Box<str>; OWN_MEMBERS.len() + 1]);

/// Members of an object as text, each followed by a comma. Empty if there are none.
#[derive(Debug)]
pub(crate) struct TemplateTexts {
    pub(crate) annotations: Box<str>,
    pub(crate) generate_name: Box<str>,
    /// Labels of a pod that has none of its own, before and after the topology labels.
    pub(crate) labels: [LabelTexts; 2],
    pub(crate) owner_references: Box<str>,
    pub(crate) allocated: Box<str>,
    pub(crate) resources: Box<str>,
}

/// Labels as members of an object, and for selectors in the format of [`ObjectText`].
#[derive(Debug)]
pub(crate) struct LabelTexts {
    pub(crate) members: Box<str>,
    pub(crate) packed: Box<str>,
    pub(crate) has_nul: bool,
}

/// Members of a container's status as text.
#[derive(Debug)]
pub(crate) struct ContainerTexts {
    pub(crate) allocated: Box<str>,
    pub(crate) image: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) resources: Box<str>,
    /// `involvedObject.fieldPath` of events about the container.
    pub(crate) field_path: Box<str>,
}

impl CompiledTemplate {
    pub(crate) fn new(
        template: PodTemplate,
        generate_name: Option<Arc<str>>,
        owner: Option<Owner>,
        owner_labels: Vec<(Arc<str>, Arc<str>)>,
        cluster_size: usize,
    ) -> Self {
        let labels = template
            .labels
            .iter()
            .map(|(key, value)| (Arc::clone(key), Arc::clone(value)))
            .chain(owner_labels)
            .collect();
        let init = template.init.len();
        Self {
            spec: SpecText::new(&template),
            texts: TemplateTexts::new(&template, generate_name.as_deref(), owner.as_ref(), &labels),
            containers: template
                .all()
                .enumerate()
                .map(|(at, container)| ContainerTexts::new(container, at < init))
                .collect(),
            template,
            generate_name,
            owner,
            cluster_size,
            labels,
        }
    }
}

impl SpecText {
    pub(crate) fn new(template: &PodTemplate) -> Self {
        let mut pieces = <[String; OWN_MEMBERS.len() + 1]>::default();
        for (name, value) in template.spec().as_object().into_iter().flatten() {
            let index = OWN_MEMBERS.partition_point(|own| *own < name.as_str());
            if let Some(piece) = pieces.get_mut(index) {
                Members::new(piece).json(name, &value.to_string());
            }
        }
        Self(pieces.map(String::into_boxed_str))
    }

    /// Writes all members of a spec. `own` is called for each of the [`OWN_MEMBERS`] in order,
    /// which it may omit.
    pub(crate) fn write(
        &self,
        members: &mut Members<'_>,
        mut own: impl FnMut(&'static str, &mut Members<'_>),
    ) {
        let mut names = OWN_MEMBERS.into_iter();
        for piece in &self.0 {
            members.ready(piece);
            if let Some(name) = names.next() {
                own(name, members);
            }
        }
    }
}

impl TemplateTexts {
    fn new(
        template: &PodTemplate,
        generate_name: Option<&str>,
        owner: Option<&Owner>,
        labels: &BTreeMap<Arc<str>, Arc<str>>,
    ) -> Self {
        let annotations: BTreeMap<&str, &str> = template
            .annotations
            .iter()
            .map(|(key, value)| (&**key, &**value))
            .collect();
        let (before, after): (Vec<_>, Vec<_>) = labels
            .iter()
            .map(|(key, value)| (&**key, &**value))
            .partition(|(key, _)| *key < TOPOLOGY_REGION);
        let total = template.total();
        Self {
            annotations: member(|members| {
                if !annotations.is_empty() {
                    write_labels(members, "annotations", &annotations);
                }
            }),
            generate_name: member(|members| {
                if let Some(prefix) = generate_name {
                    members.text("generateName", prefix);
                }
            }),
            labels: [LabelTexts::new(&before), LabelTexts::new(&after)],
            owner_references: member(|members| {
                if let Some(owner) = owner {
                    owner.write(members);
                }
            }),
            allocated: allocated(total),
            resources: resources(total),
        }
    }
}

impl LabelTexts {
    fn new(labels: &[(&str, &str)]) -> Self {
        let mut packed = ObjectText::default();
        for (key, value) in labels {
            packed.label(key, value);
        }
        Self {
            members: member(|members| {
                for (key, value) in labels {
                    members.entry(key, value);
                }
            }),
            packed: packed.labels.into(),
            has_nul: packed.has_nul,
        }
    }
}

impl ContainerTexts {
    fn new(container: &ContainerTemplate, init: bool) -> Self {
        let list = if init { "initContainers" } else { "containers" };
        Self {
            allocated: allocated(container.resources),
            image: member(|members| {
                members.text("image", &container.image);
            }),
            name: member(|members| {
                members.text("name", &container.name);
            }),
            resources: resources(container.resources),
            field_path: format!("spec.{list}{{{}}}", container.name).into(),
        }
    }
}

impl Owner {
    /// Writes `ownerReferences` with this owner as the controller.
    pub(crate) fn write(&self, members: &mut Members<'_>) {
        members.list("ownerReferences", |items| {
            items.object(|members| {
                members
                    .text("apiVersion", self.api_version)
                    .flag("blockOwnerDeletion", true)
                    .flag("controller", true)
                    .text("kind", self.kind)
                    .text("name", &self.name)
                    .uid("uid", self.uid);
            });
        });
    }
}

/// Writes labels or annotations under a name.
pub(crate) fn write_labels(members: &mut Members<'_>, name: &str, labels: &BTreeMap<&str, &str>) {
    members.object(name, |members| {
        for (key, value) in labels {
            members.entry(key, value);
        }
    });
}

fn member(write: impl FnOnce(&mut Members<'_>)) -> Box<str> {
    let mut out = String::new();
    write(&mut Members::new(&mut out));
    out.into()
}

fn allocated(resources: Resources) -> Box<str> {
    let requests = resources.requests();
    member(|members| {
        if !requests.is_empty() {
            let requests = serde_json::Value::Object(requests);
            members.json("allocatedResources", &requests.to_string());
        }
    })
}

fn resources(resources: Resources) -> Box<str> {
    member(|members| {
        members.json("resources", &resources.spec().to_string());
    })
}
