//! Node pools and zones, by the labels of providers and tools.

use std::sync::Arc;

use crate::labels::Labels;

/// The labels of providers and tools for the pool of a node: the first that a node has counts.
///
/// Names that users choose come before generated ones: a node that Karpenter created on EKS belongs
/// to its `NodePool`.
pub const POOL_LABELS: [&str; 13] = [
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "alpha.eksctl.io/nodegroup-name",
    "doks.digitalocean.com/node-pool",
    "k8s.scaleway.com/pool-name",
    "oke.oraclecloud.com/pool.name",
    "cluster.x-k8s.io/deployment-name",
    "kops.k8s.io/instancegroup",
    "karpenter.sh/provisioner-name",
    "node.kubernetes.io/pool",
];

/// The labels for the zone of a node: the second is that of clusters before 1.17.
const ZONE_LABELS: [&str; 2] = [
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
];

/// Returns the pool of a node with these labels.
pub fn node_pool(labels: &Labels) -> Option<&Arc<str>> {
    POOL_LABELS
        .iter()
        .find_map(|label| labels.get(label))
        .filter(|pool| !pool.is_empty())
}

/// Returns the zone of a node with these labels.
pub fn zone(labels: &Labels) -> Option<&Arc<str>> {
    ZONE_LABELS
        .iter()
        .find_map(|label| labels.get(label))
        .filter(|zone| !zone.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        let pairs = pairs
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()));
        Labels::from_sorted(pairs.collect())
    }

    #[test]
    fn pools_are_found_by_the_names_of_providers() {
        let found = |pairs: &[(&str, &str)]| node_pool(&labels(pairs)).map(ToString::to_string);
        assert_eq!(
            found(&[("cloud.google.com/gke-nodepool", "b"), ("zone", "c")]).as_deref(),
            Some("b")
        );
        // The pool of Karpenter says more than the node group.
        assert_eq!(
            found(&[
                ("eks.amazonaws.com/nodegroup", "g"),
                ("karpenter.sh/nodepool", "k")
            ])
            .as_deref(),
            Some("k")
        );
        assert_eq!(found(&[("zone", "c")]), None);
    }

    #[test]
    fn the_zone_of_an_old_cluster_is_found_too() {
        let found = |pairs: &[(&str, &str)]| zone(&labels(pairs)).map(ToString::to_string);
        let old = ("failure-domain.beta.kubernetes.io/zone", "a");
        let new = ("topology.kubernetes.io/zone", "b");
        assert_eq!(found(&[old]).as_deref(), Some("a"));
        assert_eq!(found(&[old, new]).as_deref(), Some("b"));
        assert_eq!(found(&[("topology.kubernetes.io/zone", "")]), None);
    }
}
