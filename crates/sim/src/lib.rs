//! A simulated Kubernetes cluster that speaks real protocols on real sockets.
//!
//! * [`api`]: the API server. Start one with [`api::SimApi::start`].
//! * [`objects`]: what simulated controllers and kubelets write, and where.

pub mod api;
pub mod objects;

mod aggregator;
mod auth;
mod error;
mod store;
