//! Requests that end: paged lists, and the beginning of every watch.

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Response};
use tokio::time::{Instant, timeout};

use super::Engine;
use super::ended::Ended;
use crate::decode::WatchEvent;
use crate::decode::{Page, decode_page, decode_status};
use crate::kind::Kind;
use crate::sink::{Item, Sink};
use crate::spec::StreamSpec;
use crate::state::{Record, Restart};
use crate::transport::{BoxBody, next_data, request};
use kubevitals_model::ResourceVersion;

/// Of an answer that is an error, so much is read to say what it was.
const MAX_STATUS: usize = 64 << 10;

/// A list whose beginning the server forgets before its end is begun again this often, with larger
/// pages.
const MAX_BEGINNINGS: u32 = 4;

/// Each new beginning asks for pages so many times as large: fewer pages take less time.
const PAGE_GROWTH: u32 = 4;

impl<K: Kind, S: Sink<K>> Engine<K, S> {
    /// Lists in pages and takes the list over; gives its version.
    pub(super) async fn list_pages(&mut self) -> Result<ResourceVersion, Ended> {
        let mut size = self.spec.options.page_size;
        let listing = self.reflector.list();
        let mut beginnings = 1;
        let mut list = S::List::default();
        let mut next = String::new();
        loop {
            let page = match self.get_page(size, &next).await {
                Ok(page) => page,
                Err(ended) if ended.why == Restart::Expired && beginnings < MAX_BEGINNINGS => {
                    beginnings += 1;
                    size = size.saturating_mul(PAGE_GROWTH);
                    list = S::List::default();
                    next = String::new();
                    continue;
                }
                Err(ended) => return Err(ended),
            };
            for error in &page.unreadable {
                self.count_unreadable(error);
            }
            let objects = page
                .objects
                .into_iter()
                .map(|object| Item::Event(WatchEvent::Added(object)));
            let unreadable = page.unreadable.into_iter().map(Item::Unreadable);
            let received = self.spec.options.clock.now();
            self.sink
                .stage(&mut list, &mut objects.chain(unreadable), received)
                .await;
            next = page.next;
            if !next.is_empty() && self.sink.has_enough(&list) {
                // All pages are of one version, so a watch from there misses nothing that comes.
                self.sink.note(Record::cut_short);
                tracing::info!(
                    stream = self.spec.name,
                    "list is long: the rest of it is left"
                );
                next.clear();
            }
            if next.is_empty() {
                self.take_over(list, Some(listing), received);
                return Ok(page.resource_version);
            }
        }
    }

    async fn get_page(&mut self, size: u32, next: &str) -> Result<Page<K>, Ended> {
        let target = self.spec.page(size, next);
        let mut body = self.open(&target, StreamSpec::<K>::accept(true)).await?;
        let body = self
            .collect(&mut body, self.spec.options.max_page_bytes)
            .await?;
        self.sink
            .note(|record| record.received(body.len(), Instant::now()));
        decode_page(&body, &self.decoder)
            .map_err(|error| Ended::new(Restart::Garbage, error.to_string()))
    }

    /// Sends a GET; anything but success is an end.
    pub(super) async fn open(
        &mut self,
        target: &str,
        accept: &'static str,
    ) -> Result<BoxBody, Ended> {
        let request = request(target, accept)
            .map_err(|error| Ended::new(Restart::Refused, format!("bad request: {error}")))?;
        let patience = self.spec.options.answer_timeout;
        let answer = timeout(patience, self.server.transport().get(request))
            .await
            .map_err(|_| {
                let words = format!("no answer within {} s", patience.as_secs());
                Ended::new(Restart::NoAnswer, words)
            })?
            .map_err(|error| Ended::new(Restart::Unreachable, error.to_string()))?;
        let (head, mut body) = Response::into_parts(answer);
        if head.status.is_success() {
            return refuse_encoded(&head.headers).map_or(Ok(body), Err);
        }
        // What cannot be read of the reason is not worth another error.
        let said = self
            .collect(&mut body, MAX_STATUS)
            .await
            .unwrap_or_default();
        Err(Ended::by_answer(
            head.status.as_u16(),
            &head.headers,
            decode_status(&said),
        ))
    }

    /// A whole body, up to a bound. Not yet a sign of life: it may be that of a refusal.
    async fn collect(&self, body: &mut BoxBody, limit: usize) -> Result<Bytes, Ended> {
        let patience = self.spec.options.list_silence;
        let mut whole = BytesMut::new();
        loop {
            let data = match timeout(patience, next_data(body)).await {
                Ok(Some(Ok(data))) => data,
                Ok(Some(Err(error))) => return Err(Ended::new(Restart::Broken, error.to_string())),
                Ok(None) => return Ok(whole.freeze()),
                Err(_) => {
                    let words = format!("nothing came for {} s", patience.as_secs());
                    return Err(Ended::new(Restart::Silent, words));
                }
            };
            if whole.len() + data.len() > limit {
                let words = format!("answer is larger than {limit} bytes");
                return Err(Ended::new(Restart::Garbage, words));
            }
            whole.extend_from_slice(&data);
        }
    }
}

/// A body that is compressed though that was not asked for cannot be read.
fn refuse_encoded(headers: &HeaderMap) -> Option<Ended> {
    let encoding = headers.get(CONTENT_ENCODING)?;
    (encoding != "identity").then(|| {
        let words = format!("answer is encoded as {encoding:?}, which was not asked for");
        Ended::new(Restart::Garbage, words)
    })
}
