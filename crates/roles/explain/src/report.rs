//! The starts of all pods of a workload or of a node.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::api::ListParams;
use kubevitals_cli::RunError;
use kubevitals_model::{Node, Pod, Timestamp};
use kubevitals_transitions::PodRecord;
use kubevitals_transitions::stats::groups::{GroupBy, StartGroups};
use kubevitals_transitions::stats::{Start, StartOutcome, StartStats, Statistic};

use crate::api::{ApiError, ApiReader, Operation};
use crate::nodes::Nodes;
use crate::slowest::{Entry, MAX_ATTEMPTS, POD_PAGE, Top};
use crate::workload::{Revision, WorkloadKind, WorkloadName};
use crate::{ExplainedPod, Notices, events};

/// Pods of a revision whose events are read: the slowest.
const MAX_EXPLAINED: usize = 1_000;

/// Revisions with pods that are kept apart. A rollout has two.
const MAX_REVISIONS: usize = 16;

/// Groups within a revision, such as the nodes of its pods.
const MAX_GROUPS: usize = 20_000;

/// Slowest pods and groups that are shown.
const SHOWN: usize = 5;

/// A group stands out if its median is this many times that of all pods, and longer by this.
const OUTLIER_FACTOR: u32 = 2;
const OUTLIER_MARGIN: Duration = Duration::from_secs(5);

/// What is explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportTarget {
    Workload(WorkloadName),
    Node(String),
}

/// The starts of the pods of a workload's newest revision, or of a node.
#[derive(Debug, Clone)]
pub struct StartReport {
    pub target: ReportTarget,
    /// `None` for targets without revisions.
    pub revision: Option<Revision>,
    pub stats: StartStats,
    /// Nodes, or for a node workloads, whose pods took much longer than the others.
    pub outliers: Vec<(Arc<str>, StartStats)>,
    pub outliers_by: GroupBy,
    /// The slowest first.
    pub slowest: Vec<ExplainedPod>,
    /// The revision before, if it still has pods.
    pub previous: Option<(Revision, StartStats)>,
}

/// The pods of one revision, as they are read.
pub(crate) struct RevisionPods {
    pub(crate) hash: Arc<str>,
    newest: Option<Timestamp>,
    stats: StartStats,
    groups: StartGroups,
    top: Top,
}

/// The starts of a revision.
pub(crate) struct RevisionStarts {
    pub(crate) stats: StartStats,
    groups: StartGroups,
    slowest: Vec<ExplainedPod>,
}

/// Explains the newest revision of a workload, or the pods of a node.
pub(crate) async fn read(
    api: &ApiReader,
    target: &ReportTarget,
    since: Option<Duration>,
    now: Timestamp,
    notices: &mut dyn Notices,
) -> Result<StartReport, RunError> {
    let mut nodes = Nodes::default();
    let (revisions, outliers_by) = match target {
        ReportTarget::Workload(workload) => {
            let revisions = read_workload(api, workload, since, now, notices).await?;
            (revisions, GroupBy::Node)
        }
        ReportTarget::Node(name) => {
            let revisions = read_node(api, name, since, now, notices).await?;
            (revisions, GroupBy::Workload)
        }
    };
    let has_revisions = match target {
        ReportTarget::Workload(workload) => workload.kind.has_revisions(),
        ReportTarget::Node(_) => false,
    };
    let mut revisions = revisions.into_iter();
    let Some((revision, pods)) = revisions.next() else {
        return Err(RunError::runtime(format!("no pods of {target} found")));
    };
    let starts = pods.explain(api, now, &mut nodes, notices).await;
    let previous = match revisions.next() {
        Some((revision, pods)) => {
            let starts = pods.explain(api, now, &mut nodes, notices).await;
            Some((revision, starts.stats))
        }
        None => None,
    };
    let RevisionStarts {
        stats,
        groups,
        mut slowest,
    } = starts;
    slowest.truncate(SHOWN);
    Ok(StartReport {
        target: target.clone(),
        revision: Some(revision).filter(|_| has_revisions),
        outliers: outliers(groups, &stats),
        outliers_by,
        stats,
        slowest,
        previous,
    })
}

