//! Nodes, workloads and addons, and what they say about the health of a cluster.
//!
//! ```text
//! Node ──────────────► NodeStatus: ready, schedulable, warmed up; conditions
//! DaemonSet, Deployment ─► AddonRules ─► pods that an addon should have
//! Pod ───────────────────► AddonRules ─► pods that an addon has on a node, each judged
//!                          Restarts   ─► restarts of their containers, as counters
//! ```
//!
//! Everything is a function of objects of the API and the time. What needs the past keeps it in a
//! type of its own: [`Restarts`], [`ReadyTransitions`], [`SilentNodes`].

mod addon;
mod catalogue;
mod cluster;
mod node;
mod node_addons;
mod ready_transitions;
mod restarts;
mod silent_nodes;

pub use addon::{Addon, AddonRules, ApplyTo, SelectorRule};
pub use catalogue::{AddonKind, CATALOGUE, KnownAddon};
pub use cluster::{
    AddonCount, NodeAvailabilityCount, NodeConditionCount, addons_expected, node_availabilities,
    node_conditions,
};
pub use node::{NodeCondition, NodeStatus, UNKNOWN, WARM_UP};
pub use node_addons::{AddonPods, Healthy, NodeAddons};
pub use ready_transitions::{NotReadyCount, ReadyTransitions};
pub use restarts::{RestartCount, Restarts};
pub use silent_nodes::{Silence, SilentNode, SilentNodes};

#[cfg(test)]
mod fixture;
