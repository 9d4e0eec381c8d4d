//! One GET request on one connection, and the buffers that its response is read into.

use std::io;
use std::sync::Arc;

use crate::buffers::PooledBuffers;
use crate::connection::{Connection, ReadOutcome, connect_error, unexpected_eof};
use crate::credentials::Bearer;
use crate::error::ScrapeError;
use crate::http1::Http1Error;
use crate::inflate::{inflate, inflated_length};
use crate::memory::{Allowance, OutOfMemoryBudget, SMALL_BODY};
use crate::session::ScrapeContext;

/// Maximum length of a body that is read of a response other than 200.
const MAX_ERROR_BODY: usize = 4 << 10;

/// The requests of one scrape, one after the other. It takes buffers from the pool at the moment at
/// which a response begins, so that a kubelet which does not respond occupies none.
#[derive(Default)]
pub(crate) struct Exchange {
    buffers: Option<PooledBuffers>,
    /// Whether the buffers hold a response. They are then kept for further requests: a scrape that
    /// holds buffers must not wait for others.
    has_response: bool,
    /// The error that ended the last response early.
    cause: Option<Arc<io::Error>>,
}

/// A response whose body is in the buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Body,
    /// Whether the connection can carry another request.
    pub(crate) is_reusable: bool,
}

/// Whether a body was received completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    Complete,
    /// The connection ended before the body did.
    Truncated,
}

/// The reason why there is no response.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// A reused connection failed before the response. The request can be sent on a new one.
    Stale,
    Failed(ScrapeError),
}

impl Exchange {
    /// Sends a GET request and reads the response.
    pub(crate) async fn get(
        &mut self,
        connection: &mut Connection,
        path: &str,
        token: Option<&Bearer>,
        ctx: &ScrapeContext<'_>,
    ) -> Result<Response, ExchangeError> {
        let response = self.send_and_read(connection, path, token, ctx).await;
        if response.is_err() && !self.has_response {
            // Other scrapes can use the buffers while this one dials.
            self.buffers = None;
        }
        response
    }

    /// Returns the buffers of the last response.
    pub(crate) fn buffers(&self) -> Option<&PooledBuffers> {
        self.buffers.as_ref()
    }

    pub(crate) fn buffers_mut(&mut self) -> Option<&mut PooledBuffers> {
        self.buffers.as_mut()
    }

    /// Returns the error that ended the last response early, if there was one.
    pub(crate) fn cause(&self) -> Option<Arc<io::Error>> {
        self.cause.clone()
    }

    /// Returns the body of the last response.
    pub(crate) fn body(&self) -> &[u8] {
        match &self.buffers {
            Some(buffers) => &buffers.response.body,
            None => &[],
        }
    }

    async fn send_and_read(
        &mut self,
        connection: &mut Connection,
        path: &str,
        token: Option<&Bearer>,
        ctx: &ScrapeContext<'_>,
    ) -> Result<Response, ExchangeError> {
        let max_body = ctx.inner.buffers.max_body();
        if let Some(held) = &mut self.buffers {
            held.response.start(max_body);
        }
        let accepts_gzip = ctx.inner.config.compression;
        let sent = connection.send(path, token, accepts_gzip).await;
        sent.map_err(|error| before_response(connection, error))?;
        loop {
            let arrived = connection.readable().await;
            arrived.map_err(|error| before_response(connection, error))?;
            let buffers = if let Some(held) = self.buffers.take() {
                self.buffers.insert(held)
            } else {
                let acquired = ctx.inner.buffers.acquire(ctx.standing);
                let acquired = ctx.deadline.paused(acquired).await;
                let acquired = self.buffers.insert(acquired);
                acquired.response.start(max_body);
                acquired
            };
            match connection.try_read(&mut buffers.response) {
                Ok(ReadOutcome::Data) => {
                    connection.is_used = true;
                    self.has_response = true;
                    let response = read_rest(connection, path, buffers, &mut self.cause, ctx);
                    return response.await.map_err(ExchangeError::Failed);
                }
                // A TLS message. Other scrapes can use the buffers until the response begins.
                Ok(ReadOutcome::NoData) => {
                    if !self.has_response && buffers.response.is_drained() {
                        self.buffers = None;
                    }
                }
                Ok(ReadOutcome::Closed) => {
                    let error = unexpected_eof("connection closed without a response");
                    return Err(before_response(connection, error));
                }
                Err(error) => return Err(before_response(connection, error)),
            }
        }
    }
}

