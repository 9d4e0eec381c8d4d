//! Thousands of kubelets in one process, on real TLS sockets.
//!
//! A [`Fleet`] serves the endpoints that scrapers read from a kubelet, for each node of a
//! [`NodeSet`]: `/metrics/resource`, `/stats/summary`, `/pods` and `/healthz`, over HTTP/1.1 and
//! HTTP/2, with a separate serving certificate for each node. The address or port of a connection
//! selects the node ([`Binding`]).
//!
//! All values are closed forms of a pod's seed and the [`Clock`] ([`usage`]), so a test knows what
//! a correct reader must compute.
//!
//! # Limits
//!
//! * Of all bodies, `/metrics/resource` is compressed, as by a kubelet.
//! * `/metrics/resource` is text only; a real kubelet also offers protobuf.
//! * Serving certificates follow the system's clock, as their readers do.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use kubevitals_model::{Clock, Timestamp};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::faults::Faults;
use crate::node_set::{MAX_NODES, NodeSet, NodeView};
use crate::seed::Seed;

mod auth;
mod certificates;
mod error;
mod payload;
mod resource_metrics;
mod response;
mod serve;
mod socket;
pub(crate) mod summary;
pub mod usage;

pub use auth::{AllowAll, Credentials, Decision, KubeletAuth};
pub use certificates::Authority;
pub use error::FleetError;

use certificates::Certificates;
use serve::{FleetContext, ListenerTarget};

/// Time between the boot of the nodes and the start of the fleet.
const UPTIME_MILLIS: i64 = 3_600_000;

/// The way in which a connection selects a kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// By 127.x.y.z, with one listener on the wildcard address and this port (0 picks a free one).
    /// Connections to addresses other than loopback are closed at once.
    Wildcard(u16),
    /// By 127.x.y.z, with one listener for each address, all on this port (0 picks a free one
    /// each).
    Addresses(u16),
    /// By port: each node has its own port on 127.0.0.1.
    Ports,
    /// By port: each node has its own port on `[::1]`.
    Ipv6Ports,
}

/// Configuration of a fleet.
pub struct FleetConfig {
    pub binding: Binding,
    /// Signs serving certificates; `None` generates an authority.
    pub authority: Option<Authority>,
    /// Authenticates and authorizes requests.
    pub auth: Arc<dyn KubeletAuth>,
    /// Limit of open connections. Further ones wait to be accepted.
    pub max_connections: usize,
}

/// Running kubelets.
pub struct Fleet {
    context: Arc<FleetContext>,
    listeners: JoinSet<()>,
    stop: watch::Sender<bool>,
}

/// The data that a response is computed from.
pub(crate) struct NodeSnapshot<'a> {
    pub(crate) name: &'a Arc<str>,
    pub(crate) seed: Seed,
    pub(crate) booted: Timestamp,
    pub(crate) view: NodeView,
}

impl Default for FleetConfig {
    /// One listener on any port, all requests allowed, at most 16,384 connections.
    fn default() -> Self {
        Self {
            binding: Binding::Wildcard(0),
            authority: None,
            auth: Arc::new(AllowAll),
            max_connections: 16_384,
        }
    }
}

impl Fleet {
    /// Starts the kubelets of a node set and sets the addresses of its nodes. A set must be used
    /// for one fleet only.
    pub async fn start(
        config: FleetConfig,
        node_set: Arc<NodeSet>,
        clock: Clock,
    ) -> Result<Self, FleetError> {
        let nodes = node_set.nodes().len();
        if nodes > MAX_NODES {
            return Err(FleetError::TooManyNodes {
                nodes,
                max: MAX_NODES,
            });
        }
        let authority = match config.authority {
            Some(authority) => authority,
            None => Authority::generate("kubevitals-sim-kubelets")?,
        };
        let (stop, stopped) = watch::channel(false);
        let booted = clock.now().unix_millis().saturating_sub(UPTIME_MILLIS);
        let context = Arc::new(FleetContext {
            faults: Faults::new(node_set.nodes().iter().map(|node| Arc::clone(node.name()))),
            certificates: Certificates::new(authority, nodes)?,
            auth: config.auth,
            clock,
            booted: Timestamp::from_unix_millis(booted),
            connections: Arc::new(Semaphore::new(
                config.max_connections.min(Semaphore::MAX_PERMITS),
            )),
            stopped,
            node_set: Arc::clone(&node_set),
        });
        let mut listeners = JoinSet::new();
        for (listener, target) in bind(config.binding, &node_set).await? {
            listeners.spawn(serve::listen(listener, target, Arc::clone(&context)));
        }
        Ok(Self {
            context,
            listeners,
            stop,
        })
    }

    /// Returns the faults, to change them.
    pub fn faults(&self) -> &Faults {
        &self.context.faults
    }

    pub fn node_set(&self) -> &Arc<NodeSet> {
        &self.context.node_set
    }

    /// Returns the address of a node's kubelet.
    pub fn address(&self, node: &str) -> Option<SocketAddr> {
        self.context.node_set.find(node)?.address()
    }

    /// Returns the CA certificate of the kubelets, as PEM.
    pub fn authority_pem(&self) -> &str {
        self.context.certificates.authority_pem()
    }

    /// Closes all connections and listeners and waits until they have ended.
    pub async fn shutdown(mut self) {
        // Every listener holds a receiver; without any there is nothing to stop.
        let _ = self.stop.send(true);
        while self.listeners.join_next().await.is_some() {}
    }
}

async fn bind(
    binding: Binding,
    node_set: &NodeSet,
) -> Result<Vec<(TcpListener, ListenerTarget)>, FleetError> {
    let mut listeners = Vec::new();
    match binding {
        Binding::Wildcard(port) => {
            let listener = listen((Ipv4Addr::UNSPECIFIED, port).into()).await?;
            let port = local(&listener, port).port();
            for node in node_set.nodes() {
                node.set_address((node.ip(), port).into());
            }
            listeners.push((listener, ListenerTarget::ByAddress));
        }
        Binding::Addresses(port) => {
            for (index, node) in node_set.nodes().iter().enumerate() {
                let listener = listen((node.ip(), port).into()).await?;
                node.set_address(local(&listener, port));
                listeners.push((listener, ListenerTarget::Node(index)));
            }
        }
        Binding::Ports | Binding::Ipv6Ports => {
            let host = match binding {
                Binding::Ipv6Ports => IpAddr::V6(Ipv6Addr::LOCALHOST),
                _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
            };
            for (index, node) in node_set.nodes().iter().enumerate() {
                let listener = listen((host, 0).into()).await?;
                node.set_address(local(&listener, 0));
                listeners.push((listener, ListenerTarget::Node(index)));
            }
        }
    }
    Ok(listeners)
}

async fn listen(address: SocketAddr) -> Result<TcpListener, FleetError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| FleetError::Listen { address, source })
}

fn local(listener: &TcpListener, port: u16) -> SocketAddr {
    listener
        .local_addr()
        .unwrap_or_else(|_| (Ipv4Addr::LOCALHOST, port).into())
}
