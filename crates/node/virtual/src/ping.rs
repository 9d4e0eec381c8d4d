//! Whether the runtime can run pods.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::Clock;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::metrics::{NodeMetrics, Operation};
use crate::runtime::PodRuntime;
use crate::settings::Timing;

/// The result of the last ping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RuntimeHealth {
    Unknown,
    /// With the monotonic time.
    Healthy(Duration),
    Failing(String),
}

impl RuntimeHealth {
    /// Whether the runtime passed a ping recently.
    pub(crate) fn is_healthy(&self, now: Duration, timing: &Timing) -> bool {
        // A ping that never returns leaves an old result, which must not count for ever.
        let limit = timing.ping_interval.saturating_mul(2) + timing.ping_timeout;
        matches!(self, Self::Healthy(at) if now.saturating_sub(*at) <= limit)
    }

    /// Why the runtime is not healthy.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Unknown => "the runtime was not pinged yet",
            Self::Healthy(_) => "the runtime did not respond to the last ping",
            Self::Failing(reason) => reason,
        }
    }
}

/// Pings the runtime for ever.
pub(crate) async fn run(
    runtime: Arc<dyn PodRuntime>,
    timing: Timing,
    clock: Clock,
    metrics: NodeMetrics,
    health: watch::Sender<RuntimeHealth>,
) {
    let mut ticks = interval(timing.ping_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let start = clock.moment().monotonic;
        let failure = match timeout(timing.ping_timeout, runtime.ping()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!(
                "the runtime did not respond within {:?}",
                timing.ping_timeout
            )),
        };
        let end = clock.moment().monotonic;
        metrics.count_operation(
            Operation::ping,
            failure.is_none(),
            end.saturating_sub(start),
        );
        metrics.set_healthy(failure.is_none());
        let was_healthy = matches!(*health.borrow(), RuntimeHealth::Healthy(_));
        let now = match failure {
            None => {
                if !was_healthy {
                    tracing::info!("runtime is healthy");
                }
                RuntimeHealth::Healthy(end)
            }
            Some(reason) => {
                if was_healthy || *health.borrow() == RuntimeHealth::Unknown {
                    tracing::warn!(reason, "runtime is not healthy");
                }
                RuntimeHealth::Failing(reason)
            }
        };
        health.send_replace(now);
    }
}
