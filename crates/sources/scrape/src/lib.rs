//! A loop per kubelet: when to ask, where, whom to trust, and what to make of the answer.
//!
//! ```text
//!  Stream<Node> ──► Scraper: a NodeLoop each ──► Receive: received, failed, left
//!                     │ due?        Cadence (follows the kubelet's own samples), Backoff
//!                     │ where?      Target, Addresses (the one that worked first)
//!                     │ who?        ClientTls for the names of the node, Credentials
//!                     │ what?       Connection, http1 ──► decode, decode_summary ──► NodeBatch
//!                     └ how is it?  ScrapeMetrics, metric-collection-timely, one line per change of state
//! ```
//!
//! **One loop per node.** A node that is slow, dead or hostile delays nobody: what is shared is a
//! bound on requests at once and some buffers, and a buffer is taken only once an answer has begun.
//! A result is handed over as it arrives.
//!
//! **Nothing a node says is trusted.** Heads, bodies, containers, names and texts are bounded; what
//! cannot be used costs only itself and is counted by reason. The bearer token goes to peers whose
//! certificate was verified against the names of the node, and to others only if the user said so.
//!
//! **Memory.** An idle connection holds its keys and no buffer, neither of ours nor of TLS; buffers
//! exist for answers that are being read.
//!
//! **Processor time.** Scrapes begin on a common beat, and an answer is one read or two, so that
//! few wakes and few calls of the system serve many nodes.
//!
//! # Limits
//!
//! - Times in `/stats/summary` are whole seconds: where it stands in for `/metrics/resource`, rates
//!   are off by up to a tenth.
//! - A summary that breaks off is of no use; of `/metrics/resource` all whole lines are used.
//! - Pinned keys live as long as the process, so that after a restart a kubelet is believed at
//!   first sight again.
//! - Proxies from the environment are not used for kubelets.
//! - How a kubelet's samples lie is learnt from the newest of its containers' samples: where each
//!   container is sampled at a time of its own, there is no best moment and the plan is as good as
//!   any.

mod address;
mod backoff;
mod cadence;
mod config;
mod connection;
mod credentials;
mod deadline;
mod decode;
mod error;
mod failure;
mod http1;
mod metrics;
mod node;
mod receive;
mod scraper;
mod session;
mod shared;
mod summary;
mod target;
mod workspaces;

pub use address::AddressType;
pub use cadence::{Cadence, SampleTimes};
pub use config::{RESOURCE_METRICS_PATH, ScrapeConfig, Transport, WallClock};
pub use credentials::{Bearer, Credentials, TokenFile};
pub use decode::{DecodeReport, Decoder, Reading, Rejection, decode};
pub use error::ScrapeError;
pub use failure::Failure;
pub use metrics::ScrapeMetrics;
pub use receive::{Answer, Receive};
pub use scraper::{NodeCounts, Scraper};
pub use summary::{Take, decode_summary};
