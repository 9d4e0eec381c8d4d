//! The listener: TLS, client certificates, HTTP/1.1 and HTTP/2.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::debug;

use super::context::ApiContext;
use super::router;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The same as in kube-apiserver; a Go client sends all its watches over one connection.
const MAX_STREAMS: u32 = 1000;

/// Spawns the streams of HTTP/2 connections, so that they end with the server.
#[derive(Clone)]
struct Tasks(Arc<ApiContext>);

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(async move {
            future.await;
        });
    }
}

/// Serves until stopped, then closes the listener and all connections.
pub(crate) async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    context: Arc<ApiContext>,
    mut stop: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // Only ever set to true; closed if the handle is dropped.
            _ = stop.changed() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (acceptor, context) = (acceptor.clone(), Arc::clone(&context));
                    connections.spawn(connection(stream, acceptor, context));
                }
                Err(error) => {
                    // Probably out of file descriptors: wait for some connections to end.
                    debug!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }
    drop(listener);
    connections.shutdown().await;
    context.end_tasks().await;
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, context: Arc<ApiContext>) {
    let _best_effort = stream.set_nodelay(true);
    let stream = match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            debug!(%error, "handshake failed");
            return;
        }
        Err(_) => return,
    };
    let peer = Arc::new(context.identify(stream.get_ref().1.peer_certificates()));
    let mut builder = auto::Builder::new(Tasks(Arc::clone(&context)));
    builder.http1().timer(TokioTimer::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS);
    let service = service_fn(move |request| {
        let (context, peer) = (Arc::clone(&context), Arc::clone(&peer));
        async move { Ok::<_, Infallible>(router::handle(&context, &peer, request).await) }
    });
    if let Err(error) = builder
        .serve_connection(TokioIo::new(stream), service)
        .await
    {
        debug!(%error, "connection ended");
    }
}
