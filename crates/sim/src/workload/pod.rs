//! Compact state of a pod, small enough for 150,000 of them.

use std::net::Ipv4Addr;
use std::sync::Arc;

use kubevitals_model::Timestamp;

use super::compiled_template::CompiledTemplate;
use super::template::{PodTemplate, RestartPolicy};
use crate::clock::after;
use crate::seed::{Seed, Uid};

/// A pod at one instant. Values are immutable: a change creates a new one.
#[derive(Debug, Clone)]
pub struct Pod {
    pub(crate) compiled: Arc<CompiledTemplate>,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Uid,
    pub(crate) seed: Seed,
    /// Ordinal in a `StatefulSet`.
    pub(crate) ordinal: Option<u32>,
    pub(crate) created: Timestamp,
    pub(crate) generation: u32,
    /// The generation observed by the kubelet; 0 before it has seen the pod.
    pub(crate) observed: u32,
    pub(crate) deletion: Option<Deletion>,
    /// Whether the scheduling gate is present.
    pub(crate) gated: bool,
    /// Whether the Job controller has not counted the pod yet.
    pub(crate) tracked: bool,
    pub(crate) host: Option<Host>,
    pub(crate) ip: Option<Ipv4Addr>,
    pub(crate) start: Option<Timestamp>,
    pub(crate) phase: Phase,
    pub(crate) reason: Option<Arc<Eviction>>,
    pub(crate) scheduled: Option<ConditionState>,
    pub(crate) sandbox: ConditionState,
    pub(crate) initialized: ConditionState,
    pub(crate) containers_ready: ConditionState,
    pub(crate) ready: ConditionState,
    /// The condition of the readiness gate.
    pub(crate) gate_open: Option<Timestamp>,
    /// Init containers first.
    pub(crate) containers: Box<[Container]>,
}

/// The node of a pod.
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

/// The reason of an eviction.
#[derive(Debug)]
pub(crate) struct Eviction {
    pub(crate) message: String,
    pub(crate) at: Timestamp,
}

/// Status and transition time of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConditionState {
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
    pub(crate) state: ContainerState,
    pub(crate) last: Option<Termination>,
    pub(crate) restarts: u32,
    pub(crate) ready: bool,
    pub(crate) started: bool,
    /// Recently terminated runs, of which samples may still be read.
    pub(crate) recent: Vec<Termination>,
    /// CPU time of all earlier runs, so that the pod's counter never decreases.
    pub(crate) earlier_cpu: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum ContainerState {
    Waiting {
        reason: &'static str,
        message: Option<Arc<str>>,
    },
    Running {
        since: Timestamp,
    },
    Terminated(Termination),
    /// It never ran, and its sandbox is removed.
    Lost,
}

/// A terminated run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Termination {
    pub(crate) exit_code: i32,
    pub(crate) started: Timestamp,
    pub(crate) finished: Timestamp,
    /// Whether it was OOM killed.
    pub(crate) out_of_memory: bool,
    /// Index of the run, from 0.
    pub(crate) run: u32,
}

impl ConditionState {
    pub(crate) fn false_since(since: Timestamp) -> Self {
        Self {
            holds: false,
            since,
        }
    }

    /// Sets the status; the time changes only if the status does.
    pub(crate) fn set(&mut self, holds: bool, now: Timestamp) {
        if self.holds != holds {
            *self = Self { holds, since: now };
        }
    }
}

impl Termination {
    pub(crate) fn reason(&self) -> &'static str {
        match (self.exit_code, self.out_of_memory) {
            (_, true) => "OOMKilled",
            (0, false) => "Completed",
            _ => "Error",
        }
    }
}

impl Pod {
    /// Returns a pod that was just created.
    pub(crate) fn new(
        compiled: Arc<CompiledTemplate>,
        namespace: Arc<str>,
        name: Arc<str>,
        seed: Seed,
        now: Timestamp,
    ) -> Self {
        let waiting = if compiled.template.init.is_empty() {
            "ContainerCreating"
        } else {
            "PodInitializing"
        };
        let containers = compiled
            .template
            .all()
            .map(|_| Container {
                state: ContainerState::Waiting {
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
            gated: compiled.template.scheduling_gate.is_some(),
            tracked: compiled
                .owner
                .as_ref()
                .is_some_and(|owner| owner.kind == "Job"),
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
            sandbox: ConditionState::false_since(now),
            initialized: ConditionState::false_since(now),
            containers_ready: ConditionState::false_since(now),
            ready: ConditionState::false_since(now),
            gate_open: None,
            containers,
            compiled,
        }
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn uid(&self) -> Uid {
        self.uid
    }

    /// The node that it is bound to.
    pub fn node(&self) -> Option<&str> {
        self.host.as_ref().map(|host| &*host.name)
    }

    /// `name_namespace(uid)`, as kubelets format pods in messages.
    pub(crate) fn full_name(&self) -> String {
        format!("{}_{}({})", self.name, self.namespace, self.uid)
    }

    pub(crate) fn template(&self) -> &PodTemplate {
        &self.compiled.template
    }

    /// Each container with its index, name, and whether it is an init container that terminates.
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

    /// Seed of the usage of a container in its current run.
    pub(crate) fn container_seed(&self, index: usize) -> Seed {
        self.seed.derive(index as u64 + 1)
    }

    /// Appends the id of a run of a container.
    pub(crate) fn push_container_id(&self, index: usize, run: u32, out: &mut String) {
        out.push_str("containerd://");
        let mut seed = self.container_seed(index).derive(u64::from(run));
        seed.push_hex64(out);
    }

    /// Returns the terminal phase that follows from the containers alone. The API server learns of
    /// it only after the sandbox is removed.
    pub(crate) fn outcome(&self) -> Option<Phase> {
        let main = self.containers.iter().skip(self.template().init.len());
        let mut failed = false;
        for container in main {
            match &container.state {
                ContainerState::Terminated(ended) => failed |= ended.exit_code != 0,
                ContainerState::Lost => failed = true,
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

    /// Updates the kubelet's conditions from the containers.
    pub(crate) fn update_conditions(&mut self, now: Timestamp) {
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
        // A sidecar is initialized as soon as it has started, but the status shows it only with the
        // update that finds it ready.
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

/// A container and its template.
pub(crate) struct Part<'a> {
    pub(crate) index: usize,
    pub(crate) container: &'a Container,
    pub(crate) name: &'a Arc<str>,
    /// Whether it terminates before the next one starts.
    pub(crate) one_shot: bool,
    pub(crate) init: bool,
}
