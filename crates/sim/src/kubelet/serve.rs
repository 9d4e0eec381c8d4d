//! Listeners, and one task for each connection.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use kubevitals_model::{Clock, Timestamp};
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::auth::KubeletAuth;
use super::certificates::{CertificateDefect, Certificates};
use super::payload::Payload;
use super::socket::{ResetSwitch, Socket};
use super::{NodeSnapshot, response};
use crate::faults::{Fault, Faults};
use crate::node_set::NodeSet;

/// Delay after a failed accept.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Long: a kubelet has none.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_mins(1);

/// State that all connections of a fleet share.
pub(crate) struct FleetContext {
    pub(crate) node_set: Arc<NodeSet>,
    pub(crate) faults: Faults,
    pub(crate) certificates: Certificates,
    pub(crate) auth: Arc<dyn KubeletAuth>,
    pub(crate) clock: Clock,
    /// Boot time of all nodes.
    pub(crate) booted: Timestamp,
    pub(crate) connections: Arc<Semaphore>,
    pub(crate) stopped: watch::Receiver<bool>,
}

/// Error of a request that a fault was holding when the fleet stopped.
#[derive(Debug, thiserror::Error)]
#[error("the fleet ended while a fault was holding the request")]
struct FleetEnded;

/// The node that a listener serves.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ListenerTarget {
    /// The node whose address was dialed.
    ByAddress,
    /// One node.
    Node(usize),
}

/// Accepts connections until the fleet stops, and then waits until all have ended.
pub(crate) async fn listen(
    listener: TcpListener,
    target: ListenerTarget,
    context: Arc<FleetContext>,
) {
    let mut connections = JoinSet::new();
    let mut stopped = context.stopped.clone();
    loop {
        let permit = Arc::clone(&context.connections).acquire_owned();
        let accepted = tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => break,
            // Reaps ended connections.
            Some(_) = connections.join_next() => continue,
            accepted = async { (permit.await, listener.accept().await) } => accepted,
        };
        let (permit, Ok((stream, _))) = accepted else {
            // Probably out of file descriptors: wait for some connections to end.
            tokio::time::sleep(ACCEPT_RETRY).await;
            continue;
        };
        let Some(index) = target.index(&stream, &context.node_set) else {
            continue;
        };
        let context = Arc::clone(&context);
        connections.spawn(async move {
            let _permit = permit;
            if let Err(error) = serve(stream, index, context).await {
                tracing::debug!(%error, node = index, "kubelet connection ended");
            }
        });
    }
    drop(listener);
    connections.shutdown().await;
}

impl ListenerTarget {
    /// Returns the node of a connection; `None` rejects it.
    fn index(self, stream: &TcpStream, node_set: &NodeSet) -> Option<usize> {
        let local = stream.local_addr().ok()?.ip().to_canonical();
        // A listener on the wildcard address is reachable from outside; the cluster must not be.
        if !local.is_loopback() {
            return None;
        }
        let index = match (self, local) {
            (Self::Node(index), _) => index,
            (Self::ByAddress, IpAddr::V4(local)) => node_set.index_of(local)?,
            (Self::ByAddress, IpAddr::V6(_)) => return None,
        };
        node_set.nodes().get(index)?.is_present().then_some(index)
    }
}

async fn serve(stream: TcpStream, index: usize, context: Arc<FleetContext>) -> io::Result<()> {
    let Some(node) = context.node_set.nodes().get(index) else {
        return Ok(());
    };
    stream.set_nodelay(true)?;
    let faults = context.faults.at(index);
    let defect = if faults.contains(&Fault::ExpiredCertificate) {
        CertificateDefect::Expired
    } else if faults.contains(&Fault::WrongName) {
        CertificateDefect::WrongName
    } else {
        CertificateDefect::None
    };
    let config = context
        .certificates
        .config(index, node.name(), node.host(), defect)
        .map_err(io::Error::other)?;
    let switch = Arc::new(ResetSwitch::default());
    let socket = Socket::new(stream, Arc::clone(&switch));
    let handshake = TlsAcceptor::from(config).accept(socket);
    let tls = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let certificates: Arc<[CertificateDer<'static>]> = tls
        .get_ref()
        .1
        .peer_certificates()
        .unwrap_or_default()
        .iter()
        .map(|certificate| certificate.clone().into_owned())
        .collect();
    let mut stopped = context.stopped.clone();
    let service = {
        let switch = Arc::clone(&switch);
        service_fn(move |request: Request<Incoming>| {
            let (context, certificates) = (Arc::clone(&context), Arc::clone(&certificates));
            let switch = Arc::clone(&switch);
            async move { respond(request, index, &context, &certificates, &switch).await }
        })
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new());
    let connection = builder.serve_connection(TokioIo::new(tls), service);
    tokio::select! {
        result = connection => result.map_err(io::Error::other),
        () = switch.triggered() => Ok(()),
        _ = stopped.wait_for(|stopped| *stopped) => Ok(()),
    }
}

/// Handles one request, after the faults of the node that affect connections.
async fn respond(
    request: Request<Incoming>,
    index: usize,
    context: &FleetContext,
    certificates: &[CertificateDer<'static>],
    switch: &ResetSwitch,
) -> Result<Response<Payload>, FleetEnded> {
    let faults = context.faults.at(index);
    for fault in &faults {
        match fault {
            Fault::Slow(by) => pause(tokio::time::sleep(*by), context).await?,
            Fault::Hang => pause(std::future::pending(), context).await?,
            Fault::Reset => {
                switch.trigger();
                pause(std::future::pending(), context).await?;
            }
            _ => {}
        }
    }
    let Some(node) = context.node_set.nodes().get(index) else {
        return Ok(Response::new(Payload::broken(None)));
    };
    if !node.is_present() {
        // The node was replaced: its machine no longer exists.
        switch.trigger();
        pause(std::future::pending(), context).await?;
    }
    let (parts, _) = request.into_parts();
    let state = NodeSnapshot {
        name: node.name(),
        seed: context.node_set.seed().derive_name(node.name()),
        booted: context.booted,
        view: node.view(),
    };
    let auth = &*context.auth;
    Ok(response::build(
        &state,
        auth,
        &parts,
        certificates,
        context.clock.now(),
        &faults,
    ))
}

/// Waits, but not beyond the end of the fleet. A request that was held then fails: a response would
/// make a node that hangs look like a slow one.
async fn pause(wait: impl Future<Output = ()>, context: &FleetContext) -> Result<(), FleetEnded> {
    let mut stopped = context.stopped.clone();
    tokio::select! {
        () = wait => Ok(()),
        _ = stopped.wait_for(|stopped| *stopped) => Err(FleetEnded),
    }
}
