//! `kubevitals prober`: the health of nodes, addons and paths, to every backend.
//!
//! The loop is in `crates/roles/prober`, probes are in `crates/sources/probes`; this file reads the
//! flags and wires them.

mod config;
mod flags;
mod probing;
mod providers;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

pub use flags::ProberFlags;
use futures_util::future::BoxFuture;
use kubevitals_cli::{InvalidSetting, ResultExt as _, RunError};
use kubevitals_inventory::{AddonRules, UNKNOWN};
use kubevitals_model::{Clock, DaemonSet, Deployment, Node, Pod, Rng, zone};
use kubevitals_prober::{
    ClusterSettings, ClusterWatches, Deps, LeaseClient, MeshCoordinator, MeshPinger, Mode,
    NodeSettings, NodeWatches, ProbeBoard, Registered,
};
use kubevitals_watch::{Reflector, TypedKind, WatchSpec};

use self::config::{ModeSettings, Settings};
use self::probing::{Probing, ProbingCell};
use self::providers::StartedProviders;
use crate::cluster::Cluster;
use crate::election::LeaseSettings;
use crate::output::Notice;
use crate::process::ProcessFlags;
use crate::role::{Kubeconfig, Role, RoleContext, RoleDefinition, RunningRole, Setup};
use crate::watches::{NodeRequest, WatchRequests};

/// The flag that converts a file instead of running the role.
pub(crate) const CONVERT_BLACKBOX: &str = "convert_blackbox";

const EXAMPLES: &str = "\
The variables of gke-prober count where a flag is not given: PROBER_MODE, REPORT_INTERVAL,
METRIC_PREFIX, NODE_NAME, NODE_IP, ENABLE_CLUSTER_PROBES, ENABLE_NODE_PROBES and
ENABLE_CONNECTIVITY_PROBES.

Examples:
  kubevitals prober --kubeconfig ~/.kube/config --listen-address 127.0.0.1:8080
  kubevitals prober --mode node --node-name node-1 --provider otlp --otlp-endpoint http://collector:4318
  kubevitals prober --probes probes.yaml --provider jsonl | jq
  kubevitals prober --listen-address 0.0.0.0:8080 --leader-elect
  kubevitals prober --convert-blackbox blackbox.yml > probes.yaml";

/// The role, configured and with nothing opened yet.
pub struct Prober {
    settings: Settings,
}

/// The role with its watches open and its metrics registered.
struct RunningProber {
    settings: Settings,
    kubernetes: kube::Config,
    mode: Mode,
    providers: StartedProviders,
    probing: ProbingCell,
    mesh: Option<MeshPinger>,
    registered: Registered,
    clock: Clock,
}

impl RoleDefinition for Prober {
    type Flags = ProberFlags;

    const NAME: &'static str = "prober";
    const ABOUT: &'static str = "Report the health of nodes, addons and targets, in place of \
                                 gke-prober and blackbox_exporter";
    const EXAMPLES: &'static str = EXAMPLES;
    /// The watches, the loop, probes and exporters wait most of the time.
    const MAX_THREADS: usize = 2;
    // `--namespace` and `--otlp-endpoint` mean something else for transitions.
    const IS_COMBINABLE: bool = false;

    fn configure(flags: &ProberFlags) -> Result<Self, InvalidSetting> {
        Ok(Self {
            settings: Settings::new(flags, &|name| std::env::var(name).ok())?,
        })
    }

    fn process(flags: &ProberFlags) -> &ProcessFlags {
        &flags.process
    }
}

impl Role for Prober {
    fn kubeconfig(&self) -> Kubeconfig {
        Kubeconfig {
            file: self.settings.kubeconfig.clone(),
            fall_back_to_kubectl: true,
        }
    }

    fn owns_stdout(&self) -> bool {
        self.settings.writes_lines()
    }

    fn watches(&self, requests: &mut WatchRequests) -> Result<(), InvalidSetting> {
        match self.settings.mode {
            ModeSettings::Cluster { .. } => requests.nodes(NodeRequest::default()),
            // One node and its pods are watches that no other role can share.
            ModeSettings::Node { .. } => Ok(()),
        }
    }

