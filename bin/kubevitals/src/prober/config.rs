//! Validated [`ProberFlags`].

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum as _;
use kubevitals_cli::InvalidSetting;
use kubevitals_inventory::{AddonRules, ApplyTo, SelectorRule};
use kubevitals_model::{GoDuration, LabelSelector};
use kubevitals_prober::MeshSettings;
use kubevitals_probes::BUILTIN_PROBES;

use super::flags::{AddonFlags, AddonRule, MeshFlags, ModeName, ProberFlags, StandbyFlags};
use super::providers::ProviderSettings;
use crate::election::{LeaseFlags, LeaseSettings};

/// Reads a variable of the environment.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The default of gke-prober.
const DEFAULT_PREFIX: &str = "gke-prober";

const DEFAULT_INTERVAL: Duration = Duration::from_mins(1);

/// Cloud Monitoring accepts a point of a series every five seconds; others need no report more
/// often than once a second.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Longer than any healthy path takes.
const MESH_TIMEOUT: Duration = Duration::from_secs(1);

/// Intervals without a ready prober after which a node is silent.
const SILENT_INTERVALS: u32 = 2;

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) mode: ModeSettings,
    pub(super) providers: ProviderSettings,
    pub(super) interval: Duration,
    pub(super) warm_up: Duration,
    pub(super) rules: AddonRules,
    /// `None` for that of the kubeconfig.
    pub(super) namespace: Option<String>,
    pub(super) probes: ProbeSettings,
    pub(super) grace: Duration,
}

#[derive(Debug, Clone)]
pub(super) enum ModeSettings {
    Cluster {
        /// `None` without leader election.
        lease: Option<LeaseSettings>,
        /// `None` not to look for silent nodes.
        node_probers: Option<String>,
        silence: Duration,
    },
    Node {
        name: String,
        mesh: Option<MeshSettings>,
    },
}

/// Settings of probes.
#[derive(Debug, Clone)]
pub(super) struct ProbeSettings {
    pub(super) files: Vec<PathBuf>,
    pub(super) reload_interval: Duration,
    pub(super) builtins: Vec<&'static str>,
    pub(super) allow_exec: bool,
    /// The address of the node.
    pub(super) host_ip: Option<IpAddr>,
    pub(super) metadata_host: String,
}

impl Settings {
    pub(super) fn new(
        flags: &ProberFlags,
        environment: Environment<'_>,
    ) -> Result<Self, InvalidSetting> {
        let get = |name: &str| environment(name).filter(|value| !value.is_empty());
        let reports = &flags.reports;
        let mode = mode(reports.mode, &get)?;
        let interval = interval(reports.report_interval, &get)?;
        let prefix = reports
            .metric_prefix
            .clone()
            .or_else(|| get("METRIC_PREFIX"));
        let prefix = prefix.unwrap_or_else(|| DEFAULT_PREFIX.to_owned());
        let namespace = reports.namespace.clone().or_else(|| get("POD_NAMESPACE"));
        let mut providers = ProviderSettings::new(flags, &prefix, interval, &get)?;
        let is_on = |variable: &str| get(variable).as_deref() == Some("true");
        let (mode, builtins) = match mode {
            ModeName::Cluster => {
                let selector = reports.node_prober_selector.trim();
                selector_of("node-prober-selector", selector, selector)?;
                let mode = ModeSettings::Cluster {
                    lease: lease(&flags.standby)?,
                    node_probers: (!selector.is_empty()).then(|| selector.to_owned()),
                    silence: interval.saturating_mul(SILENT_INTERVALS),
                };
                let mut builtins = Vec::new();
                if is_on("ENABLE_CLUSTER_PROBES") {
                    builtins.extend(["kube_dns", "metrics_server"]);
                }
                (mode, builtins)
            }
            ModeName::Node => {
                let name = reports.node_name.clone().or_else(|| get("NODE_NAME"));
                let name = name.or_else(host_name).ok_or_else(no_node_name)?;
                providers.add_node(&name);
                let mut builtins = Vec::new();
                // In gke-prober they always run; elsewhere than on GKE they can only fail.
                if is_on("ENABLE_NODE_PROBES") {
                    builtins.extend(["fluentbit", "gke-metadata-server"]);
                }
                let mesh = mesh(&flags.mesh, &name)?;
                (ModeSettings::Node { name, mesh }, builtins)
            }
        };
        let mut builtins = builtins;
        if is_on("ENABLE_CONNECTIVITY_PROBES") {
            builtins.extend(["http_get", "dns_lookup"]);
        }
        debug_assert!(builtins.iter().all(|name| BUILTIN_PROBES.contains(name)));
        let metadata_host = get("GCE_METADATA_HOST");
        Ok(Self {
            kubeconfig: reports.kubeconfig.clone(),
            mode,
            providers,
            interval,
            warm_up: positive("node-warm-up", reports.node_warm_up)?,
            rules: rules(&flags.addons)?,
            namespace,
            probes: ProbeSettings {
                files: flags.probes.probes.clone(),
                reload_interval: positive(
                    "probes-reload-interval",
                    flags.probes.probes_reload_interval,
                )?
                .max(MIN_INTERVAL),
                builtins,
                allow_exec: flags.probes.allow_exec,
                host_ip: get("NODE_IP").and_then(|text| text.parse().ok()),
                metadata_host: metadata_host
                    .unwrap_or_else(|| "metadata.google.internal".to_owned()),
            },
            grace: Duration::try_from(flags.process.shutdown_grace_period).unwrap_or_default(),
        })
    }

