//! An operator with all metrics of its client, controller, store and election at `/metrics`.
//!
//! ```sh
//! cargo run --example operator & curl localhost:8080/metrics
//! ```
//!
//! It reconciles every ConfigMap in the namespace of the current context once a minute.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, ResourceExt as _};
use kube_client_metrics::reflector::{Informer, Reflector};
use kube_client_metrics::{ClientOptions, Format, RateLimiter, Registry};
use kube_lease::{Election, Elector};
use kube_workqueue::{Action, Controller};
use tokio::net::TcpListener;

const NAME: &str = "configmaps";

async fn reconcile(map: Arc<ConfigMap>, _: Arc<()>) -> Result<Action, Infallible> {
    tracing::info!(name = map.name_any(), "reconciled");
    Ok(Action::requeue(Duration::from_secs(60)))
}

#[tokio::main]
#[cfg_attr(test, expect(dead_code, reason = "a test calls `run`"))]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    run(kube::Config::infer().await?, listener).await
}

/// Runs until a signal, or until the lease is lost.
pub(crate) async fn run(config: kube::Config, listener: TcpListener) -> Result<(), Box<dyn Error>> {
    let registry = Registry::new();
    let hooks = registry.hooks();
    tokio::spawn(serve(listener, registry.clone()));
    let namespace = config.default_namespace.clone();
    let limiter = RateLimiter::new(20.0, 30);
    let client = ClientOptions::new(&registry)
        .with_rate_limiter(limiter)
        .client(config)?;

    let identity = format!("operator-{}", std::process::id());
    let election = Election::new(namespace, "operator", identity);
    let mut elector = Elector::new(client.clone(), election, &hooks)?;
    elector.acquire().await;

    let lists = Reflector::new(NAME, &hooks);
    let maps: Api<ConfigMap> = Api::default_namespaced(lists.client(&client));
    let (store, writer) = reflector::store();
    let events = lists.observe(watcher(maps, watcher::Config::default()));
    let informer = Informer::new::<ConfigMap>(NAME, &(), &hooks);
    let objects = informer
        .observe(reflector(writer, events))
        .applied_objects();
    let controller = Controller::for_stream(NAME, &hooks, objects, store)
        .concurrency(4)
        .shutdown_on_signal()
        .run(reconcile, |_, _, _| Action::await_change(), Arc::new(()))
        .for_each(|_| std::future::ready(()));
    tokio::select! {
        () = elector.hold() => {}
        () = controller => elector.release().await,
    }
    Ok(())
}

async fn serve(listener: TcpListener, registry: Registry) {
    while let Ok((socket, _)) = listener.accept().await {
        let registry = registry.clone();
        let respond = service_fn(move |request: Request<_>| {
            let accept = request.headers().get(ACCEPT);
            let format = Format::accepted(accept.and_then(|accept| accept.to_str().ok()));
            let response = Response::builder()
                .header(CONTENT_TYPE, format.content_type())
                .body(registry.encode_as(format));
            async move { response }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new());
        tokio::spawn(http.serve_connection(TokioIo::new(socket), respond));
    }
}
