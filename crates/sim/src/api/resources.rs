//! Static metadata of each served resource: names, scope, verbs and selectable fields.

use crate::objects::Resource;

/// Static metadata of one resource.
#[derive(Debug)]
pub(crate) struct ResourceInfo {
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

macro_rules! resource {
    ($resource:ident, $group:literal, $plural:literal, $singular:literal, $kind:literal,
     namespaced: $namespaced:literal, short: $short:expr, categories: $categories:expr,
     status: $status:literal, generation: $generation:literal, fields: $fields:expr) => {
        ResourceInfo {
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
static RESOURCES: &[ResourceInfo] = &[
    resource!(ConfigMaps, "", "configmaps", "configmap", "ConfigMap", namespaced: true, short: &["cm"], categories: NONE, status: false, generation: false, fields: NONE),
    resource!(Endpoints, "", "endpoints", "endpoints", "Endpoints", namespaced: true, short: &["ep"], categories: NONE, status: false, generation: false, fields: NONE),
    resource!(Events, "", "events", "event", "Event", namespaced: true, short: &["ev"], categories: NONE, status: false, generation: false, fields: EVENT_FIELDS),
    resource!(LimitRanges, "", "limitranges", "limitrange", "LimitRange", namespaced: true, short: &["limits"], categories: NONE, status: false, generation: false, fields: NONE),
    resource!(Namespaces, "", "namespaces", "namespace", "Namespace", namespaced: false, short: &["ns"], categories: NONE, status: true, generation: false, fields: &["status.phase"]),
    resource!(Nodes, "", "nodes", "node", "Node", namespaced: false, short: &["no"], categories: NONE, status: true, generation: false, fields: &["spec.unschedulable"]),
    resource!(PersistentVolumeClaims, "", "persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim", namespaced: true, short: &["pvc"], categories: NONE, status: true, generation: false, fields: NONE),
    resource!(PersistentVolumes, "", "persistentvolumes", "persistentvolume", "PersistentVolume", namespaced: false, short: &["pv"], categories: NONE, status: true, generation: false, fields: NONE),
    resource!(Pods, "", "pods", "pod", "Pod", namespaced: true, short: &["po"], categories: ALL, status: true, generation: true, fields: POD_FIELDS),
    resource!(ReplicationControllers, "", "replicationcontrollers", "replicationcontroller", "ReplicationController", namespaced: true, short: &["rc"], categories: ALL, status: true, generation: true, fields: &["status.replicas"]),
    resource!(ResourceQuotas, "", "resourcequotas", "resourcequota", "ResourceQuota", namespaced: true, short: &["quota"], categories: NONE, status: true, generation: false, fields: NONE),
    resource!(Secrets, "", "secrets", "secret", "Secret", namespaced: true, short: NONE, categories: NONE, status: false, generation: false, fields: &["type"]),
    resource!(ServiceAccounts, "", "serviceaccounts", "serviceaccount", "ServiceAccount", namespaced: true, short: &["sa"], categories: NONE, status: false, generation: false, fields: NONE),
    resource!(Services, "", "services", "service", "Service", namespaced: true, short: &["svc"], categories: ALL, status: true, generation: false, fields: &["spec.clusterIP", "spec.type"]),
    resource!(ApiServices, "apiregistration.k8s.io", "apiservices", "apiservice", "APIService", namespaced: false, short: NONE, categories: &["api-extensions"], status: true, generation: false, fields: NONE),
    resource!(DaemonSets, "apps", "daemonsets", "daemonset", "DaemonSet", namespaced: true, short: &["ds"], categories: ALL, status: true, generation: true, fields: NONE),
    resource!(Deployments, "apps", "deployments", "deployment", "Deployment", namespaced: true, short: &["deploy"], categories: ALL, status: true, generation: true, fields: NONE),
    resource!(ReplicaSets, "apps", "replicasets", "replicaset", "ReplicaSet", namespaced: true, short: &["rs"], categories: ALL, status: true, generation: true, fields: &["status.replicas"]),
    resource!(StatefulSets, "apps", "statefulsets", "statefulset", "StatefulSet", namespaced: true, short: &["sts"], categories: ALL, status: true, generation: true, fields: NONE),
    resource!(CronJobs, "batch", "cronjobs", "cronjob", "CronJob", namespaced: true, short: &["cj"], categories: ALL, status: true, generation: true, fields: NONE),
    resource!(Jobs, "batch", "jobs", "job", "Job", namespaced: true, short: NONE, categories: ALL, status: true, generation: true, fields: &["status.successful"]),
    resource!(Leases, "coordination.k8s.io", "leases", "lease", "Lease", namespaced: true, short: NONE, categories: NONE, status: false, generation: false, fields: NONE),
    resource!(EndpointSlices, "discovery.k8s.io", "endpointslices", "endpointslice", "EndpointSlice", namespaced: true, short: NONE, categories: NONE, status: false, generation: true, fields: NONE),
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

impl ResourceInfo {
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
pub(crate) fn all() -> &'static [ResourceInfo] {
    RESOURCES
}

/// Returns the metadata of a resource.
pub(crate) fn info(resource: Resource) -> &'static ResourceInfo {
    RESOURCES
        .iter()
        .find(|info| info.resource == resource)
        .expect("a test checks that every resource is in the resources")
}

/// Finds a resource by the segments of a path.
pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static ResourceInfo> {
    RESOURCES
        .iter()
        .find(|info| info.plural == plural && info.group == group && info.version == version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_is_listed_once() {
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
            assert_eq!(info(resource).resource, resource);
        }
        assert_eq!(all.len(), RESOURCES.len());
        for info in RESOURCES {
            assert!(info.group.is_empty() || GROUPS.contains(&info.group));
        }
    }
}
