//! Over a Lease in memory, with stepped time.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::json;
use tokio::time::advance;

use super::*;
use crate::hooks::LeaderElection;

/// An API server that has one Lease at most.
#[derive(Clone, Default)]
struct Cluster(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    lease: Option<Lease>,
    version: u64,
    requests: Vec<Method>,
    /// Every request is answered with this.
    broken: Option<StatusCode>,
    /// No request is answered.
    hangs: bool,
}

/// What was told about leading.
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

impl Cluster {
    fn client(&self) -> Client {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let cluster = cluster.clone();
            async move { Ok::<_, Infallible>(cluster.answer(request).await) }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        if self.0.lock().unwrap().hangs {
            std::future::pending::<()>().await;
        }
        let mut inner = self.0.lock().unwrap();
        inner.requests.push(head.method.clone());
        if let Some(status) = inner.broken {
            return refusal(status);
        }
        let had = inner.lease.clone();
        let lease = match (head.method, had) {
            (Method::GET, Some(lease)) => return answer(StatusCode::OK, &lease),
            (Method::GET | Method::PUT, None) => return refusal(StatusCode::NOT_FOUND),
            (Method::POST, Some(_)) => return refusal(StatusCode::CONFLICT),
            (_, had) => {
                let lease: Lease = serde_json::from_slice(&body).unwrap();
                let version = had.and_then(|had| had.metadata.resource_version);
                if version.is_some() && version != lease.metadata.resource_version {
                    return refusal(StatusCode::CONFLICT);
                }
                lease
            }
        };
        inner.version += 1;
        let version = inner.version.to_string();
        let stored = inner.lease.insert(lease);
        stored.metadata.resource_version = Some(version);
        answer(StatusCode::OK, &stored.clone())
    }

    fn spec(&self) -> LeaseSpec {
        let inner = self.0.lock().unwrap();
        inner.lease.clone().unwrap().spec.unwrap()
    }

    fn set(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.0.lock().unwrap());
    }

    /// The requests since the last call.
    fn requests(&self) -> Vec<Method> {
        std::mem::take(&mut self.0.lock().unwrap().requests)
    }
}

