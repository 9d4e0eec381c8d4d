//! Two replicas of `kubevitals server` on one simulated cluster, and a client that alternates
//! between them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use http::StatusCode;
use kubevitals_model::{SteppedClock, Timestamp};
use kubevitals_sim::api::ADDRESS_ANNOTATION;
use kubevitals_sim::cluster::SimCluster;
use kubevitals_sim::objects::Resource;
use serde_json::{Value, json};

use crate::server::{PODS, Running, cluster_of};
use crate::within;

/// More than the longest time between two samples of a container.
const SAMPLE_GAP: Duration = Duration::from_secs(20);

/// A step by much more than our time looks like a jump of the node's clock, which has no rate.
const MAX_STEP: Duration = Duration::from_secs(40);

/// Two scrapes of one slot end at different times: milliseconds apart, or more if the machine is
/// busy. A client that finds a new replica too early would see older samples for most of the
/// resolution.
const SLOT_TOLERANCE: Duration = Duration::from_secs(3);

/// More than the steps until the restart, so that the time of the cluster does not overtake ours.
const BEHIND: Duration = Duration::from_secs(200);

const RESOLUTION: Duration = Duration::from_secs(5);
const FLAGS: [&str; 2] = ["--metric-resolution=5s", "--manage-apiservices"];

/// A cluster in which time passes in steps: kubelets sample nothing in between.
struct Cluster {
    sim: SimCluster,
    clock: SteppedClock,
}

/// The newest sample of each pod that a client has seen, and when it saw it first.
#[derive(Default)]
struct Client {
    newest: BTreeMap<String, (String, Instant)>,
}

impl Cluster {
    async fn start() -> Self {
        let start = SystemTime::now() - BEHIND;
        let clock = SteppedClock::new(Timestamp::from_system_time(start));
        let sim = cluster_of(1, 4, clock.clock()).await;
        Self { sim, clock }
    }

    /// Creates the APIServices, which `server` serves, and waits until they are available.
    async fn register(&self, server: &Running) {
        let api = self.sim.api();
        for version in ["v1", "v1beta1"] {
            let object = json!({
                "metadata": {"name": format!("{version}.metrics.k8s.io"),
                             "annotations": {ADDRESS_ANNOTATION: server.address.to_string()}},
                "spec": {"group": "metrics.k8s.io", "version": version,
                         "groupPriorityMinimum": 100, "versionPriority": 100,
                         "service": {"namespace": "kube-system", "name": "metrics-server"}},
            });
            api.writer().create(Resource::ApiServices, object).unwrap();
        }
        let is_available = |name| {
            let object = api.object(Resource::ApiServices, None, name).unwrap();
            let conditions = object["status"]["conditions"].as_array().cloned();
            let mut conditions = conditions.unwrap_or_default().into_iter();
            conditions.any(|condition| condition["status"] == "True")
        };
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        let available = async {
            while !is_available("v1.metrics.k8s.io") {
                ticks.tick().await;
            }
        };
        within("the APIServices are available", available).await;
    }

    /// How far the time of the cluster is behind ours.
    fn behind(&self) -> Duration {
        let now = Timestamp::from_system_time(SystemTime::now());
        now.since(self.clock.now()).unwrap_or_default()
    }

    /// Lets kubelets sample once per resolution until servers are ready: rates need two samples.
    async fn until_ready(&self, servers: &[&Running]) {
        let mut resolutions = tokio::time::interval(RESOLUTION);
        resolutions.tick().await;
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        let ready = async {
            for server in servers {
                while server.get("/readyz", None).await.0 != StatusCode::OK {
                    tokio::select! {
                        _ = ticks.tick() => {}
                        _ = resolutions.tick() => {
                            self.clock.advance(SAMPLE_GAP);
                        }
                    }
                }
            }
        };
        within("the servers are ready", ready).await;
    }
}

