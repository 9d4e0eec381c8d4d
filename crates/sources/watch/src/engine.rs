//! The loop of a watch: list, watch, reconnect.
//!
//! ```text
//!        ┌──────────── 410, or repeated errors at one version ──────────────┐
//!        ▼                                                                  │
//!   no version ──streaming list──► initial events ──bookmark──► live ──end──┴──► watch from the version ──┐
//!        └────────paged list───────────────────────────────────► ▲ ◄─────────────────────────────────────┘
//! ```
//!
//! A [`Sink`] receives the objects: a cache with subscribers, or the queue of an event watcher.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kube_client_metrics::reflector::{Listing, Reflector as ReflectorHooks, Watching};
use kubevitals_model::{Backoff, BackoffPolicy, Jitter, ResourceVersion, Rng, Timestamp};
use kubevitals_telemetry::OutagePart;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::disconnect::Disconnect;
use self::encoding::Splitter;
use crate::client::ClientInner;
use crate::decode::{Bookmark, WatchEvent};
use crate::error::{DecodeError, TransportError};
use crate::kind::{Decoder, Kind};
use crate::lines::Line;
use crate::sink::{Item, Sink};
use crate::spec::{WatchOptions, WatchSpec};
use crate::state::RestartReason;
use crate::transport::{BoxBody, next_data};

mod disconnect;
mod encoding;
mod list;

/// After this many attempts from one resource version that end in a server error, a relist follows.
const MAX_ATTEMPTS_PER_VERSION: u32 = 3;

/// After this many lines in a row that are no events, the response is not a watch at all.
const MAX_INVALID_LINES: u32 = 16;

#[derive(Debug)]
pub(crate) struct Engine<K: Kind, S: Sink<K>> {
    sink: S,
    client: Arc<ClientInner>,
    spec: WatchSpec<K>,
    decoder: Decoder,
    hooks: ReflectorHooks,
    backoff: Backoff,
    /// The version to watch from; `None` if a list must come first.
    resume: Option<ResourceVersion>,
    /// The number of attempts in a row from this version that ended in an error.
    failed_attempts: u32,
    /// Whether the server sends bookmarks on this watch, so that a lack of data is significant.
    has_bookmarks: bool,
    /// Whether a failure was reported to `outage`, and no success since.
    is_failing: bool,
    outage: OutagePart,
}

/// One open watch.
struct Session<L> {
    body: BoxBody,
    splitter: Splitter,
    /// The `timeoutSeconds` of the request.
    timeout: Duration,
    /// The incomplete streaming list; `None` once it is complete, and for a plain watch.
    initial: Option<L>,
    /// Reports that list to the client metrics.
    listing: Option<Listing>,
    /// Reports the watch to the client metrics.
    watching: Watching,
    opened: Instant,
    /// When the watch became live.
    live: Option<Instant>,
    invalid_lines: u32,
}

/// The decoded items of one chunk of a watch.
struct Batch<K> {
    items: Vec<Item<K>>,
    version: Option<ResourceVersion>,
    disconnect: Option<Disconnect>,
}

impl<K: Kind, S: Sink<K>> Engine<K, S> {
    pub(crate) fn new(
        sink: S,
        client: Arc<ClientInner>,
        spec: WatchSpec<K>,
        decoder: Decoder,
    ) -> Self {
        let WatchOptions {
            min_backoff,
            max_backoff,
            seed,
            ..
        } = spec.options;
        let policy = BackoffPolicy {
            first: min_backoff,
            second: min_backoff.saturating_mul(2),
            max: max_backoff,
            jitter: Jitter::Full,
        };
        Self {
            hooks: client.reflector_hooks(spec.name),
            outage: client.outage.periodic(spec.name),
            sink,
            client,
            spec,
            decoder,
            backoff: Backoff::new(policy, seed.map_or_else(Rng::random, Rng::seeded)),
            resume: None,
            failed_attempts: 0,
            has_bookmarks: false,
            is_failing: false,
        }
    }

    pub(crate) async fn run(mut self) -> Infallible {
        loop {
            let from = self.resume.clone();
            let (live, disconnect) = self.connect().await;
            let lasted = live.map_or(Duration::ZERO, |since| since.elapsed());
            let has_progressed = self.resume != from;
            let wait = self.on_disconnect(disconnect, lasted, has_progressed);
            sleep(wait).await;
        }
    }

    /// Lists if necessary, then watches until the connection ends. Returns when the watch was in
    /// sync, if it was.
    async fn connect(&mut self) -> (Option<Instant>, Disconnect) {
        let is_streaming = self.resume.is_none()
            && self.spec.options.streaming_lists
            && self.client.supports_streaming_lists();
        if self.resume.is_none() && !is_streaming {
            match self.list_pages().await {
                Ok(version) => self.advance(version),
                Err(disconnect) => return (None, disconnect),
            }
        }
        let mut session = match self.open_watch().await {
            Ok(session) => session,
            Err(disconnect) if is_streaming => return (None, disconnect.of_streaming_list()),
            Err(disconnect) => return (None, disconnect),
        };
        let disconnect = self.follow(&mut session).await;
        (session.live, disconnect)
    }

