//! Waiting for states of objects, on watch events.

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{E2eError, head};

/// The timeout of every wait of a test. Generous, because the machine may be busy.
pub const DEADLINE: Duration = Duration::from_mins(2);

/// Bytes of an object that are kept in an error.
const MAX_SEEN: usize = 4 << 10;

/// Watches one object until the predicate holds; `None` is an object that does not exist. Errors of
/// the watch, such as a restart of the server, are ignored.
pub(crate) async fn wait_for<K>(
    api: Api<K>,
    name: &str,
    deadline: Duration,
    is_wanted: impl Fn(Option<&K>) -> bool,
) -> Result<Option<K>, E2eError>
where
    K: Clone + Debug + DeserializeOwned + Send + Serialize + 'static,
    K: Resource<DynamicType = ()>,
{
    let mut last_seen = "nothing yet".to_owned();
    let mut states = pin!(watch_object(api, name).default_backoff());
    let seen = async {
        while let Some(state) = states.next().await {
            match state {
                Ok(object) if is_wanted(object.as_ref()) => return Some(object),
                Ok(Some(object)) => last_seen = shown(&object),
                Ok(None) => "no such object".clone_into(&mut last_seen),
                Err(error) => last_seen = format!("{last_seen}; then the watch failed: {error}"),
            }
            last_seen = head(&last_seen, MAX_SEEN);
        }
        None
    };
    match tokio::time::timeout(deadline, seen).await {
        Ok(Some(object)) => Ok(object),
        Ok(None) | Err(_) => Err(E2eError::Deadline {
            what: format!("{} {name}", K::kind(&())),
            waited: deadline,
            last_seen,
        }),
    }
}

/// Returns whether a pod is ready; for waits.
pub fn is_ready(pod: Option<&Pod>) -> bool {
    has_condition(pod, "Ready")
}

/// Returns a predicate for the phase of a pod; for waits.
pub fn phase_is(phase: &str) -> impl Fn(Option<&Pod>) -> bool {
    move |pod| {
        let status = pod.and_then(|pod| pod.status.as_ref());
        status.and_then(|status| status.phase.as_deref()) == Some(phase)
    }
}

/// Returns whether an object of any kind has a condition of this type that is true; for waits.
pub fn has_condition<K: Serialize>(object: Option<&K>, kind: &str) -> bool {
    let Some(Ok(object)) = object.map(serde_json::to_value) else {
        return false;
    };
    let conditions = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    conditions.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|condition| condition["type"] == kind && condition["status"] == "True")
    })
}

/// Formats the status of an object, or all of it if it has none.
fn shown<K: Serialize>(object: &K) -> String {
    match serde_json::to_value(object) {
        Ok(value) => match value.get("status") {
            Some(status) => status.to_string(),
            None => value.to_string(),
        },
        Err(error) => format!("an object that cannot be shown: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: &Value) -> Pod {
        serde_json::from_value(serde_json::json!({"metadata": {}, "status": status})).unwrap()
    }

    #[test]
    fn conditions_are_found_by_type_and_status() {
        let ready = pod(&serde_json::json!({"conditions": [{"type": "Ready", "status": "True"}]}));
        let unready =
            pod(&serde_json::json!({"conditions": [{"type": "Ready", "status": "False"}]}));
        assert!(is_ready(Some(&ready)));
        assert!(!is_ready(Some(&unready)));
        assert!(!is_ready(None));
        assert!(!has_condition(Some(&ready), "Initialized"));
    }

    #[test]
    fn phases_are_distinguished() {
        let running = pod(&serde_json::json!({"phase": "Running"}));
        assert!(phase_is("Running")(Some(&running)));
        assert!(!phase_is("Pending")(Some(&running)));
        assert!(!phase_is("Running")(None));
    }
}
