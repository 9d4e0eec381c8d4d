//! A simulated Kubernetes cluster that speaks real protocols on real sockets.

pub mod api;
pub mod objects;
pub mod store;
