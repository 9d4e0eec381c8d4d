//! The HTTP client of an API server, which notices a dead connection as client-go does.
//!
//! kube's own client speaks HTTP/1.1, where a peer that is gone or stopped looks like one that has
//! nothing to say: a quiet watch waits for minutes, and so do its subscribers. This client speaks
//! HTTP/2 where the server does, and pings: a connection without an answer ends, and with it all
//! requests on it. It also does not log every failed request as kube's does; callers report errors.

use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Builder;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _, DynBody};
use kube_client_metrics::connect::{Connector, Resolver};
use kube_client_metrics::{ClientOptions, Hooks};
use rustls_pki_types::ServerName;
use tower::util::BoxService;
use tower::{BoxError, ServiceBuilder, ServiceExt as _};

use crate::error::WatchError;

/// Probes of a TCP connection without HTTP/2, within [`ConnectionTimeouts::ping`].
const TCP_PROBES: u32 = 3;

/// When a connection is taken for dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionTimeouts {
    /// A connection that has received nothing for this long is pinged.
    pub idle: Duration,
    /// Time to answer a ping.
    pub ping: Duration,
}

type Stack = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// Creates a client that reports its requests to `hooks`. Must be called on a runtime.
///
/// A connection through a proxy, or with the credentials of an exec plugin, is kube's own.
pub fn api_client(config: kube::Config, hooks: &Hooks) -> Result<kube::Client, WatchError> {
    api_client_with(config, hooks, ConnectionTimeouts::default())
}

/// Creates a client as [`api_client()`], with other timeouts.
pub fn api_client_with(
    config: kube::Config,
    hooks: &Hooks,
    timeouts: ConnectionTimeouts,
) -> Result<kube::Client, WatchError> {
    let failed = |error: kube_client_metrics::Error| WatchError::Client(error.into());
    if config.proxy_url.is_some() || config.auth_info.exec.is_some() {
        return kube_client_metrics::client(config, hooks.clone()).map_err(failed);
    }
    let stack = stack(&config, hooks, timeouts)?;
    let options = ClientOptions::new(hooks.clone());
    let builder = options.instrument(&config, stack).map_err(failed)?;
    Ok(builder.build())
}

/// kube's stack, without its log and with other connections.
fn stack(
    config: &kube::Config,
    hooks: &Hooks,
    timeouts: ConnectionTimeouts,
) -> Result<ClientBuilder<Stack>, WatchError> {
    let failed = |error: kube::Error| WatchError::Config(error.into());
    let mut tls = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config().map_err(failed)?)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = ServerName::try_from(name.clone());
        let name = name.map_err(|error| WatchError::ServerName(error.into()))?;
        tls = tls.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let tls = tls.enable_all_versions();
    let tls = tls.wrap_connector(tcp(hooks, timeouts));
    let mut connector = TimeoutConnector::new(Connector::new(tls, hooks));
    connector.set_connect_timeout(config.connect_timeout);
    let client = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(timeouts.idle)
        .http2_keep_alive_timeout(timeouts.ping)
        // A request must not find out that the connection from the pool is dead.
        .http2_keep_alive_while_idle(true)
        .build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(failed)?)
        .layer(config.extra_headers_layer().map_err(failed)?)
        .map_err(BoxError::from)
        .service(client)
        .map_response(|response: Response<hyper::body::Incoming>| {
            response.map(|body| Box::new(body.map_err(BoxError::from)) as Box<DynBody>)
        });
    Ok(ClientBuilder::new(
        service.boxed(),
        config.default_namespace.clone(),
    ))
}

/// TCP notices a peer that is gone, for servers without HTTP/2.
fn tcp(hooks: &Hooks, timeouts: ConnectionTimeouts) -> HttpConnector<Resolver> {
    let mut tcp = HttpConnector::new_with_resolver(Resolver::system(hooks));
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(timeouts.idle));
    tcp.set_keepalive_interval(Some(timeouts.ping / TCP_PROBES));
    tcp.set_keepalive_retries(Some(TCP_PROBES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(timeouts.idle + timeouts.ping));
    tcp
}

impl Default for ConnectionTimeouts {
    /// Those of client-go: a dead connection ends within 45 s.
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(30),
            ping: Duration::from_secs(15),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_connection_ends_within_45_seconds() {
        let ConnectionTimeouts { idle, ping } = ConnectionTimeouts::default();
        assert_eq!(idle + ping, Duration::from_secs(45));
    }
}
