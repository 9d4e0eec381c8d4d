//! The validated settings of the role.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{NodeAddress, NodeSystemInfo, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use kubevitals_cli::InvalidSetting;
use kubevitals_model::{GoDuration, Quantity};
use kubevitals_virtual_node::{NodeSettings, PROVIDER_LABEL};

use super::flags::{NodeFlags, NodeObjectFlags, ProviderName, ServingFlags};
use super::machine::{Machine, disk_size};

/// The version of Kubernetes whose kubelet the endpoints and the status are those of.
const KUBELET_VERSION: &str = concat!("v1.37.0+kubevitals.", env!("CARGO_PKG_VERSION"));

/// The API server passes WebSocket connections on to nodes that declare it.
const WEB_SOCKETS: &str = "ExtendWebSocketsToKubelet";

const DEFAULT_PORT: u16 = 10250;

/// All settings of the role.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) provider: ProviderName,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) node: NodeSettings,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) max_pods: usize,
    pub(super) workers: usize,
    pub(super) root_dir: PathBuf,
    pub(super) cgroup_root: String,
    /// Where the root of the host is mounted, for `--provider host`.
    pub(super) host_root: PathBuf,
    pub(super) sim_start_delay: Duration,
    pub(super) cores: u64,
    pub(super) memory: u64,
    pub(super) serving: Serving,
}

/// Settings of the kubelet server.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(super) struct Serving {
    pub(super) address: SocketAddr,
    /// The files of the certificate and its key.
    pub(super) certificate: Option<(PathBuf, PathBuf)>,
    /// Whether the cluster signs the certificate.
    pub(super) rotate: bool,
    pub(super) client_ca: Option<PathBuf>,
    pub(super) anonymous: bool,
    pub(super) tokens: bool,
    pub(super) token_ttl: Duration,
    pub(super) allowed_ttl: Duration,
    pub(super) denied_ttl: Duration,
    pub(super) stream_idle_timeout: Duration,
    pub(super) stream_creation_timeout: Duration,
    pub(super) hidden_metrics: bool,
}

/// Reads a variable of the environment.
type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Settings {
    pub(super) fn new(
        flags: &NodeFlags,
        environment: Environment<'_>,
        machine: &Machine,
    ) -> Result<Self, InvalidSetting> {
        let serving = Serving::new(&flags.serving, environment)?;
        let addresses = addresses(&flags.node, environment, serving.address)?;
        let root_dir = flags.pods.root_dir.clone();
        let capacity = capacity(flags, machine)?;
        let value = |resource: &str| {
            let quantity: Option<Quantity> =
                capacity.get(resource).and_then(|text| text.0.parse().ok());
            quantity
                .and_then(Quantity::value)
                .and_then(|value| u64::try_from(value).ok())
        };
        Ok(Self {
            provider: flags.node.provider,
            kubeconfig: flags.node.kubeconfig.clone(),
            max_pods: usize::try_from(flags.node.max_pods).unwrap_or(usize::MAX),
            workers: usize::try_from(flags.pods.pod_sync_workers).unwrap_or(1),
            sim_start_delay: positive("sim-start-delay", flags.pods.sim_start_delay)?,
            cores: value("cpu").unwrap_or(machine.cores),
            memory: value("memory").unwrap_or(0),
            root_dir,
            cgroup_root: flags.pods.cgroup_root.clone(),
            host_root: flags.pods.host_root.clone(),
            node: NodeSettings {
                name: node_name(&flags.node, environment, machine)?,
                provider: flags.node.provider.as_str().to_owned(),
                labels: labels(&flags.node.node_labels)?,
                taints: taints(&flags.node, environment)?,
                addresses: node_addresses(&addresses, &flags.node, machine),
                port: serving.address.port(),
                allocatable: capacity.clone(),
                capacity,
                info: info(flags.node.provider, machine),
                declared_features: vec![WEB_SOCKETS.to_owned()],
            },
            addresses,
            serving,
        })
    }
}

impl ProviderName {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Host => "host",
            Self::Sim => "sim",
        }
    }
}

