//! The body of a response: it holds a slot, a deadline and a metrics record until its last byte is
//! written.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use kubevitals_http::{InFlight, ResponseKind};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep};

use super::Connection;
use super::places::Place;
use crate::body::{Body, BodyError};
use crate::metrics::Recorder;

/// Smaller responses fit into the buffers of the socket, so that they end at once.
const MAX_SMALL_BYTES: u64 = 64 * 1024;

/// A slot among the requests in flight. It is released at the end of the response or at its
/// deadline, whichever comes first: a slow reader must not keep others out.
pub(super) struct Slot(Arc<Mutex<Option<Held>>>);

struct Held {
    _place: Option<Place>,
    gauge: Gauge,
}

/// A response body that fails at its deadline, or ends like a watch that has run its time.
pub(super) struct DeadlineBody {
    body: Body,
    end: End,
    connection: Arc<Connection>,
    release: Option<AbortHandle>,
    _in_flight: InFlight,
    _slot: Option<Slot>,
    _recorder: Recorder,
}

enum End {
    /// Fails at this time.
    Deadline(Instant, Option<Pin<Box<Sleep>>>),
    /// Ends with this future.
    Watch(Pin<Box<dyn Future<Output = ()> + Send>>),
    Over,
}

impl Slot {
    pub(super) fn new(place: Option<Place>, gauge: Gauge) -> Self {
        gauge.inc();
        Self(Arc::new(Mutex::new(Some(Held {
            _place: place,
            gauge,
        }))))
    }

    fn release(held: &Mutex<Option<Held>>) {
        drop(held.lock().take());
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        Self::release(&self.0);
    }
}

impl DeadlineBody {
    /// A response that must be read by `deadline`.
    pub(super) fn response(
        body: Body,
        slot: Option<Slot>,
        recorder: Recorder,
        connection: Arc<Connection>,
        deadline: Instant,
    ) -> Self {
        // A body that the client does not read is never polled, so a task watches the clock.
        let is_large = body
            .size_hint()
            .exact()
            .is_none_or(|size| size > MAX_SMALL_BYTES);
        let release = slot.as_ref().filter(|_| is_large).map(|slot| {
            let held = Arc::clone(&slot.0);
            let timer = tokio::spawn(async move {
                tokio::time::sleep_until(deadline).await;
                Slot::release(&held);
            });
            timer.abort_handle()
        });
        Self {
            body,
            end: End::Deadline(deadline, None),
            _in_flight: connection.state.in_flight(ResponseKind::Ordinary),
            connection,
            release,
            _slot: slot,
            _recorder: recorder,
        }
    }

    /// A watch that ends after `timeout`, or when the server drains.
    pub(super) fn watch(
        body: Body,
        slot: Option<Slot>,
        recorder: Recorder,
        connection: Arc<Connection>,
        timeout: Duration,
        mut draining: watch::Receiver<bool>,
    ) -> Self {
        let over = async move {
            tokio::select! {
                () = tokio::time::sleep(timeout) => {}
                // A dropped sender is a server that has stopped.
                _ = draining.wait_for(|draining| *draining) => {}
            }
        };
        Self {
            body,
            end: End::Watch(Box::pin(over)),
            _in_flight: connection.state.in_flight(ResponseKind::Watch),
            connection,
            release: None,
            _slot: slot,
            _recorder: recorder,
        }
    }
}

impl http_body::Body for DeadlineBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        match &mut this.end {
            End::Over => return Poll::Ready(None),
            End::Watch(over) => {
                if over.as_mut().poll(context).is_ready() {
                    this.end = End::Over;
                    return Poll::Ready(None);
                }
            }
            End::Deadline(deadline, timer) => {
                // Most responses end with their first poll: they need no timer.
                let expired = timer
                    .as_mut()
                    .is_some_and(|timer| timer.as_mut().poll(context).is_ready());
                if expired || Instant::now() >= *deadline {
                    this.end = End::Over;
                    let late = String::from("the response was not read by its deadline");
                    return Poll::Ready(Some(Err(BodyError::Broken(late))));
                }
            }
        }
        // No more of a response is produced than can be written soon.
        let window = &this.connection.send_window;
        let polled = match window.poll_ready(context) {
            Poll::Ready(()) => Pin::new(&mut this.body).poll_frame(context),
            Poll::Pending => Poll::Pending,
        };
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            window.produced(frame.data_ref().map_or(0, Bytes::len));
        }
        match &polled {
            Poll::Ready(_) => this.connection.state.progress(),
            Poll::Pending => {
                if let End::Deadline(deadline, timer) = &mut this.end
                    && timer.is_none()
                {
                    let mut sleep = Box::pin(tokio::time::sleep_until(*deadline));
                    // Registers the waker; if the deadline has just passed, the next poll fails.
                    if sleep.as_mut().poll(context).is_ready() {
                        context.waker().wake_by_ref();
                    }
                    *timer = Some(sleep);
                }
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.end, End::Over) || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for DeadlineBody {
    fn drop(&mut self) {
        if let Some(timer) = &self.release {
            timer.abort();
        }
    }
}
