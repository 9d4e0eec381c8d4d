//! Reads the events of several pods.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream;
use kube::api::ListParams;
use kubevitals_model::{Event, Pod, Timestamp, Uid};
use kubevitals_transitions::{Facts, PodRecord};

use crate::api::{ApiError, ApiReader};
use crate::nodes::Nodes;
use crate::{ExplainedPod, Notices, lookup};

/// Pods whose events are read at the same time.
const CONCURRENCY: usize = 8;

/// The events of more pods than this are read with one list: for each request the API server looks
/// at all events of the namespace. Pods of several namespaces are read one by one for longer.
const MAX_REQUESTS: usize = 20;
const MAX_REQUESTS_OF_NAMESPACES: usize = 200;

/// Events read with one list.
const MAX_EVENTS: usize = 200_000;

/// Events kept of one pod.
const MAX_EVENTS_OF_POD: usize = 200;

const EVENT_PAGE: u32 = 500;

/// Explains pods with their events and nodes, in their order.
pub(crate) async fn explain(
    api: &ApiReader,
    pods: Vec<Arc<Pod>>,
    now: Timestamp,
    nodes: &mut Nodes,
    notices: &mut dyn Notices,
) -> Vec<ExplainedPod> {
    let total = pods.len();
    let namespace = common_namespace(&pods);
    let max_requests = match namespace {
        Some(_) => MAX_REQUESTS,
        None => MAX_REQUESTS_OF_NAMESPACES,
    };
    let mut events = if total > max_requests {
        read_together(api, &pods, namespace.as_deref(), notices).await
    } else {
        read_each(api, &pods, notices).await
    };
    nodes
        .prefetch(api, pods.iter().filter_map(|pod| pod.summary.node.as_ref()))
        .await;
    let mut explained = Vec::with_capacity(total);
    for pod in pods {
        let events = events.remove(pod.event_uid()).unwrap_or_default();
        let node = nodes.get(api, pod.summary.node.as_ref()).await;
        let mut record = PodRecord::reconstruct(&pod, &events, now);
        record.node_created = node.created;
        explained.push(ExplainedPod {
            record,
            pool: node.pool,
        });
        notices.progress(&|| format!("{} of {total} pods explained", explained.len()));
    }
    notices.clear_progress();
    explained
}

async fn read_each(
    api: &ApiReader,
    pods: &[Arc<Pod>],
    notices: &mut dyn Notices,
) -> HashMap<Uid, Vec<Event>> {
    let requests = pods.iter().map(|pod| async move {
        let namespace = &pod.summary.identity.namespace;
        let events = lookup::list_events(api, namespace, pod.event_uid()).await;
        (pod, events)
    });
    let mut responses = stream::iter(requests).buffered(CONCURRENCY);
    let mut all = HashMap::new();
    let mut first_failure = None;
    while let Some((pod, events)) = responses.next().await {
        match events {
            Ok(events) => {
                all.insert(pod.event_uid().clone(), events);
            }
            Err(error) => {
                let namespace = &pod.summary.identity.namespace;
                let warning = || lookup::missing_events(error, Some(namespace));
                first_failure.get_or_insert_with(warning);
            }
        }
    }
    if let Some(message) = first_failure {
        notices.warn(&message);
    }
    all
}

/// The namespace of all these pods.
fn common_namespace(pods: &[Arc<Pod>]) -> Option<Arc<str>> {
    let namespace_of = |pod: &Arc<Pod>| Arc::clone(&pod.summary.identity.namespace);
    let first = pods.first().map(namespace_of)?;
    let is_one = pods.iter().all(|pod| namespace_of(pod) == first);
    is_one.then_some(first)
}

/// Reads the events of all pods of a namespace, or of all namespaces, and keeps those of these
/// pods.
async fn read_together(
    api: &ApiReader,
    pods: &[Arc<Pod>],
    namespace: Option<&str>,
    notices: &mut dyn Notices,
) -> HashMap<Uid, Vec<Event>> {
    let mut wanted: HashMap<Uid, Vec<Event>> = pods
        .iter()
        .map(|pod| (pod.event_uid().clone(), Vec::new()))
        .collect();
    match fill(api, namespace, &mut wanted, notices).await {
        Ok(true) => {}
        Ok(false) => notices.warn(&format!(
            "only some events were read, at most {MAX_EVENTS}: of some pods causes are missing"
        )),
        Err(error) => notices.warn(&lookup::missing_events(error, namespace)),
    }
    wanted
}

/// Returns whether all events were read.
async fn fill(
    api: &ApiReader,
    namespace: Option<&str>,
    wanted: &mut HashMap<Uid, Vec<Event>>,
    notices: &mut dyn Notices,
) -> Result<bool, ApiError> {
    let mut params = ListParams::default()
        .fields("involvedObject.kind=Pod,reason!=Scheduled,reason!=Created,reason!=Started")
        .limit(EVENT_PAGE);
    let mut read = 0;
    loop {
        let page = match api.page::<Event>(namespace, &params).await {
            // The list cannot be continued; what was read is true.
            Err(ApiError::Expired) if read > 0 => return Ok(false),
            page => page?,
        };
        read += page.objects.len();
        for event in page.objects.into_iter().filter(Facts::is_relevant) {
            if let Some(events) = wanted.get_mut(&event.regarding.uid)
                && events.len() < MAX_EVENTS_OF_POD
            {
                events.push(event);
            }
        }
        notices.progress(&|| format!("{read} events read"));
        if page.next.is_empty() {
            return Ok(true);
        }
        if read >= MAX_EVENTS {
            return Ok(false);
        }
        params.continue_token = Some(page.next);
    }
}
