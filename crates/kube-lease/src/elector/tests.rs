//! The elector on an in-memory API server, with paused time.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use kube_client_metrics::hooks::LeaderElection;
use serde_json::json;
use tokio::time::advance;

use super::*;

/// An API server that has at most one Lease.
#[derive(Clone, Default)]
struct FakeApi(Arc<Mutex<FakeState>>);

#[derive(Default)]
struct FakeState {
    lease: Option<Lease>,
    version: u64,
    requests: Vec<Method>,
    /// The status of every response, if set.
    error: Option<StatusCode>,
    /// Whether requests get no response.
    hangs: bool,
}

/// The calls of the hook.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<&'static str>>>);

impl LeaderElection for Recorder {
    fn on(&self, _: &str) {
        self.0.lock().unwrap().push("on");
    }

    fn off(&self, _: &str) {
        self.0.lock().unwrap().push("off");
    }

    fn slowpath_exercised(&self, _: &str) {
        self.0.lock().unwrap().push("slow");
    }
}

impl FakeApi {
    fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.respond(request).await) }
        });
        Client::new(service, "default")
    }

    async fn respond(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        if self.0.lock().unwrap().hangs {
            std::future::pending::<()>().await;
        }
        let mut state = self.0.lock().unwrap();
        state.requests.push(head.method.clone());
        if let Some(status) = state.error {
            return error_response(status);
        }
        let had = state.lease.clone();
        let lease = match (head.method, had) {
            (Method::GET, Some(lease)) => return response(StatusCode::OK, &lease),
            (Method::GET | Method::PUT, None) => return error_response(StatusCode::NOT_FOUND),
            (Method::POST, Some(_)) => return error_response(StatusCode::CONFLICT),
            (_, had) => {
                let lease: Lease = serde_json::from_slice(&body).unwrap();
                let version = had.and_then(|had| had.metadata.resource_version);
                if version.is_some() && version != lease.metadata.resource_version {
                    return error_response(StatusCode::CONFLICT);
                }
                lease
            }
        };
        state.version += 1;
        let version = state.version.to_string();
        let stored = state.lease.insert(lease);
        stored.metadata.resource_version = Some(version);
        response(StatusCode::OK, &stored.clone())
    }

    fn spec(&self) -> LeaseSpec {
        let state = self.0.lock().unwrap();
        state.lease.clone().unwrap().spec.unwrap()
    }

    fn set(&self, change: impl FnOnce(&mut FakeState)) {
        change(&mut self.0.lock().unwrap());
    }

    /// The requests since the last call.
    fn requests(&self) -> Vec<Method> {
        std::mem::take(&mut self.0.lock().unwrap().requests)
    }
}

impl Recorder {
    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn response(status: StatusCode, lease: &Lease) -> Response<Body> {
    let body = serde_json::to_vec(lease).unwrap();
    Response::builder()
        .status(status)
        .body(Body::from(body))
        .unwrap()
}

fn error_response(status: StatusCode) -> Response<Body> {
    let reason = status.canonical_reason().unwrap().replace(' ', "");
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": reason,
        "code": status.as_u16(),
    });
    let body = body.to_string().into_bytes();
    Response::builder()
        .status(status)
        .body(Body::from(body))
        .unwrap()
}

