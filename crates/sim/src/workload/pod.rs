//! A pod as its kubelet and the API server know it, small enough to keep 150,000 of them.

use std::net::Ipv4Addr;
use std::sync::Arc;

use kubevitals_model::Timestamp;

use super::kind::PodKind;
use super::template::{PodTemplate, RestartPolicy};
use crate::clock::after;
use crate::seed::{Seed, Uid};

/// One pod at one instant. A change makes a new one; whoever holds the old one keeps it unchanged.
#[derive(Debug, Clone)]
pub struct Pod {
    pub(crate) kind: Arc<PodKind>,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Uid,
    pub(crate) seed: Seed,
    /// The place within a `StatefulSet`.
    pub(crate) ordinal: Option<u32>,
    pub(crate) created: Timestamp,
    pub(crate) generation: u32,
    /// The generation that the kubelet has acted on; 0 before it has seen the pod.
    pub(crate) observed: u32,
    pub(crate) deletion: Option<Deletion>,
    /// The gate is still there.
    pub(crate) gated: bool,
    /// The Job controller has not counted the pod yet.
    pub(crate) tracked: bool,
    pub(crate) host: Option<Host>,
    pub(crate) ip: Option<Ipv4Addr>,
    pub(crate) start: Option<Timestamp>,
    pub(crate) phase: Phase,
    pub(crate) reason: Option<Arc<Eviction>>,
    pub(crate) scheduled: Option<Flip>,
    pub(crate) sandbox: Flip,
    pub(crate) initialized: Flip,
    pub(crate) containers_ready: Flip,
    pub(crate) ready: Flip,
    /// The condition that the readiness gate waits for.
    pub(crate) gate_open: Option<Timestamp>,
    /// Init containers first.
    pub(crate) containers: Box<[Container]>,
}

/// Where a pod runs.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) index: usize,
    pub(crate) name: Arc<str>,
    pub(crate) ip: Ipv4Addr,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Deletion {
    /// `metadata.deletionTimestamp`: when the grace period ends.
    pub(crate) at: Timestamp,
    pub(crate) grace_seconds: u32,
}

/// Why a kubelet ended a pod.
#[derive(Debug)]
pub(crate) struct Eviction {
    pub(crate) message: String,
    pub(crate) at: Timestamp,
}

/// A condition's status and since when it is so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flip {
    pub(crate) holds: bool,
    pub(crate) since: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

/// A container's status.
#[derive(Debug, Clone)]
pub(crate) struct Container {
    pub(crate) state: State,
    pub(crate) last: Option<Ended>,
    pub(crate) restarts: u32,
    pub(crate) ready: bool,
    pub(crate) started: bool,
    /// Runs that ended lately: samples from their time may still be asked for.
    pub(crate) recent: Vec<Ended>,
    /// CPU time of all runs before those, so that the pod's counter never goes back.
    pub(crate) earlier_cpu: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum State {
    Waiting {
        reason: &'static str,
        message: Option<Arc<str>>,
    },
    Running {
        since: Timestamp,
    },
    Ended(Ended),
    /// It never ran, and its pod is gone.
    Lost,
}

/// A run that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) exit_code: i32,
    pub(crate) started: Timestamp,
    pub(crate) finished: Timestamp,
    /// Killed for using too much memory.
    pub(crate) out_of_memory: bool,
    /// Which run this was, counted from 0.
    pub(crate) run: u32,
}

impl Flip {
    pub(crate) fn no(since: Timestamp) -> Self {
        Self {
            holds: false,
            since,
        }
    }

    /// Takes a new status; the time changes only if the status does.
    pub(crate) fn set(&mut self, holds: bool, now: Timestamp) {
        if self.holds != holds {
            *self = Self { holds, since: now };
        }
    }
}

impl Ended {
    pub(crate) fn reason(&self) -> &'static str {
        match (self.exit_code, self.out_of_memory) {
            (_, true) => "OOMKilled",
            (0, false) => "Completed",
            _ => "Error",
        }
    }
}

