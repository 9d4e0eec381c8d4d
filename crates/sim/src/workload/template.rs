//! Templates of pods, and the behaviour of their containers.

use std::sync::Arc;

use serde_json::{Map, Value, json};

/// Default image of containers.
pub const DEFAULT_IMAGE: &str = "docker.io/local/busybox:1";

/// `restartPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

/// The way in which a container gets its image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pull {
    /// The image is present on the node.
    Present,
    /// The image is pulled.
    Takes {
        /// Duration of the pull.
        milliseconds: u64,
        /// Size of the image in bytes.
        bytes: u64,
    },
    /// The pull fails: the registry is unreachable.
    Fails,
}

/// The time at which a container passes its readiness probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// This many milliseconds after its start.
    After(u64),
    /// Never.
    Never,
}

/// What delays the start of a pod before its containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delay {
    /// The cluster autoscaler adds a node for it, which takes this long.
    NewNode { milliseconds: u64 },
    /// A volume is attached, which takes this long.
    Volume { milliseconds: u64 },
    /// A volume cannot be mounted this many times.
    MountFails { times: u32 },
    /// The network cannot be set up this many times.
    NetworkFails { times: u32 },
}

/// An exec probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    pub command: Vec<String>,
    /// Interval in seconds.
    pub period_seconds: u32,
    /// Output of the command when it fails.
    pub failure: String,
}

/// Requests and limits. Zero means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// Requested CPU in thousandths of a core.
    pub cpu_request: u32,
    /// CPU limit in thousandths of a core.
    pub cpu_limit: u32,
    /// Requested memory in MiB.
    pub memory_request: u32,
    /// Memory limit in MiB.
    pub memory_limit: u32,
}

/// A container of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerTemplate {
    pub name: Arc<str>,
    pub image: Arc<str>,
    /// `imagePullPolicy`.
    pub pull_policy: &'static str,
    pub command: Vec<String>,
    pub resources: Resources,
    pub pull: Pull,
    /// Milliseconds until it exits, and its exit code; `None` if it keeps running.
    pub exit: Option<(u64, i32)>,
    /// Number of such exits before it keeps running; `None` for no limit.
    pub exits: Option<u32>,
    /// Startup probe, which succeeds at the first attempt.
    pub startup: Option<Probe>,
    pub readiness: Option<(Probe, Readiness)>,
    /// Whether an init container is a sidecar.
    pub sidecar: bool,
}

/// The template of the pods of a workload.
#[derive(Debug, Clone)]
pub struct PodTemplate {
    /// `metadata.labels`, in addition to those that controllers add.
    pub labels: Vec<(Arc<str>, Arc<str>)>,
    /// `metadata.annotations`.
    pub annotations: Vec<(Arc<str>, Arc<str>)>,
    /// Init containers, sidecars among them.
    pub init: Vec<ContainerTemplate>,
    pub containers: Vec<ContainerTemplate>,
    pub restart: RestartPolicy,
    /// `terminationGracePeriodSeconds`.
    pub grace_seconds: u32,
    /// A node selector; no node has any of these labels, so such a pod is unschedulable.
    pub node_selector: Option<(Arc<str>, Arc<str>)>,
    /// A scheduling gate, and the milliseconds until it is removed.
    pub scheduling_gate: Option<(Arc<str>, u64)>,
    /// A readiness gate, and the milliseconds from the start of the containers until its condition
    /// is true.
    pub readiness_gate: Option<(Arc<str>, u64)>,
    pub delay: Option<Delay>,
    /// Whether `hostname` and `subdomain` are set, as for the pods of a `StatefulSet` of this name.
    pub subdomain: Option<Arc<str>>,
}

impl RestartPolicy {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::OnFailure => "OnFailure",
            Self::Never => "Never",
        }
    }
}

impl ContainerTemplate {
    /// A container that keeps running and is ready at once.
    pub fn new(name: &str, command: &[&str]) -> Self {
        Self {
            name: name.into(),
            image: DEFAULT_IMAGE.into(),
            pull_policy: "IfNotPresent",
            command: command.iter().map(|&word| word.to_owned()).collect(),
            resources: Resources::default(),
            pull: Pull::Present,
            exit: None,
            exits: None,
            startup: None,
            readiness: None,
            sidecar: false,
        }
    }

    /// Upper bound of its memory usage: its limit, or something small.
    pub fn memory_ceiling(&self) -> u64 {
        let mebibytes = match (self.resources.memory_limit, self.resources.memory_request) {
            (0, 0) => 64,
            (0, request) => request.saturating_mul(2),
            (limit, _) => limit,
        };
        u64::from(mebibytes) << 20
    }

    fn spec(&self) -> Value {
        let mut spec = json!({
            "name": &*self.name,
            "image": &*self.image,
            "command": self.command,
            "resources": self.resources.spec(),
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": self.pull_policy,
        });
        let Some(fields) = spec.as_object_mut() else {
            return spec;
        };
        if let Some(probe) = &self.startup {
            fields.insert("startupProbe".into(), probe.spec());
        }
        if let Some((probe, _)) = &self.readiness {
            fields.insert("readinessProbe".into(), probe.spec());
        }
        if self.sidecar {
            fields.insert("restartPolicy".into(), "Always".into());
        }
        spec
    }
}

