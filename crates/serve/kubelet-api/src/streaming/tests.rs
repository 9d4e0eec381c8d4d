//! Sessions over memory (with a paused clock where time matters) and over sockets.

mod client;
mod exec;
mod large;
mod limits;
mod port_forward;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kubevitals_telemetry::Metrics;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::sync::oneshot;

use super::*;
use crate::error::ProviderError;
use crate::provider::{ExitStatus, Streams};

/// Makes sessions, or the dialer of port-forwards.
#[derive(Clone)]
enum Route {
    Command(StreamOptions, Arc<dyn Fn() -> Session + Send + Sync>),
    Forward(Vec<u16>, Arc<dyn PortDialer>),
}

/// A streaming server behind hyper.
#[derive(Clone)]
struct Harness {
    streaming: Arc<StreamingServer>,
    metrics: StreamingMetrics,
    route: Route,
}

impl Harness {
    fn new(config: StreamingConfig, route: Route) -> Self {
        let metrics = StreamingMetrics::register(&mut Metrics::new());
        Self {
            streaming: Arc::new(StreamingServer::new(config, metrics.clone())),
            metrics,
            route,
        }
    }

    /// A server whose sessions are run by `run`.
    fn command<F, R>(options: StreamOptions, run: R) -> Self
    where
        F: Future<Output = Result<u8, ProviderError>> + Send + 'static,
        R: Fn(Streams) -> F + Clone + Send + Sync + 'static,
    {
        Self::new(
            StreamingConfig::default(),
            Route::Command(options, command(run)),
        )
    }

    async fn handle(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let response = match self.route.clone() {
            Route::Command(options, session) => {
                let session = session();
                self.streaming
                    .remote_command(request, options, session)
                    .await
            }
            Route::Forward(ports, dialer) => {
                self.streaming.port_forward(request, ports, dialer).await
            }
        };
        response.map(Full::new)
    }

    /// Serves one connection.
    fn serve<S>(&self, io: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let harness = self.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let harness = harness.clone();
                async move { Ok::<_, std::convert::Infallible>(harness.handle(request).await) }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(io), service)
                .with_upgrades()
                .await;
        });
    }

    /// A connection over memory.
    fn connect(&self) -> DuplexStream {
        let (client, io) = tokio::io::duplex(8 << 10);
        self.serve(io);
        client
    }
}

/// Sessions that end with this exit code.
fn command<F, R>(run: R) -> Arc<dyn Fn() -> Session + Send + Sync>
where
    F: Future<Output = Result<u8, ProviderError>> + Send + 'static,
    R: Fn(Streams) -> F + Clone + Send + Sync + 'static,
{
    Arc::new(move || {
        let run = run.clone();
        Box::new(move |streams| {
            async move { run(streams).await.map(|code| ExitStatus { code }) }.boxed()
        })
    })
}

/// All streams without a terminal.
const ALL: StreamOptions = StreamOptions {
    stdin: true,
    stdout: true,
    stderr: true,
    tty: false,
};

/// A terminal.
const TTY: StreamOptions = StreamOptions {
    stdin: true,
    stdout: true,
    stderr: false,
    tty: true,
};

/// Copies stdin to stdout until its end, then writes to stderr.
async fn cat(mut streams: Streams) -> Result<u8, ProviderError> {
    let (mut stdin, mut stdout) = (
        streams.stdin.take().unwrap(),
        streams.stdout.take().unwrap(),
    );
    let copied = tokio::io::copy(&mut stdin, &mut stdout).await.unwrap();
    if let Some(stderr) = &mut streams.stderr {
        let text = format!("{copied} bytes");
        stderr.write_all(text.as_bytes()).await.unwrap();
    }
    Ok(0)
}

/// Runs a test that must end in time; a regression would hang.
async fn within(test: impl Future<Output = ()>) {
    let ended = tokio::time::timeout(Duration::from_mins(1), test).await;
    ended.expect("the test ends in time");
}

/// Runs a test on a paused clock: when nothing else can happen, the day is over.
async fn eventually(test: impl Future<Output = ()>) {
    let ended = tokio::time::timeout(Duration::from_hours(24), test).await;
    ended.expect("the test ends");
}

/// Sends when it is dropped.
struct OnDrop(Option<oneshot::Sender<()>>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(sender) = self.0.take() {
            let _ = sender.send(());
        }
    }
}
