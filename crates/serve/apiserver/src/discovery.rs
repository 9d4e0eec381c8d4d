//! Discovery documents. They never change while a server runs, so they are encoded once.

use std::fmt::Write as _;

use bytes::Bytes;
use serde::Serialize;

use crate::api_groups::ApiGroups;
use crate::resource::{ApiGroup, ApiResource};

/// All documents.
pub(crate) struct Discovery {
    pub(crate) groups: Document,
    /// By group.
    pub(crate) group: Vec<(&'static str, Document)>,
    /// By group and version.
    pub(crate) resources: Vec<(&'static str, &'static str, Document)>,
    /// By version of `apidiscovery.k8s.io`.
    aggregated: Vec<(&'static str, Document)>,
}

/// A JSON document with its hash.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    pub(crate) json: Bytes,
    /// The hash of its contents, in upper-case hexadecimal digits.
    pub(crate) hash: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupList {
    kind: &'static str,
    groups: Vec<Group>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: &'static str,
    name: &'static str,
    versions: Vec<GroupVersion>,
    preferred_version: GroupVersion,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersion {
    group_version: String,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceList {
    kind: &'static str,
    api_version: &'static str,
    group_version: String,
    resources: Vec<Resource>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    name: &'static str,
    singular_name: &'static str,
    namespaced: bool,
    kind: &'static str,
    verbs: &'static [&'static str],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedList {
    kind: &'static str,
    api_version: String,
    metadata: Metadata,
    items: Vec<AggregatedGroup>,
}

#[derive(Serialize)]
struct AggregatedGroup {
    metadata: Metadata,
    versions: Vec<AggregatedVersion>,
}

#[derive(Serialize, Default)]
struct Metadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'static str>,
}

#[derive(Serialize)]
struct AggregatedVersion {
    version: &'static str,
    resources: Vec<AggregatedResource>,
    freshness: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedResource {
    resource: &'static str,
    response_kind: GroupVersionKind,
    scope: &'static str,
    singular_resource: &'static str,
    verbs: &'static [&'static str],
}

#[derive(Serialize)]
struct GroupVersionKind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
}

impl Discovery {
    pub(crate) fn new(groups: &ApiGroups) -> Self {
        let groups = groups.groups();
        let list = GroupList {
            kind: "APIGroupList",
            groups: groups.iter().map(|group| describe(group, "", "")).collect(),
        };
        let resources = groups
            .iter()
            .flat_map(|group| group.versions.iter().map(move |version| (group, *version)))
            .map(|(group, version)| {
                let list = ResourceList {
                    kind: "APIResourceList",
                    api_version: "v1",
                    group_version: format!("{}/{version}", group.name),
                    resources: group.resources.iter().map(|one| resource(&**one)).collect(),
                };
                (group.name, version, Document::new(&list))
            });
        Self {
            groups: Document::new(&list),
            group: groups
                .iter()
                .map(|group| {
                    (
                        group.name,
                        Document::new(&describe(group, "APIGroup", "v1")),
                    )
                })
                .collect(),
            resources: resources.collect(),
            aggregated: ["v2", "v2beta1"]
                .map(|version| (version, Document::new(&aggregated(groups, version))))
                .into(),
        }
    }

    pub(crate) fn aggregated(&self, version: &str) -> Option<&Document> {
        self.aggregated
            .iter()
            .find(|(known, _)| *known == version)
            .map(|(_, document)| document)
    }
}

impl Document {
    pub(crate) fn new(value: &impl Serialize) -> Self {
        let json = serde_json::to_vec(value).unwrap_or_default();
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA512, &json);
        let mut hash = String::with_capacity(128);
        for byte in digest.as_ref() {
            let _infallible = write!(hash, "{byte:02X}");
        }
        Self {
            json: json.into(),
            hash,
        }
    }
}

fn describe(group: &ApiGroup, kind: &'static str, api_version: &'static str) -> Group {
    let version = |version: &'static str| GroupVersion {
        group_version: format!("{}/{version}", group.name),
        version,
    };
    Group {
        kind,
        api_version,
        name: group.name,
        versions: group.versions.iter().map(|one| version(one)).collect(),
        preferred_version: version(group.versions.first().copied().unwrap_or_default()),
    }
}

fn resource(resource: &dyn ApiResource) -> Resource {
    let resource = resource.info();
    Resource {
        name: resource.plural,
        singular_name: resource.singular,
        namespaced: resource.namespaced,
        kind: resource.kind,
        verbs: verbs(resource.watchable),
    }
}

fn aggregated(groups: &[ApiGroup], version: &str) -> AggregatedList {
    let items = groups.iter().map(|group| AggregatedGroup {
        metadata: Metadata {
            name: Some(group.name),
        },
        versions: group
            .versions
            .iter()
            .map(|version| AggregatedVersion {
                version,
                resources: group
                    .resources
                    .iter()
                    .map(|one| aggregated_resource(&**one))
                    .collect(),
                freshness: "Current",
            })
            .collect(),
    });
    AggregatedList {
        kind: "APIGroupDiscoveryList",
        api_version: format!("apidiscovery.k8s.io/{version}"),
        metadata: Metadata::default(),
        items: items.collect(),
    }
}

/// Group and version of the kind are empty, as in Go servers; clients read them as those of the
/// path.
fn aggregated_resource(resource: &dyn ApiResource) -> AggregatedResource {
    let resource = resource.info();
    AggregatedResource {
        resource: resource.plural,
        response_kind: GroupVersionKind {
            group: "",
            version: "",
            kind: resource.kind,
        },
        scope: if resource.namespaced {
            "Namespaced"
        } else {
            "Cluster"
        },
        singular_resource: resource.singular,
        verbs: verbs(resource.watchable),
    }
}

const fn verbs(watchable: bool) -> &'static [&'static str] {
    if watchable {
        &["get", "list", "watch"]
    } else {
        &["get", "list"]
    }
}