    async fn open_watch(&mut self) -> Result<Session<S::List>, Disconnect> {
        let shortest = self.spec.options.watch_timeout;
        let timeout = shortest + self.backoff.rng().duration_up_to(shortest);
        let is_plain = self.resume.is_some();
        let target = match &self.resume {
            Some(version) => self.spec.watch(version, timeout),
            None => self.spec.streaming_list(timeout),
        };
        let listing = (!is_plain).then(|| self.hooks.list());
        let (encoding, body) = self.open(&target, WatchSpec::<K>::accept(false)).await?;
        let now = Instant::now();
        self.sink.record(|stats| stats.connected(now));
        Ok(Session {
            body,
            splitter: Splitter::new(encoding, self.spec.options.max_event_bytes),
            timeout,
            initial: (!is_plain).then(S::List::default),
            listing,
            watching: self.hooks.watch(),
            opened: now,
            live: is_plain.then_some(now),
            invalid_lines: 0,
        })
    }

    /// Reads a watch until the connection ends.
    async fn follow(&mut self, session: &mut Session<S::List>) -> Disconnect {
        loop {
            let idle_timeout = self.idle_timeout(session);
            let data = match self.read(session, idle_timeout).await {
                Ok(Some(Ok(data))) => data,
                Ok(Some(Err(error))) => {
                    return Disconnect::new(RestartReason::ConnectionLost, error.to_string());
                }
                // The server ended the watch after its full timeout without the bookmark that ends
                // the initial events: it does not support streaming lists. Earlier, it may have
                // restarted.
                Ok(None)
                    if session.initial.is_some() && session.opened.elapsed() >= session.timeout =>
                {
                    return Disconnect::without_initial_events_end();
                }
                Ok(None) => {
                    return Disconnect::new(
                        RestartReason::Ended,
                        "server ended the watch".to_owned(),
                    );
                }
                Err(_) if session.initial.is_some() => {
                    return Disconnect::without_initial_events_end();
                }
                Err(_) => {
                    let message = format!("no data for {} s", idle_timeout.as_secs());
                    return Disconnect::new(RestartReason::Idle, message);
                }
            };
            let received = self.spec.options.clock.now();
            self.sink
                .record(|stats| stats.received(data.len(), Instant::now()));
            let batch = self.decode(session, &data);
            session.watching.received(batch.items.len() as u64);
            self.apply(session, batch.items, received).await;
            if let Some(version) = batch.version {
                self.advance(version);
            }
            if let Some(disconnect) = batch.disconnect {
                return disconnect;
            }
        }
    }

    /// Reads the next data. Meanwhile a connection that has become healthy ends an outage: a server
    /// that drops each connection at once is still one outage.
    async fn read(
        &mut self,
        session: &mut Session<S::List>,
        idle_timeout: Duration,
    ) -> Result<Option<Result<Bytes, TransportError>>, Elapsed> {
        let read = timeout(idle_timeout, next_data(&mut session.body));
        let (true, Some(live)) = (self.is_failing, session.live) else {
            return read.await;
        };
        tokio::pin!(read);
        tokio::select! {
            biased;
            data = &mut read => return data,
            () = sleep_until(live + self.spec.options.healthy_after) => self.log_recovery(),
        }
        read.await
    }

    fn idle_timeout(&self, session: &Session<S::List>) -> Duration {
        let options = &self.spec.options;
        if session.initial.is_some() {
            options.list_idle_timeout
        } else if self.has_bookmarks {
            options.watch_idle_timeout
        } else {
            session.timeout + options.response_timeout
        }
    }

    /// Decodes one chunk. Only the interner is locked meanwhile.
    fn decode(&mut self, session: &mut Session<S::List>, data: &[u8]) -> Batch<K> {
        let mut batch = Batch {
            items: Vec::new(),
            version: None,
            disconnect: None,
        };
        let mut is_initial = session.initial.is_some();
        let limit = self.spec.options.max_event_bytes;
        let encoding = session.splitter.encoding();
        let invalid_lines = &mut session.invalid_lines;
        let (decoder, has_bookmarks) = (&self.decoder, &mut self.has_bookmarks);
        session.splitter.feed(data, |line| {
            if batch.disconnect.is_some() {
                return;
            }
            let event = match line {
                Line::Whole(line) => encoding.decode_event(line, decoder),
                Line::TooLong { length } => Err(DecodeError::TooLong { length, limit }),
            };
            match event {
                Ok(WatchEvent::Error(status)) => {
                    batch.disconnect = Some(Disconnect::from_event(&status));
                }
                Ok(WatchEvent::Bookmark(mark)) if is_initial && !mark.ends_initial_events => {
                    // Servers that support streaming lists send no other bookmark before that one.
                    batch.disconnect = Some(Disconnect::without_initial_events_end());
                }
                Ok(event) => {
                    *invalid_lines = 0;
                    if let WatchEvent::Bookmark(mark) = &event {
                        is_initial = false;
                        *has_bookmarks |= !mark.ends_initial_events;
                    }
                    if !is_initial && let Some(version) = version_of(&event) {
                        batch.version = Some(version.clone());
                    }
                    batch.items.push(Item::Event(event));
                }
                Err(error) => {
                    *invalid_lines = if error.is_invalid_response() {
                        *invalid_lines + 1
                    } else {
                        0
                    };
                    if *invalid_lines >= MAX_INVALID_LINES {
                        batch.disconnect = Some(Disconnect::new(
                            RestartReason::InvalidResponse,
                            error.to_string(),
                        ));
                    }
                    batch.items.push(Item::Unreadable(error));
                }
            }
        });
        batch
    }

