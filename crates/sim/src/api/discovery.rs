//! Discovery documents: legacy and aggregated discovery, and the server's version.

#![expect(
    clippy::indexing_slicing,
    reason = "JSON trees: a missing member reads as null, and all writes go to objects"
)]

use serde_json::{Value, json};

use super::resources::{self, GROUPS, REVIEWS, ResourceInfo};

/// The verbs of a stored resource. `deletecollection` is not among them.
const VERBS: [&str; 7] = [
    "create", "delete", "get", "list", "patch", "update", "watch",
];

/// A group that another server serves.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RemoteGroup {
    pub(crate) group: String,
    pub(crate) version: String,
    /// Its `APIResourceList`; `None` before the first successful discovery.
    pub(crate) resources: Option<Value>,
    pub(crate) is_available: bool,
}

/// One resource in a discovery document.
struct Entry {
    name: String,
    singular: &'static str,
    kind: &'static str,
    /// Group and version of the kind, if they differ from those of the list.
    foreign: Option<(&'static str, &'static str)>,
    namespaced: bool,
    verbs: Vec<&'static str>,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
}

pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": "37",
        "emulationMajor": "1", "emulationMinor": "37",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "36",
        "gitVersion": "v1.37.1",
        "gitCommit": "simulated", "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "none", "platform": "linux/amd64",
    })
}

/// `/api`.
pub(crate) fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`.
pub(crate) fn groups(remote: &[RemoteGroup]) -> Value {
    let mut groups: Vec<Value> = GROUPS
        .iter()
        .map(|group| describe_group(group, &["v1"]))
        .collect();
    for (group, versions) in by_group(remote) {
        groups.push(describe_group(group, &versions));
    }
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/G`.
pub(crate) fn group(name: &str, remote: &[RemoteGroup]) -> Option<Value> {
    let mut description = if GROUPS.contains(&name) {
        describe_group(name, &["v1"])
    } else {
        let (_, versions) = by_group(remote)
            .into_iter()
            .find(|(group, _)| *group == name)?;
        describe_group(name, &versions)
    };
    description["kind"] = json!("APIGroup");
    description["apiVersion"] = json!("v1");
    Some(description)
}

/// `/api/v1` and `/apis/G/V`.
pub(crate) fn resources(group: &str, version: &str) -> Option<Value> {
    if version != "v1" || !(group.is_empty() || GROUPS.contains(&group)) {
        return None;
    }
    let list: Vec<Value> = entries(group).iter().map(Entry::legacy).collect();
    let group_version = if group.is_empty() {
        "v1".to_owned()
    } else {
        format!("{group}/{version}")
    };
    let mut document =
        json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": list});
    if !group.is_empty() {
        document["apiVersion"] = json!("v1");
    }
    Some(document)
}

/// `/api` (the core group alone) and `/apis` (all others) in the aggregated format.
pub(crate) fn aggregated(core: bool, version: &str, remote: &[RemoteGroup]) -> Value {
    let mut items = Vec::new();
    if core {
        items.push(aggregated_group("", &[aggregated_version("")]));
    } else {
        for group in GROUPS {
            items.push(aggregated_group(group, &[aggregated_version(group)]));
        }
        for (group, versions) in by_group(remote) {
            let versions: Vec<Value> = versions
                .iter()
                .filter_map(|version| {
                    remote
                        .iter()
                        .find(|r| r.group == group && r.version == *version)
                })
                .map(remote_version)
                .collect();
            items.push(aggregated_group(group, &versions));
        }
    }
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    })
}

/// The smallest `OpenAPI` v2 document, without any schema: clients then skip validation.
pub(crate) fn openapi_v2() -> Value {
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.37.1"},
        "paths": {},
        "definitions": {},
    })
}

/// An `OpenAPI` v3 index that lists no documents.
pub(crate) fn openapi_v3() -> Value {
    json!({"paths": {}})
}

/// All paths, as listed at `/`.
pub(crate) fn paths(remote: &[RemoteGroup]) -> Value {
    let mut paths: Vec<String> = ["/api", "/api/v1", "/apis", "/apis/"]
        .into_iter()
        .map(str::to_owned)
        .collect();
    for group in GROUPS {
        paths.push(format!("/apis/{group}"));
        paths.push(format!("/apis/{group}/v1"));
    }
    for remote in remote {
        paths.push(format!("/apis/{}", remote.group));
        paths.push(format!("/apis/{}/{}", remote.group, remote.version));
    }
    paths.extend(
        [
            "/healthz",
            "/livez",
            "/openapi/v2",
            "/openapi/v3",
            "/readyz",
            "/version",
        ]
        .into_iter()
        .map(str::to_owned),
    );
    paths.dedup();
    json!({"paths": paths})
}

