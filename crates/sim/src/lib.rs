//! A simulated Kubernetes cluster that speaks real protocols on real sockets.
//!
//! * [`cluster`]: all of it together. Start one with [`cluster::SimCluster::start`].
//! * [`api`]: the API server alone. Start one with [`api::SimApi::start`].
//! * [`kubelet`]: thousands of kubelets with closed-form usage.
//! * [`workload`]: pods that live realistic lives, as a discrete-event simulation.
//! * [`objects`]: what the parts agree on: resources, and where controllers and kubelets write.
//! * [`roster`]: the nodes and their pods, which workload and kubelets share.
//! * [`faults`]: what is wrong with which node, switched at run time.
//! * [`selectors`]: what label and field selectors select.
//! * [`clock`] and [`seed`]: the time and the chance that everything follows.

pub mod api;
pub mod clock;
pub mod cluster;
pub mod faults;
pub mod kubelet;
pub mod objects;
pub mod roster;
pub mod seed;
pub mod selectors;
pub mod workload;

mod aggregator;
mod auth;
mod error;
mod json;
mod store;
