//! Static metadata of each served resource: names, scope, verbs and selectable fields.

use crate::objects::Resource;

/// Static metadata of one resource.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) resource: Resource,
    /// Empty for the core group.
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    /// Whether the resource has a status subresource, which writes of the main resource do not
    /// change.
    pub(crate) has_status: bool,
    /// Whether a change of the spec increments `metadata.generation`.
    pub(crate) has_generation: bool,
    /// Selectable fields beside `metadata.name` and `metadata.namespace`, as JSON paths.
    pub(crate) fields: &'static [&'static str],
}

const NONE: &[&str] = &[];
const ALL: &[&str] = &["all"];

const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];
const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

macro_rules! facts {
    ($resource:ident, $group:literal, $plural:literal, $singular:literal, $kind:literal,
     namespaced: $namespaced:literal, short: $short:expr, categories: $categories:expr,
     status: $status:literal, generation: $generation:literal, fields: $fields:expr) => {
        Facts {
            resource: Resource::$resource,
            group: $group,
            version: "v1",
            plural: $plural,
            singular: $singular,
            kind: $kind,
            namespaced: $namespaced,
            short_names: $short,
            categories: $categories,
            has_status: $status,
            has_generation: $generation,
            fields: $fields,
        }
    };
}

/// All resources, sorted by group (in the order of discovery) and plural name.
#[rustfmt::skip]
static CATALOG: &[Facts] = &[
    facts!(ConfigMaps, "", "configmaps", "configmap", "ConfigMap", namespaced: true, short: &["cm"], categories: NONE, status: false, generation: false, fields: NONE),
    facts!(Endpoints, "", "endpoints", "endpoints", "Endpoints", namespaced: true, short: &["ep"], categories: NONE, status: false, generation: false, fields: NONE),
    facts!(Events, "", "events", "event", "Event", namespaced: true, short: &["ev"], categories: NONE, status: false, generation: false, fields: EVENT_FIELDS),
    facts!(LimitRanges, "", "limitranges", "limitrange", "LimitRange", namespaced: true, short: &["limits"], categories: NONE, status: false, generation: false, fields: NONE),
    facts!(Namespaces, "", "namespaces", "namespace", "Namespace", namespaced: false, short: &["ns"], categories: NONE, status: true, generation: false, fields: &["status.phase"]),
    facts!(Nodes, "", "nodes", "node", "Node", namespaced: false, short: &["no"], categories: NONE, status: true, generation: false, fields: &["spec.unschedulable"]),
    facts!(PersistentVolumeClaims, "", "persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim", namespaced: true, short: &["pvc"], categories: NONE, status: true, generation: false, fields: NONE),
    facts!(PersistentVolumes, "", "persistentvolumes", "persistentvolume", "PersistentVolume", namespaced: false, short: &["pv"], categories: NONE, status: true, generation: false, fields: NONE),
    facts!(Pods, "", "pods", "pod", "Pod", namespaced: true, short: &["po"], categories: ALL, status: true, generation: true, fields: POD_FIELDS),
    facts!(ReplicationControllers, "", "replicationcontrollers", "replicationcontroller", "ReplicationController", namespaced: true, short: &["rc"], categories: ALL, status: true, generation: true, fields: &["status.replicas"]),
    facts!(ResourceQuotas, "", "resourcequotas", "resourcequota", "ResourceQuota", namespaced: true, short: &["quota"], categories: NONE, status: true, generation: false, fields: NONE),
    facts!(Secrets, "", "secrets", "secret", "Secret", namespaced: true, short: NONE, categories: NONE, status: false, generation: false, fields: &["type"]),
    facts!(ServiceAccounts, "", "serviceaccounts", "serviceaccount", "ServiceAccount", namespaced: true, short: &["sa"], categories: NONE, status: false, generation: false, fields: NONE),
    facts!(Services, "", "services", "service", "Service", namespaced: true, short: &["svc"], categories: ALL, status: true, generation: false, fields: &["spec.clusterIP", "spec.type"]),
    facts!(ApiServices, "apiregistration.k8s.io", "apiservices", "apiservice", "APIService", namespaced: false, short: NONE, categories: &["api-extensions"], status: true, generation: false, fields: NONE),
    facts!(DaemonSets, "apps", "daemonsets", "daemonset", "DaemonSet", namespaced: true, short: &["ds"], categories: ALL, status: true, generation: true, fields: NONE),
    facts!(Deployments, "apps", "deployments", "deployment", "Deployment", namespaced: true, short: &["deploy"], categories: ALL, status: true, generation: true, fields: NONE),
    facts!(ReplicaSets, "apps", "replicasets", "replicaset", "ReplicaSet", namespaced: true, short: &["rs"], categories: ALL, status: true, generation: true, fields: &["status.replicas"]),
    facts!(StatefulSets, "apps", "statefulsets", "statefulset", "StatefulSet", namespaced: true, short: &["sts"], categories: ALL, status: true, generation: true, fields: NONE),
    facts!(CronJobs, "batch", "cronjobs", "cronjob", "CronJob", namespaced: true, short: &["cj"], categories: ALL, status: true, generation: true, fields: NONE),
    facts!(Jobs, "batch", "jobs", "job", "Job", namespaced: true, short: NONE, categories: ALL, status: true, generation: true, fields: &["status.successful"]),
    facts!(Leases, "coordination.k8s.io", "leases", "lease", "Lease", namespaced: true, short: NONE, categories: NONE, status: false, generation: false, fields: NONE),
    facts!(EndpointSlices, "discovery.k8s.io", "endpointslices", "endpointslice", "EndpointSlice", namespaced: true, short: NONE, categories: NONE, status: false, generation: true, fields: NONE),
];