    fn start(self: Box<Self>, setup: &mut Setup<'_>) -> Result<Box<dyn RunningRole>, RunError> {
        let Self { settings } = *self;
        let clock = Clock::system();
        let mode = open(&settings, setup)?;
        let registered = Registered::new(
            setup.metrics,
            settings.mode_name(),
            clock.clone(),
            settings.interval,
        );
        registered.add_checks(setup.health, &mode)?;
        setup.pages.push(registered.liveness());
        let mesh = match &settings.mode {
            ModeSettings::Node {
                mesh: Some(mesh), ..
            } => Some(MeshPinger::register(setup.metrics, mesh.clone())),
            _ => None,
        };
        setup.pages.extend(mesh.as_ref().map(MeshPinger::page));
        let probing = ProbingCell::default();
        setup.pages.push(probing.page());
        let root = setup.metrics.root();
        root.register_collector(Box::new(probing.clone()));
        let providers =
            StartedProviders::start(settings.providers.clone(), setup.metrics, clock.clone());
        Ok(Box::new(RunningProber {
            kubernetes: setup.cluster.config.clone(),
            settings,
            mode,
            providers,
            probing,
            mesh,
            registered,
            clock,
        }))
    }
}

impl RunningRole for RunningProber {
    fn run(self: Box<Self>, context: RoleContext) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(async move {
            let mode = self.settings.mode_name();
            let notice = Notice {
                text: format!("probing, in {mode} mode"),
                address: None,
                admin: context.admin,
            };
            // A closed standard error is no reason to stop.
            let _ = context.output.notify(notice);
            let out = self
                .settings
                .writes_lines()
                .then(|| context.output.take_data());
            let opening = self
                .providers
                .open(out.flatten(), &context.health, &context.tasks);
            let mut shutdown = context.shutdown.clone();
            let providers = tokio::select! {
                providers = opening => providers?,
                () = shutdown.requested() => return Ok(()),
            };
            let board = Arc::new(ProbeBoard::new(&providers));
            let probing = Probing::start(
                &self.settings.probes,
                &self.kubernetes,
                Arc::clone(&board),
                self.clock.clone(),
            )?;
            let reloader = Arc::clone(&probing.reloader);
            let interval = self.settings.probes.reload_interval;
            context.tasks.spawn("reload-probes", reloader.run(interval));
            let scheduler = Arc::clone(&probing.scheduler);
            self.probing.set(probing);
            if let (Some(mesh), Mode::Node { settings, watches }) = (self.mesh, &self.mode) {
                let (node, name) = (watches.node.clone(), settings.name.clone());
                let zone = move || {
                    let node = node.get("", &name);
                    let zone = node.as_ref().and_then(|node| zone(&node.labels));
                    zone.cloned().unwrap_or_else(|| UNKNOWN.into())
                };
                context
                    .tasks
                    .spawn("mesh", mesh.run(context.admin.port(), zone));
            }
            let deps = Deps {
                shutdown: context.shutdown,
                clock: self.clock,
                providers,
                board,
                scheduler: Some(scheduler),
                registered: self.registered,
                interval: self.settings.interval,
                grace: self.settings.grace,
            };
            kubevitals_prober::run(self.mode, deps).await
        })
    }
}

