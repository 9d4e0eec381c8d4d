//! Where a pod runs.

use std::sync::Arc;

use kubevitals_model::Labels;

/// The labels in which providers and tools tell the pool of a node: the first that a node has
/// counts.
///
/// Those that people choose stand before those that the machinery makes up: a node that Karpenter
/// made on EKS belongs to its `NodePool`.
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

/// The pool that a node with these labels belongs to, by the names that the usual providers and
/// tools give it.
pub fn node_pool(labels: &Labels) -> Option<&Arc<str>> {
    POOL_LABELS
        .iter()
        .find_map(|label| labels.get(label))
        .filter(|pool| !pool.is_empty())
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
        // Which pool of Karpenter made a node says more than the group that it was put into.
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
}
