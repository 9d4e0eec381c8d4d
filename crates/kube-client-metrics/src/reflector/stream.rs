//! Observes kube-runtime's `watcher` through its stream and its requests.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use kube::ResourceExt as _;
use kube::client::ClientBuilder;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource};
use pin_project_lite::pin_project;

use super::{Listing, Reflector, report_watch};
use crate::hooks::{Hooks, ReflectorMetrics, StreamKind, StreamReport, Streams};
use crate::{Call, Classifier, MetricsLayer};

pin_project! {
    /// The unchanged stream of a watcher. See [`Reflector::observe`].
    #[must_use = "streams do nothing unless polled"]
    pub struct Observed<S> {
        #[pin]
        stream: S,
        reflector: Reflector,
        listing: Option<(Listing, u64)>,
    }
}

/// Reports the watches among the streams of a client.
struct Watches(Arc<dyn ReflectorMetrics>);

impl Reflector {
    /// Wraps the stream of a [`watcher`](kube::runtime::watcher()) and reports its lists and the
    /// versions of its objects.
    ///
    /// A list lasts from `Init` to `InitDone`. With streaming lists `Init` comes only with the
    /// response, so the time until then is missing.
    pub fn observe<S, K>(&self, stream: S) -> Observed<S>
    where
        S: Stream<Item = watcher::Result<Event<K>>>,
        K: Resource,
    {
        Observed {
            stream,
            reflector: self.clone(),
            listing: None,
        }
    }

    /// Wraps a client and reports its watches as those of this reflector: create the `Api` of the
    /// watcher with it.
    ///
    /// Requests pass through `client`, so its own metrics include them. Events include bookmarks.
    pub fn client(&self, client: &Client) -> Client {
        let hooks = Hooks::default().with_streams(Watches(Arc::clone(&self.metrics)));
        let namespace = client.default_namespace().to_owned();
        let valid_until = *client.valid_until();
        let client = client.clone();
        let service = tower::service_fn(move |request| {
            let client = client.clone();
            async move { client.send(request).await }
        });
        // The calls are not reported here, so the host does not matter.
        let layer = MetricsLayer::new(hooks, Classifier::new(""));
        ClientBuilder::new(service, namespace)
            .with_layer(&layer)
            .with_valid_until(valid_until)
            .build()
    }
}

impl Streams for Watches {
    fn opened(&self, _: &Call, kind: StreamKind) {
        if kind == StreamKind::Watch {
            self.0.watch_started();
        }
    }

    /// Reported as a sum at the end.
    fn received(&self, _: &Call, _: StreamKind, _: u64, _: u64) {}

    fn ended(&self, _: &Call, report: &StreamReport) {
        if report.kind == StreamKind::Watch {
            report_watch(&*self.0, report.duration, report.events);
        }
    }
}

impl<S, K> Stream for Observed<S>
where
    S: Stream<Item = watcher::Result<Event<K>>>,
    K: Resource,
{
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        let item = ready!(this.stream.poll_next(context));
        match &item {
            Some(Ok(Event::Init)) => *this.listing = Some((this.reflector.list(), 0)),
            Some(Ok(Event::InitApply(_))) => {
                if let Some((_, items)) = this.listing {
                    *items += 1;
                }
            }
            Some(Ok(Event::InitDone)) => {
                if let Some((listing, items)) = this.listing.take() {
                    listing.complete(items);
                }
            }
            Some(Ok(Event::Apply(object) | Event::Delete(object))) => {
                if let Some(version) = object.resource_version() {
                    this.reflector.seen(&version);
                }
            }
            // A failed list starts again; after a failed watch it continues.
            Some(Err(watcher::Error::InitialListFailed(_))) | None => *this.listing = None,
            Some(Err(_)) => {}
        }
        Poll::Ready(item)
    }
}
