//! `kubevitals transitions`: how long every pod took, and why, as it happens.
//!
//! ```text
//! watch: pods ────subscription──┐                                  ┌─► JSON lines ──thread──► standard output
//!                               ├─► event loop: the tracker ──told─┤
//! watch: events ──tail──────────┘   (one task owns it)             └─► whoever listens (metrics)
//! ```
//!
//! There are two watches, however many pods there are. Both queues are bounded: pods that come
//! faster than they are taken are taken in all at once, and events wait at the server.

mod checks;
mod config;
mod event_loop;
mod flags;
mod metrics;
mod standby;
mod teller;

use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write;
use std::os::fd::AsFd as _;
use std::time::{Duration, SystemTime};

pub use flags::TransitionsFlags;
use kube_client_metrics::Hooks;
use kube_client_metrics::lease::Election;
use kubevitals_cli::{InvalidSetting, RunError, Shutdown};
use kubevitals_jsonl::{JsonLines, LineCounts};
use kubevitals_model::Timestamp;
use kubevitals_telemetry::{Health, Metrics};
use kubevitals_transition_metrics::TransitionMetrics;
use kubevitals_transitions::{Checkpoint, Existing, Output, Tracker};
use kubevitals_watch::{Event, Node, Pod, Stream, StreamSpec, Tail};
use teller::Listener;

use self::config::Settings;
use self::event_loop::{Counted, EventLoop, Pulse};
use self::metrics::{Observer, RoleMetrics};
use self::standby::Standby;
use self::teller::{Teller, Told};
use crate::cluster::Cluster;
use crate::kubeconfig::{self, KubeconfigFlags};
use crate::process::Context;

/// The streams, the loop and the admin server: nothing of it can use more.
pub(crate) const MAX_THREADS: usize = 4;

/// Of the grace period, what is left for the end of everything else once lines are written.
const RESERVE: Duration = Duration::from_secs(2);

/// Pods that started so long ago while no replica was there are not told of.
const MAX_AWAY: Duration = Duration::from_hours(1);

/// The role, configured and with nothing opened yet.
pub struct Transitions {
    settings: Settings,
}

/// The streams that the role lives on. Another role of the process may share them.
pub struct Streams {
    /// All pods that are to be followed.
    pub pods: Stream<Pod>,
    /// What is told of them; none if that is not wanted.
    pub events: Option<Tail<Event>>,
    /// The nodes, where metrics are to say where pods run.
    pub nodes: Option<Stream<Node>>,
}

/// What the role needs of its process besides its streams.
pub struct Surroundings {
    /// Asks the role to end.
    pub shutdown: Shutdown,
    /// Where lines are written; none for none, whatever the flags say.
    pub out: Option<Box<dyn Write + Send>>,
    /// How leases are reached, where the flags ask for an election.
    pub leases: Option<Leases>,
    /// Made by [`Transitions::register`].
    pub registered: Registered,
}

/// How leases are reached.
pub struct Leases {
    client: kube::Client,
    hooks: Hooks,
    election: Election,
}

/// The role's place among the metrics of the process.
#[derive(Debug, Clone)]
pub struct Registered {
    metrics: RoleMetrics,
    families: TransitionMetrics,
    pulse: Pulse,
}

impl Transitions {
    /// Checks what the flags ask for.
    pub fn configure(flags: &TransitionsFlags) -> Result<Self, InvalidSetting> {
        Ok(Self {
            settings: Settings::new(flags)?,
        })
    }

