//! The accept loop, the connection table and the drain.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{Id, JoinError, JoinSet};

use crate::conn_state::ConnState;
use crate::connection::{self, Handler, Queues, ServerContext, Transport};
use crate::fair_queue::FairQueue;
use crate::limits::{Limits, ServerMetrics};
use crate::source::Source;

/// Pause after an accept error such as "too many open files".
const ACCEPT_ERROR_PAUSE: Duration = Duration::from_secs(1);
/// Interval of evictions while the server is full: connections that were active at the last one may
/// be idle by now.
const EVICTION_INTERVAL: Duration = Duration::from_secs(1);

/// A bound server that does not accept yet.
#[derive(Debug)]
pub struct Server {
    /// The name in logs.
    name: &'static str,
    listener: TcpListener,
    address: SocketAddr,
    limits: Limits,
    metrics: ServerMetrics,
}

/// The open connections of a server. Each can be inspected and closed on its own, which is what an
/// eviction policy needs.
struct Connections {
    tasks: JoinSet<()>,
    states: HashMap<Id, Arc<ConnState>>,
    metrics: ServerMetrics,
}

impl Server {
    /// Listens on `address`. From here on the kernel queues connections.
    pub async fn bind(
        name: &'static str,
        address: SocketAddr,
        limits: Limits,
        metrics: ServerMetrics,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self {
            name,
            listener,
            address,
            limits,
            metrics,
        })
    }

    /// Returns the bound address, with the port that the system chose if zero was requested.
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` completes, then drains: the port and idle connections are closed,
    /// and active ones get [`Limits::drain_timeout`]. Dropping the future aborts everything.
    pub async fn serve<T, H>(
        self,
        transport: T,
        handler: Arc<H>,
        shutdown: impl Future<Output = ()> + Send,
    ) where
        T: Transport,
        H: Handler<T::Peer>,
    {
        let Self {
            name,
            listener,
            address,
            limits,
            metrics,
        } = self;
        let context = Arc::new(ServerContext {
            transport,
            handler,
            limits,
            queues: limits.fair_queue.then(|| Queues::new(&metrics)),
            metrics: metrics.clone(),
        });
        let mut connections = Connections::new(metrics);
        let max = limits.connections.max(1);
        let mut number = 0;
        tracing::info!(server = name, %address, "listening");

        tokio::pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut shutdown => break,
                () = connections.ended() => continue,
                accepted = accept(&listener), if connections.len() < max => accepted,
                () = tokio::time::sleep(EVICTION_INTERVAL), if connections.len() >= max => {
                    connections.evict_idle();
                    continue;
                }
            };
            match accepted {
                Ok((stream, peer)) => {
                    if connections.len() + 1 >= max {
                        connections.evict_idle();
                    }
                    let _best_effort = stream.set_nodelay(true);
                    number += 1;
                    let state = ConnState::new(Source::from(peer.ip()));
                    let task = connection::accept(
                        Arc::clone(&context),
                        stream,
                        peer.ip(),
                        number,
                        Arc::clone(&state),
                    );
                    connections.spawn(task, state);
                }
                Err(error) => {
                    tracing::warn!(server = name, %error, "failed to accept a connection");
                    tokio::time::sleep(ACCEPT_ERROR_PAUSE).await;
                }
            }
        }

        drop(listener);
        if connections.drain(limits.drain_timeout).await.is_err() {
            tracing::warn!(
                server = name,
                open = connections.len(),
                "drain timed out, aborting active connections"
            );
            connections.abort().await;
        }
        tracing::info!(server = name, %address, "stopped");
    }
}

impl Queues {
    fn new(metrics: &ServerMetrics) -> Self {
        // More work at a time than there are threads only delays other tasks.
        let permits = tokio::runtime::Handle::current().metrics().num_workers();
        Self {
            handshakes: FairQueue::new(permits, metrics.handshake_queue.clone()),
            responses: FairQueue::new(permits, metrics.response_queue.clone()),
        }
    }
}

impl Connections {
    fn new(metrics: ServerMetrics) -> Self {
        Self {
            tasks: JoinSet::new(),
            states: HashMap::new(),
            metrics,
        }
    }

    fn len(&self) -> usize {
        self.tasks.len()
    }

    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static, state: Arc<ConnState>) {
        let id = self.tasks.spawn(task).id();
        self.states.insert(id, state);
        self.metrics.connections.inc();
    }

    /// Removes a connection that has ended; pending while there is none.
    async fn ended(&mut self) {
        match self.tasks.join_next_with_id().await {
            Some(ended) => self.remove(ended),
            None => std::future::pending().await,
        }
    }

    fn remove(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => {
                if error.is_panic() {
                    tracing::error!(%error, "connection task panicked");
                }
                error.id()
            }
        };
        self.states.remove(&id);
        self.metrics.connections.dec();
    }

    fn evict_idle(&self) {
        self.states
            .values()
            .filter(|state| state.is_idle())
            .for_each(|state| state.close());
    }

    async fn drain(&mut self, timeout: Duration) -> Result<(), tokio::time::error::Elapsed> {
        self.states.values().for_each(|state| state.close());
        tokio::time::timeout(timeout, async {
            while let Some(ended) = self.tasks.join_next_with_id().await {
                self.remove(ended);
            }
        })
        .await
    }

    async fn abort(&mut self) {
        self.tasks.abort_all();
        while let Some(ended) = self.tasks.join_next_with_id().await {
            self.remove(ended);
        }
    }
}

/// Accepts one connection. Connections that ended in the kernel's queue are not an error.
async fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    loop {
        match listener.accept().await {
            Err(error)
                if matches!(
                    error.kind(),
                    ConnectionAborted | ConnectionReset | Interrupted
                ) => {}
            accepted => return accepted,
        }
    }
}

#[cfg(test)]
mod tests;
