//! Scenarios of the pods of the churn.

use super::owner::Manifest;
use super::template::{
    ContainerTemplate, Delay, PodTemplate, Probe, Pull, Readiness, Resources, RestartPolicy,
};
use crate::seed::Seed;

/// The course of a pod's lifecycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Scenario {
    /// A Deployment that is created or rolled out: an init container, a sidecar, a slow readiness
    /// probe.
    Rollout,
    /// A `StatefulSet` of two.
    StatefulSet,
    /// A Job that completes at once.
    Job,
    /// A pod whose image is pulled first.
    SlowPull,
    /// A pod with a container that fails again and again.
    CrashLoop,
    /// A pod that is OOM killed once.
    Restarted,
    /// A pod that never becomes ready.
    NeverReady,
    /// A pod whose image cannot be pulled.
    NoImage,
    /// A pod that fits no node.
    Unschedulable,
    /// A pod with a scheduling gate.
    Gated,
    /// A pod with a readiness gate.
    ReadinessGate,
    /// A pod that is evicted by its kubelet.
    Evicted,
    /// A pod for which an autoscaler adds a node.
    NewNode,
    /// A pod whose volume is attached first.
    Volume,
    /// A pod whose network cannot be set up at first.
    NoNetwork,
}

impl Scenario {
    /// All scenarios.
    pub const ALL: [Self; 15] = [
        Self::Rollout,
        Self::StatefulSet,
        Self::Job,
        Self::SlowPull,
        Self::CrashLoop,
        Self::Restarted,
        Self::NeverReady,
        Self::NoImage,
        Self::Unschedulable,
        Self::Gated,
        Self::ReadinessGate,
        Self::Evicted,
        Self::NewNode,
        Self::Volume,
        Self::NoNetwork,
    ];

    /// Its name in object names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rollout => "web",
            Self::StatefulSet => "db",
            Self::Job => "quick",
            Self::SlowPull => "fresh",
            Self::CrashLoop => "crashy",
            Self::Restarted => "hungry",
            Self::NeverReady => "never-ready",
            Self::NoImage => "no-image",
            Self::Unschedulable => "unschedulable",
            Self::Gated => "gated",
            Self::ReadinessGate => "awaited",
            Self::Evicted => "evicted",
            Self::NewNode => "scaled",
            Self::Volume => "stored",
            Self::NoNetwork => "no-network",
        }
    }

    /// Number of pods that one instance creates.
    pub const fn pods(self) -> u32 {
        match self {
            Self::Rollout => 4,
            Self::Job => 3,
            Self::StatefulSet => 2,
            _ => 1,
        }
    }

    /// Returns a manifest whose details follow the seed.
    pub fn manifest(self, name: String, seed: Seed) -> Manifest {
        match self {
            Self::Rollout => Manifest::Deployment {
                template: web(&name),
                replicas: self.pods(),
                name,
            },
            Self::StatefulSet => Manifest::StatefulSet {
                template: db().label("app", &name),
                replicas: self.pods(),
                name,
            },
            Self::Job => Manifest::Job {
                name,
                completions: self.pods(),
                template: quick(),
                ttl_seconds: Some(30),
            },
            _ => Manifest::Pod {
                name,
                template: self.pod(seed),
            },
        }
    }

    fn pod(self, mut seed: Seed) -> PodTemplate {
        let sleep = || sleeper("m");
        let mut pod = match self {
            Self::CrashLoop => {
                let mut bad = ContainerTemplate::new("bad", &["/bin/sh", "-c", "sleep 1; exit 3"]);
                bad.exit = Some((1_000, 3));
                PodTemplate::new(vec![bad, sleeper("good")])
            }
            Self::Restarted => {
                let mut hungry = sleep();
                hungry.resources = small();
                hungry.exit = Some((seed.between(5_000, 20_000), 137));
                hungry.exits = Some(1);
                PodTemplate::new(vec![hungry])
            }
            Self::NeverReady => {
                let mut never = sleep();
                let probe = Probe::each_second(&["/bin/false"], "");
                never.readiness = Some((probe, Readiness::Never));
                PodTemplate::new(vec![never])
            }
            Self::NoImage => {
                let mut missing = sleep();
                missing.image = "registry.invalid:5000/team/app:v1".into();
                missing.pull = Pull::Fails;
                PodTemplate::new(vec![missing])
            }
            Self::SlowPull => {
                let mut fresh = sleep();
                let milliseconds = seed.between(800, 25_000);
                fresh.image = "registry.example.com/team/fresh:v2".into();
                fresh.pull = Pull::Takes {
                    milliseconds,
                    bytes: milliseconds * 31_457,
                };
                PodTemplate::new(vec![fresh])
            }
            _ => PodTemplate::new(vec![sleep()]),
        };
        match self {
            Self::Unschedulable => pod.node_selector = Some(("false".into(), "such".into())),
            Self::Gated => {
                let wait = seed.between(2_000, 10_000);
                pod.scheduling_gate = Some(("example.com/quota".into(), wait));
            }
            Self::ReadinessGate => {
                let wait = seed.between(1_000, 8_000);
                pod.readiness_gate = Some(("example.com/registered".into(), wait));
            }
            Self::NewNode => {
                let milliseconds = seed.between(10_000, 40_000);
                pod.delay = Some(Delay::NewNode { milliseconds });
            }
            Self::Volume => {
                let milliseconds = seed.between(2_000, 20_000);
                pod.delay = Some(Delay::Volume { milliseconds });
            }
            Self::NoNetwork => pod.delay = Some(Delay::NetworkFails { times: 3 }),
            _ => {}
        }
        pod.grace_seconds = 5;
        pod
    }
}

