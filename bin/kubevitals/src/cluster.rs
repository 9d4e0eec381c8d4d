//! The API server of the cluster, as all roles of a process share it: one set of watches, one set
//! of client metrics.

use kube_client_metrics::{Hooks, Registry as ClientMetrics};
use kubevitals_cli::RunError;
use kubevitals_telemetry::Metrics;
use kubevitals_watch::{KubeTransport, Server as WatchServer, WatchMetrics};

/// A cluster that roles talk to.
pub(crate) struct Cluster {
    /// How it is reached.
    pub(crate) config: kube::Config,
    /// What every request is told to.
    pub(crate) hooks: Hooks,
    /// Where streams begin.
    pub(crate) watches: WatchServer,
    /// Where streams are told of.
    pub(crate) metrics: WatchMetrics,
}

impl Cluster {
    /// Nothing is asked yet.
    pub(crate) fn new(config: kube::Config, metrics: &mut Metrics) -> Result<Self, RunError> {
        let watch_metrics = WatchMetrics::register(metrics.sub("kubevitals_watch"));
        let client_metrics = ClientMetrics::new();
        let hooks = client_metrics.hooks();
        metrics.root().register_collector(Box::new(client_metrics));
        let transport = KubeTransport::measured(config.clone(), &hooks);
        let transport = transport.map_err(RunError::runtime)?;
        Ok(Self {
            config,
            watches: WatchServer::measured(transport, hooks.clone()),
            hooks,
            metrics: watch_metrics,
        })
    }
}
