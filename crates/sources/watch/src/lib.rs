//! Reflectors of Kubernetes objects: one list and watch for many subscribers in a process.
//!
//! ```text
//!  API server ──bytes──► split ──► decode ──► Broadcaster: cache ──┬─► Subscription: Resync, Change, Change, …
//!      ▲                            │                              ├─► Subscription
//!      └── Engine: list, watch,     └─ Interner                    └─► Reflector: get, objects, state
//!          resume, back off
//! ```
//!
//! **Decoding.** Each [`Kind`] names the fields it keeps; everything else, `managedFields` above
//! all, is skipped by the tokenizer without being built. Strings and label sets that repeat are
//! shared and freed with the last object that uses them ([`Interner`]). The type decides how much
//! is kept: [`PodSummary`] has where a pod runs, [`Pod`] its lifecycle, [`PartialObjectMeta`] the
//! metadata of any kind. Code that is generic over [`PodKind`] takes either kind of pod, so that
//! two roles in one process can share the reflector of whole pods.
//!
//! [`Interner`]: kubevitals_model::Interner
//! [`PodSummary`]: kubevitals_model::PodSummary
//! [`Pod`]: kubevitals_model::Pod
//! [`PartialObjectMeta`]: kubevitals_model::PartialObjectMeta
//!
//! **Cache.** [`WatchClient::reflector`] starts a [`Reflector`]. It lists (streaming where the
//! server supports it, in pages otherwise), watches, and resumes from the last version. The cache
//! never shows half a list. After a gap the list is compared with the cache: missing objects are
//! reported as deleted with their last state, unchanged ones are not reported.
//!
//! **Subscribers.** Each receives all objects once, then every change ([`Update`]). A slow one
//! loses its queue and receives all objects again; neither the reflector nor the others wait for
//! it. [`Mirror`] turns such a resync into changes.
//!
//! **Event watchers.** Objects that are too many to keep, such as events, are passed on and not
//! cached ([`WatchClient::event_watcher`]). There is one reader, and an [`EventWatcher`] stops
//! reading the connection while its queue is full.
//!
//! **Connections.** [`api_client()`] speaks HTTP/2 and notices a dead connection within 45 s, as
//! client-go does. An outage of the API server is logged once, with those of other clients
//! ([`WatchClient::measured`]).
//!
//! **Freshness.** [`Reflector::state`] is the state of a watch, [`WatchMetrics`] exposes it,
//! [`Reflector::health_check`] makes a readiness check of it.
//!
//! ```no_run
//! use kubevitals_model::PodSummary;
//! use kubevitals_watch::{KubeTransport, Update, WatchClient, WatchSpec};
//!
//! # async fn example(config: kube::Config) -> Result<(), kubevitals_watch::WatchError> {
//! let client = WatchClient::new(KubeTransport::new(config)?);
//! let pods = client.reflector(WatchSpec::<PodSummary>::new("pods"));
//! let mut updates = pods.subscribe();
//! while let Some(update) = updates.next().await {
//!     match update {
//!         Update::Resync(all) => println!("{} pods", all.objects.len()),
//!         Update::Change(change) => println!("{:?}", change.event),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//!
//! - A state of an object that cannot be decoded is skipped and counted; the cache keeps the state
//!   before it until the next that can be decoded. A deletion is seen even then, if the names can
//!   be decoded.
//! - [`PodSummary`] is read as protobuf from servers that write it (ADR 0037), other kinds as JSON.
//! - Through a proxy, and with an exec plugin, connections are those of `kube`: HTTP/1.1 without
//!   pings, so that a dead one is noticed by [`WatchOptions::watch_idle_timeout`] only.
//! - Times are kept to the millisecond.

mod api_client;
mod broadcaster;
mod client;
mod decode;
mod engine;
mod error;
mod event_watcher;
mod frames;
mod json;
mod kind;
mod kinds;
mod lines;
mod metrics;
mod protobuf;
mod reflector;
mod sink;
mod spec;
mod state;
mod transport;
mod wire;

pub use api_client::{ConnectionTimeouts, api_client, api_client_with};
pub use broadcaster::mirror::Mirror;
pub use broadcaster::subscription::Subscription;
pub use broadcaster::{Change, ObjectEvent, Origin, Resync, ResyncCause, Update};
pub use client::WatchClient;
pub use decode::{
    Bookmark, EventType, Page, Status, WatchEvent, decode_event, decode_object, decode_page,
};
pub use error::{DecodeError, TransportError, WatchError};
pub use event_watcher::{EventWatcher, WatchedObject};
pub use kind::{Decoder, Form, Kind, PodKind, ReadProtobuf, Resource, TypedKind};
pub use metrics::WatchMetrics;
pub use protobuf::{decode_protobuf_event, decode_protobuf_page};
pub use reflector::Reflector;
pub use spec::{NamespaceSource, WatchOptions, WatchSpec};
pub use state::{RestartReason, WatchState};
pub use transport::{BoxBody, KubeTransport, ResponseFuture, Transport};
