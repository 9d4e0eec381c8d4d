//! What a worker does for a pod: calls of the runtime, and requests to the API server.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::entry::Step;
use super::{Inner, Outcome, StepError, WATCH_LAG};
use crate::FIELD_MANAGER;
use crate::api_error::status_code;
use crate::metrics::{Operation, Updated};
use crate::runtime::{PodId, RuntimeError, RuntimeFuture};
use crate::watched::WatchedPod;

impl Inner {
    pub(super) async fn perform(&self, id: &PodId, step: Step) -> Result<Outcome, StepError> {
        match step {
            Step::Wait | Step::Forget => Ok(Outcome::Wait),
            Step::WaitFor(wait) => Ok(Outcome::WaitFor(wait)),
            Step::Sync(pod) => self.sync(id, pod).await,
            Step::Terminate(grace) => {
                let call = self.runtime.terminate_pod(id, grace);
                match self.call(Operation::terminate, call).await {
                    Err(StepError::Runtime(RuntimeError::NotFound(_))) => {
                        self.update(&id.uid, |entry| entry.runtime = None);
                    }
                    result => {
                        result?;
                        self.update(&id.uid, |entry| entry.grace = Some(grace));
                    }
                }
                Ok(Outcome::Continue)
            }
            Step::Remove => {
                match self
                    .call(Operation::remove, self.runtime.remove_pod(id))
                    .await
                {
                    Ok(()) | Err(StepError::Runtime(RuntimeError::NotFound(_))) => {}
                    Err(error) => return Err(error),
                }
                self.update(&id.uid, |entry| entry.runtime = None);
                Ok(Outcome::Continue)
            }
            Step::WriteStatus(status) => self.write_status(id, *status).await,
            Step::Delete => self.delete(id).await,
        }
    }

    async fn sync(&self, id: &PodId, pod: Arc<Pod>) -> Result<Outcome, StepError> {
        match self.call(Operation::sync, self.runtime.sync_pod(pod)).await {
            Ok(()) => Ok(Outcome::Continue),
            Err(StepError::Runtime(RuntimeError::Rejected { reason, message })) => {
                tracing::info!(pod = %id.key, reason, message, "pod is rejected");
                self.record(id, true, reason, message.clone());
                self.update(&id.uid, |entry| {
                    entry.rejection = Some((reason.to_owned(), message));
                });
                Ok(Outcome::Continue)
            }
            Err(error) => {
                self.update(&id.uid, |entry| entry.synced = None);
                self.record(
                    id,
                    true,
                    "FailedSync",
                    format!("error syncing pod, skipping: {error}"),
                );
                Err(error)
            }
        }
    }

    async fn write_status(&self, id: &PodId, status: PodStatus) -> Result<Outcome, StepError> {
        let Some(version) = self.resource_version(&id.uid) else {
            return Ok(Outcome::Continue);
        };
        let name = id.key.name();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), id.key.namespace());
        // With the version, a write never replaces what was not seen, such as a terminal phase.
        let object = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": &**name,
                "namespace": &**id.key.namespace(),
                "uid": id.uid.to_string(),
                "resourceVersion": version,
            },
            "status": status,
        });
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let result = pods
            .patch_status(name, &parameters, &Patch::Apply(object))
            .await;
        self.metrics.count_update(Updated::pod, result.is_ok());
        match result {
            Ok(pod) => {
                let now = self.settings.clock.moment().monotonic;
                let written = WatchedPod::new(pod).map(Arc::new);
                self.update(&id.uid, |entry| {
                    entry.applied = Some((status, now));
                    if let Some(written) = written {
                        entry.set_api_if_newer(written);
                    }
                });
                Ok(Outcome::Continue)
            }
            // The watch will say what happened.
            Err(error) if status_code(&error) == Some(404) => Ok(Outcome::WaitFor(WATCH_LAG)),
            Err(error) => Err(error.into()),
        }
    }

    async fn delete(&self, id: &PodId) -> Result<Outcome, StepError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), id.key.namespace());
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: Some(id.uid.to_string()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match pods.delete(id.key.name(), &parameters).await {
            Ok(_) => {}
            // It is gone, or another pod has its name.
            Err(error) if matches!(status_code(&error), Some(404 | 409)) => {}
            Err(error) => return Err(error.into()),
        }
        let now = self.settings.clock.moment().monotonic;
        self.update(&id.uid, |entry| entry.deleted = Some(now));
        Ok(Outcome::Continue)
    }

    /// Calls the runtime with a timeout.
    async fn call<T>(
        &self,
        operation: Operation,
        call: RuntimeFuture<'_, T>,
    ) -> Result<T, StepError> {
        let limit = self.settings.timing.runtime_timeout;
        let start = Instant::now();
        let result = timeout(limit, call).await;
        let is_ok = matches!(result, Ok(Ok(_)));
        self.metrics
            .count_operation(operation, is_ok, start.elapsed());
        match result {
            Ok(result) => Ok(result?),
            Err(_) => Err(StepError::Timeout(limit)),
        }
    }
}
