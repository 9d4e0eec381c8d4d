//! Scrapes the resource metrics of kubelets, with a loop for each node.
//!
//! ```text
//!  nodes ──► Scraper ──► NodeLoop ──► Session ──► Exchange ──► decode ──► ScrapeSink
//!                        Schedule     addresses,  one GET      NodeBatch  on_batch, on_error
//!                        Backoff      TLS, tokens
//! ```
//!
//! A scrape passes `node.rs` (when), `session.rs` (where, with which credentials), `exchange.rs`
//! (request and response), `decode.rs` (samples) and `sink.rs` (the interface to the store).
//! `fallback.rs` decides between `/metrics/resource` and `/stats/summary`.
//!
//! **One loop per node.** A slow, dead or malicious node delays no other: nodes share a limit of
//! in-flight requests and some buffers, and buffers are acquired only once a response begins. Nodes
//! that failed last hold at most half of either. Results are passed on as they arrive.
//!
//! **Input is untrusted.** Heads, bodies, containers, names and texts are bounded; invalid values
//! are ignored one by one and counted by reason. The bearer token is sent to peers whose
//! certificate was verified against the names of the node, and to others only if the user
//! configured that.
//!
//! **Memory.** An idle connection holds its keys and no buffer, neither ours nor one of TLS;
//! buffers exist for responses that are being read. All responses share a memory limit.
//!
//! **CPU.** Scrapes start at multiples of a tenth of a second, and a response is one read or two,
//! so that few wake-ups and system calls serve many nodes.
//!
//! # Limits
//!
//! - Timestamps in `/stats/summary` are whole seconds: where it replaces `/metrics/resource`, rates
//!   are off by up to a tenth.
//! - A truncated summary is useless; of `/metrics/resource` all complete lines are used.
//! - Pinned keys are kept in memory, so that after a restart a kubelet is trusted on first use
//!   again.
//! - Proxies from the environment are not used for kubelets.

mod address;
mod buffers;
mod config;
mod connection;
mod credentials;
mod deadline;
mod decode;
mod error;
mod exchange;
mod fallback;
mod filter;
mod http1;
mod inflate;
mod inner;
mod memory;
mod metrics;
mod node;
mod permits;
mod proxy;
mod renewed_token;
mod schedule;
mod scraper;
mod session;
mod sink;
mod slots;
mod summary;
mod target;

pub use address::AddressType;
pub use config::{
    ANNOTATIONS, ConfigError, PORT, RESOLUTION, RESOURCE_METRICS_PATH, SCHEME, SCRAPE,
    ScrapeConfig, Transport,
};
pub use credentials::{Bearer, Credentials, TokenFile};
pub use error::ScrapeError;
pub use filter::NodeFilter;
pub use metrics::{ScrapeMetrics, TokenMetrics};
pub use proxy::KubeletProxy;
pub use renewed_token::{
    IssueError, IssueFailure, IssueFuture, IssuedToken, RenewedToken, TokenIssuer,
};
pub use scraper::{NodeCounts, Scraper};
pub use sink::{BatchInfo, Coverage, ScrapeSink, ScrapedNode};
pub use target::InvalidAnnotation;

/// Decoders for benchmarks and fuzzing. Not part of the API.
#[doc(hidden)]
pub mod internals {
    pub use crate::decode::{DecodeOptions, DecodeReport, Decoder, Rejection, decode};
    pub use crate::inflate::{InflateError, inflate, inflated_length};
    pub use crate::summary::{SummaryFields, decode_summary};
}
