//! The words that every other crate speaks: who is measured, what was sampled, how much was used,
//! and the texts in which Kubernetes writes it.
//!
//! Nothing here does input or output, knows of a runtime or reads a clock. Each type holds only
//! values that make sense, so that code downstream has nothing to check again.
//!
//! | what | types |
//! |---|---|
//! | who | [`NodeName`], [`PodKey`], [`ContainerKey`] and their borrowed forms |
//! | when | [`Timestamp`] for an instant, [`GoDuration`] for a duration as Go writes it |
//! | samples, as read | [`CpuSample`], [`BytesSample`], [`ContainerSample`], [`NodeSample`]; [`NodeBatch`] for all that a kubelet said at once |
//! | usage, as served | [`Usage`], [`CpuRate`]; [`NoRate`] says why there is none |
//! | which | [`LabelSelector`], [`parse_field_selector`]; [`Labels`] is what the former selects by |
//! | amounts | [`CoreNanos`], [`CpuUsage`], [`Bytes`]; [`Quantity`] for whatever Kubernetes can write |

mod amount;
mod batch;
mod duration;
mod error;
mod key;
mod labels;
mod quantity;
mod sample;
mod selector;
mod text;
mod timestamp;
mod usage;

pub use crate::amount::{Bytes, CoreNanos, CpuUsage};
pub use crate::batch::NodeBatch;
pub use crate::duration::GoDuration;
pub use crate::error::ModelError;
pub use crate::key::{
    AsContainerKey, AsPodKey, ContainerKey, ContainerKeyRef, NodeName, PodKey, PodKeyRef,
};
pub use crate::labels::{LabelPair, Labels};
pub use crate::quantity::{Format, Quantity, Scale};
pub use crate::sample::{BytesSample, ContainerSample, CpuSample, NodeSample};
pub use crate::selector::fields::{FieldSelectorError, FieldTerm, parse_field_selector};
pub use crate::selector::labels::{
    LabelOperator, LabelRequirement, LabelSelector, LabelSelectorError,
};
pub use crate::timestamp::{Rfc3339, Timestamp};
pub use crate::usage::{CpuRate, FirstWindow, NoRate, Usage, container_rate, rate_between};
