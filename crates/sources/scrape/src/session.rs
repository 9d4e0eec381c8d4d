//! The scraping of one node: its addresses, TLS and tokens, and the scrape itself.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{NodeBatch, Timestamp};
use kubevitals_tls::{ClientTls, PinnedKey, Verified};
use tokio::time::timeout;

use crate::address::Addresses;
use crate::buffers::ScrapeBuffers;
use crate::config::{ScrapeConfig, Transport};
use crate::connection::{Connection, Opened, connect_error, host_port};
use crate::credentials::Bearer;
use crate::deadline::{Deadline, Elapsed};
use crate::decode::{DecodeOptions, DecodeReport, decode};
use crate::error::{ScrapeError, excerpt};
use crate::exchange::{Body, Exchange, ExchangeError};
use crate::fallback::{Fallback, summary_path};
use crate::inner::ScraperInner;
use crate::permits::Standing;
use crate::summary::{SummaryFields, decode_summary};
use crate::target::Target;

/// Minimum time that one of several addresses gets.
const MIN_ADDRESS_TIMEOUT: Duration = Duration::from_secs(1);

/// The connection to a kubelet, and the state kept between scrapes.
pub(crate) struct Session {
    target: Arc<Target>,
    addresses: Addresses,
    tls: Option<ClientTls>,
    pin: Option<PinnedKey>,
    connection: Option<Connection>,
    fallback: Fallback,
}

/// Arguments of one scrape.
pub(crate) struct ScrapeContext<'a> {
    pub(crate) inner: &'a ScraperInner,
    /// The time just before the request.
    pub(crate) requested_at: Timestamp,
    pub(crate) deadline: Deadline<'static>,
    pub(crate) standing: Standing,
}

/// The result of a scrape that returned samples.
pub(crate) struct Scraped {
    exchange: Exchange,
    pub(crate) report: DecodeReport,
    pub(crate) bytes: usize,
    /// The error that ended the response early. The samples before it are used.
    pub(crate) truncated: Option<ScrapeError>,
}

