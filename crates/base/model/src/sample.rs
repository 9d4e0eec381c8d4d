//! What a kubelet said, each value with the time at which it was taken.
//!
//! A kubelet samples CPU, memory and swap at their own times and leaves out what it does not know.
//! So does a sample here: every part is optional, and nothing unknown becomes zero.

use crate::amount::{Bytes, CoreNanos, CpuUsage};
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
    /// Bytes written to the container's own layer and its logs. Only `/stats/summary` has them.
    pub ephemeral_storage: Option<BytesSample>,
    /// CPU in use as the kubelet itself averages it, at the time of `cpu`. Only `/stats/summary`
    /// has it, and over which time it is an average is not said: it serves until two samples of
    /// `cpu` are there.
    pub cpu_now: Option<CpuUsage>,
    /// When the container started. A kubelet states it as soon as the container runs, also before
    /// its first sample.
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
    /// Bytes used of the file system that pods write to. Only `/stats/summary` has them.
    pub ephemeral_storage: Option<BytesSample>,
    /// See [`ContainerSample::cpu_now`].
    pub cpu_now: Option<CpuUsage>,
}
