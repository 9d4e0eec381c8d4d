//! What a response holds until it is written, and the end of watches.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;

use super::places::Place;
use crate::body::{Body, BodyError};
use crate::metrics::Recorder;

/// A slot among the requests in flight.
pub(super) struct Slot {
    _place: Option<Place>,
    gauge: Gauge,
}

/// Everything that a response holds until it is written or aborted.
pub(super) struct Held {
    pub(super) _slot: Option<Slot>,
    pub(super) _recorder: Recorder,
}

/// A watch that ends after its time, or when the server drains. A client that does not read it is
/// disconnected by the server.
pub(super) struct WatchBody {
    body: Body,
    /// `None` once the watch has ended.
    over: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Slot {
    pub(super) fn new(place: Option<Place>, gauge: Gauge) -> Self {
        gauge.inc();
        Self {
            _place: place,
            gauge,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

impl WatchBody {
    pub(super) fn new(body: Body, timeout: Duration, mut draining: watch::Receiver<bool>) -> Self {
        let over = async move {
            tokio::select! {
                () = tokio::time::sleep(timeout) => {}
                // A dropped sender is a server that has stopped.
                _ = draining.wait_for(|draining| *draining) => {}
            }
        };
        Self {
            body,
            over: Some(Box::pin(over)),
        }
    }
}

impl http_body::Body for WatchBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(over) = &mut self.over else {
            return Poll::Ready(None);
        };
        if over.as_mut().poll(context).is_ready() {
            self.over = None;
            // What it holds is released now, and not when the last bytes are written.
            self.body = Body::full("");
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.over.is_none() || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
