//! The columns of each resource.

use super::Column;
use crate::objects::Resource;

const fn shown(name: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        wide: false,
    }
}

const fn number(name: &'static str) -> Column {
    Column {
        name,
        kind: "integer",
        wide: false,
    }
}

const fn wide(name: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        wide: true,
    }
}

const NAME: Column = shown("Name");
const AGE: Column = shown("Age");
const CONTAINERS: Column = wide("Containers");
const IMAGES: Column = wide("Images");
const SELECTOR: Column = wide("Selector");

/// Returns the columns in order; a row has a cell for each.
#[rustfmt::skip]
pub(super) fn columns(resource: Resource) -> &'static [Column] {
    match resource {
        Resource::Nodes => const { &[NAME, shown("Status"), shown("Roles"), AGE, shown("Version"), wide("Internal-IP"), wide("External-IP"), wide("OS-Image"), wide("Kernel-Version"), wide("Container-Runtime")] },
        Resource::Pods => const { &[NAME, shown("Ready"), shown("Status"), shown("Restarts"), AGE, wide("IP"), wide("Node"), wide("Nominated Node"), wide("Readiness Gates")] },
        Resource::Events => const { &[shown("Last Seen"), shown("Type"), shown("Reason"), shown("Object"), wide("Subobject"), wide("Source"), shown("Message"), wide("First Seen"), wide("Count"), wide("Name")] },
        Resource::Namespaces => const { &[NAME, shown("Status"), AGE] },
        Resource::Services => const { &[NAME, shown("Type"), shown("Cluster-IP"), shown("External-IP"), shown("Port(s)"), AGE, SELECTOR] },
        Resource::Endpoints => const { &[NAME, shown("Endpoints"), AGE] },
        Resource::EndpointSlices => const { &[NAME, shown("AddressType"), shown("Ports"), shown("Endpoints"), AGE] },
        Resource::ConfigMaps => const { &[NAME, shown("Data"), AGE] },
        Resource::Secrets => const { &[NAME, shown("Type"), shown("Data"), AGE] },
        Resource::DaemonSets => const { &[NAME, number("Desired"), number("Current"), number("Ready"), number("Up-to-date"), number("Available"), shown("Node Selector"), AGE, CONTAINERS, IMAGES, SELECTOR] },
        Resource::Deployments => const { &[NAME, shown("Ready"), shown("Up-to-date"), shown("Available"), AGE, CONTAINERS, IMAGES, SELECTOR] },
        Resource::ReplicaSets | Resource::ReplicationControllers => const { &[NAME, number("Desired"), number("Current"), number("Ready"), AGE, CONTAINERS, IMAGES, SELECTOR] },
        Resource::StatefulSets => const { &[NAME, shown("Ready"), AGE, CONTAINERS, IMAGES] },
        Resource::Jobs => const { &[NAME, shown("Status"), shown("Completions"), shown("Duration"), AGE, CONTAINERS, IMAGES, SELECTOR] },
        Resource::Leases => const { &[NAME, shown("Holder"), AGE] },
        Resource::ApiServices => const { &[NAME, shown("Service"), shown("Available"), AGE] },
        Resource::CronJobs => const { &[NAME, shown("Schedule"), shown("Suspend"), AGE] },
        Resource::PersistentVolumeClaims => const { &[NAME, shown("Status"), shown("Volume"), AGE] },
        Resource::PersistentVolumes => const { &[NAME, shown("Reclaim Policy"), shown("Status"), AGE] },
        Resource::ServiceAccounts | Resource::ResourceQuotas | Resource::LimitRanges => const { &[NAME, AGE] },
    }
}
