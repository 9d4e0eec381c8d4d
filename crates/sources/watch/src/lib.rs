//! Slim list+watch of Kubernetes objects: one stream of a kind for many subscribers of one process.
//!
//! ```text
//!  API server ──bytes──► Lines ──► decode ──► Hub: the view ──┬─► Subscription: Resync, Change, Change, …
//!      ▲                            │                         ├─► Subscription
//!      └── Engine: list, watch,     └─ Interner               └─► Stream: get, objects, state
//!          resume, back off
//! ```
//!
//! **Decoding.** Each [`Kind`] names the fields it keeps; everything else, `managedFields` above
//! all, is skipped by the tokenizer without being built. Strings and label sets that repeat are
//! shared and freed with the last object that uses them ([`Interner`]). The type decides how much
//! is kept: [`PodSummary`] tells where a pod runs, [`Pod`] its lifecycle, [`PartialObjectMeta`] the
//! metadata of any kind. Code that is generic over [`PodKind`] takes either kind of pod, so that
//! two roles in one process can share the reflector of whole pods.
//!
//! [`Interner`]: kubevitals_model::Interner
//! [`PodSummary`]: kubevitals_model::PodSummary
//! [`Pod`]: kubevitals_model::Pod
//! [`PartialObjectMeta`]: kubevitals_model::PartialObjectMeta
//!
//! **The view.** [`Server::watch`] begins a [`Stream`]. It lists (streaming where the server can,
//! in pages where it cannot), watches, and resumes from where it was. The view changes in whole
//! steps only. After a gap the server's list is compared with the view: what is missing is told as
//! deleted with its last state, what did not change is not told.
//!
//! **Subscribers.** Each is given everything once, then every change ([`Update`]). A slow one loses
//! its queue and is given everything again; neither the stream nor the others wait for it.
//! [`Mirror`] makes changes of such a resync.
//!
//! **Tails.** What is too much to keep, as events are, is handed over once and forgotten
//! ([`Server::tail`]). There is one reader, and a [`Tail`] reads no further than it does.
//!
//! **Freshness.** [`Stream::state`] says how a stream is, [`WatchMetrics`] exposes it,
//! [`Stream::add_readyz`] makes a readiness check of it.
//!
//! ```no_run
//! use kubevitals_model::PodSummary;
//! use kubevitals_watch::{KubeTransport, Server, StreamSpec, Update};
//!
//! # async fn example(config: kube::Config) -> Result<(), kubevitals_watch::WatchError> {
//! let server = Server::new(KubeTransport::new(config)?);
//! let pods = server.watch(StreamSpec::<PodSummary>::new("pods"));
//! let mut updates = pods.subscribe();
//! while let Some(update) = updates.next().await {
//!     match update {
//!         Update::Resync(all) => println!("{} pods", all.objects.len()),
//!         Update::Change(change) => println!("{:?}", change.what),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//!
//! - A state of an object that cannot be read is skipped and counted; the view keeps the state
//!   before it until the next that can be read. A deletion is seen even then, as long as the names
//!   can be read.
//! - Streams speak JSON over HTTP/1.1, as `kube` does: each holds a connection of its own.
//! - Times are kept to the millisecond.

mod backoff;
mod decode;
mod engine;
mod error;
mod hub;
mod json;
mod kind;
mod kinds;
mod lines;
mod metrics;
mod server;
mod sink;
mod spec;
mod state;
mod stream;
mod tail;
mod transport;
mod wire;

pub use decode::{
    Bookmark, EventType, Page, Status, WatchEvent, decode_event, decode_object, decode_page,
};
pub use error::{DecodeError, TransportError, WatchError};
pub use hub::mirror::Mirror;
pub use hub::subscription::Subscription;
pub use hub::{Change, Resync, ResyncCause, Seen, Update, What};
pub use kind::{Decoder, Form, Kind, PodKind, Resource, TypedKind};
pub use metrics::WatchMetrics;
pub use server::Server;
pub use spec::{StreamOptions, StreamSpec};
pub use state::{Restart, StreamState};
pub use stream::Stream;
pub use tail::{Tail, Tailed};
pub use transport::{Answer, BoxBody, KubeTransport, Transport};