    /// Runs until the end is asked for, with lines to `out`. `told` is told where the admin server
    /// is.
    pub async fn run(
        self,
        mut context: Context,
        out: Box<dyn Write + Send>,
        told: &mut (dyn Write + Send),
    ) -> Result<(), RunError> {
        let config = self.load().await?;
        let cluster = Cluster::new(config, &mut context.metrics)?;
        let registered = self.register(&mut context.metrics);
        let mut streams = self.watch(&cluster);
        if self.wants_nodes() {
            let nodes = cluster.watches.watch(StreamSpec::<Node>::new("nodes"));
            cluster.metrics.track(&nodes);
            streams.nodes = Some(nodes);
        }
        registered.add_checks(&context.health, &streams)?;
        let shutdown = context.shutdown.clone();
        let admin = context.start_admin().await?;
        let line = format!("following pods, admin on http://{}\n", admin.address);
        // Who has closed standard error does not want to know.
        let _ = told.write_all(line.as_bytes());
        let leases = self.leases(&cluster)?;
        let surroundings = Surroundings {
            shutdown,
            out: Some(out),
            leases,
            registered,
        };
        self.run_on(streams, surroundings).await?;
        // It ends by the same signal.
        let _ = admin.task.await;
        Ok(())
    }

    /// How the cluster is reached.
    pub(crate) async fn load(&self) -> Result<kube::Config, RunError> {
        load(self.settings.kubeconfig.as_deref()).await
    }

    /// Registers the role's own metrics.
    pub fn register(&self, metrics: &mut Metrics) -> Registered {
        Registered {
            metrics: RoleMetrics::register(metrics),
            families: TransitionMetrics::register(metrics, self.settings.families.clone()),
            pulse: Pulse::new(),
        }
    }

    /// Whether metrics are to say what only nodes tell.
    pub(crate) fn wants_nodes(&self) -> bool {
        let labels = self.settings.families.labels;
        labels.node_pool || labels.zone
    }

    /// Opens the two watches.
    pub(crate) fn watch(&self, cluster: &Cluster) -> Streams {
        let streams = Streams {
            pods: cluster.watches.watch(self.settings.pods.clone()),
            events: (self.settings.events.clone()).map(|spec| cluster.watches.tail(spec)),
            nodes: None,
        };
        cluster.metrics.track(&streams.pods);
        if let Some(events) = &streams.events {
            cluster.metrics.track_tail(events);
        }
        streams
    }

    /// A client for the lease, where the flags ask for an election.
    pub(crate) fn leases(&self, cluster: &Cluster) -> Result<Option<Leases>, RunError> {
        let Some(standby) = &self.settings.standby else {
            return Ok(None);
        };
        let Cluster { config, hooks, .. } = cluster;
        let client = kube_client_metrics::client(config.clone(), hooks.clone())
            .map_err(RunError::runtime)?;
        Ok(Some(Leases {
            client,
            hooks: hooks.clone(),
            election: standby.election(&config.default_namespace, identity()),
        }))
    }

    /// Runs on streams from elsewhere until the end is asked for or the pods end, and ends the
    /// streams.
    pub async fn run_on(
        self,
        mut streams: Streams,
        surroundings: Surroundings,
    ) -> Result<(), RunError> {
        let mut settings = self.settings;
        let Surroundings {
            mut shutdown,
            out,
            leases,
            registered,
        } = surroundings;
        let mut standby = match leases {
            Some(Leases {
                client,
                hooks,
                election,
            }) => match Standby::begin(client, election, &hooks, &mut shutdown).await? {
                Some(standby) => Some(standby),
                None => return Ok(()),
            },
            None => None,
        };
        if let Some(standby) = &mut standby {
            let since = standby.known().map(|until| recent(until, now()));
            settings.tracker.existing = Existing::Unsettled { since };
        }
        let lines = match (settings.buffer, out) {
            (Some(buffer), Some(out)) => {
                Some(JsonLines::begin(out, buffer).map_err(RunError::runtime)?)
            }
            _ => None,
        };
        registered.metrics.observe(
            streams.observe_pods(),
            streams.observe_events(),
            lines.clone(),
        );
        let mut tracker = Tracker::new(settings.tracker);
        if standby.is_some() {
            tracker.stand_by();
        }
        let mut turns = EventLoop {
            tracker,
            standby,
            pods: streams.pods.subscribe_with(settings.queue),
            events: streams.events.take(),
            shard: settings.shard,
            teller: Teller {
                form: settings.lines,
                lines: lines.clone(),
                listener: listener(registered.families, streams.nodes),
                told: Told::default(),
            },
            metrics: registered.metrics,
            pulse: registered.pulse,
            clock: now,
            counted: Counted::default(),
        };
        // On a worker beside the streams: the thread that waits for signals would be woken for
        // every batch that they bring, which costs more than a tenth where there is one processor.
        let turned = tokio::spawn(async move {
            turns.run(shutdown).await;
            turns
        });
        let mut turns = turned.await.map_err(RunError::runtime)?;

        streams.pods.shutdown().await;
        if let Some(events) = &turns.events {
            events.shutdown().await;
        }
        let dropped = turns.teller.counts().dropped;
        turns.drain();
        if let Some(lines) = lines {
            flush(lines, settings.grace.saturating_sub(RESERVE)).await;
        }
        turns.publish();
        if let Some(standby) = turns.standby.take() {
            // What was not written is left to the next.
            let is_written = turns.teller.counts().dropped == dropped;
            let until = turns.tracker.checkpoint().filter(|_| is_written);
            standby.end(until).await;
        }
        Ok(())
    }
}