impl Client {
    /// Reads all pods, and returns whether all samples are newer than those of `before`.
    async fn read(&mut self, server: &Running, before: &BTreeMap<String, String>) -> bool {
        let begun = Instant::now();
        let (status, body) = server.get_as_admin(PODS).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let list: Value = serde_json::from_str(&body).unwrap();
        let items = list["items"].as_array().unwrap();
        let mut is_newer = !items.is_empty();
        for item in items {
            let pod = item["metadata"]["name"].as_str().unwrap();
            let sampled = item["timestamp"].as_str().unwrap().to_owned();
            is_newer &= before.get(pod).is_none_or(|before| sampled > *before);
            match self.newest.get(pod) {
                Some((newest, seen)) if sampled < *newest => assert!(
                    begun < *seen + SLOT_TOLERANCE,
                    "{pod}: {sampled} after {newest}, {:?} later",
                    begun - *seen
                ),
                Some((newest, _)) if sampled == *newest => {}
                _ => drop(self.newest.insert(pod.to_owned(), (sampled, begun))),
            }
        }
        is_newer
    }

    fn samples(&self) -> BTreeMap<String, String> {
        let newest = self.newest.iter();
        newest
            .map(|(pod, (sampled, _))| (pod.clone(), sampled.clone()))
            .collect()
    }

    /// Alternates between the replicas that are ready until all of them serve newer samples than
    /// the client has seen. Clients find a replica once it is ready.
    async fn until_newer(&mut self, servers: &[&Running]) {
        let before = self.samples();
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        let all_newer = async {
            loop {
                let (mut ready, mut newer) = (0, 0);
                for server in servers {
                    ticks.tick().await;
                    if server.get("/readyz", None).await.0 == StatusCode::OK {
                        ready += 1;
                        newer += usize::from(self.read(server, &before).await);
                    }
                }
                if ready > 0 && newer == ready {
                    return;
                }
            }
        };
        within("all replicas serve newer samples", all_newer).await;
    }

    /// Lets kubelets sample, and reads the new samples. That ends just after a slot, so that no
    /// sample falls between two scrapes of the next one.
    async fn next_samples(&mut self, cluster: &Cluster, servers: &[&Running]) {
        if self.newest.is_empty() {
            for server in servers {
                self.read(server, &BTreeMap::new()).await;
            }
        }
        cluster.clock.advance(SAMPLE_GAP);
        self.until_newer(servers).await;
    }
}

/// The first scrapes of a new replica come at once: for up to a resolution it served newer samples
/// than the others, and a client that alternated saw samples go back by up to 19 s.
#[tokio::test]
async fn a_client_of_two_replicas_never_sees_an_older_sample_also_through_a_restart() {
    let cluster = Cluster::start().await;
    cluster.clock.advance(SAMPLE_GAP);
    let one = Running::start(&cluster.sim, &FLAGS).await;
    cluster.register(&one).await;
    let two = Running::start(&cluster.sim, &FLAGS).await;
    cluster.until_ready(&[&one, &two]).await;
    // It ends just after a slot.
    let mut other = Client::default();
    other.next_samples(&cluster, &[&one, &two]).await;
    let mut client = Client::default();
    client.next_samples(&cluster, &[&one, &two]).await;
    two.stop().await;
    // Samples close to our time: a new replica serves them after its first scrape.
    while cluster.behind() >= SAMPLE_GAP * 2 {
        let step = cluster.behind().saturating_sub(SAMPLE_GAP);
        cluster.clock.advance(step.min(MAX_STEP));
        client.until_newer(&[&one]).await;
    }
    cluster.clock.advance(cluster.behind().max(SAMPLE_GAP));
    let three = Running::start(&cluster.sim, &FLAGS).await;
    client.until_newer(&[&one, &three]).await;
    let mut rounds = 0;
    while three.get("/readyz", None).await.0 != StatusCode::OK {
        client.next_samples(&cluster, &[&one, &three]).await;
        rounds += 1;
        assert!(
            rounds < 12,
            "{}",
            three.get("/readyz?verbose", None).await.1
        );
    }
    client.next_samples(&cluster, &[&one, &three]).await;
    three.stop().await;
    one.stop().await;
    cluster.sim.shutdown().await;
}