impl Recorder {
    fn told(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn answer(status: StatusCode, lease: &Lease) -> Response<Body> {
    let body = serde_json::to_vec(lease).unwrap();
    Response::builder()
        .status(status)
        .body(Body::from(body))
        .unwrap()
}

fn refusal(status: StatusCode) -> Response<Body> {
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

fn candidate(cluster: &Cluster, identity: &str) -> (Elector, Recorder) {
    let recorder = Recorder::default();
    let hooks = Hooks::default().with_leader_election(recorder.clone());
    let election = Election::new("default", "it", identity);
    let elector = Elector::new(cluster.client(), election, &hooks).unwrap();
    assert_eq!(recorder.told(), ["off"]);
    (elector, recorder)
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn the_first_creates_the_lease_and_renews_it_with_one_request() {
    let cluster = Cluster::default();
    let (mut elector, told) = candidate(&cluster, "a");
    elector.acquire().await;
    assert!(elector.is_leader());
    assert_eq!(elector.holder(), Some("a"));
    assert_eq!(told.told(), ["on"]);
    assert_eq!(cluster.requests(), [Method::GET, Method::POST]);
    let acquired = cluster.spec();
    assert_eq!(acquired.lease_duration_seconds, Some(15));
    assert_eq!(acquired.lease_transitions, Some(0));
    let held = timeout(11 * SECOND, elector.hold()).await;
    assert!(held.is_err(), "still held");
    assert_eq!(cluster.requests(), vec![Method::PUT; 5]);
    assert_eq!(told.told(), [""; 0]);
    assert_eq!(cluster.spec().acquire_time, acquired.acquire_time);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_taken_when_it_was_not_seen_to_change_for_its_duration() {
    let cluster = Cluster::default();
    let (mut first, _) = candidate(&cluster, "a");
    first.acquire().await;
    let (mut second, told) = candidate(&cluster, "b");
    // Seen now for the first time: whatever times are written in it, it counts from here.
    let begun = Instant::now();
    second.acquire().await;
    let waited = begun.elapsed();
    assert!(waited >= 15 * SECOND, "{waited:?}");
    assert!(waited <= 20 * SECOND, "{waited:?}");
    assert_eq!(told.told(), ["on"]);
    let spec = cluster.spec();
    assert_eq!(spec.holder_identity.as_deref(), Some("b"));
    assert_eq!(spec.lease_transitions, Some(1));
    // The first finds out with its next attempt, and not only at its deadline.
    let begun = Instant::now();
    first.renewed = Some(begun);
    first.hold().await;
    assert!(!first.is_leader());
    assert_eq!(begun.elapsed(), 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_is_not_taken() {
    let cluster = Cluster::default();
    let (mut first, _) = candidate(&cluster, "a");
    first.acquire().await;
    let (mut second, told) = candidate(&cluster, "b");
    let both = async {
        tokio::select! {
            () = first.hold() => panic!("the holder lost it"),
            () = second.acquire() => panic!("another took it"),
        }
    };
    assert!(timeout(200 * SECOND, both).await.is_err());
    assert_eq!(told.told(), [""; 0]);
    assert_eq!(second.holder(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn who_cannot_renew_stops_before_another_may_begin() {
    for hangs in [false, true] {
        let cluster = Cluster::default();
        let (mut elector, told) = candidate(&cluster, "a");
        elector.acquire().await;
        let begun = Instant::now();
        cluster.set(|inner| {
            inner.hangs = hangs;
            inner.broken = Some(StatusCode::INTERNAL_SERVER_ERROR);
        });
        elector.hold().await;
        assert_eq!(begun.elapsed(), 10 * SECOND, "hangs: {hangs}");
        assert!(!elector.is_leader());
        assert_eq!(told.told(), ["on", "off"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_failure_does_not_end_the_term() {
    let cluster = Cluster::default();
    let (mut elector, told) = candidate(&cluster, "a");
    elector.acquire().await;
    cluster.set(|inner| inner.broken = Some(StatusCode::INTERNAL_SERVER_ERROR));
    assert!(timeout(7 * SECOND, elector.hold()).await.is_err());
    cluster.set(|inner| inner.broken = None);
    assert!(timeout(60 * SECOND, elector.hold()).await.is_err());
    assert!(elector.is_leader());
    assert_eq!(told.told(), ["on"]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_others_touched_is_read_before_it_is_renewed() {
    let cluster = Cluster::default();
    let (mut elector, told) = candidate(&cluster, "a");
    elector.acquire().await;
    cluster.set(|inner| {
        let lease = inner.lease.as_mut().unwrap();
        lease.metadata.resource_version = Some("77".to_owned());
        lease.metadata.labels = Some([("of".to_owned(), "another".to_owned())].into());
        inner.requests.clear();
    });
    assert!(timeout(3 * SECOND, elector.hold()).await.is_err());
    assert_eq!(cluster.requests(), [Method::PUT, Method::GET, Method::PUT]);
    assert_eq!(told.told(), ["on", "slow"]);
    let lease = cluster.0.lock().unwrap().lease.clone().unwrap();
    assert!(lease.metadata.labels.is_some(), "what is not ours is kept");
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_is_free_at_once() {
    let cluster = Cluster::default();
    let (mut first, told) = candidate(&cluster, "a");
    first.acquire().await;
    let (mut second, _) = candidate(&cluster, "b");
    assert!(timeout(SECOND, second.acquire()).await.is_err());
    first.release().await;
    assert!(!first.is_leader());
    assert_eq!(told.told(), ["on", "off"]);
    assert_eq!(cluster.spec().holder_identity, None);
    let begun = Instant::now();
    second.acquire().await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    // Nothing is left to give back, and what is another's stays so.
    first.release().await;
    assert_eq!(cluster.spec().holder_identity.as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_nobody_waited_for_does_not_keep_the_lease_from_being_given_back() {
    let cluster = Cluster::default();
    let (mut elector, _) = candidate(&cluster, "a");
    elector.acquire().await;
    cluster.set(|inner| {
        let lease = inner.lease.as_mut().unwrap();
        lease.metadata.resource_version = Some("78".to_owned());
    });
    elector.release().await;
    assert_eq!(cluster.spec().holder_identity, None);
}

#[tokio::test(start_paused = true)]
async fn an_elector_that_goes_no_longer_leads() {
    let cluster = Cluster::default();
    let (mut elector, told) = candidate(&cluster, "a");
    elector.acquire().await;
    drop(elector);
    assert_eq!(told.told(), ["on", "off"]);
    // The same candidate after a restart need not wait for its own lease.
    let (mut elector, told) = candidate(&cluster, "a");
    advance(SECOND).await;
    elector.acquire().await;
    assert_eq!(told.told(), ["slow", "on"]);
    assert_eq!(cluster.spec().lease_transitions, Some(0));
}

#[tokio::test(start_paused = true)]
async fn what_a_leader_leaves_in_the_lease_is_read_by_the_next_before_it_leads() {
    type Notes = Arc<Mutex<Vec<Option<String>>>>;
    fn with_word(elector: Elector, says: &'static str, seen: &Notes) -> Elector {
        let seen = Arc::clone(seen);
        let count = Mutex::new(0);
        elector
            .with_annotations(move || {
                let mut count = count.lock().unwrap();
                *count += 1;
                BTreeMap::from([("example.com/at".to_owned(), format!("{says}{count}"))])
            })
            .with_reader(move |lease| {
                let annotations = lease.metadata.annotations.as_ref();
                let word = annotations.and_then(|all| all.get("example.com/at").cloned());
                seen.lock().unwrap().push(word);
            })
    }
    let cluster = Cluster::default();
    let (by_a, by_b) = (Notes::default(), Notes::default());
    let mut a = with_word(candidate(&cluster, "a").0, "a", &by_a);
    let mut b = with_word(candidate(&cluster, "b").0, "b", &by_b);
    a.acquire().await;
    assert_eq!(
        *by_a.lock().unwrap(),
        [None],
        "nothing is left when it is taken"
    );
    // Somebody else writes too: what is remembered is too old, and the lease is read again.
    cluster.set(|inner| {
        inner.version += 1;
        let version = inner.version.to_string();
        let lease = inner.lease.as_mut().unwrap();
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
        seen.iter().all(|word| word.as_deref() == Some("a3")),
        "{seen:?}"
    );
    let _ = timeout(3 * SECOND, b.hold()).await;
    assert_eq!(by_b.lock().unwrap().last().unwrap().as_deref(), Some("b1"));
    let inner = cluster.0.lock().unwrap();
    let annotations = inner.lease.clone().unwrap().metadata.annotations.unwrap();
    assert_eq!(annotations["example.com/other"], "stays");
}
