//! A virtual node: a Node object and its lease, pods from the API server to a [`PodRuntime`], and
//! status and events back.

pub mod runtime;

pub use runtime::{PodRuntime, RuntimeError};
