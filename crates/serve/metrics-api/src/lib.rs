//! The resource metrics API, `metrics.k8s.io`: usage is rendered once when it is published, then
//! selected and streamed.
//!
//! [`MetricsApi::pair`] returns the two ends: a publisher for the usage store, and the API, which gives
//! a group of resources to the API server. Between them is one immutable value (`catalog`): a reader
//! takes the current one without a lock and reads from it for as long as it likes.
//!
//! | what | where |
//! |---|---|
//! | a publication becomes the next catalog | `publish` |
//! | a request becomes a walk over objects | `select` |
//! | objects become bytes: protobuf is kept, all else is made from it | `render` |
//! | lists in pieces, watches without queues | `list`, `watch` |
//!
//! Limits, besides those that [`Limits`] sets: a `DELETED` event carries the metadata of the
//! object, but not its last usage; items of lists have no resource version of their own (the list
//! has), objects of events do; a pod that two nodes claim is served from the node that claimed it
//! last; `limit` and `continue` are not looked at, lists are always whole.

mod api;
mod catalog;
mod config;
mod list;
mod metrics;
mod publish;
mod render;
mod resource;
mod select;
mod watch;

pub use api::{MetricsApi, MetricsApiPublisher};
pub use config::{Config, Limits};
