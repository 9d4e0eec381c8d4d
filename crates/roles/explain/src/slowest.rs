//! Finds the slowest pods of any number, keeping only those.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::api::ListParams;
use kubevitals_cli::RunError;
use kubevitals_model::{Pod, Timestamp};
use kubevitals_transitions::PodRecord;

use crate::api::{ApiError, ApiReader, Operation};
use crate::nodes::Nodes;
use crate::{ExplainedPod, Notices, SlowestQuery, events};

/// Pods in one page, and so in memory.
pub(crate) const POD_PAGE: u32 = 500;

/// Attempts at a list whose continue token expires.
pub(crate) const MAX_ATTEMPTS: u32 = 3;

/// The number of pods that were ranked and shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    pods: usize,
    ready: usize,
    unreadable: usize,
    shown: usize,
}

/// The slowest pods so far.
pub(crate) struct Top {
    limit: usize,
    /// The fastest of them on top, to be removed first.
    heap: BinaryHeap<Reverse<Entry>>,
}

pub(crate) struct Entry {
    /// Unknown ranks last, after every known duration.
    pub(crate) took: Option<Duration>,
    pub(crate) pod: Arc<Pod>,
}

/// Explains the slowest pods, the slowest first.
pub(crate) async fn find(
    api: &ApiReader,
    query: &SlowestQuery,
    now: Timestamp,
    notices: &mut dyn Notices,
) -> Result<(Vec<ExplainedPod>, Summary), RunError> {
    let ranked = rank(api, query, now, notices).await;
    notices.clear_progress();
    let (top, mut summary) = ranked.map_err(|error| {
        error.during(Operation {
            verb: "list",
            resource: "pods",
            namespace: query.namespace.as_deref(),
        })
    })?;
    if summary.unreadable > 0 {
        notices.warn(&format!("{} pods could not be decoded", summary.unreadable));
    }
    if summary.pods == 0 {
        return Err(RunError::runtime("no matching pods found"));
    }
    let mut nodes = Nodes::default();
    let explained = events::explain(api, top.into_order(), now, &mut nodes, notices).await;
    summary.shown = explained.len();
    Ok((explained, summary))
}

async fn rank(
    api: &ApiReader,
    query: &SlowestQuery,
    now: Timestamp,
    notices: &mut dyn Notices,
) -> Result<(Top, Summary), ApiError> {
    let mut attempt = 1;
    loop {
        match rank_once(api, query, now, notices).await {
            // The list expired between two pages: the pods ranked so far may have changed.
            Err(ApiError::Expired) if attempt < MAX_ATTEMPTS => attempt += 1,
            other => return other,
        }
    }
}

async fn rank_once(
    api: &ApiReader,
    query: &SlowestQuery,
    now: Timestamp,
    notices: &mut dyn Notices,
) -> Result<(Top, Summary), ApiError> {
    let mut top = Top::new(query.limit);
    let mut summary = Summary::default();
    let mut params = ListParams::default().limit(POD_PAGE);
    params.label_selector.clone_from(&query.selector);
    let oldest = query.since.and_then(|since| now.checked_sub(since));
    loop {
        let page = api.page::<Pod>(query.namespace.as_deref(), &params).await?;
        summary.unreadable += page.unreadable.len();
        for pod in page.objects {
            if pod.meta.created < oldest {
                continue;
            }
            let pod = Arc::new(pod);
            let record = PodRecord::reconstruct(&pod, &[], now);
            summary.pods += 1;
            summary.ready += usize::from(record.is_complete() || record.was_ready_before);
            top.push(Entry {
                // What is certain: a readiness probe that failed for a while proves no slow start.
                took: record.certain_total(),
                pod,
            });
        }
        notices.progress(&|| format!("{} pods read", summary.pods));
        if page.next.is_empty() {
            return Ok((top, summary));
        }
        params.continue_token = Some(page.next);
    }
}

impl Top {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            heap: BinaryHeap::new(),
        }
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        let is_full = self.heap.len() >= self.limit;
        let is_faster = || self.heap.peek().is_some_and(|fastest| entry < fastest.0);
        if is_full && is_faster() {
            return;
        }
        self.heap.push(Reverse(entry));
        if is_full {
            self.heap.pop();
        }
    }

    pub(crate) fn into_order(self) -> Vec<Arc<Pod>> {
        let entries = self.heap.into_sorted_vec();
        entries
            .into_iter()
            .map(|Reverse(entry)| entry.pod)
            .collect()
    }
}

impl Entry {
    /// Of two that took equally long, the one whose name sorts first is greater, so shown first.
    /// `None` is less than any duration.
    fn order(&self) -> (Option<Duration>, Reverse<(&str, &str)>) {
        let identity = &self.pod.summary.identity;
        (self.took, Reverse((&identity.namespace, &identity.name)))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pods, ready, shown, ..
        } = self;
        write!(
            f,
            "slowest {shown} of {pods} pods, {ready} of them ready at some time"
        )
    }
}

#[cfg(test)]
mod tests {
    use kubevitals_watch::{Decoder, decode_object};

    use super::*;

    fn entry(name: &str, seconds: Option<u64>) -> Entry {
        let pod = format!("{{\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"a\"}}}}");
        Entry {
            took: seconds.map(Duration::from_secs),
            pod: Arc::new(decode_object(pod.as_bytes(), &Decoder::default()).unwrap()),
        }
    }

    #[test]
    fn only_the_slowest_pods_are_kept_in_order() {
        let mut top = Top::new(3);
        for (name, seconds) in [("e", 5), ("a", 1), ("d", 9), ("b", 5), ("c", 5), ("f", 2)] {
            top.push(entry(name, Some(seconds)));
            assert!(top.heap.len() <= 3);
        }
        assert_eq!(names(top), ["d", "b", "c"]);
    }

    /// It ranked as if it had taken no time, between those that really did.
    #[test]
    fn a_pod_of_unknown_duration_ranks_after_one_that_took_no_time() {
        let pods = [("a", None), ("b", Some(0)), ("c", Some(3)), ("d", None)];
        for limit in 1..=4 {
            // In any order of arrival.
            for turn in 0..pods.len() {
                let mut top = Top::new(limit);
                for at in 0..pods.len() {
                    let (name, seconds) = pods[(turn + at) % pods.len()];
                    top.push(entry(name, seconds));
                }
                assert_eq!(names(top), ["c", "b", "a", "d"][..limit]);
            }
        }
    }

    fn names(top: Top) -> Vec<String> {
        let pods = top.into_order().into_iter();
        pods.map(|pod| pod.summary.identity.name.to_string())
            .collect()
    }
}
