//! Samples of a kubelet, each value with its own time.
//!
//! A kubelet samples CPU, memory and swap at different times and omits unknown values. So does a
//! sample here: every part is optional, and nothing unknown becomes zero.

use crate::amount::{Bytes, CoreNanos, CpuUsage};
use crate::timestamp::Timestamp;

/// A reading of the counter of CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuSample {
    pub at: Timestamp,
    /// CPU time used since the start of the counter.
    pub total: CoreNanos,
}

/// A reading of a number of bytes in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BytesSample {
    pub at: Timestamp,
    pub bytes: Bytes,
}

/// The samples of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContainerSample {
    /// CPU time used since the container started.
    pub cpu: Option<CpuSample>,
    /// The working set.
    pub memory: Option<BytesSample>,
    /// Swap in use.
    pub swap: Option<BytesSample>,
    /// Bytes written to the container's own layer and its logs. Only `/stats/summary` has them.
    pub ephemeral_storage: Option<BytesSample>,
    /// CPU in use as the kubelet averages it, at the time of `cpu`. Only `/stats/summary` has it,
    /// and its window is unknown: it is used until there are two samples of `cpu`.
    pub cpu_now: Option<CpuUsage>,
    /// The start of the container. A kubelet reports it as soon as the container runs, even before
    /// its first sample.
    pub started: Option<Timestamp>,
}

/// The samples of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeSample {
    /// CPU time used since the node started.
    pub cpu: Option<CpuSample>,
    /// The working set.
    pub memory: Option<BytesSample>,
    /// Swap in use.
    pub swap: Option<BytesSample>,
    /// Bytes used of the file system that pods write to. Only `/stats/summary` has them.
    pub ephemeral_storage: Option<BytesSample>,
    /// See [`ContainerSample::cpu_now`].
    pub cpu_now: Option<CpuUsage>,
}