impl Serving {
    fn new(flags: &ServingFlags, environment: Environment<'_>) -> Result<Self, InvalidSetting> {
        let address = match flags.listen_address {
            Some(address) => address,
            None => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port(environment)?)),
        };
        let file = |name: &str| environment(name).map(PathBuf::from);
        let files = |certificate: Option<PathBuf>, key: Option<PathBuf>| certificate.zip(key);
        let certificate = files(
            flags.tls_cert_file.clone(),
            flags.tls_private_key_file.clone(),
        );
        let peer = || {
            files(
                file("APISERVER_CERT_LOCATION"),
                file("APISERVER_KEY_LOCATION"),
            )
        };
        Ok(Self {
            address,
            certificate: certificate.or_else(peer),
            rotate: flags.rotate_server_certificates,
            client_ca: flags
                .client_ca_file
                .clone()
                .or_else(|| file("APISERVER_CA_CERT_LOCATION")),
            anonymous: flags.anonymous_auth,
            tokens: flags.authentication_token_webhook,
            token_ttl: positive(
                "authentication-token-webhook-cache-ttl",
                flags.authentication_token_webhook_cache_ttl,
            )?,
            allowed_ttl: positive(
                "authorization-webhook-cache-authorized-ttl",
                flags.authorization_webhook_cache_authorized_ttl,
            )?,
            denied_ttl: positive(
                "authorization-webhook-cache-unauthorized-ttl",
                flags.authorization_webhook_cache_unauthorized_ttl,
            )?,
            stream_idle_timeout: positive("stream-idle-timeout", flags.stream_idle_timeout)?,
            stream_creation_timeout: positive(
                "stream-creation-timeout",
                flags.stream_creation_timeout,
            )?,
            hidden_metrics: flags.show_hidden_metrics,
        })
    }
}

/// The port of Virtual Kubelet's variable, or the kubelet's.
fn port(environment: Environment<'_>) -> Result<u16, InvalidSetting> {
    let Some(text) = environment("KUBELET_PORT") else {
        return Ok(DEFAULT_PORT);
    };
    text.parse().map_err(|_| InvalidSetting {
        flag: "listen-address",
        value: text,
        problem: "the variable KUBELET_PORT is not a port".to_owned(),
        advice: "set it to a number such as 10250, or give --listen-address".to_owned(),
    })
}

fn positive(flag: &'static str, duration: GoDuration) -> Result<Duration, InvalidSetting> {
    Duration::try_from(duration).map_err(|_| InvalidSetting {
        flag,
        value: duration.to_string(),
        problem: "must not be negative".to_owned(),
        advice: "write a duration such as 30s".to_owned(),
    })
}

fn node_name(
    flags: &NodeObjectFlags,
    environment: Environment<'_>,
    machine: &Machine,
) -> Result<String, InvalidSetting> {
    let given = flags
        .node_name
        .clone()
        .or_else(|| environment("DEFAULT_NODE_NAME"));
    let name = given.unwrap_or_else(|| machine.host_name.clone());
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        is_edge(bytes.first()) && is_edge(bytes.last())
    };
    let is_known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    if name.len() <= 253 && name.chars().all(is_known) && name.split('.').all(is_label) {
        return Ok(name);
    }
    Err(InvalidSetting {
        flag: "node-name",
        value: name,
        problem: "no Node can have this name".to_owned(),
        advice: "use lower case letters, digits, hyphens and dots".to_owned(),
    })
}

fn addresses(
    flags: &NodeObjectFlags,
    environment: Environment<'_>,
    listen: SocketAddr,
) -> Result<Vec<IpAddr>, InvalidSetting> {
    if !flags.node_address.is_empty() {
        return Ok(flags.node_address.clone());
    }
    if let Some(text) = environment("VKUBELET_POD_IP") {
        return match text.parse() {
            Ok(address) => Ok(vec![address]),
            Err(_) => Err(InvalidSetting {
                flag: "node-address",
                value: text,
                problem: "the variable VKUBELET_POD_IP is not an IP address".to_owned(),
                advice: "correct it, or give --node-address".to_owned(),
            }),
        };
    }
    if !listen.ip().is_unspecified() {
        return Ok(vec![listen.ip()]);
    }
    // Nothing is registered: the address is shown nowhere.
    if flags.provider == ProviderName::Host {
        return Ok(Vec::new());
    }
    Err(InvalidSetting {
        flag: "node-address",
        value: String::new(),
        problem: "the address at which the API server reaches the node is not known".to_owned(),
        advice: "give an address of this host, such as --node-address 192.0.2.7".to_owned(),
    })
}

fn node_addresses(
    addresses: &[IpAddr],
    flags: &NodeObjectFlags,
    machine: &Machine,
) -> Vec<NodeAddress> {
    let address = |kind: &str, address: String| NodeAddress {
        type_: kind.to_owned(),
        address,
    };
    let host = flags.node_name.as_ref().unwrap_or(&machine.host_name);
    let internal = addresses
        .iter()
        .map(|ip| address("InternalIP", ip.to_string()));
    internal
        .chain([address("Hostname", host.clone())])
        .collect()
}

