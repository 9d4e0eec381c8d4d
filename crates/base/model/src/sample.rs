//! What a kubelet said, each value with the time at which it was taken.
//!
//! A kubelet samples CPU, memory and swap at their own times and leaves out what it does not know. So does a sample
//! here: every part is optional, and nothing unknown becomes zero.

use crate::amount::{Bytes, CoreNanos};
use crate::timestamp::Timestamp;

/// A reading of the counter of CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuSample {
    /// When it was read.
    pub at: Timestamp,
    /// CPU time used since the counter began.
    pub total: CoreNanos,
}

/// A reading of a number of bytes in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BytesSample {
    /// When it was read.
    pub at: Timestamp,
    /// The bytes in use.
    pub bytes: Bytes,
}

/// What is known of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContainerSample {
    /// CPU time used since the container started.
    pub cpu: Option<CpuSample>,
    /// The working set.
    pub memory: Option<BytesSample>,
    /// Swap in use.
    pub swap: Option<BytesSample>,
    /// When the container started. A kubelet states it as soon as the container runs, also before its first sample.
    pub started: Option<Timestamp>,
}

/// What is known of a node as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeSample {
    /// CPU time used since the node started.
    pub cpu: Option<CpuSample>,
    /// The working set.
    pub memory: Option<BytesSample>,
    /// Swap in use.
    pub swap: Option<BytesSample>,
}
