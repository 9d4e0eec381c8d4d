//! The simulated API server.
pub(crate) mod catalog;
