//! The fields of Kubernetes objects that this program uses. A source reads them, stores keep them.
//!
//! Strings and label sets that repeat are shared ([`Interner`](crate::Interner)). As in Go, an
//! absent field, `null` and the zero value mean the same; where an empty string means "not set", it
//! is `None` here.

pub(crate) mod condition;
pub(crate) mod container;
pub(crate) mod event;
pub(crate) mod identity;
pub(crate) mod meta;
pub(crate) mod node;
pub(crate) mod pod;
pub(crate) mod workload;
