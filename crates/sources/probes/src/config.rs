//! The configuration of probes.

pub(crate) mod reader;
pub(crate) mod tree;
