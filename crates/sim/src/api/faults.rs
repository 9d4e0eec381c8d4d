//! Injected faults of the API server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;

use super::request::RequestInfo;
use super::status::ApiError;

/// A fault that affects some requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestFault {
    /// Only requests with this verb: `get`, `list`, `watch`, `create`, …
    pub verb: Option<String>,
    /// Only requests for this resource, such as `pods`.
    pub resource: Option<String>,
    /// Limit of affected requests; `None` for all.
    pub times: Option<u64>,
    pub effect: Effect,
}

/// The effect of a fault on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Responds 410 `Expired`.
    Expired,
    /// Responds 429 with `Retry-After`, in seconds.
    TooManyRequests(u64),
    /// Responds 500.
    InternalError,
    /// Responds 503.
    Unavailable,
    /// Delays the request.
    Delay(Duration),
}

#[derive(Debug, Default)]
pub(crate) struct Faults {
    active: Mutex<Vec<RequestFault>>,
    frozen_bookmarks: AtomicBool,
    streaming_lists_rejected: AtomicBool,
}

impl RequestFault {
    /// Affects every request.
    pub fn always(effect: Effect) -> Self {
        Self {
            verb: None,
            resource: None,
            times: None,
            effect,
        }
    }

    /// Limits the fault to requests with a verb.
    #[must_use]
    pub fn on_verb(mut self, verb: impl Into<String>) -> Self {
        self.verb = Some(verb.into());
        self
    }

    /// Limits the fault to requests for a resource.
    #[must_use]
    pub fn on_resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// Limits the number of affected requests.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    fn matches(&self, request: &RequestInfo) -> bool {
        let resource = request
            .target
            .as_ref()
            .map(|target| target.resource.as_str());
        self.verb.as_deref().is_none_or(|verb| verb == request.verb)
            && self
                .resource
                .as_deref()
                .is_none_or(|requested| Some(requested) == resource)
    }
}

impl Faults {
    pub(crate) fn add(&self, fault: RequestFault) {
        self.active.lock().push(fault);
    }

    pub(crate) fn clear(&self) {
        self.active.lock().clear();
        self.freeze_bookmarks(false);
        self.reject_streaming_lists(false);
    }

    pub(crate) fn freeze_bookmarks(&self, frozen: bool) {
        self.frozen_bookmarks.store(frozen, Ordering::Relaxed);
    }

    pub(crate) fn bookmarks_are_frozen(&self) -> bool {
        self.frozen_bookmarks.load(Ordering::Relaxed)
    }

    pub(crate) fn reject_streaming_lists(&self, rejected: bool) {
        self.streaming_lists_rejected
            .store(rejected, Ordering::Relaxed);
    }

    pub(crate) fn rejects_streaming_lists(&self) -> bool {
        self.streaming_lists_rejected.load(Ordering::Relaxed)
    }

    /// Returns the delay of a request, and the error that it then fails with.
    pub(crate) fn hit(&self, request: &RequestInfo) -> (Duration, Option<ApiError>) {
        let mut delay = Duration::ZERO;
        let mut failure = None;
        let mut active = self.active.lock();
        for fault in active.iter_mut().filter(|fault| fault.matches(request)) {
            match &mut fault.times {
                Some(0) => continue,
                Some(left) => *left -= 1,
                None => {}
            }
            match fault.effect {
                Effect::Delay(duration) => delay += duration,
                effect => failure = failure.or_else(|| effect.error()),
            }
        }
        active.retain(|fault| fault.times != Some(0));
        (delay, failure)
    }
}

impl Effect {
    fn error(self) -> Option<ApiError> {
        match self {
            Self::Expired => Some(ApiError::expired(
                "The resourceVersion for the provided watch is too old.",
            )),
            Self::TooManyRequests(seconds) => Some(ApiError::too_many_requests(seconds)),
            Self::InternalError => Some(ApiError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                "Internal error occurred: injected fault",
            )),
            Self::Unavailable => Some(ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
            )),
            Self::Delay(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::api::request::Parameters;

    fn list_pods() -> RequestInfo {
        RequestInfo::parse(&Method::GET, "/api/v1/pods", &Parameters::default())
    }

    #[test]
    fn a_fault_affects_the_given_number_of_requests() {
        let faults = Faults::default();
        let fault = RequestFault::always(Effect::TooManyRequests(3))
            .on_verb("list")
            .on_resource("pods");
        faults.add(fault.clone().times(2));
        let nodes = RequestInfo::parse(&Method::GET, "/api/v1/nodes", &Parameters::default());
        assert_eq!(faults.hit(&nodes).1, None);
        let hits: Vec<bool> = (0..3)
            .map(|_| faults.hit(&list_pods()).1.is_some())
            .collect();
        assert_eq!(hits, [true, true, false]);
        faults.add(fault);
        faults.clear();
        assert_eq!(faults.hit(&list_pods()).1, None);
    }
}