impl Probe {
    /// A probe that runs every second.
    pub fn each_second(command: &[&str], failure: &str) -> Self {
        Self {
            command: command.iter().map(|&word| word.to_owned()).collect(),
            period_seconds: 1,
            failure: failure.to_owned(),
        }
    }

    fn spec(&self) -> Value {
        json!({
            "exec": {"command": self.command},
            "timeoutSeconds": 1,
            "periodSeconds": self.period_seconds,
            "successThreshold": 1,
            "failureThreshold": 3,
        })
    }
}

impl Resources {
    /// Requests and limits, as in a spec and in a container's status.
    pub fn spec(&self) -> Value {
        let mut spec = Map::new();
        for (field, cpu, memory) in [
            ("limits", self.cpu_limit, self.memory_limit),
            ("requests", self.cpu_request, self.memory_request),
        ] {
            let list = list(cpu, memory);
            if !list.is_empty() {
                spec.insert(field.into(), list.into());
            }
        }
        spec.into()
    }

    /// The requests alone.
    pub fn requests(&self) -> Map<String, Value> {
        list(self.cpu_request, self.memory_request)
    }

    fn plus(self, other: Self) -> Self {
        Self {
            cpu_request: self.cpu_request.saturating_add(other.cpu_request),
            cpu_limit: self.cpu_limit.saturating_add(other.cpu_limit),
            memory_request: self.memory_request.saturating_add(other.memory_request),
            memory_limit: self.memory_limit.saturating_add(other.memory_limit),
        }
    }
}

impl PodTemplate {
    /// A pod of these containers with defaults for the rest.
    pub fn new(containers: Vec<ContainerTemplate>) -> Self {
        Self {
            labels: Vec::new(),
            annotations: Vec::new(),
            init: Vec::new(),
            containers,
            restart: RestartPolicy::Always,
            grace_seconds: 30,
            node_selector: None,
            scheduling_gate: None,
            readiness_gate: None,
            delay: None,
            subdomain: None,
        }
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// Init containers first, then the others: the order of all lists of statuses.
    pub fn all(&self) -> impl Iterator<Item = &ContainerTemplate> {
        self.init.iter().chain(&self.containers)
    }

    /// The container at an index of [`PodTemplate::all`].
    pub fn at(&self, index: usize) -> Option<&ContainerTemplate> {
        match index.checked_sub(self.init.len()) {
            None => self.init.get(index),
            Some(index) => self.containers.get(index),
        }
    }

    /// Sum of the requests and limits of containers and sidecars.
    pub fn total(&self) -> Resources {
        self.all()
            .enumerate()
            .filter(|(at, container)| *at >= self.init.len() || container.sidecar)
            .fold(Resources::default(), |sum, (_, container)| {
                sum.plus(container.resources)
            })
    }

    /// `status.qosClass`.
    pub fn qos_class(&self) -> &'static str {
        let none = |r: &Resources| *r == Resources::default();
        let fixed = |r: &Resources| {
            r.cpu_limit > 0
                && r.memory_limit > 0
                && r.cpu_limit == r.cpu_request
                && r.memory_limit == r.memory_request
        };
        if self.all().all(|c| none(&c.resources)) {
            "BestEffort"
        } else if self.all().all(|c| fixed(&c.resources)) {
            "Guaranteed"
        } else {
            "Burstable"
        }
    }

    /// `spec` as the API server stores it after defaulting.
    pub fn spec(&self) -> Value {
        let mut spec = json!({
            "containers": self.containers.iter().map(ContainerTemplate::spec).collect::<Vec<_>>(),
            "restartPolicy": self.restart.text(),
            "terminationGracePeriodSeconds": self.grace_seconds,
            "dnsPolicy": "ClusterFirst",
            "automountServiceAccountToken": false,
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": (["not-ready", "unreachable"].map(|taint| json!({
                "key": format!("node.kubernetes.io/{taint}"),
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }))),
            "priority": 0,
            "enableServiceLinks": true,
            "preemptionPolicy": "PreemptLowerPriority",
        });
        let Some(fields) = spec.as_object_mut() else {
            return spec;
        };
        if !self.init.is_empty() {
            let init: Vec<_> = self.init.iter().map(ContainerTemplate::spec).collect();
            fields.insert("initContainers".into(), init.into());
        }
        if let Some((key, value)) = &self.node_selector {
            fields.insert("nodeSelector".into(), json!({ &**key: &**value }));
        }
        if let Some((gate, _)) = &self.readiness_gate {
            fields.insert("readinessGates".into(), json!([{"conditionType": &**gate}]));
        }
        spec
    }
}

fn list(cpu: u32, memory: u32) -> Map<String, Value> {
    let mut list = Map::new();
    if cpu > 0 {
        let text = if cpu.is_multiple_of(1_000) {
            (cpu / 1_000).to_string()
        } else {
            format!("{cpu}m")
        };
        list.insert("cpu".into(), text.into());
    }
    if memory > 0 {
        let text = if memory.is_multiple_of(1_024) {
            format!("{}Gi", memory / 1_024)
        } else {
            format!("{memory}Mi")
        };
        list.insert("memory".into(), text.into());
    }
    list
}
