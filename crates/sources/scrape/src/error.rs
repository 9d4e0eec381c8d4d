//! Settings that cannot work.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// Why scraping cannot begin.
#[derive(Debug, Error)]
pub enum ScrapeError {
    /// Kubelets take a sample every ten seconds at most; asking much more often only costs them
    /// CPU.
    #[error("resolution {given:?} is too short: it must be at least {least:?}")]
    ResolutionTooShort {
        /// What was given.
        given: Duration,
        /// The shortest that works.
        least: Duration,
    },
    /// A request that may take longer than the resolution would make scrapes overtake each other.
    #[error(
        "request timeout {timeout:?} must be above zero and at most nine tenths of the resolution {resolution:?}"
    )]
    TimeoutTooLong {
        /// The timeout.
        timeout: Duration,
        /// The resolution.
        resolution: Duration,
    },
    /// No address of any node could be chosen.
    #[error("no address type is given: name at least one, such as InternalIP")]
    NoAddressTypes,
    /// A limit of nothing would refuse everything.
    #[error("{what} must be above zero")]
    ZeroLimit {
        /// Which limit.
        what: &'static str,
    },
    /// There is no such type of address.
    #[error(
        "unknown address type {given:?}: use Hostname, InternalDNS, InternalIP, ExternalDNS or ExternalIP"
    )]
    UnknownAddressType {
        /// What was given.
        given: String,
    },
    /// The token file could not be read at start.
    #[error("cannot read the bearer token from {}", path.display())]
    TokenFile {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A token that would break the request it is sent in.
    #[error(
        "the bearer token from {origin} is empty or holds characters that a header cannot carry"
    )]
    TokenInvalid {
        /// Where it came from.
        origin: String,
    },
}
