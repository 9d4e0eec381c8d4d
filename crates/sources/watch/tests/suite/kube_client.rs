//! The same streams over kube's client.

use http::Request;
use kubevitals_model::PodSummary;
use kubevitals_watch::{KubeTransport, RestartReason, Transport, WatchClient, WatchSpec};

use crate::fake::{Fake, pass, view, within};

/// A kube client on top of the in-memory server.
fn server(fake: &Fake) -> WatchClient {
    let fake = fake.clone();
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let fake = fake.clone();
        async move { fake.get(request.map(drop)).await }
    });
    WatchClient::new(KubeTransport::from_client(kube::Client::new(
        service, "default",
    )))
}

#[tokio::test(start_paused = true)]
async fn a_reflector_runs_over_a_kube_client() {
    let fake = Fake::new();
    fake.put("a");
    let pods = server(&fake).reflector(WatchSpec::<PodSummary>::new("pods"));
    assert!(within("a first list", pods.synced()).await);
    fake.put("b");
    pass(1).await;
    assert_eq!(view(&pods.objects()), fake.objects());
    fake.break_watches();
    fake.delete("a");
    fake.compact();
    pass(10).await;
    assert_eq!(view(&pods.objects()), fake.objects());
    let restarts = pods.state().restarts;
    assert_eq!(restarts.get(&RestartReason::ConnectionLost), Some(&1));
    assert_eq!(restarts.get(&RestartReason::Expired), Some(&1));
}
