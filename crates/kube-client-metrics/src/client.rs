//! Creates an instrumented client from a configuration.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response, Uri};
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, DynBody};
use kube::{Client, Config};
use parking_lot::Mutex;
use tower::retry::Policy;
use tower::util::BoxService;
use tower::{BoxError, Service};

use crate::credentials;
use crate::rate_limit::{RateLimitLayer, RateLimiter};
use crate::{Classifier, Error, Hooks, MeasuredBody, MetricsLayer};

/// How a client is made and what measures it, beyond [`client`].
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use kube_client_metrics::{ClientOptions, RateLimiter, Registry};
///
/// let registry = Registry::new();
/// let client = ClientOptions::new(&registry)
///     // client-go's `--kube-api-qps` and `--kube-api-burst`.
///     .with_rate_limiter(RateLimiter::new(20.0, 30))
///     .client(kube::Config::infer().await?)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientOptions {
    hooks: Hooks,
    limiter: Option<RateLimiter>,
    subresources: Vec<Box<str>>,
    #[cfg(feature = "rustls-tls")]
    times_connections: bool,
}

/// Creates a client like [`Client::try_from`] that reports to these hooks.
///
/// It takes the configuration because only that has the host of the server. Requests are retried as
/// by kube, or not at all if `config.default_retry` is off; each attempt is counted.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let registry = kube_client_metrics::Registry::new();
/// let client = kube_client_metrics::client(kube::Config::infer().await?, &registry)?;
/// # Ok(())
/// # }
/// ```
pub fn client(config: Config, hooks: impl Into<Hooks>) -> Result<Client, Error> {
    ClientOptions::new(hooks).client(config)
}

impl ClientOptions {
    /// The options of [`client`].
    pub fn new(hooks: impl Into<Hooks>) -> Self {
        Self {
            hooks: hooks.into(),
            limiter: None,
            subresources: Vec::new(),
            #[cfg(feature = "rustls-tls")]
            times_connections: false,
        }
    }

    /// Delays requests by this limiter, which may be shared with other clients. Each attempt takes
    /// a token; watches take none.
    pub fn with_rate_limiter(mut self, limiter: RateLimiter) -> Self {
        self.limiter = Some(limiter);
        self
    }

    /// Adds subresources of custom resources to those of Kubernetes, see
    /// [`Classifier::with_subresources`].
    pub fn with_subresources<S: Into<Box<str>>>(
        mut self,
        subresources: impl IntoIterator<Item = S>,
    ) -> Self {
        self.subresources
            .extend(subresources.into_iter().map(Into::into));
        self
    }

    /// Times name resolution and connections with TLS, which kube does not allow for its own
    /// connector: connections are made here, with kube's TLS configuration and timeouts.
    ///
    /// Such a client does not decompress responses and therefore asks for none that are, and it has
    /// no span for each attempt. A client with a proxy or an exec plugin keeps kube's own
    /// connections, which are not timed.
    #[cfg(feature = "rustls-tls")]
    pub fn with_timed_connections(mut self) -> Self {
        self.times_connections = true;
        self
    }

    /// Creates a client.
    pub fn client(&self, config: Config) -> Result<Client, Error> {
        let client = self.builder(config)?.build();
        if let Some(expiry) = *client.valid_until() {
            let hook = &self.hooks.client_cert_expiry;
            hook.set(Some(expiry.into()));
        }
        Ok(client)
    }

