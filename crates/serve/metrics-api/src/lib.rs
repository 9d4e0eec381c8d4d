//! The resource metrics API, `metrics.k8s.io`: usage is rendered once when it is published, then
//! selected and streamed.
//!
//! [`MetricsApi`] takes what a store publishes (it is a [`Publish`](kubevitals_usage::Publish)) and
//! gives a group of resources to the kit for API servers. In between is one value that never
//! changes (`catalog`): a reader takes the current one, which is one step without a lock, and can
//! read from it for as long as it likes.
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

pub use api::MetricsApi;
pub use config::{Absence, Config, Explain, Limits};
