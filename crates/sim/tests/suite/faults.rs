//! Faults of the API server.

use std::io::ErrorKind;
use std::time::Duration;

use kubevitals_sim::api::{Effect, History, RequestFault};
use kubevitals_sim::objects::Resource;
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{add_pods, admin, sim};

#[tokio::test]
async fn injected_faults_fail_requests() {
    let sim = sim().await;
    let client = admin(&sim);
    for (effect, code, reason) in [
        (Effect::Expired, 410, "Expired"),
        (Effect::TooManyRequests(7), 429, "TooManyRequests"),
        (Effect::InternalError, 500, "InternalError"),
        (Effect::Unavailable, 503, "ServiceUnavailable"),
    ] {
        sim.inject(RequestFault::always(effect).on_resource("pods").times(1));
        assert_eq!(client.get("/api/v1/nodes").await.code, 200);
        let response = client.get("/api/v1/pods").await;
        assert_eq!(
            (response.status().0, response.status().1.as_str()),
            (code, reason)
        );
        if code == 429 {
            assert_eq!(response.headers["retry-after"], "7");
        }
        assert_eq!(client.get("/api/v1/pods").await.code, 200);
    }
    sim.inject(RequestFault::always(Effect::Delay(Duration::from_millis(
        30,
    ))));
    let start = tokio::time::Instant::now();
    client.get("/livez").await;
    assert!(start.elapsed() >= Duration::from_millis(30));
    sim.clear_faults();
    sim.shutdown().await;
}

#[tokio::test]
async fn a_restart_keeps_or_loses_history() {
    let mut sim = sim().await;
    add_pods(&sim, &["a"]);
    let version = sim.resource_version();
    let client = admin(&sim);
    let path = format!("/api/v1/pods?watch=1&resourceVersion={version}");
    let mut cut = client.watch(&path).await;
    sim.restart(History::Keep).await.unwrap();
    assert_eq!(cut.next().await, None);
    add_pods(&sim, &["b"]);
    assert_eq!(client.watch(&path).await.brief().await.unwrap().1, "b");
    sim.restart(History::Lose).await.unwrap();
    assert_eq!(
        client.watch(&path).await.next().await.unwrap()["object"]["code"],
        410
    );
    assert_eq!(sim.count(Resource::Pods), 2);
    let address = sim.address();
    sim.stop().await;
    assert!(TcpStream::connect(address).await.is_err());
    sim.resume().await.unwrap();
    assert_eq!(client.get("/livez").await.code, 200);
    sim.shutdown().await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_stopped_server_keeps_its_port() {
    let mut sim = sim().await;
    sim.stop().await;
    let taken = TcpSocket::new_v4().unwrap().bind(sim.address());
    assert_eq!(taken.unwrap_err().kind(), ErrorKind::AddrInUse);
    let rejected = TcpStream::connect(sim.address()).await;
    assert_eq!(rejected.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    sim.resume().await.unwrap();
    assert_eq!(admin(&sim).get("/livez").await.code, 200);
    sim.shutdown().await;
}