    /// Returns the builder of a client, to add further layers.
    #[expect(
        clippy::type_complexity,
        reason = "an opaque type cannot be given a name"
    )]
    pub fn builder(
        &self,
        mut config: Config,
    ) -> Result<
        ClientBuilder<
            impl Service<
                Request<Body>,
                Response = Response<MeasuredBody<Box<DynBody>>>,
                Error = BoxError,
                Future: Send,
            > + Send
            + use<>,
        >,
        Error,
    > {
        let host = host_of(&config.cluster_url)?;
        let is_retried = config.default_retry;
        // Disabled inside, where no layer could count attempts.
        config.default_retry = false;
        let has_plugin = config.auth_info.exec.is_some();
        let stack = self.stack(config);
        credentials::report_built(has_plugin, &stack, &self.hooks);
        let stack = stack.map_err(|source| Error::Client {
            host: host.clone(),
            source: Box::new(source),
        })?;
        Ok(self.measure(stack, &host, is_retried))
    }

    /// Returns a builder over a stack that the program has built itself from this configuration.
    ///
    /// The stack must not retry. It is retried as by [`client`], and its `poll_ready` must never
    /// return pending.
    #[expect(
        clippy::type_complexity,
        reason = "an opaque type cannot be given a name"
    )]
    pub fn instrument<S>(
        &self,
        config: &Config,
        stack: ClientBuilder<S>,
    ) -> Result<
        ClientBuilder<
            impl Service<
                Request<Body>,
                Response = Response<MeasuredBody<Box<DynBody>>>,
                Error = BoxError,
                Future: Send,
            > + Send
            + use<S>,
        >,
        Error,
    >
    where
        S: Service<Request<Body>, Response = Response<Box<DynBody>>, Error = BoxError>
            + Send
            + 'static,
        S::Future: Send + 'static,
    {
        let host = host_of(&config.cluster_url)?;
        Ok(self.measure(stack, &host, config.default_retry))
    }

    #[cfg_attr(
        not(feature = "rustls-tls"),
        expect(clippy::unused_self, reason = "no other option changes the stack")
    )]
    fn stack(&self, config: Config) -> Result<ClientBuilder<Stack>, kube::Error> {
        #[cfg(feature = "rustls-tls")]
        if self.times_connections && config.proxy_url.is_none() && config.auth_info.exec.is_none() {
            return crate::connect::timed_stack(&config, &self.hooks);
        }
        ClientBuilder::try_from(config)
    }

    fn measure<S>(
        &self,
        stack: ClientBuilder<S>,
        host: &str,
        is_retried: bool,
    ) -> ClientBuilder<
        impl Service<
            Request<Body>,
            Response = Response<MeasuredBody<Box<DynBody>>>,
            Error = BoxError,
            Future: Send,
        > + Send
        + use<S>,
    >
    where
        S: Service<Request<Body>, Response = Response<Box<DynBody>>, Error = BoxError>
            + Send
            + 'static,
        S::Future: Send + 'static,
    {
        let classifier = Classifier::new(host).with_subresources(self.subresources.clone());
        let limit = match &self.limiter {
            Some(limiter) => {
                RateLimitLayer::new(limiter.clone(), self.hooks.clone(), classifier.clone())
            }
            None => RateLimitLayer::unlimited(),
        };
        let layer = MetricsLayer::new(self.hooks.clone(), classifier);
        let retry = Retry(is_retried.then(RetryPolicy::server_retry));
        stack
            .with_layer(&tower::layer::layer_fn(Shared::new))
            .with_layer(&limit)
            .with_layer(&layer.with_retry(retry))
    }
}

/// kube's stack.
type Stack = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// kube's retry policy, or none.
#[derive(Clone)]
struct Retry(Option<RetryPolicy>);

/// kube's stack, shared by the attempts of all requests.
///
/// Each request needs its own handle on the service to retry, and kube's boxed stack cannot be
/// cloned. `tower::buffer` would need a task and a message for each request. A lock is enough here,
/// because no service of kube's stack ever returns pending from `poll_ready`, so no waker is lost.
struct Shared<S>(Arc<Mutex<S>>);

impl<S> Shared<S> {
    fn new(inner: S) -> Self {
        Self(Arc::new(Mutex::new(inner)))
    }
}

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Service<Q>, Q> Service<Q> for Shared<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        let mut inner = self.0.lock();
        inner.poll_ready(context)
    }

    fn call(&mut self, request: Q) -> S::Future {
        let mut inner = self.0.lock();
        inner.call(request)
    }
}

impl<R> Policy<Request<Body>, Response<R>, BoxError> for Retry {
    type Future = <RetryPolicy as Policy<Request<Body>, Response<R>, BoxError>>::Future;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<R>, BoxError>,
    ) -> Option<Self::Future> {
        self.0.as_mut()?.retry(request, result)
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        let policy = self.0.as_mut()?;
        <RetryPolicy as Policy<Request<Body>, Response<R>, BoxError>>::clone_request(
            policy, request,
        )
    }
}

/// Returns the host as in client-go's label: with the port if the URL has one, without a password.
fn host_of(url: &Uri) -> Result<String, Error> {
    let authority = url
        .authority()
        .ok_or_else(|| Error::NoHost { url: url.clone() })?;
    let text = authority.as_str();
    Ok(text
        .rsplit_once('@')
        .map_or(text, |(_, host)| host)
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_keeps_its_port_and_loses_its_password() {
        for (url, host) in [
            ("https://10.0.0.1:6443/k8s/clusters/c-1", "10.0.0.1:6443"),
            ("https://cluster.example", "cluster.example"),
            ("https://user:secret@[::1]:6443", "[::1]:6443"),
        ] {
            assert_eq!(host_of(&url.parse().unwrap()).unwrap(), host);
        }
    }

    #[test]
    fn a_url_without_a_host_is_an_error() {
        let error = host_of(&"/only/a/path".parse().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "cluster_url /only/a/path has no host");
    }
}