    /// The name of the mode, in health checks.
    pub(super) const fn mode_name(&self) -> &'static str {
        match self.mode {
            ModeSettings::Cluster { .. } => "cluster",
            ModeSettings::Node { .. } => "node",
        }
    }

    pub(super) fn writes_lines(&self) -> bool {
        self.providers.jsonl
    }
}

/// The election of this role.
fn lease(flags: &StandbyFlags) -> Result<Option<LeaseSettings>, InvalidSetting> {
    if !flags.leader_elect {
        return Ok(None);
    }
    let durations = LeaseFlags {
        lease_duration: flags.leader_elect_lease_duration,
        renew_deadline: flags.leader_elect_renew_deadline,
        retry_period: flags.leader_elect_retry_period,
    };
    let name = flags.leader_elect_resource_name.clone();
    let namespace = flags.leader_elect_resource_namespace.clone();
    LeaseSettings::new(name, namespace, durations).map(Some)
}

fn mesh(flags: &MeshFlags, node: &str) -> Result<Option<MeshSettings>, InvalidSetting> {
    let Some(coordinator) = &flags.mesh_coordinator else {
        return Ok(None);
    };
    if !coordinator.starts_with("http://") || coordinator.parse::<http::Uri>().is_err() {
        return Err(InvalidSetting {
            flag: "mesh-coordinator",
            value: coordinator.clone(),
            problem: "it is no URL of an admin server".to_owned(),
            advice: "use http://HOST:PORT".to_owned(),
        });
    }
    Ok(Some(MeshSettings {
        node: node.to_owned(),
        coordinator: coordinator.clone(),
        peers: flags.mesh_peers.into(),
        interval: positive("mesh-interval", flags.mesh_interval)?.max(MIN_INTERVAL),
        timeout: MESH_TIMEOUT,
    }))
}

fn mode(
    given: Option<ModeName>,
    get: &dyn Fn(&str) -> Option<String>,
) -> Result<ModeName, InvalidSetting> {
    if let Some(mode) = given {
        return Ok(mode);
    }
    let Some(text) = get("PROBER_MODE") else {
        return Ok(ModeName::Cluster);
    };
    ModeName::from_str(&text, false).map_err(|_| InvalidSetting {
        flag: "mode",
        value: text,
        problem: "PROBER_MODE has another value than cluster and node".to_owned(),
        advice: "set PROBER_MODE or --mode to cluster or node".to_owned(),
    })
}

