//! The resource metrics API, `metrics.k8s.io`: usage is encoded once when it is published, then
//! selected and streamed.
//!
//! [`MetricsApi::pair`] returns the two ends: a publisher for the usage store, and the API, which
//! gives a group of resources to the API server. Between them is the current snapshot, an immutable
//! value: a request loads it without a lock and reads from it for as long as it needs.
//!
//! | step | module |
//! |---|---|
//! | derive the next snapshot from a publication | `publish` |
//! | the snapshot and its indexes | `snapshot` |
//! | select the objects of a request | `select` |
//! | encode objects: protobuf is kept, JSON and tables are derived from it | `render` |
//! | lists in chunks, watches without queues | `list`, `watch` |
//! | limit what unfinished responses hold | `readers` |
//!
//! Limits, besides those in [`Limits`]: a `DELETED` event carries the metadata of the object, but
//! not its last usage; list items have no resource version of their own (the list has one), objects
//! in events do; a pod that two nodes claim is served from the node that claimed it last; `limit`
//! and `continue` are ignored, lists are always complete.

mod api;
mod config;
mod list;
mod metrics;
mod publish;
mod readers;
mod render;
mod resource;
mod select;
mod snapshot;
mod versions;
mod watch;

pub use api::{MetricsApi, MetricsApiPublisher};
pub use config::{Config, Limits};
