//! `informer_*`: the stores of kube-runtime's reflectors, with client-go's names.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use kube::runtime::watcher::{self, Event};
use kube::{Resource, ResourceExt as _};
use pin_project_lite::pin_project;
use tokio::time::Instant;

use crate::hooks::{Hooks, InformerId, InformerMetrics};

/// Reports the store of a reflector and the consumer of its events. Clones share the metrics.
///
/// ```no_run
/// # use futures_util::{StreamExt as _, TryStreamExt as _};
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::runtime::{WatchStreamExt as _, reflector, watcher};
/// use kube_client_metrics::reflector::Informer;
///
/// # async fn run(client: kube::Client) {
/// let pods = kube::Api::<Pod>::all(client);
/// let (store, writer) = reflector::store();
/// let informer = Informer::new::<Pod>("pods", &(), &kube_client_metrics::global());
/// let events = reflector(writer, watcher(pods, watcher::Config::default()));
/// informer
///     .observe(events)
///     .applied_objects()
///     .for_each(|pod| std::future::ready(drop(pod)))
///     .await;
/// # }
/// ```
#[derive(Clone)]
pub struct Informer {
    metrics: Arc<dyn InformerMetrics>,
}

pin_project! {
    /// The unchanged stream of a reflector. See [`Informer::observe`].
    #[must_use = "streams do nothing unless polled"]
    pub struct ObservedStore<S> {
        #[pin]
        stream: S,
        informer: Informer,
        // When the event that the consumer has was returned.
        returned: Option<Instant>,
        // The largest version in a list that has not ended.
        listed: u64,
    }
}

impl Informer {
    /// Names an informer of objects of this type. `name` must come from the program, not from the
    /// cluster.
    pub fn new<K: Resource>(name: &str, dyntype: &K::DynamicType, hooks: &Hooks) -> Self {
        let id = InformerId::new(
            name,
            K::group(dyntype),
            K::version(dyntype),
            K::plural(dyntype),
        );
        Self {
            metrics: hooks.informers.informer(&id),
        }
    }

    /// Wraps the stream of a [`reflector`](kube::runtime::reflector()), whose store has an event
    /// when it is returned. Reports the version of the store, and how long the consumer takes for
    /// an event: until it asks for the next.
    ///
    /// A list has no version in kube's events: the largest of its objects stands for it, so an
    /// empty store has none.
    pub fn observe<S, K>(&self, stream: S) -> ObservedStore<S>
    where
        S: Stream<Item = watcher::Result<Event<K>>>,
        K: Resource,
    {
        ObservedStore {
            stream,
            informer: self.clone(),
            returned: None,
            listed: 0,
        }
    }
}

fn version_of<K: Resource>(object: &K) -> Option<u64> {
    object.resource_version()?.parse().ok()
}

impl<S, K> Stream for ObservedStore<S>
where
    S: Stream<Item = watcher::Result<Event<K>>>,
    K: Resource,
{
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        let metrics = &this.informer.metrics;
        if let Some(returned) = this.returned.take() {
            metrics.processed(returned.elapsed());
        }
        let item = ready!(this.stream.poll_next(context));
        match &item {
            Some(Ok(Event::Init)) => *this.listed = 0,
            Some(Ok(Event::InitApply(object))) => {
                *this.listed = (*this.listed).max(version_of(object).unwrap_or_default());
                *this.returned = Some(Instant::now());
            }
            // Only now the store has the list.
            Some(Ok(Event::InitDone)) if *this.listed > 0 => {
                metrics.store_resource_version(*this.listed);
            }
            Some(Ok(Event::Apply(object) | Event::Delete(object))) => {
                if let Some(version) = version_of(object) {
                    metrics.store_resource_version(version);
                }
                *this.returned = Some(Instant::now());
            }
            Some(Ok(Event::InitDone) | Err(_)) | None => {}
        }
        Poll::Ready(item)
    }
}

impl fmt::Debug for Informer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for ObservedStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObservedStore").finish_non_exhaustive()
    }
}
