//! `kubevitals transitions`: how long every pod took to start, and why, as it happens.
//!
//! The event loop is in `crates/roles/transitions`; this file reads the flags and wires it.

mod config;
mod flags;
mod traces;

pub use flags::TransitionsFlags;
use futures_util::future::BoxFuture;
use kubevitals_cli::{InvalidSetting, RunError};
use kubevitals_model::Rng;
use kubevitals_transitions_role::{Deps, LeaseClient, Registered, Watches};

use self::config::Settings;
use self::traces::{RequestedAt, Traces};
use crate::cluster::Cluster;
use crate::output::Notice;
use crate::process::ProcessFlags;
use crate::role::{Kubeconfig, Role, RoleContext, RoleDefinition, RunningRole, Setup};
use crate::watches::{NodeRequest, PodFilter, PodWatch, WatchRequests};

const EXAMPLES: &str = "\
Standard output has JSON lines alone; logs go to standard error. Flags of kube-transition-metrics
have their names and meaning.

Examples:
  kubevitals transitions --kubeconfig ~/.kube/config | jq .kube_transition_metrics
  kubevitals transitions --lifecycle -n shop -l app=web
  kubevitals transitions --listen-address=0.0.0.0:8080 --leader-elect
  kubevitals transitions --shard 0/4
  kubevitals transitions --output-lines=false --otlp-endpoint=http://collector:4318";

/// The role, configured and with nothing opened yet.
pub struct Transitions {
    settings: Settings,
    filter: Option<PodFilter>,
}

/// The role with its watches open and its metrics registered.
struct RunningTransitions {
    settings: Settings,
    watches: Watches,
    leases: Option<LeaseClient>,
    registered: Registered,
    traces: Option<Traces>,
}

impl RoleDefinition for Transitions {
    type Flags = TransitionsFlags;

    const NAME: &'static str = "transitions";
    const ABOUT: &'static str = "Write how long every pod took to start, and why, as JSON lines, in \
                                 place of kube-transition-metrics";
    const EXAMPLES: &'static str = EXAMPLES;
    /// The watches, the event loop and the admin server cannot use more.
    const MAX_THREADS: usize = 4;

    fn configure(flags: &TransitionsFlags) -> Result<Self, InvalidSetting> {
        Ok(Self {
            settings: Settings::new(flags)?,
            filter: flags.pod_filter(),
        })
    }

    fn process(flags: &TransitionsFlags) -> &ProcessFlags {
        &flags.process
    }
}

impl Role for Transitions {
    fn kubeconfig(&self) -> Kubeconfig {
        Kubeconfig {
            file: self.settings.kubeconfig.clone(),
            fall_back_to_kubectl: true,
        }
    }

    fn owns_stdout(&self) -> bool {
        true
    }

    fn watches(&self, requests: &mut WatchRequests) -> Result<(), InvalidSetting> {
        requests.full_pods(self.settings.pods.clone(), self.filter.clone())?;
        if let Some(events) = self.settings.events.clone() {
            requests.events(events);
        }
        // Two labels of the pod metrics come from nodes.
        let labels = self.settings.role.families.labels;
        if labels.node_pool || labels.zone {
            requests.nodes(NodeRequest::default())?;
        }
        Ok(())
    }

    fn start(self: Box<Self>, setup: &mut Setup<'_>) -> Result<Box<dyn RunningRole>, RunError> {
        let PodWatch::Full(pods) = setup.watches.pods()? else {
            return Err(RunError::runtime("pods are watched as summaries"));
        };
        let watches = Watches {
            pods,
            events: setup.watches.events.take(),
            nodes: setup.watches.nodes.clone(),
        };
        let registered = Registered::new(setup.metrics, self.settings.role.families.clone());
        registered.add_checks(setup.health, &watches)?;
        let traces = self.settings.traces.as_ref();
        let traces = traces
            .map(|settings| Traces::start(settings, setup.metrics, setup.tasks))
            .transpose()?;
        Ok(Box::new(RunningTransitions {
            leases: self.lease_client(setup.cluster)?,
            settings: self.settings,
            watches,
            registered,
            traces,
        }))
    }
}

impl RunningRole for RunningTransitions {
    fn run(self: Box<Self>, context: RoleContext) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(async move {
            let notice = Notice {
                text: "following pods".to_owned(),
                address: None,
                admin: context.admin,
            };
            // A closed standard error is no reason to stop.
            let _ = context.output.notify(notice);
            let requested = RequestedAt::watch(context.shutdown.clone());
            let grace = self.settings.role.grace;
            let deps = Deps {
                shutdown: context.shutdown,
                out: context.output.take_data(),
                leases: self.leases,
                registered: self.registered,
                hooks: self.traces.iter().map(Traces::hook).collect(),
            };
            let role = kubevitals_transitions_role::run(self.settings.role, self.watches, deps);
            let result = role.await;
            if let Some(traces) = self.traces {
                traces.flush(grace, requested).await;
            }
            result
        })
    }
}

impl Transitions {
    /// Returns a client for the Lease, if leader election is enabled.
    fn lease_client(&self, cluster: &Cluster) -> Result<Option<LeaseClient>, RunError> {
        let Some(lease) = &self.settings.lease else {
            return Ok(None);
        };
        let Cluster { config, hooks, .. } = cluster;
        Ok(Some(LeaseClient {
            client: cluster.client()?,
            hooks: hooks.clone(),
            election: lease.election(&config.default_namespace, identity()),
        }))
    }
}

/// The identity of a candidate: the pod's name, and a suffix for this process.
fn identity() -> String {
    let name = ["POD_NAME", "HOSTNAME"]
        .iter()
        .find_map(|variable| std::env::var(variable).ok());
    let name = name.unwrap_or_else(|| "kubevitals".to_owned());
    format!("{name}_{:016x}", Rng::random().next_u64())
}
