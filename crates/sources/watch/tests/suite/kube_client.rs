//! The same streams over kube's client.

use http::Request;
use kubevitals_model::PodSummary;
use kubevitals_watch::{KubeTransport, Restart, Server, StreamSpec, Transport};

use crate::fake::{Fake, pass, view};

/// kube's client, answered by the server in memory.
fn server(fake: &Fake) -> Server {
    let fake = fake.clone();
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let fake = fake.clone();
        async move { fake.get(request.map(drop)).await }
    });
    Server::new(KubeTransport::from_client(kube::Client::new(
        service, "default",
    )))
}

#[tokio::test(start_paused = true)]
async fn a_stream_runs_over_the_client_of_kube() {
    let fake = Fake::new();
    fake.put("a");
    let pods = server(&fake).watch(StreamSpec::<PodSummary>::new("pods"));
    assert!(pods.synced().await);
    fake.put("b");
    pass(1).await;
    assert_eq!(view(&pods.objects()), fake.objects());
    fake.break_watches();
    fake.delete("a");
    fake.compact();
    pass(10).await;
    assert_eq!(view(&pods.objects()), fake.objects());
    let restarts = pods.state().restarts;
    assert_eq!(restarts.get(&Restart::Broken), Some(&1));
    assert_eq!(restarts.get(&Restart::Expired), Some(&1));
}
