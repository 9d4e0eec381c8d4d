//! Decodes each kind of object into its type in `kubevitals-model`.

pub(crate) mod condition;
pub(crate) mod container;
pub(crate) mod event;
pub(crate) mod meta;
pub(crate) mod node;
pub(crate) mod pod;
pub(crate) mod workload;