/// Reads the pods of a workload by revision, the newest first.
pub(crate) async fn read_workload(
    api: &ApiReader,
    workload: &WorkloadName,
    since: Option<Duration>,
    now: Timestamp,
    notices: &mut dyn Notices,
) -> Result<Vec<(Revision, RevisionPods)>, RunError> {
    let selector = workload.selector(api, notices).await?;
    let query = PodQuery {
        namespace: Some(&workload.namespace),
        labels: selector.as_deref(),
        fields: None,
        oldest: since.and_then(|since| now.checked_sub(since)),
        groups: GroupBy::Node,
    };
    let hash = |pod: &Pod| workload.owns(pod).then(|| workload.hash_of(pod));
    let pods = read_pods(api, &query, hash, now, notices).await?;
    let numbers = if workload.kind.has_revisions() && !pods.is_empty() {
        workload.revisions(api, selector.as_deref(), notices).await
    } else {
        BTreeMap::new()
    };
    let mut revisions: Vec<(Revision, RevisionPods)> = pods
        .into_values()
        .map(|pods| {
            let revision = Revision {
                number: numbers.get(&*pods.hash).copied(),
                hash: Arc::clone(&pods.hash),
            };
            (revision, pods)
        })
        .collect();
    revisions.sort_by(|one, two| {
        let order = |(revision, pods): &(Revision, RevisionPods)| (revision.number, pods.newest);
        order(two)
            .cmp(&order(one))
            .then_with(|| one.0.hash.cmp(&two.0.hash))
    });
    if let Some(newest) = numbers.values().max()
        && let Some((first, _)) = revisions.first()
        && first.number < Some(*newest)
    {
        notices.warn(&format!("revision {newest} of {workload} has no pods"));
    }
    Ok(revisions)
}

async fn read_node(
    api: &ApiReader,
    name: &str,
    since: Option<Duration>,
    now: Timestamp,
    notices: &mut dyn Notices,
) -> Result<Vec<(Revision, RevisionPods)>, RunError> {
    match api.get::<Node>(None, name).await {
        Err(ApiError::NotFound) => {
            return Err(RunError::runtime(format!("node {name} not found")));
        }
        Err(error @ ApiError::Failed(_)) => {
            return Err(error.during(Operation {
                verb: "get",
                resource: "nodes",
                namespace: None,
            }));
        }
        // Without permission, pods have its name nevertheless.
        Ok(_) | Err(_) => {}
    }
    let fields = format!("spec.nodeName={name}");
    let query = PodQuery {
        namespace: None,
        labels: None,
        fields: Some(&fields),
        oldest: since.and_then(|since| now.checked_sub(since)),
        groups: GroupBy::Workload,
    };
    let pods = read_pods(api, &query, |_| Some(Arc::default()), now, notices).await?;
    let pods = pods.into_values();
    Ok(pods.map(|pods| (Revision::default(), pods)).collect())
}

struct PodQuery<'q> {
    namespace: Option<&'q str>,
    labels: Option<&'q str>,
    fields: Option<&'q str>,
    oldest: Option<Timestamp>,
    groups: GroupBy,
}

/// Reads pods page by page and keeps the slowest of each revision.
async fn read_pods(
    api: &ApiReader,
    query: &PodQuery<'_>,
    hash: impl Fn(&Pod) -> Option<Arc<str>>,
    now: Timestamp,
    notices: &mut dyn Notices,
) -> Result<HashMap<Arc<str>, RevisionPods>, RunError> {
    let mut attempt = 1;
    let read = loop {
        match read_pods_once(api, query, &hash, now, notices).await {
            // The list expired between two pages: the pods read so far may have changed.
            Err(ApiError::Expired) if attempt < MAX_ATTEMPTS => attempt += 1,
            other => break other,
        }
    };
    notices.clear_progress();
    read.map_err(|error| {
        error.during(Operation {
            verb: "list",
            resource: "pods",
            namespace: query.namespace,
        })
    })
}

