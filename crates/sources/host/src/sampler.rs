//! Samples a host in the background: on an interval, and earlier on demand.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::node_stats::NodeStats;
use kubevitals_model::{Clock, Moment};
use kubevitals_telemetry::Status;
use tokio::sync::{Notify, watch};
use tokio::time::MissedTickBehavior;

use crate::error::{Fault, HostError};
use crate::host::{HostReader, Sample};
use crate::metrics::HostMetrics;

/// When a host is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SamplerOptions {
    /// The time between samples, as that of cAdvisor.
    pub interval: Duration,
    /// The age at which a sample is replaced on demand.
    pub min_age: Duration,
}

/// Takes samples. Run it as a task.
pub struct Sampler {
    reader: HostReader,
    options: SamplerOptions,
    clock: Clock,
    metrics: HostMetrics,
    demand: Arc<Notify>,
    samples: watch::Sender<Published>,
}

/// The samples of a [`Sampler`]. Clones share them.
#[derive(Debug, Clone)]
pub struct HostStats {
    options: SamplerOptions,
    clock: Clock,
    demand: Arc<Notify>,
    samples: watch::Receiver<Published>,
}

/// The newest sample.
#[derive(Debug, Clone, Default)]
struct Published {
    sample: Option<(Arc<NodeStats>, Moment)>,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(10),
            min_age: Duration::from_secs(5),
        }
    }
}

impl Sampler {
    pub fn new(
        reader: HostReader,
        options: SamplerOptions,
        clock: Clock,
        metrics: HostMetrics,
    ) -> (Self, HostStats) {
        let demand = Arc::new(Notify::new());
        let (sender, receiver) = watch::channel(Published::default());
        let stats = HostStats {
            options,
            clock: clock.clone(),
            demand: Arc::clone(&demand),
            samples: receiver,
        };
        let sampler = Self {
            reader,
            options,
            clock,
            metrics,
            demand,
            samples: sender,
        };
        (sampler, stats)
    }

    /// Samples until `shutdown` completes. The reads run on a thread for blocking work, so that a
    /// slow file system delays no request.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<(), HostError> {
        tokio::pin!(shutdown);
        let mut ticks = tokio::time::interval(self.options.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut log = FaultLog::default();
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                _ = ticks.tick() => {}
                () = self.demand.notified() => ticks.reset(),
            }
            let started = self.clock.moment();
            let (reader, sample) = tokio::task::spawn_blocking(move || {
                let sample = self.reader.sample();
                (self.reader, sample)
            })
            .await
            .map_err(|error| HostError::Failed(error.to_string()))?;
            self.reader = reader;
            let ended = self.clock.moment();
            let duration = ended.monotonic.saturating_sub(started.monotonic);
            self.metrics.record(&sample, duration);
            log.record(&sample);
            self.samples.send_replace(Published {
                sample: Some((sample.stats, ended)),
            });
        }
    }
}

impl HostStats {
    /// Returns the newest sample; `None` before the first.
    pub fn latest(&self) -> Option<Arc<NodeStats>> {
        let published = self.samples.borrow();
        published
            .sample
            .as_ref()
            .map(|(stats, _)| Arc::clone(stats))
    }

    /// Returns a sample that is not older than [`SamplerOptions::min_age`], and takes one if
    /// needed. Requests at the same time share it.
    pub async fn fresh(&self) -> Result<Arc<NodeStats>, HostError> {
        let mut samples = self.samples.clone();
        let oldest = self
            .clock
            .moment()
            .monotonic
            .saturating_sub(self.options.min_age);
        let is_fresh = |published: &Published| {
            let sample = published.sample.as_ref();
            sample.is_some_and(|(_, at)| at.monotonic >= oldest)
        };
        if !is_fresh(&samples.borrow()) {
            self.demand.notify_one();
        }
        let published = samples
            .wait_for(is_fresh)
            .await
            .map_err(|_| HostError::Stopped)?;
        let sample = published.sample.as_ref().ok_or(HostError::Stopped)?;
        Ok(Arc::clone(&sample.0))
    }

    /// Waits for the next sample; false once the sampler has ended.
    pub async fn changed(&mut self) -> bool {
        self.samples.changed().await.is_ok()
    }

    /// A readiness check: warming up until the first sample, failing once the newest is older than
    /// three intervals.
    pub fn health_check(&self) -> impl Fn() -> Status + Send + Sync + 'static {
        let this = self.clone();
        move || {
            let now = this.clock.moment().monotonic;
            let limit = this.options.interval * 3;
            match &this.samples.borrow().sample {
                None => Status::WarmingUp("waiting for the first sample of the host".into()),
                Some((_, at)) if now.saturating_sub(at.monotonic) > limit => {
                    let age = now.saturating_sub(at.monotonic).as_secs();
                    Status::Failing(format!("the last sample of the host is {age} s old").into())
                }
                Some(_) => Status::Ok,
            }
        }
    }
}

/// Logs when values begin and cease to be missing. Cgroups that vanish are normal.
#[derive(Debug, Default)]
struct FaultLog {
    is_failing: bool,
}

impl FaultLog {
    fn record(&mut self, sample: &Sample) {
        let faults = sample.faults.total() - sample.faults.count(Fault::Vanished);
        let is_failing = faults > 0;
        if is_failing != self.is_failing {
            self.is_failing = is_failing;
            if is_failing {
                let reason = Fault::ALL
                    .into_iter()
                    .filter(|fault| *fault != Fault::Vanished)
                    .max_by_key(|fault| sample.faults.count(*fault));
                tracing::warn!(
                    faults,
                    reason = reason.map(Fault::as_str),
                    "parts of the host cannot be read"
                );
            } else {
                tracing::info!("the whole host can be read again");
            }
        }
    }
}