    /// Passes the items to the sink.
    async fn apply(
        &mut self,
        session: &mut Session<S::List>,
        items: Vec<Item<K>>,
        received: Timestamp,
    ) {
        for item in &items {
            if let Item::Unreadable(error) = item {
                self.record_decode_error(error);
            }
        }
        let mut items = items.into_iter();
        if let Some(mut list) = session.initial.take() {
            if !self.sink.stage(&mut list, &mut items, received).await {
                session.initial = Some(list);
                return;
            }
            self.complete_list(list, session.listing.take(), received);
            session.live = Some(Instant::now());
        }
        self.sink.apply(items, received).await;
    }

    fn complete_list(&mut self, list: S::List, listing: Option<Listing>, received: Timestamp) {
        let objects = self.sink.complete(list, received, Instant::now());
        if let Some(listing) = listing {
            listing.complete(objects as u64);
        }
        tracing::debug!(watch = self.spec.name, objects, "list complete");
    }

    fn advance(&mut self, version: ResourceVersion) {
        self.failed_attempts = 0;
        self.hooks.seen(&version.to_string());
        self.sink
            .record(|stats| stats.resource_version = Some(version.clone()));
        self.resume = Some(version);
    }

    /// Handles the end of a connection; returns the wait before the next one.
    fn on_disconnect(
        &mut self,
        disconnect: Disconnect,
        lasted: Duration,
        has_progressed: bool,
    ) -> Duration {
        if lasted >= self.spec.options.healthy_after {
            self.backoff.reset();
        }
        match disconnect.reason {
            RestartReason::Expired => self.resume = None,
            RestartReason::NoStreamingLists => self.client.reject_streaming_lists(),
            RestartReason::ServerError
            | RestartReason::Rejected
            | RestartReason::InvalidResponse
                if !has_progressed =>
            {
                self.failed_attempts += 1;
                if self.failed_attempts >= MAX_ATTEMPTS_PER_VERSION {
                    self.failed_attempts = 0;
                    self.resume = None;
                }
            }
            _ => {}
        }
        // An expected end is no reason to wait, unless it repeats.
        let is_first = self.backoff.failures() == 0;
        let jittered = self.backoff.next_wait();
        let wait = match disconnect.retry_after {
            Some(requested) => {
                (requested + jittered).min(self.spec.options.max_backoff.max(requested))
            }
            None if is_first && disconnect.reason.is_expected() => Duration::ZERO,
            None => jittered,
        };
        self.log_disconnect(&disconnect, lasted, wait);
        let failures = self.backoff.failures();
        self.sink
            .record(|stats| stats.disconnected(disconnect.reason, disconnect.message, failures));
        wait
    }

    fn record_decode_error(&self, error: &DecodeError) {
        let count = self.sink.record(|stats| stats.decode_failed(error));
        // A cluster can hold thousands of objects that fail alike: the metric counts all, the log
        // is sampled at powers of two.
        if count.is_power_of_two() {
            tracing::warn!(watch = self.spec.name, count, %error, "skipped an object that cannot be decoded");
        }
    }

    /// Logs the first of several failures; the metrics count all. An outage of the server is one
    /// for the whole process.
    fn log_disconnect(&mut self, disconnect: &Disconnect, lasted: Duration, wait: Duration) {
        if lasted >= self.spec.options.healthy_after {
            self.log_recovery();
        }
        let watch = self.spec.name;
        let (reason, error) = (disconnect.reason.as_str(), disconnect.message.as_str());
        let is_expected = disconnect.reason.is_expected();
        self.is_failing |= !is_expected;
        if !is_expected && self.outage.failed(disconnect.failure, &error) {
            tracing::warn!(watch, reason, error, ?wait, "watch disconnected");
        } else {
            tracing::debug!(watch, reason, error, ?wait, "watch disconnected");
        }
    }

    /// Logs the end of an outage.
    fn log_recovery(&mut self) {
        self.is_failing = false;
        if self.outage.succeeded() {
            let (watch, failures) = (self.spec.name, self.backoff.failures());
            tracing::info!(watch, failures, "watch reconnected");
        }
    }
}

/// Returns the version to resume from after this event.
fn version_of<K: Kind>(event: &WatchEvent<K>) -> Option<&ResourceVersion> {
    let version = match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
            &object.identity().resource_version
        }
        WatchEvent::Bookmark(Bookmark {
            resource_version, ..
        }) => resource_version,
        WatchEvent::Error(_) => return None,
    };
    (!version.is_empty()).then_some(version)
}
