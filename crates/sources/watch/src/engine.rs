//! The life of a stream: list, watch, lose the connection, come back.
//!
//! ```text
//!        ┌──────────── 410, or no way forward from the version ─────────────┐
//!        ▼                                                                  │
//!   no version ──streaming list──► initial events ──bookmark──► live ──end──┴──► watch from the version ──┐
//!        └────────paged list───────────────────────────────────► ▲ ◄─────────────────────────────────────┘
//! ```
//!
//! Where what it reads goes is not its business: a [`Sink`] keeps a view of it, or hands it on.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kube_client_metrics::reflector::{Listing, Reflector, Watching};
use kubevitals_model::{ResourceVersion, Timestamp};
use tokio::time::{Instant, sleep, timeout};

use self::ended::Ended;
use crate::backoff::Backoff;
use crate::decode::{Bookmark, WatchEvent, decode_event};
use crate::error::DecodeError;
use crate::kind::{Decoder, Kind};
use crate::lines::{Line, Lines};
use crate::server::Shared;
use crate::sink::{Item, Sink};
use crate::spec::{StreamOptions, StreamSpec};
use crate::state::Restart;
use crate::transport::{BoxBody, next_data};

mod ended;
mod list;

/// So many attempts from one version that end in an error of the server are enough: it is listed
/// again.
const ATTEMPTS_FROM_ONE_VERSION: u32 = 3;

/// So many lines in a row that are no events are not the fault of an object.
const GARBAGE_IN_A_ROW: u32 = 16;

#[derive(Debug)]
pub(crate) struct Engine<K: Kind, S: Sink<K>> {
    sink: S,
    server: Arc<Shared>,
    spec: StreamSpec<K>,
    decoder: Decoder,
    reflector: Reflector,
    backoff: Backoff,
    /// Where the next watch begins; none if a list must come first.
    resume: Option<ResourceVersion>,
    /// Attempts in a row that got nothing from this version but errors.
    stuck: u32,
    /// Whether this server sends bookmarks on this stream, so that silence means something.
    has_bookmarks: bool,
}

/// One open watch.
struct Session<L> {
    body: BoxBody,
    lines: Lines,
    /// The server was asked to end it after this.
    timeout: Duration,
    /// What a streaming list has brought so far; none once it is complete, or if it is a plain
    /// watch.
    initial: Option<L>,
    /// That list, to be told when it is complete.
    listing: Option<Listing>,
    /// The watch, told of when it ends.
    watching: Watching,
    opened: Instant,
    /// Since when it has been a watch.
    live: Option<Instant>,
    garbage: u32,
}

/// What one chunk of a watch brought.
struct Batch<K> {
    items: Vec<Item<K>>,
    version: Option<ResourceVersion>,
    ended: Option<Ended>,
}

impl<K: Kind, S: Sink<K>> Engine<K, S> {
    pub(crate) fn new(sink: S, server: Arc<Shared>, spec: StreamSpec<K>, decoder: Decoder) -> Self {
        let StreamOptions {
            backoff_base,
            backoff_cap,
            seed,
            ..
        } = spec.options;
        Self {
            reflector: server.reflector(spec.name),
            sink,
            server,
            spec,
            decoder,
            backoff: Backoff::new(backoff_base, backoff_cap, seed),
            resume: None,
            stuck: 0,
            has_bookmarks: false,
        }
    }

    pub(crate) async fn run(mut self) -> Infallible {
        loop {
            let from = self.resume.clone();
            let (live, ended) = self.connect().await;
            let lasted = live.map_or(Duration::ZERO, |since| since.elapsed());
            let has_progressed = self.resume != from;
            let wait = self.settle(ended, lasted, has_progressed);
            sleep(wait).await;
        }
    }

