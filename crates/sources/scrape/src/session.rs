//! One node's dealings with its kubelet: which address works, which endpoint, and what was asked
//! last.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{NodeBatch, Timestamp};
use kubevitals_tls::{ClientTls, PinnedKey, Verified};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::address::Addresses;
use crate::config::{ScrapeConfig, Transport};
use crate::connection::{Body, Buffers, Connection, RequestError};
use crate::credentials::Bearer;
use crate::deadline::{Deadline, TooLate};
use crate::decode::{DecodeReport, Decoder, Reading, decode};
use crate::failure::{Failure, excerpt};
use crate::metrics::ScrapeMetrics;
use crate::summary::{Take, decode_summary};
use crate::target::Target;
use crate::workspaces::{Lent, Workspaces};

const SUMMARY: &str = "/stats/summary";
const BRIEF_SUMMARY: &str = "/stats/summary?only_cpu_and_memory=true";
/// An endpoint that a node lacks or refuses is tried again after this long: it may have been
/// upgraded, or allowed.
const FORGET_AFTER: Duration = Duration::from_mins(10);
/// So many first answers may lack what a node computed itself, because it or we were too busy.
const WARM_STARTS: u8 = 3;
/// The least time that one of several addresses gets.
const MIN_PER_ADDRESS: Duration = Duration::from_secs(1);

/// What was asked of a kubelet, and what is to be remembered for the next time.
pub(crate) struct Session {
    target: Arc<Target>,
    addresses: Addresses,
    tls: Option<ClientTls>,
    pin: Option<PinnedKey>,
    connection: Option<Connection>,
    /// Until when `/stats/summary` stands in for an endpoint that the node lacks.
    stands_in: Option<Instant>,
    /// Until when `/stats/summary` is not asked for extras, since it was refused.
    refused: Option<Instant>,
    /// How often usage that the node computed itself is still asked for, until it was had once.
    warm_starts: u8,
}

/// A scrape that brought something.
pub(crate) struct Scraped {
    work: Option<Lent>,
    pub(crate) report: DecodeReport,
    pub(crate) bytes: usize,
    /// Why this is not all.
    pub(crate) cut: Option<Failure>,
    /// Whether it has what the node computed itself, so that nothing hangs on a second sample.
    pub(crate) is_warm: bool,
}

/// What one scrape needs of everybody's.
pub(crate) struct Means<'a> {
    pub(crate) config: &'a ScrapeConfig,
    pub(crate) workspaces: &'a Workspaces,
    pub(crate) handshakes: &'a Semaphore,
    pub(crate) metrics: &'a ScrapeMetrics,
    /// The time just before the request.
    pub(crate) asked: Timestamp,
    /// When it must be over.
    pub(crate) deadline: Deadline<'static>,
}

/// What scrapes that are under way work with, one each.
#[derive(Default)]
pub(crate) struct Workspace {
    pub(crate) buffers: Buffers,
    pub(crate) batch: NodeBatch,
    pub(crate) decoder: Decoder,
}

