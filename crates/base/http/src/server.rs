//! The accept loop and the drain.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use crate::conn_state::ConnState;
use crate::connection::{self, Handler, Queues, ServerContext, Transport};
use crate::connections::Connections;
use crate::fair_queue::FairQueue;
use crate::head_budget::HeadBudget;
use crate::limits::{Limits, ServerMetrics};
use crate::source::Source;

/// Pause after an accept error such as "too many open files".
const ACCEPT_ERROR_PAUSE: Duration = Duration::from_secs(1);
/// Interval at which a connection that waits for room tries again: connections that were busy may
/// be idle by now.
const EVICTION_INTERVAL: Duration = Duration::from_millis(100);
/// Keepalive of accepted sockets, as Go sets it: a client that vanished is noticed even while
/// nothing is sent.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

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
            head_budget: HeadBudget::new(limits.large_head_bytes),
            metrics: metrics.clone(),
        });
        let aborted = metrics.aborted_responses.clone();
        let mut connections = Connections::new(limits.connections, metrics);
        let mut number = 0;
        // Accepted, and not served until another connection ends.
        let mut waiting: Option<(TcpStream, SocketAddr)> = None;
        tracing::info!(server = name, %address, "listening");

        tokio::pin!(shutdown);
        loop {
            if let Some((stream, peer)) = waiting.take_if(|_| connections.make_room()) {
                number += 1;
                let state = ConnState::new(Source::from(peer.ip()), &limits, aborted.clone());
                let task = connection::accept(
                    Arc::clone(&context),
                    stream,
                    peer.ip(),
                    number,
                    Arc::clone(&state),
                );
                connections.spawn(task, state);
            }
            let accepted = tokio::select! {
                biased;
                () = &mut shutdown => break,
                () = connections.ended() => continue,
                accepted = accept(&listener), if waiting.is_none() => accepted,
                () = tokio::time::sleep(EVICTION_INTERVAL), if waiting.is_some() => continue,
            };
            match accepted {
                Ok((stream, peer)) => {
                    set_options(&stream);
                    waiting = Some((stream, peer));
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

/// Sets options of an accepted socket, as far as the system allows it.
fn set_options(stream: &TcpStream) {
    use rustix::net::sockopt;
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, KEEPALIVE_INTERVAL);
    let _ = sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL);
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
