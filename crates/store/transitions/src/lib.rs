//! How long every pod took to start, and why: states and events of pods in, records out.
//!
//! ```text
//!  pods ───states──► Tracker: a Lifecycle for each UID ─┬─► Output::ImagePull  an image is there
//!  events ──facts──► (no locks, one owner)              ├─► Output::Startup    ready, or never will be, with the reason
//!                                                       ├─► Output::Lifecycle  deleted
//!                                                       └─► Output::Progress   every change, if enabled
//! ```
//!
//! **Once.** Each pod yields exactly one [`Output::Startup`] and one [`Output::Lifecycle`],
//! whatever happens to it: complete, or with the [`Blocker`] that kept it from becoming ready. Each
//! image that is pulled for it, or found present, yields one [`Output::ImagePull`] as soon as the
//! kubelet reports it.
//!
//! **In any order.** A milestone is recorded when a state first shows it and stays; older and
//! repeated states change nothing. Facts from events do not depend on order or repetition, and are
//! kept from before the pod itself is seen. States and events may be interleaved, repeated and
//! listed again without a trace in the records.
//!
//! **One clock.** A [`Moment`] has the API's time and that of the observer, and a duration never
//! mixes them. Where the node's clock disagrees with that of the API server, a [`Timeline`] puts
//! both on one. No duration is negative: where none can be had it is unknown.
//!
//! **Bounds.** A lifecycle is as large as its pod has containers. The number of tracked pods, of
//! deleted pods that wait for late events, and of pods known only from events is bounded by
//! [`TrackerConfig`]; what is left out is counted ([`Counts`]).
//!
//! # Limits
//!
//! - The API has no time for a startup probe that passes, for one of several containers to become
//!   ready, for a scheduling gate to be lifted or for the end of a resize: these have the time of
//!   the observer alone.
//! - Containers that become ready unseen, between two states that were seen, all have the time of
//!   the last of them.
//! - Ephemeral containers are no part of a pod's start and are left out.
//! - How often something failed is the sum over events that the kubelet itself groups and
//!   throttles.

mod blocker;
mod cause;
mod critical_path;
mod facts;
mod image;
mod kubelet_message;
mod label_keys;
mod lifecycle;
mod moment;
mod preparation;
mod reconstruct;
mod record;
mod shard;
pub mod stats;
mod timeline;
mod tracker;
mod workload;

pub use blocker::{Blocker, BlockerKind};
pub use cause::HumanDuration;
pub use critical_path::{Phase, Segment};
pub use facts::{ContainerFacts, Facts, Failures, Pull, PullTarget, Pulled};
pub use image::ImageName;
pub use kubelet_message::Probe;
pub use kubevitals_model::{POOL_LABELS, node_pool};
pub use label_keys::{LabelKeys, LabelKeysError};
pub use moment::Moment;
pub use preparation::{Outage, Preparation, Provisioning, Volumes};
pub use record::{
    ContainerRecord, ContainerRole, Disruption, End, Exit, ExitKind, Milestones, PodRecord, Resize,
    RestartLog, RestartsBeforeReady, Unschedulable,
};
pub use shard::{Shard, ShardError};
pub use timeline::Timeline;
pub use tracker::{
    Arrival, Checkpoint, CheckpointError, Counts, Existing, Output, Tracker, TrackerConfig,
};
pub use workload::{Workload, owner};
