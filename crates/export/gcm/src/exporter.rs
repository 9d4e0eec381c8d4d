//! Writes batches of points.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashSet;
use kubevitals_model::{Clock, Timestamp};
use kubevitals_sink::{DataPoint, ExportError, Exporter, RetryPolicy, SinkConfig};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::api::{Api, CallError};
use crate::credentials::Credentials;
use crate::descriptor::{Described, descriptor};
use crate::metadata::MetadataServer;
use crate::metrics::{CallResult, Code, DescriptorResult, GcmMetrics, PointResult};
use crate::plan::{LastPoints, Plan, Planned};
use crate::response::{Judgement, Verdict, cut, judge, parse_failure};
use crate::settings::{GcmError, GcmSettings};

/// Writes data points to Cloud Monitoring. Use it with a sink of [`sink_config`]: points that are
/// denied wait until they are not.
pub struct GcmExporter {
    api: Api,
    settings: GcmSettings,
    clock: Clock,
    metrics: GcmMetrics,
    health: GcmHealth,
    last_points: LastPoints,
    described: Described,
    /// The points of the batch that were sent and may be sent again, by series and end.
    attempted: HashSet<(u64, Timestamp)>,
    /// Rejections that are in the log.
    logged: HashSet<Code>,
}

/// Whether a person must do something before anything is written. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct GcmHealth(Arc<Mutex<Option<String>>>);

/// What became of a batch.
#[derive(Default)]
struct Tally {
    sent: u64,
    duplicate: u64,
    unknown: u64,
    rejected: Vec<Code>,
    /// Positions of points that wait.
    retry: Vec<usize>,
    after: Option<Duration>,
    message: String,
    is_denied: bool,
}

/// Queue and retries for Cloud Monitoring: some hours of some thousand points each minute are kept,
/// and nothing is dropped but what does not fit.
pub fn sink_config() -> SinkConfig {
    SinkConfig {
        name: "cloud-monitoring",
        capacity: 100_000,
        max_batch: 1_000,
        linger: Duration::from_secs(2),
        retry: RetryPolicy {
            // The age of points decides.
            max_elapsed: None,
            ..RetryPolicy::default()
        },
    }
}

impl GcmExporter {
    /// Reads the files that the settings name. No connection is opened. `proxy` is the URL of a
    /// proxy to the endpoint.
    pub fn new(
        settings: GcmSettings,
        credentials: Credentials,
        metadata: MetadataServer,
        proxy: Option<&str>,
        clock: Clock,
        metrics: GcmMetrics,
    ) -> Result<Self, GcmError> {
        Ok(Self {
            api: Api::new(&settings, credentials, metadata, proxy, clock.clone())?,
            settings,
            clock,
            metrics,
            health: GcmHealth::default(),
            last_points: LastPoints::default(),
            described: Described::default(),
            attempted: HashSet::new(),
            logged: HashSet::new(),
        })
    }

    pub fn health(&self) -> GcmHealth {
        self.health.clone()
    }

    /// Describes metrics before their first points, and returns those that may not be described.
    /// An error keeps the whole batch.
    async fn describe(
        &mut self,
        batch: &[DataPoint],
        plan: &Plan,
    ) -> Result<Vec<Arc<str>>, CallError> {
        let mut denied = Vec::new();
        for (name, (at, keys)) in &plan.undescribed {
            let Some(point) = batch.get(*at) else {
                continue;
            };
            let mut descriptions = self.settings.descriptions.iter();
            let description = descriptions.find(|description| description.name == *name);
            let keys = keys.iter().map(String::as_str);
            let body = descriptor(&self.settings.prefix, point, description, keys);
            let body = Bytes::from(body.to_string());
            let answer = self.api.post("metricDescriptors", &body).await?;
            let message = || cut(&parse_failure(&answer.body).message);
            let result = match answer.status {
                200..300 => DescriptorResult::Created,
                409 => DescriptorResult::Exists,
                401 => return Err(CallError::Denied(message())),
                _ => DescriptorResult::Failed,
            };
            self.metrics.descriptors(result).inc();
            match answer.status {
                429 | 500.. => {
                    self.described.failed(name);
                    continue;
                }
                403 | 404 => {
                    denied.push(Arc::clone(name));
                    continue;
                }
                _ => self.described.done(name),
            }
            if result == DescriptorResult::Failed {
                // Points can be written without it: the backend then guesses.
                let (status, problem) = (answer.status, message());
                tracing::warn!(metric = %name, status, problem, "failed to describe a metric");
            }
        }
        Ok(denied)
    }

    /// If points may be written and metrics not described, these are left as the backend guesses
    /// them. If neither, both may be allowed later.
    fn give_up_descriptors(&mut self, denied: &[Arc<str>], tally: &Tally) {
        if tally.is_denied {
            return;
        }
        for metric in denied {
            tracing::warn!(%metric, "not allowed to describe a metric");
            self.described.done(metric);
        }
    }

