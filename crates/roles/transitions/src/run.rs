//! From configuration to shutdown.

use std::io::Write;
use std::time::Duration;

use kubevitals_cli::{RunError, Shutdown};
use kubevitals_jsonl::{JsonLines, TransitionLines};
use kubevitals_model::{Clock, Rng, Timestamp};
use kubevitals_sink::SinkMetrics;
use kubevitals_telemetry::{Health, Metrics, panic_message};
use kubevitals_transition_metrics::{FamilyConfig, TransitionMetrics};
use kubevitals_transitions::{Checkpoint, Existing, Shard, Tracker, TrackerConfig};
use tokio::task::JoinError;

use crate::emitter::{Emitter, RecordCounts, RecordHook};
use crate::event_loop::{EventLoop, Heartbeat, InputCounts};
use crate::leader_state::LeaderState;
use crate::metrics::RoleMetrics;
use crate::pod_metrics::PodMetrics;
use crate::version_order::VersionOrder;
use crate::{LeaseClient, Watches, checks};

/// Part of the grace period reserved for everything that follows the flush of the lines.
const SHUTDOWN_RESERVE: Duration = Duration::from_secs(2);

/// Startups older than this that happened while no replica was running are not emitted.
const MAX_CHECKPOINT_AGE: Duration = Duration::from_hours(1);

/// Settings of the role.
#[derive(Debug, Clone)]
pub struct TransitionsConfig {
    /// Capacity of the pod subscription.
    pub queue: usize,
    pub shard: Shard,
    pub tracker: TrackerConfig,
    pub lines: TransitionLines,
    /// Capacity of the line queue in bytes; `None` if no lines are written.
    pub buffer: Option<usize>,
    /// Labels and limits of the pod metrics.
    pub families: FamilyConfig,
    /// Time within which the role must end once shutdown is requested.
    pub grace: Duration,
}

/// The dependencies of the role besides its watches.
pub struct Deps {
    pub shutdown: Shutdown,
    /// Destination of the lines; `None` for none, whatever the configuration says.
    pub out: Option<Box<dyn Write + Send>>,
    /// `None` without leader election.
    pub leases: Option<LeaseClient>,
    pub registered: Registered,
    /// Receive every record besides the metrics and the lines, such as exporters.
    pub hooks: Vec<RecordHook>,
}

/// The registered metrics of the role.
#[derive(Debug, Clone)]
pub struct Registered {
    metrics: RoleMetrics,
    families: TransitionMetrics,
    lines: SinkMetrics,
    heartbeat: Heartbeat,
}

impl Registered {
    /// Registers the metrics of the role.
    pub fn new(metrics: &mut Metrics, families: FamilyConfig) -> Self {
        Self {
            metrics: RoleMetrics::register(metrics),
            families: TransitionMetrics::register(metrics, families),
            lines: SinkMetrics::register(metrics.sub("kubevitals_transitions_lines")),
            heartbeat: Heartbeat::new(),
        }
    }

    /// Adds the health checks of the role.
    pub fn add_checks(&self, health: &Health, watches: &Watches) -> Result<(), RunError> {
        let jitter = Rng::random().fraction();
        checks::register(health, watches, self.heartbeat.clone(), jitter)
    }
}

/// Runs until shutdown is requested, and then stops the watches. Fails if a watch or leader
/// election ends before.
pub async fn run(
    mut config: TransitionsConfig,
    mut watches: Watches,
    deps: Deps,
) -> Result<(), RunError> {
    let Deps {
        mut shutdown,
        out,
        leases,
        registered,
        hooks,
    } = deps;
    let mut leader = match leases {
        Some(leases) => match LeaderState::start(leases, &mut shutdown).await? {
            Some(leader) => Some(leader),
            None => return Ok(()),
        },
        None => None,
    };
    let clock = Clock::system();
    if let Some(leader) = &mut leader {
        let since = leader
            .lease_checkpoint()
            .map(|from| recent(from, clock.now()));
        config.tracker.existing = Existing::Unsettled { since };
    }
    let lines = match (config.buffer, out) {
        (Some(buffer), Some(out)) => {
            let lines = JsonLines::start(out, buffer, registered.lines);
            Some(lines.map_err(RunError::runtime)?)
        }
        _ => None,
    };
    registered
        .metrics
        .observe(watches.observe_pods(), watches.observe_events());
    let mut tracker = Tracker::new(config.tracker);
    if leader.is_some() {
        tracker.stand_by();
    }
    let mut event_loop = EventLoop {
        tracker,
        leader,
        pods: watches.pods.subscribe_with(config.queue),
        events: watches.events.take(),
        shard: config.shard,
        emitter: Emitter {
            form: config.lines,
            lines: lines.clone(),
            pods: PodMetrics::new(registered.families, watches.nodes),
            hooks,
            counts: RecordCounts::default(),
        },
        metrics: registered.metrics,
        heartbeat: registered.heartbeat,
        clock,
        counts: InputCounts::default(),
        versions: VersionOrder::default(),
    };
    // On a worker thread, as the watches: the main thread would be woken for each of their batches,
    // which takes more than a tenth of the CPU time on a single core.
    let task = tokio::spawn(async move {
        let result = event_loop.run(shutdown).await;
        (event_loop, result)
    });
    let ended = task.await;
    let (mut event_loop, result) = ended.map_err(|error| task_error("event loop", error))?;

    watches.pods.shutdown().await;
    if let Some(events) = &event_loop.events {
        events.shutdown().await;
    }
    let dropped = event_loop.emitter.line_counts().dropped;
    event_loop.drain();
    if let Some(lines) = lines {
        flush(&lines, config.grace.saturating_sub(SHUTDOWN_RESERVE)).await;
    }
    event_loop.publish();
    if let Some(leader) = event_loop.leader.take() {
        // Lines that were not written are left to the next leader.
        let all_written = event_loop.emitter.line_counts().dropped == dropped;
        let checkpoint = event_loop.tracker.checkpoint().filter(|_| all_written);
        leader.release(checkpoint).await?;
    }
    result
}

/// Names a task that panicked or was cancelled.
pub(crate) fn task_error(name: &str, error: JoinError) -> RunError {
    RunError::runtime(match error.try_into_panic() {
        Ok(panic) => format!("{name} panicked: {}", panic_message(&*panic)),
        Err(error) => format!("{name} ended: {error}"),
    })
}

/// Limits the age of a checkpoint: a replica that starts after a week without any does not emit
/// every start of that week.
fn recent(checkpoint: Checkpoint, now: Timestamp) -> Checkpoint {
    let oldest = now.checked_sub(MAX_CHECKPOINT_AGE).unwrap_or(now);
    Checkpoint {
        time: checkpoint.time.max(oldest),
        ..checkpoint
    }
}

/// Waits for queued lines to be written.
async fn flush(lines: &JsonLines, grace: Duration) {
    let counts = lines.shutdown(grace).await;
    if counts.dropped > 0 {
        tracing::warn!(
            dropped = counts.dropped,
            written = counts.exported,
            "dropped lines"
        );
    }
}
