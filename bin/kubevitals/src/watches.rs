//! The watches that the roles of a process share: each resource is watched once.

use std::collections::BTreeSet;

use kubevitals_cli::{InvalidSetting, RunError};
use kubevitals_model::{Condition, Event, Node, Pod, PodSummary};
use kubevitals_watch::{EventWatcher, NamespaceSource, Reflector, WatchSpec};

use crate::cluster::Cluster;
use crate::process::TaskSet;

/// Pods that can still run. A pod that has ended has no usage, and some clusters keep thousands of
/// them.
const UNFINISHED_PODS: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// The watches that roles ask for, merged.
#[derive(Debug, Default)]
pub struct WatchRequests {
    nodes: Option<NodeRequest>,
    pods: Option<PodRequest>,
    events: Option<WatchSpec<Event>>,
}

/// A watch of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeRequest {
    /// Annotations that the role reads.
    pub annotations: Vec<&'static str>,
    /// The label selector; `None` for all nodes.
    pub selector: Option<String>,
}

#[derive(Debug)]
enum PodRequest {
    /// Summaries of pods that can still run.
    Summaries,
    /// Whole pods, and the flag that leaves some of them out.
    Full {
        spec: Box<WatchSpec<Pod>>,
        filter: Option<PodFilter>,
    },
}

/// A flag that restricts the watched pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFilter {
    /// The name of the flag.
    pub flag: &'static str,
    /// Its value.
    pub value: String,
}

/// The open watches.
#[derive(Debug, Default)]
pub struct Watches {
    /// Nodes, if a role asked for them.
    pub nodes: Option<Reflector<Node>>,
    /// Pods, if a role asked for them.
    pub pods: Option<PodWatch>,
    /// Events; the role that asked for them takes them.
    pub events: Option<EventWatcher<Event>>,
}

/// The watch of pods, in the smallest form that all roles can use.
#[derive(Debug, Clone)]
pub enum PodWatch {
    /// Summaries of pods that can still run.
    Summaries(Reflector<PodSummary>),
    /// Whole pods.
    Full(Reflector<Pod>),
}

impl WatchRequests {
    /// Asks for nodes. Annotations add up; one process has one selector.
    pub fn nodes(&mut self, request: NodeRequest) -> Result<(), InvalidSetting> {
        let Some(merged) = &mut self.nodes else {
            self.nodes = Some(request);
            return Ok(());
        };
        if merged.selector != request.selector {
            return Err(InvalidSetting {
                flag: "node-selector",
                value: merged
                    .selector
                    .take()
                    .or(request.selector)
                    .unwrap_or_default(),
                problem: "nodes are watched once for all roles, and another role needs all of them"
                    .to_owned(),
                advice: "leave it out, or run the roles by themselves".to_owned(),
            });
        }
        merged.annotations.extend(request.annotations);
        Ok(())
    }

    /// Asks for summaries of all pods that can still run.
    pub fn pod_summaries(&mut self) -> Result<(), InvalidSetting> {
        match &self.pods {
            Some(PodRequest::Full {
                filter: Some(filter),
                ..
            }) => Err(filter.conflict()),
            Some(_) => Ok(()),
            None => {
                self.pods = Some(PodRequest::Summaries);
                Ok(())
            }
        }
    }

    /// Asks for whole pods. `filter` names the flag that leaves some of them out.
    pub fn full_pods(
        &mut self,
        spec: WatchSpec<Pod>,
        filter: Option<PodFilter>,
    ) -> Result<(), InvalidSetting> {
        if self.pods.is_some()
            && let Some(filter) = &filter
        {
            return Err(filter.conflict());
        }
        self.pods = Some(PodRequest::Full {
            spec: Box::new(spec),
            filter,
        });
        Ok(())
    }

    /// Asks for events.
    pub fn events(&mut self, spec: WatchSpec<Event>) {
        self.events = Some(spec);
    }