impl Pod {
    /// A pod that was just created.
    pub(crate) fn new(
        kind: Arc<PodKind>,
        namespace: Arc<str>,
        name: Arc<str>,
        seed: Seed,
        now: Timestamp,
    ) -> Self {
        let waiting = if kind.template.init.is_empty() {
            "ContainerCreating"
        } else {
            "PodInitializing"
        };
        let containers = kind
            .template
            .all()
            .map(|_| Container {
                state: State::Waiting {
                    reason: waiting,
                    message: None,
                },
                last: None,
                restarts: 0,
                ready: false,
                started: false,
                recent: Vec::new(),
                earlier_cpu: 0,
            })
            .collect();
        Self {
            gated: kind.template.scheduling_gate.is_some(),
            tracked: kind.owner.as_ref().is_some_and(|owner| owner.kind == "Job"),
            namespace,
            name,
            uid: seed.derive_name("uid").uid(),
            seed,
            ordinal: None,
            created: now,
            generation: 1,
            observed: 0,
            deletion: None,
            host: None,
            ip: None,
            start: None,
            phase: Phase::Pending,
            reason: None,
            scheduled: None,
            sandbox: Flip::no(now),
            initialized: Flip::no(now),
            containers_ready: Flip::no(now),
            ready: Flip::no(now),
            gate_open: None,
            containers,
            kind,
        }
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its uid.
    pub fn uid(&self) -> Uid {
        self.uid
    }

    /// The node that it is bound to.
    pub fn node(&self) -> Option<&str> {
        self.host.as_ref().map(|host| &*host.name)
    }

    /// `name_namespace(uid)`, as kubelets name pods in messages.
    pub(crate) fn full_name(&self) -> String {
        format!("{}_{}({})", self.name, self.namespace, self.uid)
    }

    pub(crate) fn template(&self) -> &PodTemplate {
        &self.kind.template
    }

    /// Each container's status with its place, name and whether it is an init container that ends.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let init = self.template().init.len();
        self.containers
            .iter()
            .zip(self.template().all())
            .enumerate()
            .map(move |(index, (container, template))| Part {
                index,
                container,
                name: &template.name,
                one_shot: index < init && !template.sidecar,
                init: index < init,
            })
    }

    /// The seed of a container's usage in its present run.
    pub(crate) fn container_seed(&self, index: usize) -> Seed {
        self.seed.derive(index as u64 + 1)
    }

    /// Appends the id of a run of a container.
    pub(crate) fn push_container_id(&self, index: usize, run: u32, out: &mut String) {
        out.push_str("containerd://");
        let mut seed = self.container_seed(index).derive(u64::from(run));
        seed.push_hex64(out);
    }

    /// What the kubelet would call the phase from the containers alone. The API server learns of
    /// the end only when the sandbox is gone too.
    pub(crate) fn outcome(&self) -> Option<Phase> {
        let main = self.containers.iter().skip(self.template().init.len());
        let mut failed = false;
        for container in main {
            match &container.state {
                State::Ended(ended) => failed |= ended.exit_code != 0,
                State::Lost => failed = true,
                _ => return None,
            }
        }
        let restarts = match self.template().restart {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => failed,
            RestartPolicy::Never => false,
        };
        if restarts && self.phase != Phase::Failed && self.phase != Phase::Succeeded {
            return None;
        }
        Some(if failed {
            Phase::Failed
        } else {
            Phase::Succeeded
        })
    }

    /// Brings the kubelet's conditions up to date with the containers.
    pub(crate) fn settle(&mut self, now: Timestamp) {
        let initialized = self.parts().filter(|part| part.init).all(|part| {
            if part.one_shot {
                part.container.ready
            } else {
                part.container.started
            }
        });
        let over = self.outcome().is_some();
        let running = !over
            && self
                .parts()
                .all(|part| part.one_shot || part.container.ready);
        let gate = self.template().readiness_gate.is_none() || self.gate_open.is_some();
        // A sidecar counts as initialised as soon as it started, but the status says so only with
        // the update that finds it ready.
        let initialized = initialized
            && self
                .parts()
                .filter(|part| part.init && !part.one_shot)
                .all(|part| part.container.ready || over);
        self.initialized
            .set(initialized || self.initialized.holds, now);
        self.containers_ready.set(running, now);
        self.ready.set(running && gate, now);
    }

    /// Marks the pod for deletion as the API server does.
    pub(crate) fn mark_deleted(&mut self, grace_seconds: u32, now: Timestamp) {
        self.generation += 1;
        self.deletion = Some(Deletion {
            at: after(now, u64::from(grace_seconds) * 1_000),
            grace_seconds,
        });
    }
}

/// A container with what its template says of it.
pub(crate) struct Part<'a> {
    pub(crate) index: usize,
    pub(crate) container: &'a Container,
    pub(crate) name: &'a Arc<str>,
    /// It ends before the next one starts.
    pub(crate) one_shot: bool,
    pub(crate) init: bool,
}
