//! One pod, as the API server and the runtime have it, and the next step towards agreement.
//!
//! The order of what becomes known does not matter: each step follows from the two states alone.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::runtime::{PodId, RuntimePod};
use crate::status::{self, StatusContext};
use crate::watched::WatchedPod;

/// The grace of a pod that the API server never had, as a kubelet's.
const ORPHAN_GRACE: Duration = Duration::from_secs(1);

/// The grace where the pod has none.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// The least grace: a process gets a signal and a moment.
const MIN_GRACE: Duration = Duration::from_secs(1);

/// A pod that the API server or the runtime has.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: PodId,
    /// The object, while the API server has it.
    pub(super) api: Option<Arc<WatchedPod>>,
    /// The last object, for the grace of a pod that is gone.
    pub(super) last: Option<Arc<WatchedPod>>,
    pub(super) runtime: Option<RuntimePod>,
    /// The number of the last change of `runtime`.
    pub(super) changed: u64,
    /// The object that the runtime works on.
    pub(super) synced: Option<Arc<Pod>>,
    /// Why the node does not run the pod.
    pub(super) rejection: Option<(String, String)>,
    /// The grace of the termination that was requested.
    pub(super) grace: Option<Duration>,
    /// When the node accepted the pod.
    pub(super) started: Option<Time>,
    /// The status that was applied last, and the monotonic time.
    pub(super) applied: Option<(PodStatus, Duration)>,
    /// The monotonic time at which the deletion was requested.
    pub(super) deleted: Option<Duration>,
}

/// What to do next with a pod.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing until something changes.
    Wait,
    /// Nothing until then.
    WaitFor(Duration),
    /// Forget the pod: nobody has it.
    Forget,
    Sync(Arc<Pod>),
    Terminate(Duration),
    Remove,
    WriteStatus(Box<PodStatus>),
    /// Delete the object with grace 0.
    Delete,
}

/// What the steps of all pods depend on.
#[derive(Debug, Clone)]
pub(super) struct StepContext<'a> {
    pub(super) host_ip: Option<&'a str>,
    pub(super) now: Time,
    pub(super) monotonic: Duration,
    pub(super) overwrite_interval: Duration,
}

impl Entry {
    pub(super) fn new(id: PodId) -> Self {
        Self {
            id,
            api: None,
            last: None,
            runtime: None,
            changed: 0,
            synced: None,
            rejection: None,
            grace: None,
            started: None,
            applied: None,
            deleted: None,
        }
    }

    /// Whether the pod takes one of the places of the node.
    pub(super) fn takes_place(&self) -> bool {
        self.synced.is_some()
            && self.rejection.is_none()
            && self
                .api
                .as_ref()
                .is_some_and(|api| !status::is_terminal(status::phase(&api.pod)))
    }

    /// Returns the next step.
    pub(super) fn next_step(&self, context: &StepContext<'_>) -> Step {
        let is_running = self.runtime.as_ref().is_some_and(|pod| !pod.is_terminated);
        let Some(api) = &self.api else {
            return match &self.runtime {
                None => Step::Forget,
                Some(_) if is_running => self.terminate(self.orphan_grace()),
                Some(_) => Step::Remove,
            };
        };
        let pod = &api.pod;
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        let is_terminal = status::is_terminal(status::phase(pod));
        if !is_deleted && !is_terminal {
            return self.keep(pod, context);
        }
        if is_running {
            let step = self.terminate(grace(pod));
            if step != Step::Wait {
                return step;
            }
            // Containers that end one after another are shown; a terminal phase waits for the last.
            return self.write(self.status(pod, context), pod, context);
        }
        if !is_terminal {
            return self.write(self.ended_status(pod, context), pod, context);
        }
        if !is_deleted {
            // Its logs can be read until the object is deleted.
            return match &self.runtime {
                Some(_) => self.write(self.ended_status(pod, context), pod, context),
                None => Step::Wait,
            };
        }
        if self.runtime.is_some() {
            return Step::Remove;
        }
        match self.deleted {
            None => Step::Delete,
            // A finalizer may hold it, or the watch is late.
            Some(at) => {
                let again = Duration::from_mins(1);
                match again.checked_sub(context.monotonic.saturating_sub(at)) {
                    Some(wait) if !wait.is_zero() => Step::WaitFor(wait),
                    _ => Step::Delete,
                }
            }
        }
    }

