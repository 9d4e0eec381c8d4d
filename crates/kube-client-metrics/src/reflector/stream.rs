//! kube-runtime's `watcher`, from its stream and from its requests.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use kube::ResourceExt as _;
use kube::client::ClientBuilder;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource};
use pin_project_lite::pin_project;

use super::{Listing, Reflector, tell_watch};
use crate::hooks::{Hooks, ReflectorMetrics, StreamKind, StreamReport, Streams};
use crate::{Call, Classifier, MetricsLayer};

pin_project! {
    /// A watcher's stream, unchanged. See [`Reflector::observe`].
    #[must_use = "streams do nothing unless polled"]
    pub struct Observed<S> {
        #[pin]
        stream: S,
        reflector: Reflector,
        listing: Option<(Listing, u64)>,
    }
}

/// Takes note of the watches among the streams of a client.
struct Watches(Arc<dyn ReflectorMetrics>);

impl Reflector {
    /// The stream of a [`watcher`](kube::runtime::watcher()), with its lists and the versions of
    /// its objects told.
    ///
    /// A list goes from `Init` to `InitDone`. With streaming lists `Init` comes only when the
    /// server has answered, so the time until then is missing.
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

    /// A client like this one whose watches are told as those of this reflector: make the `Api` of
    /// the watcher with it.
    ///
    /// It sends through `client`, so whatever that one measures it measures too. Events are counted
    /// with bookmarks.
    pub fn client(&self, client: &Client) -> Client {
        let hooks = Hooks::default().with_streams(Watches(Arc::clone(&self.metrics)));
        let namespace = client.default_namespace().to_owned();
        let valid_until = *client.valid_until();
        let client = client.clone();
        let service = tower::service_fn(move |request| {
            let client = client.clone();
            async move { client.send(request).await }
        });
        // Of a call nothing is told here, so its host does not matter.
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

    /// Told in sum when it ends.
    fn received(&self, _: &Call, _: StreamKind, _: u64, _: u64) {}

    fn ended(&self, _: &Call, report: &StreamReport) {
        if report.kind == StreamKind::Watch {
            tell_watch(&*self.0, report.duration, report.events);
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
            // What was listed so far is listed again, unless it was only a watch that broke.
            Some(Err(watcher::Error::InitialListFailed(_))) | None => *this.listing = None,
            Some(Err(_)) => {}
        }
        Poll::Ready(item)
    }
}
