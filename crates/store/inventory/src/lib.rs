//! Nodes, workloads and addons, and what they say about the health of a cluster.