async fn read_pods_once(
    api: &ApiReader,
    query: &PodQuery<'_>,
    hash: impl Fn(&Pod) -> Option<Arc<str>>,
    now: Timestamp,
    notices: &mut dyn Notices,
) -> Result<HashMap<Arc<str>, RevisionPods>, ApiError> {
    let mut revisions: HashMap<Arc<str>, RevisionPods> = HashMap::new();
    let (mut read, mut unreadable, mut left_out) = (0, 0, 0);
    let mut params = ListParams::default().limit(POD_PAGE);
    params.label_selector = query.labels.map(ToOwned::to_owned);
    params.field_selector = query.fields.map(ToOwned::to_owned);
    loop {
        let page = api.page::<Pod>(query.namespace, &params).await?;
        read += page.objects.len();
        unreadable += page.unreadable.len();
        for pod in page.objects {
            if pod.meta.created < query.oldest {
                continue;
            }
            let Some(hash) = hash(&pod) else { continue };
            if !revisions.contains_key(&hash) && revisions.len() >= MAX_REVISIONS {
                left_out += 1;
                continue;
            }
            let new = || RevisionPods::new(Arc::clone(&hash), query.groups);
            let pods = revisions.entry(Arc::clone(&hash)).or_insert_with(new);
            pods.add(Arc::new(pod), now);
        }
        notices.progress(&|| format!("{read} pods read"));
        if page.next.is_empty() {
            break;
        }
        params.continue_token = Some(page.next);
    }
    if unreadable > 0 {
        notices.warn(&format!("{unreadable} pods could not be decoded"));
    }
    if left_out > 0 {
        notices.warn(&format!(
            "{left_out} pods of more than {MAX_REVISIONS} revisions are left out"
        ));
    }
    Ok(revisions)
}

impl RevisionPods {
    fn new(hash: Arc<str>, groups: GroupBy) -> Self {
        Self {
            hash,
            newest: None,
            stats: StartStats::default(),
            groups: StartGroups::new(groups, MAX_GROUPS),
            top: Top::new(MAX_EXPLAINED),
        }
    }

    /// Counts a pod by its state alone, and keeps it if it is one of the slowest.
    fn add(&mut self, pod: Arc<Pod>, now: Timestamp) {
        let record = PodRecord::reconstruct(&pod, &[], now);
        let took = record.total();
        let name = pod.summary.identity.to_string().into();
        self.newest = self.newest.max(pod.meta.created);
        self.stats.count(StartOutcome::of(&record), took, &name);
        self.groups.add(&record, None);
        self.top.push(Entry { took, pod });
    }

    /// Reads the events of the slowest pods, and adds their phases and causes.
    pub(crate) async fn explain(
        self,
        api: &ApiReader,
        now: Timestamp,
        nodes: &mut Nodes,
        notices: &mut dyn Notices,
    ) -> RevisionStarts {
        let mut stats = self.stats;
        let slowest = events::explain(api, self.top.into_order(), now, nodes, notices).await;
        for pod in &slowest {
            stats.explain(&Start::of(&pod.record, pod.pool.as_deref()));
        }
        RevisionStarts {
            stats,
            groups: self.groups,
            slowest,
        }
    }
}

/// The groups whose pods took much longer than all together, the slowest first.
fn outliers(groups: StartGroups, all: &StartStats) -> Vec<(Arc<str>, StartStats)> {
    let Some(median) = all.statistic(Statistic::P50) else {
        return Vec::new();
    };
    let limit = (median * OUTLIER_FACTOR).max(median + OUTLIER_MARGIN);
    let is_outlier = |stats: &StartStats| {
        let own = stats.statistic(Statistic::P50);
        own.is_some_and(|own| own >= limit)
    };
    let groups = groups.into_slowest(usize::MAX).into_iter();
    let groups = groups.filter(|(_, stats)| is_outlier(stats));
    groups.take(SHOWN).collect()
}

impl fmt::Display for ReportTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workload(workload) => workload.fmt(f),
            Self::Node(name) => write!(f, "node {name}"),
        }
    }
}

impl ReportTarget {
    /// Kind, namespace and name, as in the API.
    pub fn parts(&self) -> (&'static str, Option<&str>, &str) {
        match self {
            Self::Workload(WorkloadName {
                kind,
                namespace,
                name,
            }) => (WorkloadKind::as_str(*kind), Some(namespace), name),
            Self::Node(name) => ("Node", None, name),
        }
    }
}
