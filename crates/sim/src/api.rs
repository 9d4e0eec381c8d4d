//! The simulated API server: the responses of kube-apiserver for the resources of a small cluster,
//! over TLS on a real socket.
//!
//! `kubectl`, client-go and kube-rs work against it unmodified. Everything is kept in memory and
//! nothing outlives [`SimApiHandle::shutdown`].
//!
//! # Limits
//!
//! * Responses are JSON only; requests may also be YAML, and protobuf for a few small kinds.
//! * Objects are neither defaulted nor validated beyond their names.
//! * `deletecollection`, `dryRun`, exec, attach and port-forward are rejected, and so are strategic
//!   merge patches that are more than merge patches.
//! * Deleting an object does not delete its dependents: there is no garbage collector.

pub(crate) mod apply;
pub(crate) mod body;
pub(crate) mod bootstrap;
pub(crate) mod context;
pub(crate) mod discovery;
mod faults;
mod handle;
pub(crate) mod list;
pub(crate) mod negotiate;
pub(crate) mod patch;
pub(crate) mod payload;
pub(crate) mod prepare;
pub(crate) mod protobuf;
pub(crate) mod request;
pub(crate) mod resources;
pub(crate) mod reviews;
pub(crate) mod router;
mod server;
pub(crate) mod status;
pub(crate) mod table;
pub(crate) mod watch;
pub(crate) mod write;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use kubevitals_model::Clock;

pub use self::faults::{Effect, RequestFault};
pub use self::handle::{SimApi, SimApiHandle};
pub use crate::aggregator::ADDRESS_ANNOTATION;
pub use crate::auth::{IssuedCertificate, Rule, User};
pub use crate::error::SimError;
pub use crate::store::HistoryLimits;

/// Configuration of a simulated API server.
#[derive(Clone)]
pub struct SimApiConfig {
    /// Address to listen on; port 0 picks a free port.
    pub address: SocketAddr,
    /// Further names and addresses in the serving certificate, beside the usual ones.
    pub names: Vec<String>,
    /// Clock of the cluster.
    pub clock: Clock,
    /// Limits of the watch history.
    pub history: HistoryLimits,
    /// Interval of bookmarks, for watches that request them.
    pub bookmark_interval: Duration,
    /// Interval at which the servers behind `APIService`s are probed.
    pub probe_interval: Duration,
    /// Permissions of users who are not in `system:masters`.
    pub rules: Vec<Rule>,
    /// Bearer tokens and their users.
    pub tokens: Vec<(String, User)>,
    /// Whether a deleted pod stays with a `deletionTimestamp` until a (simulated) kubelet removes
    /// it. Otherwise it is removed at once.
    pub graceful_pod_deletion: bool,
    /// The same seed gives the same uids and generated names.
    pub seed: u64,
}

/// Effect of a restart on the watch history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// Watches resume from their resource version.
    Keep,
    /// Watches from earlier versions get 410, and clients must relist.
    Lose,
}

impl Default for SimApiConfig {
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            names: Vec::new(),
            clock: Clock::system(),
            history: HistoryLimits::default(),
            bookmark_interval: Duration::from_mins(1),
            probe_interval: Duration::from_secs(5),
            rules: Vec::new(),
            tokens: Vec::new(),
            graceful_pod_deletion: false,
            seed: 1,
        }
    }
}

impl std::fmt::Debug for SimApiConfig {
    /// Omits the tokens.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimApiConfig")
            .field("address", &self.address)
            .field("history", &self.history)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}