fn labels(texts: &[String]) -> Result<BTreeMap<String, String>, InvalidSetting> {
    let pair = |text: &String| match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(InvalidSetting {
            flag: "node-labels",
            value: text.clone(),
            problem: "is not a label".to_owned(),
            advice: "write KEY=VALUE".to_owned(),
        }),
    };
    texts.iter().map(pair).collect()
}

fn taints(
    flags: &NodeObjectFlags,
    environment: Environment<'_>,
) -> Result<Vec<Taint>, InvalidSetting> {
    if flags.disable_taint {
        return Ok(Vec::new());
    }
    if !flags.register_with_taints.is_empty() {
        return flags
            .register_with_taints
            .iter()
            .map(|text| taint(text))
            .collect();
    }
    let default =
        |variable: &str, value: &str| environment(variable).unwrap_or_else(|| value.to_owned());
    let text = format!(
        "{}={}:{}",
        default("VKUBELET_TAINT_KEY", PROVIDER_LABEL),
        default("VKUBELET_TAINT_VALUE", flags.provider.as_str()),
        default("VKUBELET_TAINT_EFFECT", "NoSchedule"),
    );
    Ok(vec![taint(&text)?])
}

fn taint(text: &str) -> Result<Taint, InvalidSetting> {
    let invalid = |problem: &str| InvalidSetting {
        flag: "register-with-taints",
        value: text.to_owned(),
        problem: problem.to_owned(),
        advice: "write KEY=VALUE:EFFECT, with NoSchedule, PreferNoSchedule or NoExecute".to_owned(),
    };
    let (key, effect) = text
        .rsplit_once(':')
        .ok_or_else(|| invalid("has no effect"))?;
    let (key, value) = match key.split_once('=') {
        Some((key, value)) => (
            key,
            Some(value.to_owned()).filter(|value| !value.is_empty()),
        ),
        None => (key, None),
    };
    if key.is_empty() {
        return Err(invalid("has no key"));
    }
    if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        return Err(invalid("has an unknown effect"));
    }
    Ok(Taint {
        key: key.to_owned(),
        value,
        effect: effect.to_owned(),
        time_added: None,
    })
}

fn capacity(
    flags: &NodeFlags,
    machine: &Machine,
) -> Result<BTreeMap<String, ApiQuantity>, InvalidSetting> {
    let mut capacity = BTreeMap::from([
        ("cpu".to_owned(), ApiQuantity(machine.cores.to_string())),
        (
            "pods".to_owned(),
            ApiQuantity(flags.node.max_pods.to_string()),
        ),
    ]);
    if let Some(memory) = machine.memory {
        let kib = ApiQuantity(format!("{}Ki", memory / 1024));
        capacity.insert("memory".to_owned(), kib);
    }
    if let Some(disk) = disk_size(&flags.pods.root_dir) {
        let kib = ApiQuantity(format!("{}Ki", disk / 1024));
        capacity.insert("ephemeral-storage".to_owned(), kib);
    }
    for text in &flags.node.capacity {
        let invalid = |problem: &str| InvalidSetting {
            flag: "capacity",
            value: text.clone(),
            problem: problem.to_owned(),
            advice: "write RESOURCE=QUANTITY, such as memory=8Gi".to_owned(),
        };
        let (resource, quantity) = text
            .split_once('=')
            .ok_or_else(|| invalid("has no quantity"))?;
        let parsed: Result<Quantity, _> = quantity.parse();
        if resource.is_empty() || parsed.is_err() {
            return Err(invalid("is not a quantity of a resource"));
        }
        capacity.insert(resource.to_owned(), ApiQuantity(quantity.to_owned()));
    }
    Ok(capacity)
}

fn info(provider: ProviderName, machine: &Machine) -> NodeSystemInfo {
    let runtime = format!(
        "kubevitals-{}://{}",
        provider.as_str(),
        env!("CARGO_PKG_VERSION")
    );
    NodeSystemInfo {
        architecture: Machine::architecture().to_owned(),
        boot_id: machine.boot_id.clone(),
        container_runtime_version: runtime,
        kernel_version: machine.kernel.clone(),
        kube_proxy_version: String::new(),
        kubelet_version: KUBELET_VERSION.to_owned(),
        machine_id: machine.id.clone(),
        operating_system: std::env::consts::OS.to_owned(),
        os_image: machine.os_image.clone(),
        system_uuid: machine.system_uuid.clone(),
        ..NodeSystemInfo::default()
    }
}

#[cfg(test)]
mod tests;
