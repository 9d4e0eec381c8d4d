//! Thousands of kubelets in one process, on real TLS sockets.
//!
//! A [`Fleet`] serves, for each node of a [`Roster`], what scrapers read from a kubelet:
//! `/metrics/resource`, `/stats/summary`, `/pods` and `/healthz`, over HTTP/1.1 and HTTP/2, with a
//! serving certificate of each node's own. Nodes are told apart by the address or the port that was
//! dialled ([`Binding`]).
//!
//! All numbers are closed forms of a pod's seed and the [`Clock`] ([`usage`]), so a test knows what
//! a correct reader must compute.
//!
//! # Limits
//!
//! * Bodies are not compressed, whatever the client accepts.
//! * `/metrics/resource` comes as text only; a kubelet would also give protobuf to who asks for it.
//! * Serving certificates follow the system's clock, as their readers do.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use kubevitals_model::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::faults::Faults;
use crate::roster::{MAX_NODES, NodeView, Roster};
use crate::seed::Seed;

mod answer;
mod certificates;
mod error;
mod gatekeeper;
mod payload;
mod resource_metrics;
mod serve;
mod socket;
pub(crate) mod summary;
pub mod usage;

pub use certificates::Authority;
pub use error::FleetError;
pub use gatekeeper::{Credentials, Gatekeeper, OpenDoor, Verdict};

use certificates::Certificates;
use serve::{Shared, Speaker};

/// How long before the fleet started its nodes booted.
const UPTIME_MILLIS: i64 = 3_600_000;

/// How kubelets are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// By 127.x.y.z, with one listener on the wildcard address and this port (0: any). Connections
    /// to addresses other than loopback are closed at once.
    Wildcard(u16),
    /// By 127.x.y.z, with one listener for each address, all on this port (0: any, each its own).
    Addresses(u16),
    /// By port: each node has a port of its own on 127.0.0.1.
    Ports,
}

/// How to run a fleet.
pub struct FleetConfig {
    /// How kubelets are told apart.
    pub binding: Binding,
    /// Who signs serving certificates; `None` makes an authority.
    pub authority: Option<Authority>,
    /// Who may ask.
    pub gatekeeper: Arc<dyn Gatekeeper>,
    /// How many connections may be open at once. More wait to be accepted.
    pub max_connections: usize,
}

/// Kubelets that run.
pub struct Fleet {
    shared: Arc<Shared>,
    listeners: JoinSet<()>,
    stop: watch::Sender<bool>,
}

/// What an answer is made from.
pub(crate) struct NodeState<'a> {
    pub(crate) name: &'a Arc<str>,
    pub(crate) seed: Seed,
    pub(crate) booted: Timestamp,
    pub(crate) view: NodeView,
}

impl Default for FleetConfig {
    /// One listener on any port, everybody let in, at most 16,384 connections.
    fn default() -> Self {
        Self {
            binding: Binding::Wildcard(0),
            authority: None,
            gatekeeper: Arc::new(OpenDoor),
            max_connections: 16_384,
        }
    }
}

impl Fleet {
    /// Starts the kubelets of a roster. The roster knows their addresses afterwards, so it must
    /// serve one fleet only.
    pub async fn start(
        config: FleetConfig,
        roster: Arc<Roster>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, FleetError> {
        let nodes = roster.nodes().len();
        if nodes > MAX_NODES {
            return Err(FleetError::TooManyNodes {
                nodes,
                most: MAX_NODES,
            });
        }
        let authority = match config.authority {
            Some(authority) => authority,
            None => Authority::generate("kubevitals-sim-kubelets")?,
        };
        let (stop, stopped) = watch::channel(false);
        let booted = clock.now().unix_millis().saturating_sub(UPTIME_MILLIS);
        let shared = Arc::new(Shared {
            faults: Faults::new(roster.nodes().iter().map(|node| Arc::clone(node.name()))),
            certificates: Certificates::new(authority, nodes)?,
            gatekeeper: config.gatekeeper,
            clock,
            booted: Timestamp::from_unix_millis(booted),
            connections: Arc::new(Semaphore::new(
                config.max_connections.min(Semaphore::MAX_PERMITS),
            )),
            stopped,
            roster: Arc::clone(&roster),
        });
        let mut listeners = JoinSet::new();
        for (listener, speaker) in bind(config.binding, &roster).await? {
            listeners.spawn(serve::listen(listener, speaker, Arc::clone(&shared)));
        }
        Ok(Self {
            shared,
            listeners,
            stop,
        })
    }

    /// Switches faults.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// The nodes.
    pub fn roster(&self) -> &Arc<Roster> {
        &self.shared.roster
    }

    /// Where a node's kubelet listens.
    pub fn address(&self, node: &str) -> Option<SocketAddr> {
        self.shared.roster.find(node)?.address()
    }

    /// What a client must trust to verify the kubelets.
    pub fn authority_pem(&self) -> &str {
        self.shared.certificates.authority_pem()
    }

    /// Ends all connections and listeners, and returns when nothing is left of them.
    pub async fn shutdown(mut self) {
        // Every listener holds a receiver; if none is left there is nothing to tell.
        let _ = self.stop.send(true);
        while self.listeners.join_next().await.is_some() {}
    }
}

async fn bind(
    binding: Binding,
    roster: &Roster,
) -> Result<Vec<(TcpListener, Speaker)>, FleetError> {
    let mut listeners = Vec::new();
    match binding {
        Binding::Wildcard(port) => {
            let listener = listen((Ipv4Addr::UNSPECIFIED, port).into()).await?;
            let port = local(&listener, port).port();
            for node in roster.nodes() {
                node.listens_at((node.ip(), port).into());
            }
            listeners.push((listener, Speaker::ByAddress));
        }
        Binding::Addresses(port) => {
            for (index, node) in roster.nodes().iter().enumerate() {
                let listener = listen((node.ip(), port).into()).await?;
                node.listens_at(local(&listener, port));
                listeners.push((listener, Speaker::Node(index)));
            }
        }
        Binding::Ports => {
            for (index, node) in roster.nodes().iter().enumerate() {
                let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).await?;
                node.listens_at(local(&listener, 0));
                listeners.push((listener, Speaker::Node(index)));
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