    /// Writes the points of one call.
    async fn write(&mut self, call: &[Planned]) -> (Judgement, Option<Duration>) {
        let series: Vec<&Value> = call.iter().map(|point| &point.json).collect();
        let body = Bytes::from(json!({"timeSeries": series}).to_string());
        let before: Vec<bool> = call
            .iter()
            .map(|point| !self.attempted.insert((point.key, point.end)))
            .collect();
        let was_attempted = |at: usize| before.get(at).copied().unwrap_or_default();
        let (judged, after) = match self.api.post("timeSeries", &body).await {
            Ok(answer) => {
                let judged = judge(answer.status, &answer.body, call.len(), was_attempted);
                let denied = judged.is_denied.then_some(self.settings.denied_delay);
                (judged, denied.or(answer.after))
            }
            Err(error) => self.without_answer(error, call.len()),
        };
        if judged.is_denied {
            self.health.set(Some(judged.message.clone()));
        } else if !judged.is_busy {
            self.health.set(None);
        }
        let result = if judged.message.is_empty() {
            CallResult::Ok
        } else if judged.is_busy {
            CallResult::Failed
        } else {
            CallResult::Partial
        };
        self.metrics.calls(result).inc();
        (judged, after)
    }

    fn without_answer(&self, error: CallError, series: usize) -> (Judgement, Option<Duration>) {
        let (message, after) = match error {
            CallError::Denied(message) => (message, Some(self.settings.denied_delay)),
            CallError::Unavailable(message) => (message, None),
        };
        let judged = Judgement {
            verdicts: vec![Verdict::Retry; series],
            message,
            is_busy: true,
            is_denied: after.is_some(),
        };
        (judged, after)
    }

    async fn write_all(&mut self, plan: Plan, tally: &mut Tally) {
        // A point that waits holds up those that follow it in its series.
        let mut waiting = HashSet::new();
        let mut is_busy = false;
        for mut call in plan.calls {
            call.retain(|point| {
                let is_held = is_busy || waiting.contains(&point.key);
                if is_held {
                    tally.retry.push(point.at);
                }
                !is_held
            });
            if call.is_empty() {
                continue;
            }
            let (judged, after) = self.write(&call).await;
            is_busy = judged.is_busy;
            tally.is_denied |= judged.is_denied;
            tally.after = tally.after.max(after);
            if !judged.message.is_empty() {
                tally.message.clone_from(&judged.message);
            }
            for (point, verdict) in call.iter().zip(&judged.verdicts) {
                match verdict {
                    Verdict::Sent => tally.sent += 1,
                    Verdict::Duplicate => tally.duplicate += 1,
                    Verdict::Unknown => tally.unknown += 1,
                    Verdict::Rejected(code) => tally.rejected.push(*code),
                    Verdict::Retry => {
                        waiting.insert(point.key);
                        tally.retry.push(point.at);
                        continue;
                    }
                }
                self.attempted.remove(&(point.key, point.end));
                // One that was rejected is no reason to leave out the next.
                if !matches!(verdict, Verdict::Rejected(_)) {
                    self.last_points.record(point.key, point.end);
                }
            }
        }
    }

    /// Counts a batch when it is decided: an export that is cancelled is counted by the sink.
    fn settle(&mut self, mut tally: Tally, points: usize) -> Result<(), ExportError> {
        let metrics = &self.metrics;
        metrics.points(PointResult::Sent).inc_by(tally.sent);
        metrics
            .points(PointResult::Duplicate)
            .inc_by(tally.duplicate);
        metrics.points(PointResult::Unknown).inc_by(tally.unknown);
        for code in &tally.rejected {
            metrics.rejected(*code).inc();
            if self.logged.insert(*code) {
                let (code, problem) = (code.as_str(), &tally.message);
                tracing::warn!(code, problem, "Cloud Monitoring takes no such points");
            }
        }
        let rejected = tally.unknown + tally.rejected.len() as u64;
        let message = if tally.message.is_empty() {
            "left out before they were sent".to_owned()
        } else {
            tally.message
        };
        if tally.retry.is_empty() {
            self.attempted.clear();
            return match rejected {
                0 => Ok(()),
                records => Err(ExportError::Rejected { message, records }),
            };
        }
        if tally.retry.len() == points {
            let after = tally.after;
            return Err(ExportError::Retryable { message, after });
        }
        tally.retry.sort_unstable();
        Err(ExportError::Partial {
            message,
            after: tally.after,
            retry: tally.retry,
            rejected,
        })
    }
}

impl Exporter<DataPoint> for GcmExporter {
    async fn export(&mut self, batch: &[DataPoint]) -> Result<(), ExportError> {
        let now = self.clock.now();
        let mut plan = self
            .last_points
            .plan(&self.settings, &self.described, now, batch);
        let mut tally = Tally {
            rejected: std::mem::take(&mut plan.refused),
            ..Tally::default()
        };
        match self.describe(batch, &plan).await {
            Ok(denied) => {
                self.write_all(plan, &mut tally).await;
                self.give_up_descriptors(&denied, &tally);
            }
            Err(error) => {
                let (judged, after) = self.without_answer(error, 0);
                if judged.is_denied {
                    self.health.set(Some(judged.message.clone()));
                }
                let planned = plan.calls.iter().flatten();
                tally.retry.extend(planned.map(|point| point.at));
                (tally.message, tally.after) = (judged.message, after);
            }
        }
        self.settle(tally, batch.len())
    }
}

impl GcmHealth {
    /// What a person must solve; `None` while points can be written, as far as is known.
    pub fn problem(&self) -> Option<String> {
        self.0.lock().clone()
    }

    fn set(&self, problem: Option<String>) {
        *self.0.lock() = problem;
    }
}

/// Debug output has no credentials.
impl std::fmt::Debug for GcmExporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GcmExporter")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
