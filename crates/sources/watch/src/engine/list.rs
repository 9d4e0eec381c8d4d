//! Paged lists, and the request that starts each watch.

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Response};
use tokio::time::{Instant, timeout};

use super::Engine;
use super::disconnect::Disconnect;
use super::encoding::Encoding;
use crate::decode::Page;
use crate::decode::WatchEvent;
use crate::kind::Kind;
use crate::sink::{Item, Sink};
use crate::spec::WatchSpec;
use crate::state::{RestartReason, WatchStats};
use crate::transport::{BoxBody, next_data, request};
use kubevitals_model::ResourceVersion;

/// The maximum size of an error response that is read.
const MAX_STATUS_BYTES: usize = 64 << 10;

/// The maximum number of attempts at a list whose `continue` token expires, each with larger pages.
const MAX_LIST_ATTEMPTS: u32 = 4;

/// The factor by which pages grow with each attempt: fewer pages take less time.
const PAGE_GROWTH: u32 = 4;

impl<K: Kind, S: Sink<K>> Engine<K, S> {
    /// Lists in pages, completes the list and returns its version.
    pub(super) async fn list_pages(&mut self) -> Result<ResourceVersion, Disconnect> {
        let mut size = self.spec.options.page_size;
        let listing = self.hooks.list();
        let mut attempts = 1;
        let mut list = S::List::default();
        let mut next = String::new();
        loop {
            let target = self.spec.page(size, &next);
            let page = match self.get_page(&target).await {
                Ok(page) => page,
                Err(disconnect)
                    if disconnect.reason == RestartReason::Expired
                        && attempts < MAX_LIST_ATTEMPTS =>
                {
                    attempts += 1;
                    size = size.saturating_mul(PAGE_GROWTH);
                    list = S::List::default();
                    next = String::new();
                    continue;
                }
                Err(disconnect) => return Err(disconnect),
            };
            for error in &page.unreadable {
                self.record_decode_error(error);
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
                // All pages have one version, so that a watch from there misses nothing.
                self.sink.record(WatchStats::truncated);
                tracing::info!(watch = self.spec.name, "list truncated at the limit");
                self.list_namespaces(size).await?;
                next.clear();
            }
            if next.is_empty() {
                self.complete_list(list, Some(listing), received);
                return Ok(page.resource_version);
            }
        }
    }

    /// Lists the namespaces that a truncated list may have left out. Objects are repeated.
    async fn list_namespaces(&mut self, size: u32) -> Result<(), Disconnect> {
        let Some(source) = self.spec.options.wanted_namespaces.clone() else {
            return Ok(());
        };
        let mut list = S::List::default();
        for namespace in source.find().await {
            let mut next = String::new();
            loop {
                let target = self.spec.page_of(&namespace, size, &next);
                let page = self.get_page(&target).await?;
                let objects = page.objects.into_iter();
                let mut objects = objects.map(|object| Item::Event(WatchEvent::Added(object)));
                let received = self.spec.options.clock.now();
                self.sink.stage(&mut list, &mut objects, received).await;
                if self.sink.has_enough(&list) {
                    return Ok(());
                }
                next = page.next;
                if next.is_empty() {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn get_page(&mut self, target: &str) -> Result<Page<K>, Disconnect> {
        let (encoding, mut body) = self.open(target, WatchSpec::<K>::accept(true)).await?;
        let body = self
            .collect(&mut body, self.spec.options.max_page_bytes)
            .await?;
        self.sink
            .record(|stats| stats.received(body.len(), Instant::now()));
        encoding
            .decode_page(&body, &self.decoder)
            .map_err(|error| Disconnect::new(RestartReason::InvalidResponse, error.to_string()))
    }

    /// Sends a GET request and checks the status of the response.
    pub(super) async fn open(
        &mut self,
        target: &str,
        accept: &'static str,
    ) -> Result<(Encoding, BoxBody), Disconnect> {
        let request = request(target, accept).map_err(|error| {
            Disconnect::new(RestartReason::Rejected, format!("bad request: {error}"))
        })?;
        let limit = self.spec.options.response_timeout;
        let response = timeout(limit, self.client.transport().get(request))
            .await
            .map_err(|_| {
                let message = format!("no response within {} s", limit.as_secs());
                Disconnect::new(RestartReason::Timeout, message)
            })?
            .map_err(|error| Disconnect::new(RestartReason::Unreachable, error.to_string()))?;
        let (head, mut body) = Response::into_parts(response);
        if head.status.is_success() {
            let encoding = Encoding::of(&head.headers);
            return reject_encoded(&head.headers).map_or(Ok((encoding, body)), Err);
        }
        // A status that cannot be read is not worth another error.
        let status = self
            .collect(&mut body, MAX_STATUS_BYTES)
            .await
            .unwrap_or_default();
        Err(Disconnect::from_response(
            head.status.as_u16(),
            &head.headers,
            Encoding::of(&head.headers).decode_status(&status),
        ))
    }

    /// Reads a whole body up to a limit. It does not count as received data: it may be an error.
    async fn collect(&self, body: &mut BoxBody, limit: usize) -> Result<Bytes, Disconnect> {
        let idle_timeout = self.spec.options.list_idle_timeout;
        let mut whole = BytesMut::new();
        loop {
            let data = match timeout(idle_timeout, next_data(body)).await {
                Ok(Some(Ok(data))) => data,
                Ok(Some(Err(error))) => {
                    return Err(Disconnect::new(
                        RestartReason::ConnectionLost,
                        error.to_string(),
                    ));
                }
                Ok(None) => return Ok(whole.freeze()),
                Err(_) => {
                    let message = format!("no data for {} s", idle_timeout.as_secs());
                    return Err(Disconnect::new(RestartReason::Idle, message));
                }
            };
            if whole.len() + data.len() > limit {
                let message = format!("response is larger than {limit} bytes");
                return Err(Disconnect::new(RestartReason::InvalidResponse, message));
            }
            whole.extend_from_slice(&data);
        }
    }
}

/// Rejects a body that is compressed although the request did not accept that.
fn reject_encoded(headers: &HeaderMap) -> Option<Disconnect> {
    let encoding = headers.get(CONTENT_ENCODING)?;
    (encoding != "identity").then(|| {
        let message = format!("response is encoded as {encoding:?}, which was not requested");
        Disconnect::new(RestartReason::InvalidResponse, message)
    })
}
