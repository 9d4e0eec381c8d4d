//! The slim types: what is kept of each kind of object.

pub(crate) mod condition;
pub(crate) mod container;
pub(crate) mod event;
pub(crate) mod meta;
pub(crate) mod node;
pub(crate) mod pod;
pub(crate) mod workload;
