//! A pod, its events and its node, looked at once.

use std::sync::Arc;

use kube::api::ListParams;
use kubevitals_cli::RunError;
use kubevitals_model::Timestamp;
use kubevitals_transitions::node_pool;
use kubevitals_watch::{Event, Node, Pod, Uid};

use super::api::{Api, ApiError, Question};
use super::target::Target;
use super::{Explained, note, record_of};

/// Events of one pod: the API server keeps them for an hour, and their writers group them.
const MAX_EVENTS: usize = 5_000;

/// Events in one page.
const EVENTS_AT_ONCE: u32 = 500;

/// Explains one pod by its name.
pub(super) async fn at_pod(
    api: &Api,
    target: &Target,
    now: Timestamp,
) -> Result<Explained, RunError> {
    let pod = match pod(api, target).await? {
        Some(pod) => Arc::new(pod),
        None => return Err(gone(target)),
    };
    let identity = &pod.brief.identity;
    let events = match events(api, target.namespace(), &identity.uid).await {
        Ok(events) => events,
        Err(error) => {
            note(&without_events(error, target.namespace()));
            Vec::new()
        }
    };
    Ok(Explained {
        record: record_of(&pod, &events, now),
        pool: pool(api, pod.brief.node.as_deref()).await.ok().flatten(),
    })
}

/// A pod by its name; none if there is none.
pub(super) async fn pod(api: &Api, target: &Target) -> Result<Option<Pod>, RunError> {
    match api.get(Some(target.namespace()), &target.name).await {
        Ok(pod) => Ok(Some(pod)),
        Err(ApiError::NotFound) => Ok(None),
        Err(error) => Err(error.about(Question {
            verb: "get",
            resource: "pods",
            namespace: Some(target.namespace()),
        })),
    }
}

/// What is left of the events of a pod.
pub(super) async fn events(api: &Api, namespace: &str, uid: &Uid) -> Result<Vec<Event>, ApiError> {
    let params = ListParams::default()
        .fields(&format!("involvedObject.uid={uid}"))
        .limit(EVENTS_AT_ONCE);
    api.list(Some(namespace), params, MAX_EVENTS).await
}

/// The pool of a node. It matters little: who may not read nodes is told without.
pub(super) async fn pool(api: &Api, node: Option<&str>) -> Result<Option<Arc<str>>, ApiError> {
    let Some(node) = node else { return Ok(None) };
    let node: Node = api.get(None, node).await?;
    Ok(node_pool(&node.labels).cloned())
}

/// That something is left out, and why.
pub(super) fn without_events(error: ApiError, namespace: &str) -> String {
    let question = Question {
        verb: "list",
        resource: "events",
        namespace: Some(namespace),
    };
    let why = error.words(question);
    format!("image pulls and what probes said are left out: {why}")
}

fn gone(target: &Target) -> RunError {
    RunError::runtime(format!(
        "pod {target} does not exist; `kubevitals replay` explains pods that are gone, from a recording of their time"
    ))
}