    /// The next step of a pod that should run.
    fn keep(&self, pod: &Arc<Pod>, context: &StepContext<'_>) -> Step {
        if let Some((reason, message)) = &self.rejection {
            let desired = status::rejected(pod, reason, message, &self.context(context));
            return self.write(desired, pod, context);
        }
        let is_synced = self
            .synced
            .as_ref()
            .is_some_and(|synced| is_same_work(synced, pod));
        if !is_synced {
            return Step::Sync(Arc::clone(pod));
        }
        match &self.runtime {
            None => Step::Wait,
            Some(runtime) if runtime.is_terminated => {
                self.write(self.ended_status(pod, context), pod, context)
            }
            Some(_) => self.write(self.status(pod, context), pod, context),
        }
    }

    /// Terminates with a grace that is shorter than any before.
    fn terminate(&self, grace: Duration) -> Step {
        match self.grace {
            Some(before) if before <= grace => Step::Wait,
            _ => Step::Terminate(grace),
        }
    }

    fn orphan_grace(&self) -> Duration {
        self.last
            .as_ref()
            .map_or(ORPHAN_GRACE, |last| grace(&last.pod))
    }

    fn write(&self, desired: PodStatus, pod: &Pod, context: &StepContext<'_>) -> Step {
        if status::is_written(pod, &desired) {
            return Step::Wait;
        }
        if let Some((applied, at)) = &self.applied
            && status::is_same_write(applied, &desired)
        {
            // Another client overwrites it, or the server changes what it stores: no fight.
            let since = context.monotonic.saturating_sub(*at);
            if let Some(wait) = context.overwrite_interval.checked_sub(since)
                && !wait.is_zero()
            {
                return Step::WaitFor(wait);
            }
        }
        Step::WriteStatus(Box::new(desired))
    }

    fn status(&self, pod: &Pod, context: &StepContext<'_>) -> PodStatus {
        let empty = PodStatus::default();
        let runtime = self.runtime.as_ref().map_or(&empty, |pod| &pod.status);
        status::desired(pod, runtime, &self.context(context))
    }

    /// The status of a pod that does not run any more. One that the runtime never had keeps what
    /// was written of its containers.
    fn ended_status(&self, pod: &Pod, context: &StepContext<'_>) -> PodStatus {
        let context = self.context(context);
        match (&self.runtime, &pod.status) {
            (Some(runtime), _) => status::ended(pod, &runtime.status, &context),
            (None, Some(written)) => status::ended(pod, &status::own_part(written), &context),
            (None, None) => status::ended(pod, &PodStatus::default(), &context),
        }
    }

    fn context<'a>(&'a self, context: &'a StepContext<'_>) -> StatusContext<'a> {
        let generation = self.synced.as_ref().and_then(|pod| pod.metadata.generation);
        let api = self
            .api
            .as_ref()
            .and_then(|api| api.pod.metadata.generation);
        StatusContext {
            host_ip: context.host_ip,
            started: self.started.as_ref().or(Some(&context.now)),
            generation: generation.or(api),
            now: &context.now,
        }
    }
}

/// The time that a pod has to end.
fn grace(pod: &Pod) -> Duration {
    let spec = pod.spec.as_ref();
    let seconds = pod
        .metadata
        .deletion_grace_period_seconds
        .or_else(|| spec.and_then(|spec| spec.termination_grace_period_seconds));
    let grace = seconds.map_or(DEFAULT_GRACE, |seconds| {
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    });
    grace.max(MIN_GRACE)
}

/// Whether the runtime has nothing to do for a new version of an object.
fn is_same_work(synced: &Pod, pod: &Pod) -> bool {
    synced.spec == pod.spec
        && synced.metadata.labels == pod.metadata.labels
        && synced.metadata.annotations == pod.metadata.annotations
}

#[cfg(test)]
mod tests;
