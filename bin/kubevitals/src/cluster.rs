//! The API server of the cluster, which all roles of a process share: one watch client, one set of
//! client metrics.

use kube_client_metrics::{Hooks, Registry as ClientMetrics};
use kubevitals_cli::{ResultExt as _, RunError};
use kubevitals_telemetry::{Metrics, OutageLog};
use kubevitals_watch::{KubeTransport, WatchClient, WatchMetrics, api_client};

/// The API server of a cluster.
pub(crate) struct Cluster {
    /// The configuration of clients.
    pub(crate) config: kube::Config,
    /// The metrics of every request.
    pub(crate) hooks: Hooks,
    /// The client that opens watches.
    pub(crate) watches: WatchClient,
    /// The metrics of watches.
    pub(crate) metrics: WatchMetrics,
    /// The log of outages of the API server.
    pub(crate) outage: OutageLog,
}

impl Cluster {
    /// Registers the metrics. No request is sent.
    pub(crate) fn new(config: kube::Config, metrics: &mut Metrics) -> Result<Self, RunError> {
        let watch_metrics = WatchMetrics::register(metrics.sub("kubevitals_watch"));
        let client_metrics = ClientMetrics::new();
        let hooks = client_metrics.hooks();
        metrics.root().register_collector(Box::new(client_metrics));
        let outage = OutageLog::default();
        let transport = KubeTransport::measured(config.clone(), &hooks);
        let transport = transport.context("cannot create the client for watches")?;
        Ok(Self {
            config,
            watches: WatchClient::measured(transport, hooks.clone(), outage.clone()),
            hooks,
            metrics: watch_metrics,
            outage,
        })
    }

    /// A client for requests other than watches.
    pub(crate) fn client(&self) -> Result<kube::Client, RunError> {
        client(self.config.clone(), &self.hooks)
    }
}

/// A client for requests to the API server of `config`.
pub(crate) fn client(config: kube::Config, hooks: &Hooks) -> Result<kube::Client, RunError> {
    api_client(config, hooks).context("cannot create the client for the API server")
}