impl Streams {
    fn observe_pods(&self) -> Observer {
        Box::new(self.pods.observer())
    }

    fn observe_events(&self) -> Option<Observer> {
        let events = self.events.as_ref()?;
        Some(Box::new(events.observer()))
    }
}

impl Registered {
    /// Adds what the role has to say about its health.
    pub fn add_checks(&self, health: &Health, streams: &Streams) -> Result<(), RunError> {
        let random = random();
        let chance = f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX);
        checks::register(health, streams, self.pulse.clone(), chance)
    }
}

fn now() -> Timestamp {
    Timestamp::from_system_time(SystemTime::now())
}

/// A checkpoint that is no older than anybody cares for: who comes back after a week does not tell
/// of all pods of it.
fn recent(until: Checkpoint, now: Timestamp) -> Checkpoint {
    let oldest = now.checked_sub(MAX_AWAY).unwrap_or(now);
    Checkpoint {
        time: until.time.max(oldest),
        ..until
    }
}

/// The standard library seeds its hash maps from the system; nothing else is needed here.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// Who stands for a lease: the pod, and which of the processes that it may have had.
fn identity() -> String {
    let named = ["POD_NAME", "HOSTNAME"]
        .iter()
        .find_map(|variable| std::env::var(variable).ok());
    let name = named.unwrap_or_else(|| "kubevitals".to_owned());
    format!("{name}_{:016x}", random())
}

/// Tells families of every record, and of where the pod's node is if nodes are known.
fn listener(families: TransitionMetrics, nodes: Option<Stream<Node>>) -> Listener {
    Box::new(move |output| {
        let (Output::Startup(record) | Output::Life(record) | Output::Progress(record)) = output;
        let name = record.pod.brief.node.as_deref();
        let node = nodes
            .as_ref()
            .zip(name)
            .and_then(|(nodes, name)| nodes.get("", name));
        let place = node.as_ref().map(|node| families.place_of(&node.labels));
        families.tell(output, place.unwrap_or_default());
    })
}

/// Standard output, without the buffer of the library: what is written is written, and what is not
/// is known.
pub(crate) fn standard_output() -> Result<File, RunError> {
    let owned = std::io::stdout().as_fd().try_clone_to_owned();
    Ok(File::from(owned.map_err(RunError::runtime)?))
}

/// Waits for what is queued to be written, on a thread that may block.
async fn flush(lines: JsonLines, grace: Duration) -> LineCounts {
    let written = tokio::task::spawn_blocking(move || lines.finish(grace)).await;
    let counts = written.unwrap_or_default();
    if counts.dropped > 0 {
        tracing::warn!(
            dropped = counts.dropped,
            written = counts.written,
            "lines were lost"
        );
    }
    counts
}

/// The configuration in a file; without one that of the pod this runs in, or else that of kubectl.
async fn load(file: Option<&std::path::Path>) -> Result<kube::Config, RunError> {
    if file.is_none() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
        return KubeconfigFlags::default().load().await;
    }
    kubeconfig::load("kubeconfig", file).await
}