/// gke-prober takes any text that is no duration as one minute, and says nothing.
fn interval(
    given: Option<GoDuration>,
    get: &dyn Fn(&str) -> Option<String>,
) -> Result<Duration, InvalidSetting> {
    let invalid = |value: String, problem: &str| InvalidSetting {
        flag: "report-interval",
        value,
        problem: problem.to_owned(),
        advice: "use a duration with its unit, such as 1m or 30s; one second at least".to_owned(),
    };
    let interval = match (given, get("REPORT_INTERVAL")) {
        (Some(given), _) => given,
        (None, None) => return Ok(DEFAULT_INTERVAL),
        (None, Some(text)) => text
            .parse::<GoDuration>()
            .map_err(|_| invalid(text, "REPORT_INTERVAL is no duration"))?,
    };
    Duration::try_from(interval)
        .ok()
        .filter(|interval| *interval >= MIN_INTERVAL)
        .ok_or_else(|| invalid(interval.to_string(), "it is too short"))
}

fn rules(flags: &AddonFlags) -> Result<AddonRules, InvalidSetting> {
    let is_all = flags.addon_namespace.iter().any(|name| name == "*");
    let namespaces = flags.addon_namespace.iter();
    let namespaces = namespaces
        .filter(|name| !is_all && !name.is_empty())
        .cloned();
    let selectors = flags.addon.iter().map(|text| selector_rule(text));
    Ok(AddonRules {
        namespaces: namespaces.collect(),
        selectors: selectors.collect::<Result<_, _>>()?,
        apply: match flags.addon_rules {
            AddonRule::Annotated => ApplyTo::Annotated,
            AddonRule::Known => ApplyTo::Known,
            AddonRule::Named => ApplyTo::Named,
        },
    })
}

/// Parses `NAME=SELECTOR` or `NAME@NAMESPACE=SELECTOR`.
fn selector_rule(text: &str) -> Result<SelectorRule, InvalidSetting> {
    let invalid = || InvalidSetting {
        flag: "addon",
        value: text.to_owned(),
        problem: "it is no addon".to_owned(),
        advice: "use NAME=SELECTOR, such as ingress@ingress-nginx=app.kubernetes.io/name=nginx"
            .to_owned(),
    };
    let (name, selector) = text.split_once('=').ok_or_else(invalid)?;
    let (name, namespace) = match name.split_once('@') {
        Some((name, namespace)) => (name, Some(namespace.to_owned())),
        None => (name, None),
    };
    if name.is_empty() || selector.trim().is_empty() {
        return Err(invalid());
    }
    Ok(SelectorRule {
        name: name.into(),
        namespace,
        selector: selector_of("addon", text, selector)?,
    })
}

fn selector_of(
    flag: &'static str,
    value: &str,
    selector: &str,
) -> Result<LabelSelector, InvalidSetting> {
    LabelSelector::parse(selector).map_err(|error| InvalidSetting {
        flag,
        value: value.to_owned(),
        problem: error.to_string(),
        advice: "use a label selector as in kubectl get -l, such as app=web,tier!=cache".to_owned(),
    })
}

fn positive(flag: &'static str, given: GoDuration) -> Result<Duration, InvalidSetting> {
    Duration::try_from(given).map_err(|_| InvalidSetting {
        flag,
        value: given.to_string(),
        problem: "it must not be negative".to_owned(),
        advice: "use a duration such as 15s".to_owned(),
    })
}

/// The name of this host without its domain, which is that of the node in the network of the host.
fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim().split('.').next()?.to_ascii_lowercase();
    (!name.is_empty()).then_some(name)
}

fn no_node_name() -> InvalidSetting {
    InvalidSetting {
        flag: "node-name",
        value: String::new(),
        problem: "node mode needs the name of its node".to_owned(),
        advice: "set NODE_NAME from spec.nodeName, or --node-name".to_owned(),
    }
}