/// Review resources, which return a result and store nothing: group, plural, kind, namespaced.
pub(crate) static REVIEWS: &[(&str, &str, &str, bool)] = &[
    ("", "bindings", "Binding", true),
    (
        "authentication.k8s.io",
        "selfsubjectreviews",
        "SelfSubjectReview",
        false,
    ),
    (
        "authentication.k8s.io",
        "tokenreviews",
        "TokenReview",
        false,
    ),
    (
        "authorization.k8s.io",
        "localsubjectaccessreviews",
        "LocalSubjectAccessReview",
        true,
    ),
    (
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        false,
    ),
    (
        "authorization.k8s.io",
        "selfsubjectrulesreviews",
        "SelfSubjectRulesReview",
        false,
    ),
    (
        "authorization.k8s.io",
        "subjectaccessreviews",
        "SubjectAccessReview",
        false,
    ),
];

/// Groups other than the core one, in the order of kube-apiserver's discovery.
pub(crate) static GROUPS: &[&str] = &[
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "batch",
    "coordination.k8s.io",
    "discovery.k8s.io",
];

impl Facts {
    /// `v1`, or `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether the resource has a subresource of that name.
    pub(crate) fn has_subresource(&self, name: &str) -> bool {
        match name {
            "status" => self.has_status,
            "log" | "binding" | "eviction" => self.resource == Resource::Pods,
            "token" => self.resource == Resource::ServiceAccounts,
            _ => false,
        }
    }
}

/// All resources.
pub(crate) fn all() -> &'static [Facts] {
    CATALOG
}

/// Returns the metadata of a resource.
pub(crate) fn facts(resource: Resource) -> &'static Facts {
    CATALOG
        .iter()
        .find(|facts| facts.resource == resource)
        .expect("a test checks that every resource is in the catalog")
}

/// Finds a resource by the segments of a path.
pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Facts> {
    CATALOG
        .iter()
        .find(|facts| facts.plural == plural && facts.group == group && facts.version == version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_is_in_the_catalog_once() {
        let all = [
            Resource::Nodes,
            Resource::Pods,
            Resource::Events,
            Resource::Namespaces,
            Resource::Services,
            Resource::Endpoints,
            Resource::EndpointSlices,
            Resource::ConfigMaps,
            Resource::Secrets,
            Resource::ServiceAccounts,
            Resource::DaemonSets,
            Resource::Deployments,
            Resource::ReplicaSets,
            Resource::StatefulSets,
            Resource::Jobs,
            Resource::Leases,
            Resource::ApiServices,
            Resource::CronJobs,
            Resource::ReplicationControllers,
            Resource::PersistentVolumeClaims,
            Resource::PersistentVolumes,
            Resource::ResourceQuotas,
            Resource::LimitRanges,
        ];
        for resource in all {
            assert_eq!(facts(resource).resource, resource);
        }
        assert_eq!(all.len(), CATALOG.len());
        for facts in CATALOG {
            assert!(facts.group.is_empty() || GROUPS.contains(&facts.group));
        }
    }
}
