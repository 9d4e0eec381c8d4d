//! Reads a pod, its events and its node.

use std::sync::Arc;

use kube::api::ListParams;
use kubevitals_cli::RunError;
use kubevitals_model::{Event, Pod, Timestamp, Uid};
use kubevitals_transitions::PodRecord;

use crate::api::{ApiError, ApiReader, Operation};
use crate::nodes::Nodes;
use crate::{ExplainedPod, Notices, PodName};

/// Events read of one pod. The API server keeps them for an hour, and clients aggregate them.
const MAX_EVENTS: usize = 5_000;

/// Events in one page.
const EVENT_PAGE: u32 = 500;

/// Explains one pod by its name.
pub(crate) async fn explain(
    api: &ApiReader,
    name: &PodName,
    now: Timestamp,
    notices: &mut dyn Notices,
) -> Result<ExplainedPod, RunError> {
    let Some(pod) = get_pod(api, name).await? else {
        return Err(RunError::runtime(format!(
            "pod {name} not found; `kubevitals replay` explains deleted pods from a recording"
        )));
    };
    let pod = Arc::new(pod);
    let events = match list_events(api, &name.namespace, pod.event_uid()).await {
        Ok(events) => events,
        Err(error) => {
            notices.warn(&missing_events(error, Some(&name.namespace)));
            Vec::new()
        }
    };
    let node = Nodes::default().get(api, pod.summary.node.as_ref()).await;
    let mut record = PodRecord::reconstruct(&pod, &events, now);
    record.node_created = node.created;
    Ok(ExplainedPod {
        record,
        pool: node.pool,
    })
}

/// Returns a pod by its name; `None` if it does not exist.
pub(crate) async fn get_pod(api: &ApiReader, pod: &PodName) -> Result<Option<Pod>, RunError> {
    match api.get(Some(&pod.namespace), &pod.name).await {
        Ok(pod) => Ok(Some(pod)),
        Err(ApiError::NotFound) => Ok(None),
        Err(error) => Err(error.during(Operation {
            verb: "get",
            resource: "pods",
            namespace: Some(&pod.namespace),
        })),
    }
}

/// Lists the events of a pod that the API server still holds.
pub(crate) async fn list_events(
    api: &ApiReader,
    namespace: &str,
    uid: &Uid,
) -> Result<Vec<Event>, ApiError> {
    let params = ListParams::default()
        .fields(&format!("involvedObject.uid={uid}"))
        .limit(EVENT_PAGE);
    api.list(Some(namespace), params, MAX_EVENTS).await
}

/// The warning for an explanation without events.
pub(crate) fn missing_events(error: ApiError, namespace: Option<&str>) -> String {
    let reason = error.message(Operation {
        verb: "list",
        resource: "events",
        namespace,
    });
    format!("image pulls and probe failures are left out: {reason}")
}
