//! State that all connections of a simulated API server share.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use kubevitals_tls::ClientAuthority;
use parking_lot::{Mutex, RwLock};
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::faults::Faults;
use crate::aggregator::Aggregator;
use crate::auth::User;
use crate::auth::authorize::{AccessAttributes, Authorizer};
use crate::auth::tokens::Tokens;
use crate::objects::PodLogs;
use crate::store::Store;

/// The store, authentication, authorization, faults and tasks of a server.
pub(crate) struct ApiContext {
    pub(crate) store: Arc<Store>,
    pub(crate) authorizer: RwLock<Authorizer>,
    pub(crate) tokens: Tokens,
    /// Verifies client certificates of users.
    pub(crate) users: ClientAuthority,
    pub(crate) faults: Faults,
    pub(crate) aggregator: Aggregator,
    pub(crate) logs: RwLock<Option<Arc<dyn PodLogs>>>,
    pub(crate) bookmark_interval: Duration,
    pub(crate) graceful_pod_deletion: bool,
    /// Notifies watches to send a bookmark.
    pub(crate) bookmark_now: watch::Sender<u64>,
    /// Notifies watches to end.
    pub(crate) drop_watches: watch::Sender<u64>,
    pub(crate) address: SocketAddr,
    tasks: Mutex<JoinSet<()>>,
}

/// Arguments of [`ApiContext::new`].
pub(crate) struct ContextParts {
    pub(crate) store: Arc<Store>,
    pub(crate) authorizer: Authorizer,
    pub(crate) users: ClientAuthority,
    pub(crate) aggregator: Aggregator,
    pub(crate) bookmark_interval: Duration,
    pub(crate) graceful_pod_deletion: bool,
    pub(crate) address: SocketAddr,
}

/// The client certificate of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Peer {
    /// No certificate was presented.
    Unknown,
    User(User),
    /// A certificate was presented that this cluster did not sign.
    Untrusted,
}

impl ApiContext {
    pub(crate) fn new(parts: ContextParts) -> Self {
        Self {
            store: parts.store,
            authorizer: RwLock::new(parts.authorizer),
            tokens: Tokens::default(),
            users: parts.users,
            faults: Faults::default(),
            aggregator: parts.aggregator,
            logs: RwLock::default(),
            bookmark_interval: parts.bookmark_interval,
            graceful_pod_deletion: parts.graceful_pod_deletion,
            bookmark_now: watch::Sender::new(0),
            drop_watches: watch::Sender::new(0),
            address: parts.address,
            tasks: Mutex::default(),
        }
    }

    /// Spawns a task that ends with the server at the latest.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        // Reap tasks that have ended, so that they do not pile up.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Aborts all tasks and waits until they have ended.
    pub(crate) async fn end_tasks(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.shutdown().await;
    }

    pub(crate) fn allows(&self, user: &User, attributes: &AccessAttributes<'_>) -> bool {
        self.authorizer.read().allows(user, attributes)
    }

    /// Verifies the certificate of a connection.
    pub(crate) fn identify(&self, chain: Option<&[CertificateDer<'static>]>) -> Peer {
        let Some(chain) = chain.filter(|chain| !chain.is_empty()) else {
            return Peer::Unknown;
        };
        let now = self
            .store
            .now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        if self
            .users
            .verify(chain, UnixTime::since_unix_epoch(now))
            .is_err()
        {
            return Peer::Untrusted;
        }
        match chain.first().and_then(User::of_certificate) {
            Some(user) => Peer::User(user.authenticated()),
            None => Peer::Untrusted,
        }
    }
}
