//! A loop per kubelet: when to ask, where, whom to trust, and what to make of the answer.

mod address;
mod config;
mod credentials;
mod error;
mod failure;
mod receive;

pub use address::AddressType;
pub use config::{RESOURCE_METRICS_PATH, ScrapeConfig, Transport, WallClock};
pub use credentials::{Bearer, Credentials, TokenFile};
pub use error::ScrapeError;
pub use failure::Failure;
pub use receive::{Answer, Receive};