/// Opens the watches of the mode.
fn open(settings: &Settings, setup: &mut Setup<'_>) -> Result<Mode, RunError> {
    let cluster = Arc::clone(setup.cluster);
    let rules = &settings.rules;
    match &settings.mode {
        ModeSettings::Cluster {
            lease,
            node_probers,
            silence,
        } => {
            let namespace = settings.namespace.as_deref();
            let namespace = namespace.unwrap_or(&cluster.config.default_namespace);
            let probers = node_probers.as_ref().map(|selector| {
                let spec = WatchSpec::<Pod>::new("node-probers").namespace(namespace);
                reflector(setup, "watch-node-probers", spec.labels(selector))
            });
            let mesh = probers.as_ref().map(|_| {
                let mesh = MeshCoordinator::new(Clock::system());
                setup.pages.extend(mesh.pages());
                mesh
            });
            let daemon_sets = in_namespace(WatchSpec::<DaemonSet>::new("daemonsets"), rules);
            let deployments = in_namespace(WatchSpec::<Deployment>::new("deployments"), rules);
            let lease = lease.as_ref();
            let leases = lease.map(|lease| lease_client(lease, &cluster, namespace));
            Ok(Mode::Cluster {
                settings: ClusterSettings {
                    rules: rules.clone(),
                    warm_up: settings.warm_up,
                    silence: *silence,
                    mesh,
                },
                watches: ClusterWatches {
                    nodes: setup.watches.nodes()?,
                    daemon_sets: reflector(setup, "watch-daemonsets", daemon_sets),
                    deployments: reflector(setup, "watch-deployments", deployments),
                    probers,
                },
                leases: leases.transpose()?,
            })
        }
        ModeSettings::Node { name, .. } => {
            let node = WatchSpec::<Node>::new("nodes").fields(format!("metadata.name={name}"));
            let pods = in_namespace(WatchSpec::<Pod>::new("pods"), rules);
            let pods = pods.fields(format!("spec.nodeName={name}"));
            Ok(Mode::Node {
                settings: NodeSettings {
                    name: name.clone(),
                    rules: rules.clone(),
                    warm_up: settings.warm_up,
                },
                watches: NodeWatches {
                    node: reflector(setup, "watch-node", node),
                    pods: reflector(setup, "watch-pods", pods),
                },
            })
        }
    }
}

/// Watches no more than where addons can be.
fn in_namespace<K: TypedKind>(spec: WatchSpec<K>, rules: &AddonRules) -> WatchSpec<K> {
    let spec = spec.keep_annotations(AddonRules::ANNOTATIONS);
    match rules.only_namespace() {
        Some(namespace) => spec.namespace(namespace),
        None => spec,
    }
}

/// Opens a watch of this role alone, supervised: one that ends before shutdown ends the process.
fn reflector<K: TypedKind>(
    setup: &mut Setup<'_>,
    task: &'static str,
    spec: WatchSpec<K>,
) -> Reflector<K> {
    let reflector = setup.cluster.watches.reflector(spec);
    setup.cluster.metrics.track(&reflector);
    setup.tasks.spawn(task, reflector.closed());
    reflector
}

fn lease_client(
    lease: &LeaseSettings,
    cluster: &Cluster,
    namespace: &str,
) -> Result<Box<LeaseClient>, RunError> {
    Ok(Box::new(LeaseClient {
        client: cluster.client()?,
        hooks: cluster.hooks.clone(),
        election: lease.election(namespace, identity()),
    }))
}

/// Converts a configuration of blackbox_exporter. Warnings are comments at its end.
pub(crate) fn convert_blackbox(file: &Path, out: &mut dyn Write) -> Result<(), RunError> {
    let invalid = |problem: String| InvalidSetting {
        flag: "convert-blackbox",
        value: file.display().to_string(),
        problem,
        advice: "name a configuration of blackbox_exporter".to_owned(),
    };
    let text = std::fs::read_to_string(file).map_err(|error| invalid(error.to_string()))?;
    let converted = kubevitals_probes::convert_blackbox(&text);
    let converted = converted.map_err(|error| invalid(error.to_string()))?;
    let write = |out: &mut dyn Write| {
        out.write_all(converted.text.as_bytes())?;
        for warning in &converted.warnings {
            let (line, path, text) = (warning.line, &warning.path, &warning.text);
            writeln!(out, "# line {line}: {path}: {text}")?;
        }
        out.flush()
    };
    write(out).context("cannot write the configuration")
}

/// The identity of this process: the pod's name, and a suffix.
fn identity() -> String {
    let name = ["POD_NAME", "HOSTNAME"]
        .iter()
        .find_map(|variable| std::env::var(variable).ok());
    let name = name.unwrap_or_else(|| "kubevitals".to_owned());
    format!("{name}_{:016x}", Rng::random().next_u64())
}