    /// Opens the watches. Call it inside a runtime.
    pub(crate) fn open(self, cluster: &Cluster) -> Watches {
        let Cluster {
            watches, metrics, ..
        } = cluster;
        let nodes = self.nodes.map(|request| {
            let mut spec = WatchSpec::<Node>::new("nodes").keep_annotations(request.annotations);
            if let Some(selector) = request.selector {
                spec = spec.labels(selector);
            }
            let nodes = watches.reflector(spec);
            metrics.track(&nodes);
            nodes
        });
        let pods = self.pods.map(|request| match request {
            PodRequest::Summaries => {
                let spec = WatchSpec::<PodSummary>::new("pods").fields(UNFINISHED_PODS);
                let pods = watches.reflector(spec);
                metrics.track(&pods);
                PodWatch::Summaries(pods)
            }
            PodRequest::Full { spec, .. } => {
                let pods = watches.reflector(*spec);
                metrics.track(&pods);
                PodWatch::Full(pods)
            }
        });
        let events = self.events.map(|mut spec| {
            if let Some(PodWatch::Full(pods)) = &pods {
                let pods = pods.clone();
                let find = move || starting_namespaces(pods.clone());
                spec.options.wanted_namespaces = Some(NamespaceSource::new(find));
            }
            let events = watches.event_watcher(spec);
            metrics.track_event_watcher(&events);
            events
        });
        Watches {
            nodes,
            pods,
            events,
        }
    }
}

/// The namespaces of pods that are not ready yet, whose events say why.
async fn starting_namespaces(pods: Reflector<Pod>) -> Vec<String> {
    pods.synced().await;
    let mut namespaces = BTreeSet::new();
    for pod in pods.objects() {
        let ready = Condition::find(&pod.conditions, "Ready");
        let is_starting = !pod.summary.phase.is_final()
            && pod.meta.deleted.is_none()
            && !ready.is_some_and(Condition::is_true);
        if is_starting {
            namespaces.insert(pod.summary.identity.namespace.to_string());
        }
    }
    namespaces.into_iter().collect()
}

impl PodFilter {
    fn conflict(&self) -> InvalidSetting {
        InvalidSetting {
            flag: self.flag,
            value: self.value.clone(),
            problem: "pods are watched once for all roles, and the server needs all of them"
                .to_owned(),
            advice: "leave it out, or run `kubevitals transitions` by itself".to_owned(),
        }
    }
}

impl Watches {
    /// The nodes, for a role that asked for them.
    pub(crate) fn nodes(&self) -> Result<Reflector<Node>, RunError> {
        let nodes = self.nodes.clone();
        nodes.ok_or_else(|| RunError::runtime("the role did not ask for nodes"))
    }

    /// The pods, for a role that asked for them.
    pub(crate) fn pods(&self) -> Result<PodWatch, RunError> {
        let pods = self.pods.clone();
        pods.ok_or_else(|| RunError::runtime("the role did not ask for pods"))
    }

    /// Supervises the watches: one that ends before shutdown ends the process.
    pub(crate) fn supervise(&self, tasks: &TaskSet) {
        if let Some(nodes) = &self.nodes {
            tasks.spawn("watch-nodes", nodes.closed());
        }
        match &self.pods {
            Some(PodWatch::Summaries(pods)) => tasks.spawn("watch-pods", pods.closed()),
            Some(PodWatch::Full(pods)) => tasks.spawn("watch-pods", pods.closed()),
            None => {}
        }
        if let Some(events) = &self.events {
            tasks.spawn("watch-events", events.closed());
        }
    }

    /// Ends all watches and waits until their tasks are gone.
    pub(crate) async fn shutdown(&self) {
        if let Some(nodes) = &self.nodes {
            nodes.shutdown().await;
        }
        match &self.pods {
            Some(PodWatch::Summaries(pods)) => pods.shutdown().await,
            Some(PodWatch::Full(pods)) => pods.shutdown().await,
            None => {}
        }
        if let Some(events) = &self.events {
            events.shutdown().await;
        }
    }
}
