//! A loop per kubelet: when to ask, where, whom to trust, and what to make of the answer.

mod address;
mod backoff;
mod cadence;
mod config;
mod connection;
mod credentials;
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