fn candidate(api: &FakeApi, identity: &str) -> (Elector, Recorder) {
    let recorder = Recorder::default();
    let hooks = Hooks::default().with_leader_election(recorder.clone());
    let election = Election::new("default", "it", identity);
    let elector = Elector::new(api.client(), election, &hooks).unwrap();
    assert_eq!(recorder.take(), ["off"]);
    (elector, recorder)
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn the_first_candidate_creates_the_lease_and_renews_it_with_one_request() {
    let api = FakeApi::default();
    let (mut elector, calls) = candidate(&api, "a");
    elector.acquire().await;
    assert!(elector.is_leader());
    assert_eq!(elector.holder(), Some("a"));
    assert_eq!(calls.take(), ["on"]);
    assert_eq!(api.requests(), [Method::GET, Method::POST]);
    let acquired = api.spec();
    assert_eq!(acquired.lease_duration_seconds, Some(15));
    assert_eq!(acquired.lease_transitions, Some(0));
    let held = timeout(11 * SECOND, elector.hold()).await;
    assert!(held.is_err(), "still held");
    assert_eq!(api.requests(), vec![Method::PUT; 5]);
    assert_eq!(calls.take(), [""; 0]);
    assert_eq!(api.spec().acquire_time, acquired.acquire_time);
}

#[tokio::test(start_paused = true)]
async fn a_lease_expires_once_it_was_not_observed_to_change_for_its_duration() {
    let api = FakeApi::default();
    let (mut first, _) = candidate(&api, "a");
    first.acquire().await;
    let (mut second, calls) = candidate(&api, "b");
    // Observed now for the first time: the times written in it do not matter.
    let started = Instant::now();
    second.acquire().await;
    let waited = started.elapsed();
    assert!(waited >= 15 * SECOND, "{waited:?}");
    assert!(waited <= 20 * SECOND, "{waited:?}");
    assert_eq!(calls.take(), ["on"]);
    let spec = api.spec();
    assert_eq!(spec.holder_identity.as_deref(), Some("b"));
    assert_eq!(spec.lease_transitions, Some(1));
    // The first notices with its next attempt, before its deadline.
    let started = Instant::now();
    first.renewed_at = Some(started);
    first.hold().await;
    assert!(!first.is_leader());
    assert_eq!(started.elapsed(), 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_is_not_acquired_by_another() {
    let api = FakeApi::default();
    let (mut first, _) = candidate(&api, "a");
    first.acquire().await;
    let (mut second, calls) = candidate(&api, "b");
    let both = async {
        tokio::select! {
            () = first.hold() => panic!("the holder lost it"),
            () = second.acquire() => panic!("another candidate acquired it"),
        }
    };
    assert!(timeout(200 * SECOND, both).await.is_err());
    assert_eq!(calls.take(), [""; 0]);
    assert_eq!(second.holder(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_at_the_renew_deadline() {
    for hangs in [false, true] {
        let api = FakeApi::default();
        let (mut elector, calls) = candidate(&api, "a");
        elector.acquire().await;
        let started = Instant::now();
        api.set(|state| {
            state.hangs = hangs;
            state.error = Some(StatusCode::INTERNAL_SERVER_ERROR);
        });
        elector.hold().await;
        assert_eq!(started.elapsed(), 10 * SECOND, "hangs: {hangs}");
        assert!(!elector.is_leader());
        assert_eq!(calls.take(), ["on", "off"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_does_not_end_leadership() {
    let api = FakeApi::default();
    let (mut elector, calls) = candidate(&api, "a");
    elector.acquire().await;
    api.set(|state| state.error = Some(StatusCode::INTERNAL_SERVER_ERROR));
    assert!(timeout(7 * SECOND, elector.hold()).await.is_err());
    api.set(|state| state.error = None);
    assert!(timeout(60 * SECOND, elector.hold()).await.is_err());
    assert!(elector.is_leader());
    assert_eq!(calls.take(), ["on"]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_others_changed_is_read_before_it_is_renewed() {
    let api = FakeApi::default();
    let (mut elector, calls) = candidate(&api, "a");
    elector.acquire().await;
    api.set(|state| {
        let lease = state.lease.as_mut().unwrap();
        lease.metadata.resource_version = Some("77".to_owned());
        lease.metadata.labels = Some([("owner".to_owned(), "other".to_owned())].into());
        state.requests.clear();
    });
    assert!(timeout(3 * SECOND, elector.hold()).await.is_err());
    assert_eq!(api.requests(), [Method::PUT, Method::GET, Method::PUT]);
    assert_eq!(calls.take(), ["on", "slow"]);
    let lease = api.0.lock().unwrap().lease.clone().unwrap();
    assert!(lease.metadata.labels.is_some(), "fields of others are kept");
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_can_be_acquired_at_once() {
    let api = FakeApi::default();
    let (mut first, calls) = candidate(&api, "a");
    first.acquire().await;
    let (mut second, _) = candidate(&api, "b");
    assert!(timeout(SECOND, second.acquire()).await.is_err());
    first.release().await;
    assert!(!first.is_leader());
    assert_eq!(calls.take(), ["on", "off"]);
    assert_eq!(api.spec().holder_identity, None);
    let started = Instant::now();
    second.acquire().await;
    assert_eq!(started.elapsed(), Duration::ZERO);
    // A second release does nothing, and does not touch the lease of another holder.
    first.release().await;
    assert_eq!(api.spec().holder_identity.as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn release_retries_after_a_renewal_that_was_not_awaited() {
    let api = FakeApi::default();
    let (mut elector, _) = candidate(&api, "a");
    elector.acquire().await;
    api.set(|state| {
        let lease = state.lease.as_mut().unwrap();
        lease.metadata.resource_version = Some("78".to_owned());
    });
    elector.release().await;
    assert_eq!(api.spec().holder_identity, None);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_elector_no_longer_leads() {
    let api = FakeApi::default();
    let (mut elector, calls) = candidate(&api, "a");
    elector.acquire().await;
    drop(elector);
    assert_eq!(calls.take(), ["on", "off"]);
    // The same candidate does not wait for its own lease after a restart.
    let (mut elector, calls) = candidate(&api, "a");
    advance(SECOND).await;
    elector.acquire().await;
    assert_eq!(calls.take(), ["slow", "on"]);
    assert_eq!(api.spec().lease_transitions, Some(0));
}

#[tokio::test(start_paused = true)]
async fn annotations_of_a_leader_are_read_by_the_next_before_it_leads() {
    type Notes = Arc<Mutex<Vec<Option<String>>>>;
    fn with_callbacks(elector: Elector, prefix: &'static str, seen: &Notes) -> Elector {
        let seen = Arc::clone(seen);
        let count = Mutex::new(0);
        elector
            .with_annotations(move || {
                let mut count = count.lock().unwrap();
                *count += 1;
                BTreeMap::from([("example.com/at".to_owned(), format!("{prefix}{count}"))])
            })
            .with_reader(move |lease| {
                let annotations = lease.metadata.annotations.as_ref();
                let value = annotations.and_then(|all| all.get("example.com/at").cloned());
                seen.lock().unwrap().push(value);
            })
    }
    let api = FakeApi::default();
    let (by_a, by_b) = (Notes::default(), Notes::default());
    let mut a = with_callbacks(candidate(&api, "a").0, "a", &by_a);
    let mut b = with_callbacks(candidate(&api, "b").0, "b", &by_b);
    a.acquire().await;
    assert_eq!(
        *by_a.lock().unwrap(),
        [None],
        "nothing is written when it is acquired"
    );
    // Another client writes too: the cached lease is outdated and read again.
    api.set(|state| {
        state.version += 1;
        let version = state.version.to_string();
        let lease = state.lease.as_mut().unwrap();
        let other = ("example.com/other".to_owned(), "stays".to_owned());
        lease.metadata.annotations = Some(BTreeMap::from([other]));
        lease.metadata.resource_version = Some(version);
    });
    let _ = timeout(3 * SECOND, a.hold()).await;
    assert_eq!(by_a.lock().unwrap().last().unwrap().as_deref(), Some("a2"));
    a.release().await;
    assert_eq!(by_a.lock().unwrap().last().unwrap().as_deref(), Some("a3"));

    b.acquire().await;
    let seen = by_b.lock().unwrap().clone();
    assert!(
        seen.iter().all(|value| value.as_deref() == Some("a3")),
        "{seen:?}"
    );
    let _ = timeout(3 * SECOND, b.hold()).await;
    assert_eq!(by_b.lock().unwrap().last().unwrap().as_deref(), Some("b1"));
    let state = api.0.lock().unwrap();
    let annotations = state.lease.clone().unwrap().metadata.annotations.unwrap();
    assert_eq!(annotations["example.com/other"], "stays");
}
