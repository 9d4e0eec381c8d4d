//! The simulated API server: kube-apiserver's answers for the resources of a small cluster, over
//! TLS on a real socket.
//!
//! `kubectl`, client-go and kube-rs work against it unmodified. Everything is kept in memory and
//! nothing outlives [`SimApiHandle::shutdown`].
//!
//! # Limits
//!
//! * JSON is the only form of answers; requests may also be YAML, and protobuf for a few small
//!   kinds.
//! * Objects are neither defaulted nor validated beyond their names.
//! * `deletecollection`, `dryRun`, exec, attach and port-forward are refused, and so are strategic
//!   merge patches that are more than merge patches.
//! * Deleting an object deletes nothing that it owns: there is no garbage collector.

pub(crate) mod apply;
pub(crate) mod body;
pub(crate) mod bootstrap;
pub(crate) mod catalog;
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
pub(crate) mod reviews;
pub(crate) mod router;
mod server;
pub(crate) mod shared;
pub(crate) mod status;
pub(crate) mod table;
pub(crate) mod watch;
pub(crate) mod write;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use self::faults::{Effect, Extent, FaultId, RequestFault};
pub use self::handle::{SimApi, SimApiHandle};
pub use crate::aggregator::ADDRESS_ANNOTATION;
pub use crate::auth::{IssuedCertificate, Rule, User};
pub use crate::error::SimError;
pub use crate::store::{HistoryLimits, WallClock};

/// How a simulated API server shall be.
#[derive(Clone)]
pub struct SimApiConfig {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// Names and addresses that the serving certificate shall be for, beside the usual ones.
    pub names: Vec<String>,
    /// What the cluster takes for the time.
    pub clock: WallClock,
    /// How much of the past watches can start from.
    pub history: HistoryLimits,
    /// How often watches that want bookmarks get one.
    pub bookmark_interval: Duration,
    /// How often the servers behind `APIService`s are probed.
    pub probe_interval: Duration,
    /// What users who are not in `system:masters` may do.
    pub rules: Vec<Rule>,
    /// Bearer tokens and whose they are.
    pub tokens: Vec<(String, User)>,
    /// Whether a pod that is deleted stays with a `deletionTimestamp` until somebody (a simulated
    /// kubelet) removes it. Otherwise it goes at once.
    pub graceful_pod_deletion: bool,
    /// The same seed gives the same uids and generated names.
    pub seed: u64,
}

/// What becomes of the watch history over a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// Watches go on from where they were.
    Keep,
    /// Watches from before are answered with 410, and clients must list again.
    Lose,
}

impl Default for SimApiConfig {
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            names: Vec::new(),
            clock: Arc::new(SystemTime::now),
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
    /// Without tokens.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimApiConfig")
            .field("address", &self.address)
            .field("history", &self.history)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}
