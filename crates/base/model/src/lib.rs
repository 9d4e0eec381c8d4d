//! The domain types that all other crates share: keys, samples, usage, Kubernetes objects and their
//! text forms.
//!
//! Nothing here does input or output or knows of a runtime; the one clock is [`Clock`]. Each type
//! holds only valid values, so that code downstream need not check them again.
//!
//! | what | types |
//! |---|---|
//! | keys | [`NodeName`], [`PodKey`], [`ContainerKey`] and their borrowed forms |
//! | time | [`Clock`], [`Moment`] for a reading of it, [`Timestamp`] for an instant, [`GoDuration`] for a duration as Go writes it |
//! | samples, as read | [`CpuSample`], [`BytesSample`], [`ContainerSample`], [`NodeSample`]; [`NodeBatch`] for one response of a kubelet |
//! | statistics of a node, as a kubelet has them | [`node_stats`] |
//! | usage, as served | [`Usage`], [`CpuRate`]; [`NoRate`] is the reason why there is none |
//! | objects | [`PodSummary`], [`Pod`], [`Node`], [`Event`], workloads; [`Identity`], [`Uid`]; [`Interner`] |
//! | topology | [`node_pool`], [`zone`] |
//! | selectors | [`LabelSelector`], [`parse_field_selector`]; [`Labels`] |
//! | proxies | [`ProxyRules`]: `HTTPS_PROXY` and `NO_PROXY` as Go reads them |
//! | retries | [`Backoff`], [`Rng`], [`fnv1a`] |
//! | amounts | [`CoreNanos`], [`CpuUsage`], [`Bytes`]; [`Quantity`] for any Kubernetes quantity |

mod amount;
mod backoff;
mod batch;
mod clock;
mod duration;
mod error;
mod interner;
mod key;
mod labels;
pub mod node_stats;
mod objects;
mod proxy;
mod quantity;
mod random;
mod sample;
mod selector;
mod text;
mod timestamp;
mod topology;
mod usage;

pub use crate::amount::{Bytes, CoreNanos, CpuUsage};
pub use crate::backoff::{Backoff, BackoffPolicy, Jitter};
pub use crate::batch::NodeBatch;
pub use crate::clock::{Clock, Moment, SteppedClock};
pub use crate::duration::GoDuration;
pub use crate::error::ModelError;
pub use crate::interner::{Interner, StringPool};
pub use crate::key::{
    AsContainerKey, AsPodKey, ContainerKey, ContainerKeyRef, NodeName, PodKey, PodKeyRef,
};
pub use crate::labels::{LabelPair, Labels};
pub use crate::objects::condition::{Condition, ConditionStatus};
pub use crate::objects::container::{ContainerSpec, ContainerState, ContainerStatus, Termination};
pub use crate::objects::event::{Event, EventSeries, ObjectReference};
pub use crate::objects::identity::{Identity, ResourceVersion, Uid};
pub use crate::objects::meta::{ObjectMeta, OwnerReference, PartialObjectMeta};
pub use crate::objects::node::{Node, NodeAddress, Taint};
pub use crate::objects::pod::{AsPodSummary, Pod, PodPhase, PodSummary, RestartPolicy};
pub use crate::objects::workload::{
    DaemonSet, Deployment, ReplicaSet, SelectorRequirement, Workload, WorkloadSelector,
};
pub use crate::proxy::ProxyRules;
pub use crate::quantity::{Format, Quantity, Scale};
pub use crate::random::{Rng, fnv1a};
pub use crate::sample::{BytesSample, ContainerSample, CpuSample, NodeSample};
pub use crate::selector::fields::{FieldSelectorError, FieldTerm, parse_field_selector};
pub use crate::selector::labels::{
    LabelOperator, LabelRequirement, LabelSelector, LabelSelectorError,
};
pub use crate::timestamp::{Rfc3339, Timestamp};
pub use crate::topology::{POOL_LABELS, node_pool, zone};
pub use crate::usage::{CpuRate, FirstWindow, NoRate, Usage, container_rate, rate_between};
