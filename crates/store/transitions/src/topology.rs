//! Node pools.

use std::sync::Arc;

use kubevitals_model::Labels;

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

/// Returns the pool of a node with these labels.
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
}