    /// Lists if it must, then watches until that ends. Gives since when the watch was live, if it
    /// came to that.
    async fn connect(&mut self) -> (Option<Instant>, Ended) {
        let is_streaming = self.resume.is_none()
            && self.spec.options.streaming_lists
            && self.server.streams_lists();
        if self.resume.is_none() && !is_streaming {
            match self.list_pages().await {
                Ok(version) => self.advance(version),
                Err(ended) => return (None, ended),
            }
        }
        let mut session = match self.open_watch().await {
            Ok(session) => session,
            Err(ended) if is_streaming => return (None, ended.of_streaming_list()),
            Err(ended) => return (None, ended),
        };
        let ended = self.follow(&mut session).await;
        (session.live, ended)
    }

    async fn open_watch(&mut self) -> Result<Session<S::List>, Ended> {
        let shortest = self.spec.options.watch_timeout;
        let timeout = shortest + self.backoff.random().up_to(shortest);
        let is_plain = self.resume.is_some();
        let target = match &self.resume {
            Some(version) => self.spec.watch(version, timeout),
            None => self.spec.streaming_list(timeout),
        };
        let listing = (!is_plain).then(|| self.reflector.list());
        let body = self.open(&target, StreamSpec::<K>::accept(false)).await?;
        let now = Instant::now();
        self.sink.note(|record| record.connected(now));
        if is_plain {
            self.log_recovery();
        }
        Ok(Session {
            body,
            lines: Lines::new(self.spec.options.max_event_bytes),
            timeout,
            initial: (!is_plain).then(S::List::default),
            listing,
            watching: self.reflector.watch(),
            opened: now,
            live: is_plain.then_some(now),
            garbage: 0,
        })
    }

    /// Reads a watch to its end.
    async fn follow(&mut self, session: &mut Session<S::List>) -> Ended {
        loop {
            let patience = self.patience(session);
            let data = match timeout(patience, next_data(&mut session.body)).await {
                Ok(Some(Ok(data))) => data,
                Ok(Some(Err(error))) => return Ended::new(Restart::Broken, error.to_string()),
                // A whole watch went by without it. Sooner, the server may just have been
                // restarted.
                Ok(None)
                    if session.initial.is_some() && session.opened.elapsed() >= session.timeout =>
                {
                    return Ended::without_initial_events_end();
                }
                Ok(None) => return Ended::new(Restart::Ended, "server ended the watch".to_owned()),
                Err(_) if session.initial.is_some() => return Ended::without_initial_events_end(),
                Err(_) => {
                    let words = format!("nothing came for {} s", patience.as_secs());
                    return Ended::new(Restart::Silent, words);
                }
            };
            let received = self.spec.options.clock.now();
            self.sink
                .note(|record| record.received(data.len(), Instant::now()));
            let batch = self.read(session, &data);
            session.watching.received(batch.items.len() as u64);
            self.absorb(session, batch.items, received).await;
            if let Some(version) = batch.version {
                self.advance(version);
            }
            if let Some(ended) = batch.ended {
                return ended;
            }
        }
    }

    fn patience(&self, session: &Session<S::List>) -> Duration {
        let options = &self.spec.options;
        if session.initial.is_some() {
            options.list_silence
        } else if self.has_bookmarks {
            options.watch_silence
        } else {
            session.timeout + options.answer_timeout
        }
    }

    /// Decodes one chunk. Nothing is locked meanwhile but the interner.
    fn read(&mut self, session: &mut Session<S::List>, data: &[u8]) -> Batch<K> {
        let mut batch = Batch {
            items: Vec::new(),
            version: None,
            ended: None,
        };
        let mut is_initial = session.initial.is_some();
        let limit = session.lines.limit();
        let garbage = &mut session.garbage;
        let (decoder, has_bookmarks) = (&self.decoder, &mut self.has_bookmarks);
        session.lines.feed(data, |line| {
            if batch.ended.is_some() {
                return;
            }
            let event = match line {
                Line::Whole(line) => decode_event(line, decoder),
                Line::TooLong { length } => Err(DecodeError::TooLong { length, limit }),
            };
            match event {
                Ok(WatchEvent::Error(status)) => batch.ended = Some(Ended::by_event(&status)),
                Ok(WatchEvent::Bookmark(mark)) if is_initial && !mark.ends_initial_events => {
                    // Servers that know streaming lists send no other bookmark before that one.
                    batch.ended = Some(Ended::without_initial_events_end());
                }
                Ok(event) => {
                    *garbage = 0;
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
                    *garbage = if error.is_garbage() { *garbage + 1 } else { 0 };
                    if *garbage >= GARBAGE_IN_A_ROW {
                        batch.ended = Some(Ended::new(Restart::Garbage, error.to_string()));
                    }
                    batch.items.push(Item::Unreadable(error));
                }
            }
        });
        batch
    }

