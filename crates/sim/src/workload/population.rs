//! Initial pods.

use std::sync::Arc;

use kubevitals_model::Timestamp;
use serde_json::json;

use super::nodes::LEASE_NAMESPACE;
use super::owner::{Counts, OwnerKind};
use super::pod::{ConditionState, ContainerState, Host, Phase, Pod};
use super::render::{self, time};
use super::template::{ContainerTemplate, PodTemplate, Resources};
use super::{OwnerId, PodEntry, StepContext, Workload};
use crate::clock::after;
use crate::objects::{ObjectWriter, Resource};
use crate::seed::Seed;

/// Pods per Deployment.
const REPLICAS: usize = 50;
/// DaemonSets, with one pod per node each.
const DAEMONS: [&str; 2] = ["kube-proxy", "node-agent"];
/// Pods are up to 50 minutes old, nodes an hour.
const MAX_AGE_MILLIS: u64 = 3_000_000;
const MIN_AGE_MILLIS: u64 = 60_000;

impl Workload {
    /// Creates namespaces, nodes and the initial pods, and starts the churn. To be called once,
    /// before the first step.
    pub fn populate(&mut self, now: Timestamp, writer: &dyn ObjectWriter) {
        let ctx = StepContext { now, writer };
        let teams = (0..self.config.namespaces.max(1)).map(team);
        let system = ["default", "kube-system", "kube-public", LEASE_NAMESPACE];
        for name in system.into_iter().map(str::to_owned).chain(teams) {
            let uid = self.seed.derive_name("namespace").derive_name(&name).uid();
            let object = json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": name,
                    "uid": uid.to_string(),
                    "creationTimestamp": time(now),
                    "labels": {"kubernetes.io/metadata.name": name},
                },
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            });
            self.written(ctx.writer.create(Resource::Namespaces, object));
        }
        for index in 0..self.node_set.count() {
            self.add_node(index, ctx);
        }
        self.add_daemons(ctx);
        self.add_services(ctx);
        self.plan_arrival(now, 1);
        self.plan_replacement(now);
    }

    /// Returns one of the namespaces by number.
    pub(super) fn namespace(&self, number: u64) -> Arc<str> {
        let namespaces = self.config.namespaces.max(1) as u64;
        team(usize::try_from(number % namespaces).unwrap_or(0)).into()
    }

    /// Number of pods of `DaemonSets` on each node.
    fn daemons(&self) -> usize {
        if self.config.pods_per_node > DAEMONS.len() {
            DAEMONS.len()
        } else {
            0
        }
    }

    fn add_daemons(&mut self, ctx: StepContext<'_>) {
        let nodes = self.node_set.count();
        for name in DAEMONS.into_iter().take(self.daemons()) {
            let count = u32::try_from(nodes).unwrap_or(u32::MAX);
            let namespace: Arc<str> = "kube-system".into();
            let id = self.add_owner(OwnerKind::DaemonSet, namespace, name, count, ctx);
            let template = template(name, 1).label("k8s-app", name);
            let hash = self.hash(name, 0, 10);
            let labels = vec![
                ("controller-revision-hash".into(), hash.into()),
                ("pod-template-generation".into(), "1".into()),
            ];
            self.set_pod_template(id, template, format!("{name}-"), labels);
            self.set_final_counts(id, count);
            self.write_new_owner(id, ctx);
            for node in 0..nodes {
                self.add_running_pod(id, node, ctx);
            }
        }
    }

    fn add_services(&mut self, ctx: StepContext<'_>) {
        let nodes = self.node_set.count();
        let each = self.config.pods_per_node - self.daemons();
        let total = nodes.saturating_mul(each);
        let containers = self.config.containers_per_pod.max(1);
        for (number, first) in (0..total).step_by(REPLICAS).enumerate() {
            let replicas = REPLICAS.min(total - first);
            let count = u32::try_from(replicas).unwrap_or(u32::MAX);
            let name = format!("service-{number:04}");
            let template = template(&name, containers);
            let namespace = self.namespace(number as u64);
            let deployment = self.add_running_deployment(namespace, &name, template, count, ctx);
            for at in first..first + replicas {
                // Neighbours in a Deployment run on different nodes.
                self.add_running_pod(deployment, at % nodes.max(1), ctx);
            }
        }
    }

    /// Creates a Deployment and its `ReplicaSet` with final counts; returns the latter.
    fn add_running_deployment(
        &mut self,
        namespace: Arc<str>,
        name: &str,
        template: PodTemplate,
        count: u32,
        ctx: StepContext<'_>,
    ) -> OwnerId {
        let (deployment, set) = self.make_deployment(namespace, name, count, template, ctx);
        if let Some(entry) = self.owners.get_mut(&set) {
            entry.desired = count;
        }
        for id in [deployment, set] {
            self.set_final_counts(id, count);
            self.write_new_owner(id, ctx);
        }
        set
    }

    fn set_final_counts(&mut self, id: OwnerId, count: u32) {
        if let Some(entry) = self.owners.get_mut(&id) {
            entry.counts = Counts {
                total: count,
                ready: count,
                ..Counts::default()
            };
        }
    }

    /// Creates a pod that has been running for a while.
    fn add_running_pod(&mut self, owner: OwnerId, node: usize, ctx: StepContext<'_>) {
        let (Some(entry), Some(at)) =
            (self.owners.get_mut(&owner), self.node_set.nodes().get(node))
        else {
            return;
        };
        let Some(kind) = entry.compiled.as_ref().map(Arc::clone) else {
            return;
        };
        let mut seed = Seed::new(0)
            .derive_name(&entry.uid.to_string())
            .derive(entry.made);
        entry.made += 1;
        let namespace = Arc::clone(&entry.namespace);
        let mut name = kind.generate_name.as_deref().unwrap_or("pod-").to_owned();
        seed.push_suffix(&mut name, 5);
        let age = seed.between(MIN_AGE_MILLIS, MAX_AGE_MILLIS);
        let created =
            Timestamp::from_unix_millis(ctx.now.unix_millis().saturating_sub_unsigned(age));
        let host = Host {
            index: node,
            name: Arc::clone(at.name()),
            ip: at.ip(),
        };
        let mut pod = Pod::new(kind, namespace, name.into(), seed, created);
        run_since(&mut pod, host, created);
        let pod = Arc::new(pod);
        render::pod(&pod, &mut self.text);
        match ctx.writer.create_text(Resource::Pods, &self.text) {
            Ok(version) => {
                at.put(&pod);
                let id = self.next_id();
                if let Some(entry) = self.owners.get_mut(&owner) {
                    entry.pods.push(id);
                }
                let entry = PodEntry {
                    pod,
                    owner: Some(owner),
                    epoch: 0,
                    version,
                    written: Vec::new(),
                };
                self.pods.insert(id, entry);
            }
            Err(error) => {
                self.rejected_writes += 1;
                tracing::debug!(%error, "pod not created");
            }
        }
    }
}

