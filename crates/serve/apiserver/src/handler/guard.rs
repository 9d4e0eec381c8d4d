//! What an answer holds until its last byte has gone: its place, its time, and its line in the
//! metrics.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep};

use super::Connection;
use crate::body::{Body, BodyError};
use crate::metrics::Recorder;

/// Smaller answers fit into the buffers of the socket: they are gone before anybody can wait.
const SMALL: u64 = 64 * 1024;

/// A place among the requests that are served. It is given back at the end of the answer, or at its
/// deadline, whichever comes first: who reads slowly must not keep others out.
pub(super) struct Slot(Arc<Mutex<Option<Held>>>);

struct Held {
    _permit: Option<OwnedSemaphorePermit>,
    gauge: Gauge,
}

/// A body with all that it holds.
pub(super) struct Guarded {
    body: Body,
    /// When it must be over, and what ends it in order.
    end: End,
    connection: Arc<Connection>,
    is_watch: bool,
    release: Option<AbortHandle>,
    _slot: Option<Slot>,
    _recorder: Recorder,
}

enum End {
    /// Cut at this time.
    Deadline(Instant, Option<Pin<Box<Sleep>>>),
    /// Ended like a watch that has run its time.
    Watch(Pin<Box<dyn Future<Output = ()> + Send>>),
    Over,
}

impl Slot {
    pub(super) fn new(permit: Option<OwnedSemaphorePermit>, gauge: Gauge) -> Self {
        gauge.inc();
        Self(Arc::new(Mutex::new(Some(Held {
            _permit: permit,
            gauge,
        }))))
    }

    fn give_back(held: &Mutex<Option<Held>>) {
        drop(held.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        Self::give_back(&self.0);
    }
}

impl Guarded {
    /// An answer that must be taken by `deadline`.
    pub(super) fn answer(
        body: Body,
        slot: Option<Slot>,
        recorder: Recorder,
        connection: Arc<Connection>,
        deadline: Instant,
    ) -> Self {
        connection.activity.begin(false);
        // A body that nobody reads is never polled, so that somebody else must look at the clock.
        let is_large = body.size_hint().exact().is_none_or(|size| size > SMALL);
        let release = slot.as_ref().filter(|_| is_large).map(|slot| {
            let held = Arc::clone(&slot.0);
            let timer = tokio::spawn(async move {
                tokio::time::sleep_until(deadline).await;
                Slot::give_back(&held);
            });
            timer.abort_handle()
        });
        Self {
            body,
            end: End::Deadline(deadline, None),
            connection,
            is_watch: false,
            release,
            _slot: slot,
            _recorder: recorder,
        }
    }

    /// A watch that lasts for so long at most, and ends when the server does.
    pub(super) fn watch(
        body: Body,
        slot: Option<Slot>,
        recorder: Recorder,
        connection: Arc<Connection>,
        longest: Duration,
        mut draining: watch::Receiver<bool>,
    ) -> Self {
        connection.activity.begin(true);
        let over = async move {
            tokio::select! {
                () = tokio::time::sleep(longest) => {}
                // A sender that is gone is a server that is gone.
                _ = draining.wait_for(|draining| *draining) => {}
            }
        };
        Self {
            body,
            end: End::Watch(Box::pin(over)),
            connection,
            is_watch: true,
            release: None,
            _slot: slot,
            _recorder: recorder,
        }
    }
}

impl http_body::Body for Guarded {
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
                // A timer costs something, and most answers are there at once.
                let rang = timer
                    .as_mut()
                    .is_some_and(|timer| timer.as_mut().poll(context).is_ready());
                if rang || Instant::now() >= *deadline {
                    this.end = End::Over;
                    let late = String::from("the answer was not taken in time");
                    return Poll::Ready(Some(Err(BodyError::Broken(late))));
                }
            }
        }
        // What is made of an answer must not run ahead of what is written of it.
        let pace = &this.connection.pace;
        let polled = match pace.poll_room(context) {
            Poll::Ready(()) => Pin::new(&mut this.body).poll_frame(context),
            Poll::Pending => Poll::Pending,
        };
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            pace.made(frame.data_ref().map_or(0, Bytes::len));
        }
        match &polled {
            Poll::Ready(_) => this.connection.activity.progress(),
            Poll::Pending => {
                if let End::Deadline(deadline, timer) = &mut this.end
                    && timer.is_none()
                {
                    let mut sleep = Box::pin(tokio::time::sleep_until(*deadline));
                    // Registers the waker; it cannot be over yet, and if it is the next poll says
                    // so.
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

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(timer) = &self.release {
            timer.abort();
        }
        self.connection.activity.end(self.is_watch);
    }
}
