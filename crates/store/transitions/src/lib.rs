//! How long every pod took, and why: states and events of pods in, lives out.
//!
//! ```text
//!  pods ───states──► Tracker: a Life for each UID ──┬─► Output::Startup  ready, or never will be, with the reason
//!  events ──facts──► (no locks, one owner)          ├─► Output::Life     gone
//!                                                   └─► Output::Progress every change, where asked for
//! ```
//!
//! **Once.** Each pod ends in exactly one [`Output::Startup`] and one [`Output::Life`], whatever
//! happens to it: complete, or with the [`Hindrance`] that was in the way while the pod was wanted.
//!
//! **In any order.** What states show is noted when first shown and stays; older states and
//! repeated ones change nothing. What events say is kept in forms for which order and repetition do
//! not matter, and from before the pod itself is seen. States and events may so be interleaved,
//! repeated and listed again without a trace in the records.
//!
//! **Two clocks.** A [`Moment`] has the API's time and that of the observer, and durations are
//! never made of one of each. None is negative: where hosts disagree on the time the duration is
//! unknown.
//!
//! **Bounds.** A life is as large as its pod has containers. How many are followed, wait for late
//! events, or are only known from events, is bounded by [`TrackerConfig`]; what is left out is
//! counted ([`Counts`]).
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

mod cause;
mod facts;
mod hindrance;
mod image;
mod life;
mod message;
mod moment;
mod path;
mod place;
mod reconstruct;
mod record;
mod shard;
mod tracker;
mod workload;

pub use cause::Spelled;
pub use facts::{ContainerFacts, Facts, Pull, Pulled, Trouble};
pub use hindrance::{Hindrance, HindranceKind};
pub use image::ImageName;
pub use message::Probe;
pub use moment::Moment;
pub use path::{Phase, Segment};
pub use place::{POOL_LABELS, node_pool};
pub use record::{
    ContainerRecord, ContainerRole, Disruption, End, Exit, ExitKind, Milestones, PodRecord, Resize,
    RestartLog, Unschedulable,
};
pub use shard::{Shard, ShardError};
pub use tracker::{
    Arrival, Checkpoint, CheckpointError, Counts, Existing, Output, Tracker, TrackerConfig,
};
pub use workload::{Workload, owner};
