//! The slowest groups of pods: by image, node, workload or node pool.

use std::sync::Arc;

use kube::api::ListParams;
use kubevitals_cli::RunError;
use kubevitals_model::{Pod, Timestamp};
use kubevitals_transitions::PodRecord;
use kubevitals_transitions::stats::StartStats;
use kubevitals_transitions::stats::groups::{GroupBy, MAX_GROUPS, StartGroups};

use crate::api::{ApiError, ApiReader, Operation};
use crate::nodes::Nodes;
use crate::slowest::{MAX_ATTEMPTS, POD_PAGE};
use crate::{ExplainedPod, Notices, PodName, SlowestQuery, events, lookup};

/// The slowest groups.
#[derive(Debug, Clone)]
pub struct GroupReport {
    pub by: GroupBy,
    /// The slowest first, each with its slowest pod.
    pub groups: Vec<StartGroup>,
    pub pods: usize,
    /// The groups of all pods.
    pub total: usize,
}

/// A group of pods.
#[derive(Debug, Clone)]
pub struct StartGroup {
    pub name: Arc<str>,
    pub stats: StartStats,
    /// Its slowest pod, unless that was deleted meanwhile.
    pub slowest: Option<ExplainedPod>,
}

/// Finds the slowest groups, and explains the slowest pod of each.
pub(crate) async fn find(
    api: &ApiReader,
    query: &SlowestQuery,
    by: GroupBy,
    now: Timestamp,
    notices: &mut dyn Notices,
) -> Result<GroupReport, RunError> {
    let mut nodes = Nodes::default();
    if by == GroupBy::Pool {
        nodes.list_all(api).await.map_err(|error| {
            error.during(Operation {
                verb: "list",
                resource: "nodes",
                namespace: None,
            })
        })?;
    }
    let (groups, pods) = count(api, query, by, &nodes, now, notices).await?;
    if pods == 0 {
        return Err(RunError::runtime("no matching pods found"));
    }
    if groups.left_out > 0 {
        notices.warn(&format!(
            "{} pods of more than {MAX_GROUPS} groups are left out",
            groups.left_out
        ));
    }
    let total = groups.len();
    let groups = groups.into_slowest(query.limit);
    let mut slowest = Vec::new();
    for (_, stats) in &groups {
        if let Some(pod) = get_slowest(api, stats).await? {
            slowest.push(pod);
        }
    }
    let explained = events::explain(api, slowest, now, &mut nodes, notices).await;
    let groups = groups.into_iter().map(|(name, stats)| {
        let slowest = stats.slowest.as_ref().and_then(|(_, pod)| {
            let is_it = |one: &&ExplainedPod| one.record.pod.summary.identity.to_string() == **pod;
            explained.iter().find(is_it).cloned()
        });
        StartGroup {
            name,
            stats,
            slowest,
        }
    });
    Ok(GroupReport {
        by,
        groups: groups.collect(),
        pods,
        total,
    })
}

/// Returns the slowest pod of a group; `None` if it was deleted meanwhile.
async fn get_slowest(api: &ApiReader, stats: &StartStats) -> Result<Option<Arc<Pod>>, RunError> {
    let named = stats
        .slowest
        .as_ref()
        .and_then(|(_, pod)| pod.split_once('/'));
    let Some((namespace, name)) = named else {
        return Ok(None);
    };
    let pod = PodName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    Ok(lookup::get_pod(api, &pod).await?.map(Arc::new))
}

async fn count(
    api: &ApiReader,
    query: &SlowestQuery,
    by: GroupBy,
    nodes: &Nodes,
    now: Timestamp,
    notices: &mut dyn Notices,
) -> Result<(StartGroups, usize), RunError> {
    let mut attempt = 1;
    let counted = loop {
        match count_once(api, query, by, nodes, now, notices).await {
            // The list expired between two pages: the pods counted so far may have changed.
            Err(ApiError::Expired) if attempt < MAX_ATTEMPTS => attempt += 1,
            other => break other,
        }
    };
    notices.clear_progress();
    counted.map_err(|error| {
        error.during(Operation {
            verb: "list",
            resource: "pods",
            namespace: query.namespace.as_deref(),
        })
    })
}

async fn count_once(
    api: &ApiReader,
    query: &SlowestQuery,
    by: GroupBy,
    nodes: &Nodes,
    now: Timestamp,
    notices: &mut dyn Notices,
) -> Result<(StartGroups, usize), ApiError> {
    let mut groups = StartGroups::new(by, MAX_GROUPS);
    let mut pods = 0;
    let mut params = ListParams::default().limit(POD_PAGE);
    params.label_selector.clone_from(&query.selector);
    let oldest = query.since.and_then(|since| now.checked_sub(since));
    loop {
        let page = api.page::<Pod>(query.namespace.as_deref(), &params).await?;
        for pod in page.objects {
            if pod.meta.created < oldest {
                continue;
            }
            pods += 1;
            let node = nodes.known(pod.summary.node.as_ref());
            let record = PodRecord::reconstruct(&Arc::new(pod), &[], now);
            groups.add(&record, node.pool.as_deref());
        }
        notices.progress(&|| format!("{pods} pods read"));
        if page.next.is_empty() {
            return Ok((groups, pods));
        }
        params.continue_token = Some(page.next);
    }
}