    /// Passes on what the chunk brought.
    async fn absorb(
        &mut self,
        session: &mut Session<S::List>,
        items: Vec<Item<K>>,
        received: Timestamp,
    ) {
        for item in &items {
            if let Item::Unreadable(error) = item {
                self.count_unreadable(error);
            }
        }
        let mut items = items.into_iter();
        if let Some(mut list) = session.initial.take() {
            if !self.sink.stage(&mut list, &mut items, received).await {
                session.initial = Some(list);
                return;
            }
            self.take_over(list, session.listing.take(), received);
            session.live = Some(Instant::now());
        }
        self.sink.apply(items, received).await;
    }

    fn take_over(&mut self, list: S::List, listing: Option<Listing>, received: Timestamp) {
        let objects = self.sink.complete(list, received, Instant::now());
        if let Some(listing) = listing {
            listing.complete(objects as u64);
        }
        tracing::debug!(stream = self.spec.name, objects, "list taken over");
        self.log_recovery();
    }

    fn advance(&mut self, version: ResourceVersion) {
        self.stuck = 0;
        self.reflector.seen(&version.to_string());
        self.sink
            .note(|record| record.resource_version = Some(version.clone()));
        self.resume = Some(version);
    }

    /// Draws the conclusions from the end of a connection; gives how long to wait.
    fn settle(&mut self, ended: Ended, lasted: Duration, has_progressed: bool) -> Duration {
        if lasted >= self.spec.options.healthy_after {
            self.backoff.reset();
        }
        match ended.why {
            Restart::Expired => self.resume = None,
            Restart::NoStreamingLists => self.server.refuse_streaming_lists(),
            Restart::ServerError | Restart::Refused | Restart::Garbage if !has_progressed => {
                self.stuck += 1;
                if self.stuck >= ATTEMPTS_FROM_ONE_VERSION {
                    self.stuck = 0;
                    self.resume = None;
                }
            }
            _ => {}
        }
        // Once, what belongs to the ordinary life of a stream is no reason to wait; over and over,
        // it is.
        let is_first = self.backoff.failures() == 0;
        let jittered = self.backoff.next();
        let wait = match ended.retry_after {
            Some(asked) => (asked + jittered).min(self.spec.options.backoff_cap.max(asked)),
            None if is_first && ended.why.is_ordinary() => Duration::ZERO,
            None => jittered,
        };
        self.log_end(&ended, wait);
        let failures = self.backoff.failures();
        self.sink
            .note(|record| record.ended(ended.why, ended.words, failures));
        wait
    }

    fn count_unreadable(&self, error: &DecodeError) {
        let count = self.sink.note(|record| record.unreadable(error));
        // A cluster can hold thousands that fail alike: the log gets ever fewer of them, the metric
        // all.
        if count.is_power_of_two() {
            tracing::warn!(stream = self.spec.name, count, %error, "object skipped");
        }
    }

    fn log_end(&self, ended: &Ended, wait: Duration) {
        let (stream, reason, words) = (self.spec.name, ended.why.as_str(), ended.words.as_str());
        // The first failure is told; that it goes on is seen in the metrics.
        if self.backoff.failures() == 1 && !ended.why.is_ordinary() {
            tracing::warn!(stream, reason, words, ?wait, "watch interrupted");
        } else {
            tracing::debug!(stream, reason, words, ?wait, "watch interrupted");
        }
    }

    fn log_recovery(&self) {
        let failures = self.backoff.failures();
        if failures > 1 {
            tracing::info!(stream = self.spec.name, failures, "watch is back");
        }
    }
}

/// Up to where everything has been seen after this event.
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