impl Entry {
    fn legacy(&self) -> Value {
        let mut entry = json!({
            "name": self.name, "singularName": self.singular, "namespaced": self.namespaced,
            "kind": self.kind, "verbs": self.verbs,
        });
        if let Some((group, version)) = self.foreign {
            entry["group"] = json!(group);
            entry["version"] = json!(version);
        }
        if !self.short_names.is_empty() {
            entry["shortNames"] = json!(self.short_names);
        }
        if !self.categories.is_empty() {
            entry["categories"] = json!(self.categories);
        }
        entry
    }
}

fn entries(group: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    for info in resources::all().iter().filter(|info| info.group == group) {
        entries.push(Entry {
            name: info.plural.to_owned(),
            singular: info.singular,
            kind: info.kind,
            foreign: None,
            namespaced: info.namespaced,
            verbs: VERBS.to_vec(),
            short_names: info.short_names,
            categories: info.categories,
        });
        entries.extend(subresources(info));
    }
    for (review_group, plural, kind, namespaced) in REVIEWS {
        if *review_group == group {
            entries.push(Entry {
                name: (*plural).to_owned(),
                singular: kind,
                kind,
                foreign: None,
                namespaced: *namespaced,
                verbs: vec!["create"],
                short_names: &[],
                categories: &[],
            });
        }
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries
}

fn subresources(info: &'static ResourceInfo) -> Vec<Entry> {
    type Row = (
        &'static str,
        &'static str,
        Option<(&'static str, &'static str)>,
        &'static [&'static str],
    );
    let all: [Row; 5] = [
        ("binding", "Binding", None, &["create"]),
        ("eviction", "Eviction", Some(("policy", "v1")), &["create"]),
        ("log", "Pod", None, &["get"]),
        ("status", info.kind, None, &["get", "patch", "update"]),
        (
            "token",
            "TokenRequest",
            Some(("authentication.k8s.io", "v1")),
            &["create"],
        ),
    ];
    all.into_iter()
        .filter(|(name, ..)| info.has_subresource(name))
        .map(|(name, kind, foreign, verbs)| Entry {
            name: format!("{}/{name}", info.plural),
            singular: "",
            kind,
            foreign,
            namespaced: info.namespaced,
            verbs: verbs.to_vec(),
            short_names: &[],
            categories: &[],
        })
        .collect()
}

fn describe_group(group: &str, versions: &[&str]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

/// Returns groups in the order of their first version.
fn by_group(remote: &[RemoteGroup]) -> Vec<(&str, Vec<&str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for RemoteGroup { group, version, .. } in remote {
        match groups.iter_mut().find(|(found, _)| found == group) {
            Some((_, versions)) => versions.push(version),
            None => groups.push((group, vec![version])),
        }
    }
    groups
}

fn aggregated_group(name: &str, versions: &[Value]) -> Value {
    let metadata = if name.is_empty() {
        json!({"creationTimestamp": null})
    } else {
        json!({"name": name, "creationTimestamp": null})
    };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_version(group: &str) -> Value {
    let list: Vec<Value> = entries(group).iter().map(Entry::legacy).collect();
    json!({"version": "v1", "resources": nest(&list, group, "v1"), "freshness": "Current"})
}

fn remote_version(remote: &RemoteGroup) -> Value {
    let list = remote
        .resources
        .as_ref()
        .and_then(|document| document["resources"].as_array())
        .cloned()
        .unwrap_or_default();
    json!({
        "version": remote.version,
        "resources": nest(&list, &remote.group, &remote.version),
        "freshness": if remote.is_available { "Current" } else { "Stale" },
    })
}

/// Converts a legacy list into the nested format.
fn nest(list: &[Value], group: &str, version: &str) -> Vec<Value> {
    let kind = |entry: &Value| {
        let own = |member: &str, default: &str| {
            entry[member]
                .as_str()
                .filter(|text| !text.is_empty())
                .unwrap_or(default)
                .to_owned()
        };
        json!({"group": own("group", group), "version": own("version", version), "kind": entry["kind"]})
    };
    let mut nested: Vec<Value> = Vec::new();
    for entry in list {
        let name = entry["name"].as_str().unwrap_or_default();
        if name.contains('/') {
            continue;
        }
        let scope = if entry["namespaced"] == true {
            "Namespaced"
        } else {
            "Cluster"
        };
        let mut resource = json!({
            "resource": name, "responseKind": kind(entry), "scope": scope,
            "singularResource": entry["singularName"], "verbs": entry["verbs"],
        });
        for member in ["shortNames", "categories"] {
            if entry[member].is_array() {
                resource[member] = entry[member].clone();
            }
        }
        let subresources: Vec<Value> = list
            .iter()
            .filter_map(|sub| {
                let (parent, subresource) = sub["name"].as_str()?.split_once('/')?;
                (parent == name).then(|| {
                    json!({"subresource": subresource, "responseKind": kind(sub), "verbs": sub["verbs"]})
                })
            })
            .collect();
        if !subresources.is_empty() {
            resource["subresources"] = json!(subresources);
        }
        nested.push(resource);
    }
    nested
}