impl Session {
    pub(crate) fn new(target: Arc<Target>, config: &ScrapeConfig) -> Self {
        let mut session = Self {
            addresses: target.addresses.clone(),
            target,
            tls: None,
            pin: config.pin_keys.then(PinnedKey::new),
            connection: None,
            fallback: Fallback::new(),
        };
        session.tls = session.client_tls(config);
        session
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Applies a change of the node. Returns whether its addresses, port or names changed.
    pub(crate) fn update(&mut self, target: Arc<Target>, config: &ScrapeConfig) -> bool {
        let has_moved = !self.target.has_same_endpoint(&target);
        if self.target.path != target.path {
            self.fallback.reset();
        }
        let is_replaced = self.target.uid != target.uid;
        self.target = target;
        if is_replaced {
            self.pin = config.pin_keys.then(PinnedKey::new);
        }
        if has_moved || is_replaced {
            self.addresses = self.target.addresses.clone();
            self.tls = self.client_tls(config);
            self.connection = None;
        }
        has_moved
    }

    /// Scrapes the kubelet until the deadline.
    pub(crate) async fn scrape(&mut self, ctx: &ScrapeContext<'_>) -> Result<Scraped, ScrapeError> {
        let scraped = ctx.deadline.run(self.scrape_endpoints(ctx)).await;
        let scraped = scraped.unwrap_or_else(|Elapsed| {
            Err(ScrapeError::Timeout {
                address: self.last_address(),
                limit: ctx.inner.config.timeout,
            })
        });
        if let Err(error) = &scraped {
            // Bytes that are left on it belong to an abandoned request.
            self.connection = None;
            if error.concerns_address() || matches!(error, ScrapeError::Timeout { .. }) {
                self.addresses.reset();
            }
        }
        // Another node may be waiting for its turn to connect.
        self.connection.take_if(|connection| !connection.is_kept());
        scraped
    }

    async fn scrape_endpoints(&mut self, ctx: &ScrapeContext<'_>) -> Result<Scraped, ScrapeError> {
        let mut scraped = if self.fallback.is_active() {
            self.scrape_summary(ctx).await?
        } else {
            match self.scrape_metrics(ctx).await {
                Err(missing) if missing.is_not_found() => {
                    self.fall_back_to_summary(ctx, missing).await?
                }
                scraped => scraped?,
            }
        };
        if self.fallback.wants_extras(&ctx.inner.config) && scraped.truncated.is_none() {
            // At most half of the remaining time: the samples must not be lost to it.
            let time = ctx.deadline.remaining() / 2;
            match timeout(time, self.add_extras(ctx, &mut scraped)).await {
                Ok(Ok(())) => self.fallback.extras_read(),
                Ok(Err(error)) => {
                    if matches!(error, ScrapeError::Status { .. }) {
                        self.fallback.extras_refused();
                    }
                    tracing::debug!(%error, "/stats/summary unavailable");
                }
                Err(_) => self.connection = None,
            }
        }
        Ok(scraped)
    }

    async fn scrape_metrics(&mut self, ctx: &ScrapeContext<'_>) -> Result<Scraped, ScrapeError> {
        let path = Arc::clone(&self.target.path);
        let mut exchange = Exchange::default();
        let body = self.get(&path, &mut exchange, ctx).await?;
        let report = decode_metrics(&mut exchange, body, ctx);
        let bytes = exchange.body().len();
        let truncated = (body == Body::Truncated).then(|| self.truncated(&path, &exchange));
        if report.used == 0 {
            return Err(match truncated {
                Some(truncated) => truncated,
                None if report.kubelet_failed => self.not_metrics(
                    &path,
                    "the kubelet failed to read its own statistics (resource_scrape_error)"
                        .to_owned(),
                ),
                None => self.not_metrics(&path, quoted_start(exchange.body())),
            });
        }
        Ok(Scraped {
            exchange,
            report,
            bytes,
            truncated,
        })
    }

    async fn fall_back_to_summary(
        &mut self,
        ctx: &ScrapeContext<'_>,
        missing: ScrapeError,
    ) -> Result<Scraped, ScrapeError> {
        match self.scrape_summary(ctx).await {
            Ok(scraped) => {
                self.fallback.activate();
                Ok(scraped)
            }
            // The node has neither endpoint: the error names the one that it should have.
            Err(error) if error.is_not_found() => Err(missing),
            Err(error) => Err(error),
        }
    }

    async fn scrape_summary(&mut self, ctx: &ScrapeContext<'_>) -> Result<Scraped, ScrapeError> {
        let path = summary_path(&ctx.inner.config);
        let mut exchange = Exchange::default();
        let body = self.get(path, &mut exchange, ctx).await?;
        let bytes = exchange.body().len();
        if body == Body::Truncated {
            return Err(self.truncated(path, &exchange));
        }
        match decode_stats(&mut exchange, SummaryFields::All, ctx) {
            Some(report) if report.used > 0 => Ok(Scraped {
                exchange,
                report,
                bytes,
                truncated: None,
            }),
            _ => Err(self.not_metrics(path, quoted_start(exchange.body()))),
        }
    }

    /// Adds the fields that only `/stats/summary` has to the samples of the metrics endpoint.
    async fn add_extras(
        &mut self,
        ctx: &ScrapeContext<'_>,
        scraped: &mut Scraped,
    ) -> Result<(), ScrapeError> {
        let path = summary_path(&ctx.inner.config);
        let body = self.get(path, &mut scraped.exchange, ctx).await?;
        if body == Body::Truncated {
            return Ok(());
        }
        scraped.bytes = scraped.bytes.saturating_add(scraped.exchange.body().len());
        let decoded = decode_stats(&mut scraped.exchange, SummaryFields::Extras, ctx);
        if let Some(extras) = decoded {
            for (count, more) in scraped.report.rejected.iter_mut().zip(extras.rejected) {
                *count += more;
            }
        }
        Ok(())
    }

    /// Sends a GET request: on a new connection if there is none or the kubelet has closed it, and
    /// once more if the token was rejected and a newer one exists. Only status 200 is a success.
    async fn get(
        &mut self,
        path: &str,
        exchange: &mut Exchange,
        ctx: &ScrapeContext<'_>,
    ) -> Result<Body, ScrapeError> {
        let config = &ctx.inner.config;
        let mut newer_token: Option<Bearer> = None;
        loop {
            let is_tls = self.tls.is_some();
            let connection = self.connection(ctx).await?;
            let token = match newer_token.clone() {
                _ if !is_tls || !may_send_token(config, connection.verified()) => None,
                Some(newer) => Some(newer),
                None => config.credentials.token()?,
            };
            let response = match exchange.get(connection, path, token.as_ref(), ctx).await {
                Ok(response) => response,
                // A new connection is never stale, so this ends.
                Err(ExchangeError::Stale) => {
                    self.connection = None;
                    continue;
                }
                Err(ExchangeError::Failed(error)) => {
                    self.connection = None;
                    return Err(error);
                }
            };
            let index = connection.index;
            self.addresses.set_working(index);
            if !response.is_reusable {
                self.connection = None;
            }
            if response.status == 200 {
                return Ok(response.body);
            }
            newer_token = match &token {
                Some(rejected) if response.status == 401 => {
                    config.credentials.replacement(rejected)
                }
                _ => None,
            };
            if newer_token.is_none() {
                return Err(ScrapeError::Status {
                    address: self.last_address(),
                    path: path.to_owned(),
                    status: response.status,
                    detail: excerpt(exchange.body()),
                });
            }
        }
    }

    /// Returns the open connection, or dials.
    async fn connection(
        &mut self,
        ctx: &ScrapeContext<'_>,
    ) -> Result<&mut Connection, ScrapeError> {
        let connection = if let Some(connection) = self.connection.take() {
            connection
        } else {
            let (slots, nodes) = (&ctx.inner.slots, ctx.inner.metrics.counts().total());
            let slot = match slots.try_keep(nodes) {
                Some(slot) => slot,
                None => ctx.deadline.paused(slots.turn(nodes, ctx.standing)).await,
            };
            let opened = self.connect(ctx).await?;
            ctx.inner.metrics.connection_opened();
            Connection::new(opened, slot)
        };
        Ok(self.connection.insert(connection))
    }

    /// Tries the addresses of the node in order.
    async fn connect(&self, ctx: &ScrapeContext<'_>) -> Result<Opened, ScrapeError> {
        let mut reported: Option<ScrapeError> = None;
        let port = self.target.port;
        for attempt in 0.. {
            let Some((index, host)) = self.addresses.attempt(attempt) else {
                break;
            };
            let (tls, handshakes) = (self.tls.as_ref(), &ctx.inner.handshakes);
            let proxy = ctx.inner.config.proxy.as_ref();
            let opened = if self.addresses.attempt(attempt + 1).is_some() {
                // An address that does not respond must leave time for the next.
                let time = (ctx.deadline.remaining() / 2).max(MIN_ADDRESS_TIMEOUT);
                let deadline = ctx.deadline.child(time);
                let open = Connection::open(host, port, index, tls, handshakes, &deadline, proxy);
                deadline.run(open).await.unwrap_or_else(|Elapsed| {
                    let error = io::ErrorKind::TimedOut.into();
                    Err(connect_error(&host_port(host, port), error))
                })
            } else {
                Connection::open(host, port, index, tls, handshakes, &ctx.deadline, proxy).await
            };
            let error = match opened {
                Ok(opened) => return Ok(opened),
                Err(error) => error,
            };
            // A failed handshake says more than an address that does not respond.
            let is_tls = |error: &ScrapeError| matches!(error, ScrapeError::Tls { .. });
            if reported
                .as_ref()
                .is_none_or(|first| is_tls(&error) && !is_tls(first))
            {
                reported = Some(error);
            }
        }
        Err(reported.unwrap_or(ScrapeError::NoAddress))
    }

    fn client_tls(&self, config: &ScrapeConfig) -> Option<ClientTls> {
        let Transport::Tls(tls) = &config.transport else {
            return None;
        };
        if !self.target.is_tls {
            return None;
        }
        Some(match (&self.target.names, &self.pin) {
            (Some(names), Some(pin)) => tls.for_pinned_peer(names.clone(), pin.clone()),
            (Some(names), None) => tls.for_peer(names.clone()),
            // The node name is not a valid DNS name: the certificate is verified for the dialled
            // address.
            (None, _) => tls.clone(),
        })
    }

    fn truncated(&self, path: &str, exchange: &Exchange) -> ScrapeError {
        ScrapeError::Truncated {
            address: self.last_address(),
            path: path.to_owned(),
            bytes: exchange.body().len(),
            cause: exchange.cause(),
        }
    }

    fn not_metrics(&self, path: &str, detail: String) -> ScrapeError {
        ScrapeError::NotMetrics {
            address: self.last_address(),
            path: path.to_owned(),
            detail,
        }
    }

    fn last_address(&self) -> String {
        match (&self.connection, self.addresses.attempt(0)) {
            (Some(connection), _) => connection.address.clone(),
            (None, Some((_, host))) => host_port(host, self.target.port),
            (None, None) => "no address".to_owned(),
        }
    }
}

impl Scraped {
    /// Returns the decoded samples.
    pub(crate) fn batch(&self) -> Option<&NodeBatch> {
        self.exchange.buffers().map(|buffers| &buffers.batch)
    }
}

fn decode_metrics(exchange: &mut Exchange, body: Body, ctx: &ScrapeContext<'_>) -> DecodeReport {
    let Some(buffers) = exchange.buffers_mut() else {
        return DecodeReport::default();
    };
    let ScrapeBuffers {
        response,
        batch,
        decoder,
    } = &mut **buffers;
    let options = decode_options(ctx, body == Body::Complete);
    decode(&response.body, options, batch, decoder)
}

/// Decodes a summary. Returns `None` if the body is not one.
fn decode_stats(
    exchange: &mut Exchange,
    fields: SummaryFields,
    ctx: &ScrapeContext<'_>,
) -> Option<DecodeReport> {
    let ScrapeBuffers {
        response,
        batch,
        decoder,
    } = &mut **exchange.buffers_mut()?;
    let options = decode_options(ctx, true);
    decode_summary(&response.body, fields, options, batch, decoder).ok()
}

fn decode_options(ctx: &ScrapeContext<'_>, is_complete: bool) -> DecodeOptions {
    DecodeOptions {
        requested_at: ctx.requested_at,
        is_complete,
        max_containers: ctx.inner.config.max_containers,
    }
}

/// Returns the beginning of a body that holds no metrics.
fn quoted_start(body: &[u8]) -> String {
    match excerpt(body.get(..40).unwrap_or(body)) {
        text if text.is_empty() => "empty body".to_owned(),
        text => format!("{text:?}"),
    }
}

/// The token is sent to verified peers, and to others only if the user configured that. A client
/// certificate replaces it: a kubelet cannot use that for anything, but a token it could.
fn may_send_token(config: &ScrapeConfig, verified: Option<Verified>) -> bool {
    match &config.transport {
        Transport::Tls(tls) if tls.has_identity() => false,
        Transport::Tls(_) => verified.is_some() || config.token_to_unverified,
        Transport::InsecureHttp => false,
    }
}

#[cfg(test)]
mod tests;
