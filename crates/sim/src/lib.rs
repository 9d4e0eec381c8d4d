//! A simulated Kubernetes cluster that speaks real protocols on real sockets.
//!
//! * [`cluster`]: all parts together. Start one with [`cluster::SimCluster::start`].
//! * [`api`]: the API server alone. Start one with [`api::SimApi::start`].
//! * [`kubelet`]: thousands of kubelets with closed-form usage.
//! * [`workload`]: pods with realistic lifecycles, as a discrete-event simulation.
//! * [`objects`]: the interface between the parts: resources, and the trait that controllers and
//!   kubelets write objects with.
//! * [`node_set`]: the nodes and their pods, shared by workload and kubelets.
//! * [`faults`]: faults of nodes, changed at run time.
//! * [`google`]: Cloud Monitoring and the servers of tokens.
//! * [`otlp`]: a receiver of OTLP traces and metrics.
//! * [`selectors`]: matching of label and field selectors.
//! * [`seed`]: the source of randomness.

pub mod api;
pub mod cluster;
pub mod faults;
pub mod google;
pub mod kubelet;
pub mod node_set;
pub mod objects;
pub mod otlp;
pub mod seed;
pub mod selectors;
pub mod workload;

mod aggregator;
mod auth;
mod clock;
mod error;
mod json;
mod store;