/// Classifies an error that occurred before the response began.
fn before_response(connection: &Connection, error: io::Error) -> ExchangeError {
    if connection.is_used {
        return ExchangeError::Stale;
    }
    // With TLS 1.3 a client learns only now that its certificate was rejected.
    ExchangeError::Failed(connect_error(&connection.address, error))
}

/// Reads the rest of a response that has begun.
async fn read_rest(
    connection: &mut Connection,
    path: &str,
    buffers: &mut PooledBuffers,
    cause: &mut Option<Arc<io::Error>>,
    ctx: &ScrapeContext<'_>,
) -> Result<Response, ScrapeError> {
    *cause = None;
    let max_body = ctx.inner.buffers.max_body();
    let too_large = |connection: &Connection| ScrapeError::TooLarge {
        address: connection.address.clone(),
        path: path.to_owned(),
        limit: max_body,
    };
    let mut body = loop {
        let response = &buffers.response;
        match response.error {
            None => {}
            Some(Http1Error::BodyTooLong) => return Err(too_large(connection)),
            Some(error) => return Err(protocol_error(connection, error.to_string())),
        }
        let reader = &response.reader;
        if reader.is_done() {
            break Body::Complete;
        }
        if reader.has_head() && reader.status() != 200 {
            if response.body.len() > MAX_ERROR_BODY {
                break Body::Truncated;
            }
        } else {
            let limit = if reader.is_gzip() {
                Allowance::max_compressed(max_body)
            } else {
                max_body
            };
            let is_long = reader.stated_length() > u64::try_from(limit).ok();
            if is_long || response.body.len() > limit {
                return Err(too_large(connection));
            }
            let reserved = ctx.deadline.paused(buffers.reserve_read()).await;
            reserved.map_err(|error| memory_error(connection, path, error))?;
        }
        let is_closed = match connection.read(&mut buffers.response).await {
            Ok(ReadOutcome::Data | ReadOutcome::NoData) => continue,
            Ok(ReadOutcome::Closed) => true,
            // Peers often close without `close_notify`. Framing decides whether the body is
            // complete.
            Err(error) => {
                *cause = Some(Arc::new(error));
                false
            }
        };
        let reader = &mut buffers.response.reader;
        match (reader.has_head(), reader.end()) {
            (false, _) => {
                let detail = match cause {
                    Some(error) => format!("connection ended within the head: {error}"),
                    None => "connection closed within the head".to_owned(),
                };
                return Err(protocol_error(connection, detail));
            }
            // A body without a length is complete only if the peer closed properly.
            (true, true) if is_closed => break Body::Complete,
            (true, _) => break Body::Truncated,
        }
    };
    let (status, is_gzip) = (
        buffers.response.reader.status(),
        buffers.response.reader.is_gzip(),
    );
    if is_gzip && !buffers.response.body.is_empty() {
        let limit = match (body, inflated_length(&buffers.response.body)) {
            (Body::Complete, Some(stated)) if status == 200 => stated,
            // Without a trailer the length is unknown. The beginning will do.
            _ => SMALL_BODY.min(max_body),
        };
        if limit > max_body {
            return Err(too_large(connection));
        }
        let reserved = ctx.deadline.paused(buffers.reserve_inflated(limit)).await;
        reserved.map_err(|error| memory_error(connection, path, error))?;
        let response = &mut buffers.response;
        let inflated = inflate(&response.body, limit, &mut response.inflated);
        std::mem::swap(&mut response.body, &mut response.inflated);
        match inflated {
            Ok(true) => {}
            Ok(false) => body = Body::Truncated,
            Err(_) if body == Body::Truncated || status != 200 => body = Body::Truncated,
            Err(_) => return Err(protocol_error(connection, "malformed gzip body".to_owned())),
        }
    }
    let response = &buffers.response;
    Ok(Response {
        status,
        body,
        // The rest of a TLS record would be lost with the buffers.
        is_reusable: response.reader.is_reusable() && response.is_drained(),
    })
}

fn memory_error(connection: &Connection, path: &str, _: OutOfMemoryBudget) -> ScrapeError {
    ScrapeError::MemoryLimit {
        address: connection.address.clone(),
        path: path.to_owned(),
    }
}

fn protocol_error(connection: &Connection, detail: String) -> ScrapeError {
    ScrapeError::Protocol {
        address: connection.address.clone(),
        detail,
    }
}
