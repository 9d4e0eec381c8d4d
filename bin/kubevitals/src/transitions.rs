//! `kubevitals transitions`: how long every pod took to start, and why, as it happens.
//!
//! The event loop is in `crates/roles/transitions`; this file reads the flags and wires it.

mod config;
mod flags;

use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write;
use std::os::fd::AsFd as _;

pub use flags::TransitionsFlags;
use kubevitals_cli::{InvalidSetting, RunError};
use kubevitals_telemetry::Metrics;
pub use kubevitals_transitions_role::{Deps, LeaseClient, Registered, Streams};
use kubevitals_watch::{Node, StreamSpec};

use self::config::Settings;
use crate::cluster::Cluster;
use crate::kubeconfig::{self, KubeconfigFlags};
use crate::process::Context;

/// The watches, the event loop and the admin server cannot use more.
pub(crate) const MAX_THREADS: usize = 4;

/// The role, configured and with nothing opened yet.
pub struct Transitions {
    settings: Settings,
}

impl Transitions {
    /// Validates the flags.
    pub fn configure(flags: &TransitionsFlags) -> Result<Self, InvalidSetting> {
        Ok(Self {
            settings: Settings::new(flags)?,
        })
    }

    /// Runs until shutdown is requested, with lines to `out`. The address of the admin server is
    /// written to `status`.
    pub async fn run(
        self,
        mut context: Context,
        out: Box<dyn Write + Send>,
        status: &mut (dyn Write + Send),
    ) -> Result<(), RunError> {
        let config = self.load().await?;
        let cluster = Cluster::new(config, &mut context.metrics)?;
        let registered = self.register(&mut context.metrics);
        let mut streams = self.watch(&cluster);
        if self.needs_nodes() {
            let nodes = cluster.watches.watch(StreamSpec::<Node>::new("nodes"));
            cluster.metrics.track(&nodes);
            streams.nodes = Some(nodes);
        }
        registered.add_checks(&context.health, &streams)?;
        let shutdown = context.shutdown.clone();
        let admin = context.start_admin().await?;
        let line = format!("following pods, admin on http://{}\n", admin.address);
        // A closed standard error is no reason to stop.
        let _ = status.write_all(line.as_bytes());
        let leases = self.leases(&cluster)?;
        let deps = Deps {
            shutdown,
            out: Some(out),
            leases,
            registered,
        };
        self.run_on(streams, deps).await?;
        // The admin server ends by the same signal.
        let _ = admin.task.await;
        Ok(())
    }

    /// Loads the client configuration of the cluster: from the file of the flag; without one from
    /// the service account of the pod, or else as kubectl does.
    pub(crate) async fn load(&self) -> Result<kube::Config, RunError> {
        let file = self.settings.kubeconfig.as_deref();
        if file.is_none() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
            return KubeconfigFlags::default().load().await;
        }
        kubeconfig::load("kubeconfig", file).await
    }

    /// Registers the role's own metrics.
    pub fn register(&self, metrics: &mut Metrics) -> Registered {
        Registered::new(metrics, self.settings.role.families.clone())
    }

    /// Whether the labels of the pod metrics need nodes.
    pub(crate) fn needs_nodes(&self) -> bool {
        let labels = self.settings.role.families.labels;
        labels.node_pool || labels.zone
    }

    /// Opens the watches of pods and events.
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

    /// Returns a client for the Lease, if leader election is enabled.
    pub(crate) fn leases(&self, cluster: &Cluster) -> Result<Option<LeaseClient>, RunError> {
        let Some(lease) = &self.settings.lease else {
            return Ok(None);
        };
        let Cluster { config, hooks, .. } = cluster;
        let client = kube_client_metrics::client(config.clone(), hooks.clone())
            .map_err(RunError::runtime)?;
        Ok(Some(LeaseClient {
            client,
            hooks: hooks.clone(),
            election: lease.election(&config.default_namespace, identity()),
        }))
    }

    /// Runs on the given watches until shutdown is requested or the pod watch ends, and stops them.
    pub async fn run_on(self, streams: Streams, deps: Deps) -> Result<(), RunError> {
        kubevitals_transitions_role::run(self.settings.role, streams, deps).await
    }
}

/// The identity of a candidate: the pod's name, and a suffix for this process.
fn identity() -> String {
    let name = ["POD_NAME", "HOSTNAME"]
        .iter()
        .find_map(|variable| std::env::var(variable).ok());
    let name = name.unwrap_or_else(|| "kubevitals".to_owned());
    // The standard library seeds its hash maps from the system, which is random enough here.
    format!("{name}_{:016x}", RandomState::new().hash_one(0))
}

/// Standard output without the buffer of the library, so that a write is complete when it returns.
pub(crate) fn standard_output() -> Result<File, RunError> {
    let owned = std::io::stdout().as_fd().try_clone_to_owned();
    Ok(File::from(owned.map_err(RunError::runtime)?))
}
