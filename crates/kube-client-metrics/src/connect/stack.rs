//! kube's stack, with connections that are made here.

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Builder;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::{Body, ClientBuilder, ConfigExt as _, DynBody};
use tower::util::BoxService;
use tower::{BoxError, ServiceBuilder, ServiceExt as _};

use super::{Connector, Resolver};
use crate::Hooks;

/// The type of kube's own.
pub(crate) type Stack = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// Follows what kube builds from a configuration, in the same order.
pub(super) fn timed(config: &Config, hooks: &Hooks) -> Result<ClientBuilder<Stack>, kube::Error> {
    let mut tcp = HttpConnector::new_with_resolver(Resolver::system(hooks));
    tcp.enforce_http(false);
    let tls = config.rustls_https_connector_with_connector(tcp)?;
    let mut connector = TimeoutConnector::new(Connector::new(tls, hooks));
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let client = Builder::new(TokioExecutor::new()).build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
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
