//! Timed name resolution and connections, for stacks that are built by hand (feature `connect`).
//!
//! kube creates its connector internally. A program that builds the stack itself, as kube documents
//! for custom clients, wraps its parts in these two:
//!
//! ```text
//! Connector( TLS( HttpConnector::new_with_resolver( Resolver( GaiResolver ) ) ) )
//! ```
//!
//! A host that is an IP address is not resolved and not reported, and neither is a connection from
//! the pool.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http::Uri;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use pin_project_lite::pin_project;
use tower::Service;

use crate::hooks::{ConnectLatency, ConnectOutcome, Hooks, ResolverLatency};

/// A timed resolver. client-go: `ResolverLatency`.
#[derive(Clone)]
pub struct Resolver<R = GaiResolver> {
    inner: R,
    hook: Arc<dyn ResolverLatency>,
}

/// A timed connector: from the call to the end of the TLS handshake, including name resolution.
#[derive(Clone)]
pub struct Connector<C> {
    inner: C,
    hook: Arc<dyn ConnectLatency>,
}

pin_project! {
    /// The future of a [`Resolver`].
    pub struct Resolving<F> {
        #[pin]
        inner: F,
        name: Name,
        begun: Instant,
        hook: Arc<dyn ResolverLatency>,
    }
}

pin_project! {
    /// The future of a [`Connector`]. One that is dropped is not reported: another connection was
    /// used.
    pub struct Connecting<F> {
        #[pin]
        inner: F,
        host: Box<str>,
        begun: Instant,
        hook: Arc<dyn ConnectLatency>,
    }
}

impl Resolver {
    /// Times the system's resolver.
    pub fn system(hooks: &Hooks) -> Self {
        Self::new(GaiResolver::new(), hooks)
    }
}

impl<R> Resolver<R> {
    /// Times a resolver.
    pub fn new(inner: R, hooks: &Hooks) -> Self {
        let hook = Arc::clone(&hooks.resolver_latency);
        Self { inner, hook }
    }
}

impl<C> Connector<C> {
    /// Times a connector.
    pub fn new(inner: C, hooks: &Hooks) -> Self {
        let hook = Arc::clone(&hooks.connect_latency);
        Self { inner, hook }
    }
}

impl<R: Service<Name>> Service<Name> for Resolver<R> {
    type Response = R::Response;
    type Error = R::Error;
    type Future = Resolving<R::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), R::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        Resolving {
            name: name.clone(),
            begun: Instant::now(),
            hook: Arc::clone(&self.hook),
            inner: self.inner.call(name),
        }
    }
}

impl<C: Service<Uri>> Service<Uri> for Connector<C> {
    type Response = C::Response;
    type Error = C::Error;
    type Future = Connecting<C::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        // Without a password.
        let host = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        Connecting {
            host: host.into(),
            begun: Instant::now(),
            hook: Arc::clone(&self.hook),
            inner: self.inner.call(uri),
        }
    }
}

impl<F: Future> Future for Resolving<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let resolved = ready!(this.inner.poll(context));
        // Failures too, as in client-go: timeouts of the resolver matter most.
        this.hook.observe(this.name.as_str(), this.begun.elapsed());
        Poll::Ready(resolved)
    }
}

impl<F, T, E> Future for Connecting<F>
where
    F: Future<Output = Result<T, E>>,
{
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.inner.poll(context));
        let outcome = match &result {
            Ok(_) => ConnectOutcome::Connected,
            Err(_) => ConnectOutcome::Failed,
        };
        this.hook.observe(this.host, outcome, this.begun.elapsed());
        Poll::Ready(result)
    }
}

impl<R: fmt::Debug> fmt::Debug for Resolver<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Resolver").field(&self.inner).finish()
    }
}

impl<C: fmt::Debug> fmt::Debug for Connector<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connector").field(&self.inner).finish()
    }
}

/// kube's stack with rustls, with connections that are timed.
#[cfg(feature = "rustls-tls")]
pub(crate) fn timed_stack(
    config: &kube::Config,
    hooks: &Hooks,
) -> Result<kube::client::ClientBuilder<stack::Stack>, kube::Error> {
    stack::timed(config, hooks)
}

#[cfg(feature = "rustls-tls")]
mod stack;
#[cfg(test)]
mod tests;