/// An init container that completes at once, a sidecar with a startup probe, an app that is ready
/// after four seconds.
pub(crate) fn web(name: &str) -> PodTemplate {
    let mut init = ContainerTemplate::new("fast-init", &["/bin/true"]);
    init.pull_policy = "Never";
    init.exit = Some((60, 0));
    let mut proxy = sleeper("proxy");
    proxy.sidecar = true;
    proxy.startup = Some(Probe::each_second(&["/bin/true"], ""));
    let script = "sleep 4; echo ready > /tmp/ok; i=0; while true; do i=$((i+1)); \
                  [ $((i%20000)) = 0 ] && sleep 1; done";
    let mut app = ContainerTemplate::new("app", &["/bin/sh", "-c", script]);
    app.resources = small();
    let failure = "cat: can't open '/tmp/ok': No such file or directory\n";
    let probe = Probe::each_second(&["/bin/cat", "/tmp/ok"], failure);
    app.readiness = Some((probe, Readiness::After(4_000)));
    let mut template = PodTemplate::new(vec![app])
        .label("app", name)
        .label("app.kubernetes.io/name", name)
        .label("app.kubernetes.io/version", "1.2");
    template.init = vec![init, proxy];
    template
}

/// One container without probes.
pub(crate) fn db() -> PodTemplate {
    let script = "dd if=/dev/zero of=/tmp/x bs=1M count=20; sleep 100000";
    let mut template = PodTemplate::new(vec![ContainerTemplate::new(
        "db",
        &["/bin/sh", "-c", script],
    )]);
    template.grace_seconds = 1;
    template
}

/// A third of a second of work.
pub(crate) fn quick() -> PodTemplate {
    let mut work = ContainerTemplate::new("j", &["/bin/sh", "-c", "sleep 0.3"]);
    work.exit = Some((300, 0));
    let mut template = PodTemplate::new(vec![work]);
    template.restart = RestartPolicy::Never;
    template
}

fn sleeper(name: &str) -> ContainerTemplate {
    ContainerTemplate::new(name, &["/bin/sleep", "100000"])
}

fn small() -> Resources {
    Resources {
        cpu_request: 50,
        cpu_limit: 150,
        memory_request: 16,
        memory_limit: 64,
    }
}
