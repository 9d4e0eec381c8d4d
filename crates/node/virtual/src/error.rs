//! Errors of a virtual node.

/// Why a virtual node ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The Node object belongs to another kubelet.
    #[error(
        "Node {name} belongs to a kubelet of version {version}: choose another name, or delete the \
         Node if that kubelet is gone"
    )]
    ForeignNode {
        /// The name of the Node.
        name: String,
        /// The version of the kubelet.
        version: String,
    },
    /// A request to the API server failed.
    #[error("request to the API server failed")]
    Api(#[from] kube::Error),
    /// A part of the node ended or panicked.
    #[error("task {0} of the node ended unexpectedly")]
    TaskEnded(&'static str),
}
