//! Injected faults of the API server.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use parking_lot::{Mutex, MutexGuard};

use super::request::RequestInfo;
use super::status::ApiError;

/// A fault that affects some requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestFault {
    /// Only requests with this verb: `get`, `list`, `watch`, `create`, …
    pub verb: Option<String>,
    /// Only requests for this resource, such as `pods`.
    pub resource: Option<String>,
    /// The share of those requests that are affected.
    pub extent: Extent,
    pub effect: Effect,
}

/// Number of requests that a fault affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All of them.
    Always,
    /// The next requests, up to this number.
    Next(u64),
    /// This many of each thousand, evenly spread.
    PerMille(u16),
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

/// Identifies a fault, to remove it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FaultId(u64);

#[derive(Debug, Default)]
pub(crate) struct Faults {
    active: Mutex<Vec<Active>>,
    next: AtomicU64,
    frozen_bookmarks: AtomicBool,
    streaming_lists_rejected: AtomicBool,
}

#[derive(Debug)]
struct Active {
    id: FaultId,
    fault: RequestFault,
    /// Progress of a share towards its next hit, in thousandths.
    progress: u16,
}

impl RequestFault {
    /// Affects every request.
    pub fn always(effect: Effect) -> Self {
        Self {
            verb: None,
            resource: None,
            extent: Extent::Always,
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
    pub fn to(mut self, extent: Extent) -> Self {
        self.extent = extent;
        self
    }

    fn is_about(&self, request: &RequestInfo) -> bool {
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
    pub(crate) fn add(&self, fault: RequestFault) -> FaultId {
        let id = FaultId(self.next.fetch_add(1, Ordering::Relaxed));
        self.lock().push(Active {
            id,
            fault,
            progress: 0,
        });
        id
    }

    pub(crate) fn remove(&self, id: FaultId) {
        self.lock().retain(|active| active.id != id);
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
        self.freeze_bookmarks(false);
        self.reject_streaming_lists(false);
    }

    pub(crate) fn freeze_bookmarks(&self, frozen: bool) {
        self.frozen_bookmarks.store(frozen, Ordering::Relaxed);
    }

    pub(crate) fn bookmarks_are_frozen(&self) -> bool {
        self.frozen_bookmarks.load(Ordering::Relaxed)
    }

    pub(crate) fn reject_streaming_lists(&self, refused: bool) {
        self.streaming_lists_rejected
            .store(refused, Ordering::Relaxed);
    }

    pub(crate) fn rejects_streaming_lists(&self) -> bool {
        self.streaming_lists_rejected.load(Ordering::Relaxed)
    }

    /// Returns the delay of a request, and the error that it then fails with.
    pub(crate) fn hit(&self, request: &RequestInfo) -> (Duration, Option<ApiError>) {
        let mut delay = Duration::ZERO;
        let mut failure = None;
        let mut active = self.lock();
        for entry in active
            .iter_mut()
            .filter(|entry| entry.fault.is_about(request))
        {
            let hits = match &mut entry.fault.extent {
                Extent::Always => true,
                Extent::Next(0) => false,
                Extent::Next(left) => {
                    *left -= 1;
                    true
                }
                Extent::PerMille(share) => {
                    entry.progress += (*share).min(1000);
                    let hits = entry.progress >= 1000;
                    entry.progress %= 1000;
                    hits
                }
            };
            match entry.fault.effect {
                _ if !hits => {}
                Effect::Delay(duration) => delay += duration,
                effect => failure = failure.or_else(|| effect.error()),
            }
        }
        active.retain(|entry| entry.fault.extent != Extent::Next(0));
        (delay, failure)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Active>> {
        self.active.lock()
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
    fn a_share_is_exact() {
        let faults = Faults::default();
        faults.add(RequestFault::always(Effect::InternalError).to(Extent::PerMille(250)));
        let hits = (0..1000)
            .filter(|_| faults.hit(&list_pods()).1.is_some())
            .count();
        assert_eq!(hits, 250);
    }

    #[test]
    fn a_number_is_used_up() {
        let faults = Faults::default();
        let fault = RequestFault::always(Effect::TooManyRequests(3))
            .on_verb("list")
            .on_resource("pods");
        faults.add(fault.clone().to(Extent::Next(2)));
        let nodes = RequestInfo::parse(&Method::GET, "/api/v1/nodes", &Parameters::default());
        assert_eq!(faults.hit(&nodes).1, None);
        let hits: Vec<bool> = (0..3)
            .map(|_| faults.hit(&list_pods()).1.is_some())
            .collect();
        assert_eq!(hits, [true, true, false]);
        let id = faults.add(fault);
        faults.remove(id);
        assert_eq!(faults.hit(&list_pods()).1, None);
    }
}