/// Sets the state of a pod that started without problems.
fn run_since(pod: &mut Pod, host: Host, created: Timestamp) {
    let at = |milliseconds| after(created, milliseconds);
    let yes = |milliseconds| ConditionState {
        holds: true,
        since: at(milliseconds),
    };
    pod.host = Some(host);
    pod.scheduled = Some(yes(40));
    pod.start = Some(at(150));
    pod.observed = 1;
    pod.ip = Some(super::lifecycle::pod_ip(pod));
    pod.sandbox = yes(900);
    pod.initialized = yes(150);
    pod.containers_ready = yes(2_000);
    pod.ready = yes(2_000);
    pod.phase = Phase::Running;
    for container in &mut pod.containers {
        container.state = ContainerState::Running { since: at(1_500) };
        container.ready = true;
        container.started = true;
    }
}

fn template(name: &str, containers: usize) -> PodTemplate {
    let mut list = Vec::with_capacity(containers);
    for at in 0..containers {
        let container = match at {
            0 => "app".to_owned(),
            1 => "proxy".to_owned(),
            _ => format!("extra-{at}"),
        };
        let mut container = ContainerTemplate::new(&container, &["/bin/sleep", "100000"]);
        container.resources = Resources {
            cpu_request: 100,
            cpu_limit: 500,
            memory_request: 64,
            memory_limit: 128,
        };
        list.push(container);
    }
    PodTemplate::new(list)
        .label("app.kubernetes.io/name", name)
        .label("app.kubernetes.io/managed-by", "kubevitals-sim")
}

fn team(number: usize) -> String {
    format!("team-{number:03}")
}