impl Session {
    pub(crate) fn new(target: Arc<Target>, config: &ScrapeConfig) -> Self {
        let mut session = Self {
            addresses: target.addresses.clone(),
            target,
            tls: None,
            pin: config.pin_keys.then(PinnedKey::new),
            connection: None,
            stands_in: None,
            refused: None,
            warm_starts: WARM_STARTS,
        };
        session.tls = session.trust(config);
        session
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Follows a node that changed. Tells whether it must be reached in another way than before.
    pub(crate) fn follow(&mut self, target: Arc<Target>, config: &ScrapeConfig) -> bool {
        let has_moved = !self.target.is_same_place(&target);
        if self.target.path != target.path {
            self.stands_in = None;
        }
        let is_another = self.target.uid != target.uid;
        self.target = target;
        if is_another {
            self.pin = config.pin_keys.then(PinnedKey::new);
        }
        if has_moved || is_another {
            self.addresses = self.target.addresses.clone();
            self.tls = self.trust(config);
            self.connection = None;
        }
        has_moved
    }

    /// Asks the kubelet, within the time there is.
    pub(crate) async fn scrape(&mut self, means: &Means<'_>) -> Result<Scraped, Failure> {
        let outcome = means.deadline.bound(self.ask(means)).await;
        let outcome = outcome.unwrap_or_else(|TooLate| {
            Err(Failure::Timeout {
                address: self.last_address(),
                limit: means.config.timeout,
            })
        });
        if let Err(failure) = &outcome {
            // Whatever is left on it belongs to a request that was given up.
            self.connection = None;
            if failure.is_of_the_address() || matches!(failure, Failure::Timeout { .. }) {
                self.addresses.start_over();
            }
        }
        outcome
    }

    async fn ask(&mut self, means: &Means<'_>) -> Result<Scraped, Failure> {
        let mut scraped = self.ask_for_samples(means).await?;
        let is_cold = means.config.warm_start && self.warm_starts > 0;
        self.warm_starts = self.warm_starts.saturating_sub(1);
        let wants_extras = means.config.ephemeral_storage || is_cold;
        if wants_extras
            && !is_pending(self.stands_in)
            && scraped.cut.is_none()
            && !is_pending(self.refused)
        {
            // Half of what is left at most: what is there already must not be lost to it.
            let left = means.deadline.left();
            match timeout(left / 2, self.ask_for_extras(means, &mut scraped)).await {
                Ok(Ok(())) => self.warm_starts = 0,
                Ok(Err(failure)) => {
                    if matches!(failure, Failure::Status { .. }) {
                        self.warm_starts = 0;
                        self.refused = Some(Instant::now() + FORGET_AFTER);
                    }
                    tracing::debug!(%failure, "statistics beyond the metrics are not to be had");
                }
                Err(_) => self.connection = None,
            }
        }
        Ok(scraped)
    }

    async fn ask_for_samples(&mut self, means: &Means<'_>) -> Result<Scraped, Failure> {
        if is_pending(self.stands_in) {
            return self.ask_for_summary(means).await;
        }
        let path = Arc::clone(&self.target.path);
        let missing = match self.fetch(&path, means).await {
            Ok((work, body)) => return self.decode_metrics(&path, work, body, means),
            Err(failure) if is_missing(&failure) => failure,
            Err(failure) => return Err(failure),
        };
        match self.ask_for_summary(means).await {
            Ok(scraped) => {
                self.stands_in = Some(Instant::now() + FORGET_AFTER);
                Ok(scraped)
            }
            // It has neither: the endpoint that should be there is the one to name.
            Err(failure) if is_missing(&failure) => Err(missing),
            Err(failure) => Err(failure),
        }
    }

    async fn ask_for_summary(&mut self, means: &Means<'_>) -> Result<Scraped, Failure> {
        let path = if means.config.ephemeral_storage {
            SUMMARY
        } else {
            BRIEF_SUMMARY
        };
        let (mut work, body) = self.fetch(path, means).await?;
        let bytes = work.buffers.body.len();
        if body == Body::Cut {
            self.connection = None;
            return Err(self.partial(path, bytes));
        }
        let Workspace {
            buffers,
            batch,
            decoder,
        } = &mut *work;
        let read = decode_summary(
            &buffers.body,
            Take::Everything,
            reading(means, true),
            batch,
            decoder,
        );
        let is_warm = is_warm(batch);
        match read {
            Ok(report) if report.used > 0 => Ok(Scraped {
                work: Some(work),
                report,
                bytes,
                cut: None,
                is_warm,
            }),
            _ => Err(self.not_metrics(path, &work.buffers.body)),
        }
    }

    async fn ask_for_extras(
        &mut self,
        means: &Means<'_>,
        scraped: &mut Scraped,
    ) -> Result<(), Failure> {
        let path = if means.config.ephemeral_storage {
            SUMMARY
        } else {
            BRIEF_SUMMARY
        };
        let body = self.fetch_into(path, means, &mut scraped.work).await?;
        let (Body::Whole, Some(work)) = (body, &mut scraped.work) else {
            return Ok(());
        };
        let Workspace {
            buffers,
            batch,
            decoder,
        } = &mut **work;
        let body = &buffers.body;
        scraped.bytes = scraped.bytes.saturating_add(body.len());
        let read = decode_summary(body, Take::Extras, reading(means, true), batch, decoder);
        if let Ok(extras) = read {
            scraped.is_warm = is_warm(batch);
            for (count, more) in scraped.report.rejected.iter_mut().zip(extras.rejected) {
                *count += more;
            }
        }
        Ok(())
    }

    fn decode_metrics(
        &mut self,
        path: &str,
        mut work: Lent,
        body: Body,
        means: &Means<'_>,
    ) -> Result<Scraped, Failure> {
        let Workspace {
            buffers,
            batch,
            decoder,
        } = &mut *work;
        let bytes = buffers.body.len();
        let is_complete = body == Body::Whole;
        let report = decode(&buffers.body, reading(means, is_complete), batch, decoder);
        let cut = (!is_complete).then(|| self.partial(path, bytes));
        if let (0, Some(cut)) = (report.used, &cut) {
            return Err(cut.clone());
        }
        if report.used == 0 {
            return Err(if report.kubelet_failed {
                Failure::NotMetrics {
                    address: self.last_address(),
                    path: path.to_owned(),
                    detail: "the kubelet could not read its own statistics (resource_scrape_error)"
                        .to_owned(),
                }
            } else {
                self.not_metrics(path, &work.buffers.body)
            });
        }
        if cut.is_some() {
            self.connection = None;
        }
        Ok(Scraped {
            work: Some(work),
            report,
            bytes,
            cut,
            is_warm: false,
        })
    }

    /// Asks for a path and takes a workspace as soon as the answer begins.
    async fn fetch(&mut self, path: &str, means: &Means<'_>) -> Result<(Lent, Body), Failure> {
        let mut work = None;
        let body = self.fetch_into(path, means, &mut work).await?;
        let work = work.ok_or_else(|| self.partial(path, 0))?;
        Ok((work, body))
    }

    /// The same into a workspace that may be there already: who holds one must not wait for
    /// another.
    async fn fetch_into(
        &mut self,
        path: &str,
        means: &Means<'_>,
        work: &mut Option<Lent>,
    ) -> Result<Body, Failure> {
        let mut newer = None;
        loop {
            let token = self.begin(path, means, newer, work).await?;
            let outcome = self.read(path, means, work).await;
            newer = Self::newer_token(means, &outcome, token);
            if newer.is_none() {
                return outcome;
            }
        }
    }

    /// Another token, if the one that was sent was refused and there is a newer one by now.
    fn newer_token(
        means: &Means<'_>,
        outcome: &Result<Body, Failure>,
        token: Option<Bearer>,
    ) -> Option<Bearer> {
        match outcome {
            Err(Failure::Status { status: 401, .. }) => {
                means.config.credentials.replacement(&token?)
            }
            _ => None,
        }
    }

    /// Sends a request, on a new connection if there is none or the peer has closed it meanwhile,
    /// and waits until the answer begins.
    async fn begin(
        &mut self,
        path: &str,
        means: &Means<'_>,
        newer: Option<Bearer>,
        work: &mut Option<Lent>,
    ) -> Result<Option<Bearer>, Failure> {
        let is_held = work.is_some();
        loop {
            if self.connection.is_none() {
                self.connection = Some(self.connect(means).await?);
                means.metrics.connected();
            }
            let Some(connection) = &mut self.connection else {
                continue;
            };
            let may_have_token = may_have_token(means.config, connection.verified());
            let given = || newer.clone().or_else(|| means.config.credentials.token());
            let token = may_have_token.then(given).flatten();
            match begin_on(connection, path, token.as_ref(), means, work).await {
                Ok(()) => return Ok(token),
                // A new connection is never stale, so this ends.
                Err(RequestError::Stale) => {
                    self.connection = None;
                    // Others may have use for it while we dial.
                    if !is_held {
                        *work = None;
                    }
                }
                Err(RequestError::Failure(failure)) => {
                    self.connection = None;
                    return Err(failure);
                }
            }
        }
    }

    async fn read(
        &mut self,
        path: &str,
        means: &Means<'_>,
        work: &mut Option<Lent>,
    ) -> Result<Body, Failure> {
        let (Some(mut connection), Some(work)) = (self.connection.take(), work) else {
            return Err(self.partial(path, 0));
        };
        let limit = means.config.max_body_bytes;
        let buffers = &mut work.buffers;
        let reply = connection.answer(path, limit, buffers).await?;
        self.addresses.worked(connection.place);
        let outcome = match reply.status {
            200 => Ok(reply.body),
            status => Err(Failure::Status {
                address: connection.address.clone(),
                path: path.to_owned(),
                status,
                detail: excerpt(&buffers.body),
            }),
        };
        if reply.may_be_reused {
            self.connection = Some(connection);
        }
        outcome
    }

    /// Tries the node's addresses in turn.
    async fn connect(&self, means: &Means<'_>) -> Result<Connection, Failure> {
        let mut told: Option<Failure> = None;
        let port = self.target.port;
        for turn in 0.. {
            let Some((place, host)) = self.addresses.at_turn(turn) else {
                break;
            };
            let (tls, handshakes) = (self.tls.as_ref(), means.handshakes);
            let failure = if self.addresses.at_turn(turn + 1).is_some() {
                // A silent address must leave time for the next.
                let time = (means.deadline.left() / 2).max(MIN_PER_ADDRESS);
                let deadline = means.deadline.part(time);
                let open = Connection::open(host, port, place, tls, handshakes, &deadline);
                match deadline.bound(open).await {
                    Ok(Ok(connection)) => return Ok(connection),
                    Ok(Err(failure)) => failure,
                    Err(TooLate) => Failure::Connect {
                        address: format!("{host}:{port}"),
                        detail: "no answer".to_owned(),
                    },
                }
            } else {
                let deadline = &means.deadline;
                match Connection::open(host, port, place, tls, handshakes, deadline).await {
                    Ok(connection) => return Ok(connection),
                    Err(failure) => failure,
                }
            };
            // Somebody who answered is more telling than somebody who did not.
            let is_telling = matches!(failure, Failure::Tls { .. });
            if told.is_none() || (is_telling && !matches!(told, Some(Failure::Tls { .. }))) {
                told = Some(failure);
            }
        }
        Err(told.unwrap_or(Failure::NoAddress))
    }

    fn trust(&self, config: &ScrapeConfig) -> Option<ClientTls> {
        let Transport::Tls(tls) = &config.transport else {
            return None;
        };
        Some(match (&self.target.names, &self.pin) {
            (Some(names), Some(pin)) => tls.for_pinned_peer(names.clone(), pin.clone()),
            (Some(names), None) => tls.for_peer(names.clone()),
            // Not even its name is one that a certificate could be for: the address dialled counts.
            (None, _) => tls.clone(),
        })
    }

    fn partial(&self, path: &str, bytes: usize) -> Failure {
        Failure::Partial {
            address: self.last_address(),
            path: path.to_owned(),
            bytes,
        }
    }

    fn not_metrics(&self, path: &str, body: &[u8]) -> Failure {
        Failure::NotMetrics {
            address: self.last_address(),
            path: path.to_owned(),
            detail: match excerpt(body.get(..40).unwrap_or(body)) {
                text if text.is_empty() => "an empty body".to_owned(),
                text => format!("{text:?}"),
            },
        }
    }

    fn last_address(&self) -> String {
        match (&self.connection, self.addresses.at_turn(0)) {
            (Some(connection), _) => connection.address.clone(),
            (None, Some((_, host))) => format!("{host}:{}", self.target.port),
            (None, None) => "no address".to_owned(),
        }
    }
}

impl Scraped {
    /// What the kubelet said.
    pub(crate) fn batch(&self) -> Option<&NodeBatch> {
        self.work.as_ref().map(|work| &work.batch)
    }
}

impl Default for Buffers {
    fn default() -> Self {
        Self::new()
    }
}

/// Sends a request and waits until the answer begins.
async fn begin_on(
    connection: &mut Connection,
    path: &str,
    token: Option<&Bearer>,
    means: &Means<'_>,
    work: &mut Option<Lent>,
) -> Result<(), RequestError> {
    let limit = means.config.max_body_bytes;
    let is_held = work.is_some();
    if let Some(held) = work {
        held.buffers.start(limit);
    }
    connection.ask(path, token).await?;
    loop {
        connection.arrival().await?;
        let lent = if let Some(lent) = work {
            lent
        } else {
            let lent = work.insert(means.deadline.turn(means.workspaces.lend()).await);
            lent.buffers.start(limit);
            lent
        };
        if connection.begins(&mut lent.buffers)? {
            return Ok(());
        }
        // Others may have use for it until the answer comes.
        if !is_held && lent.buffers.are_free() {
            *work = None;
        }
    }
}

/// A token goes to whom the witness speaks for, and to others only if the user said so.
fn may_have_token(config: &ScrapeConfig, verified: Option<Verified>) -> bool {
    match config.transport {
        Transport::Tls(_) => verified.is_some() || config.token_to_unverified,
        Transport::InsecureHttp => false,
    }
}

fn reading(means: &Means<'_>, is_complete: bool) -> Reading {
    Reading {
        asked: means.asked,
        is_complete,
        max_containers: means.config.max_containers,
    }
}

/// Whether the node has computed itself what each of its containers uses.
fn is_warm(batch: &NodeBatch) -> bool {
    batch
        .containers()
        .all(|(_, sample)| sample.cpu_now.is_some() || sample.cpu.is_none())
}

fn is_missing(failure: &Failure) -> bool {
    matches!(failure, Failure::Status { status: 404, .. })
}

fn is_pending(until: Option<Instant>) -> bool {
    until.is_some_and(|until| until > Instant::now())
}

#[cfg(test)]
mod tests;
