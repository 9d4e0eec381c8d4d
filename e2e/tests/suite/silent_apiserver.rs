//! A kube-apiserver that keeps its connections and answers nothing, as a stopped virtual machine
//! does.

use std::time::Duration;

use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kubevitals_e2e::{Burner, Cluster, MetricsApiServer, Rule, is_ready};
use tokio::time::Instant;

use crate::in_time;

/// Longer than the interval at which a dead connection is noticed.
const OUTAGE: Duration = Duration::from_secs(50);

/// Lines of the log for one outage: its begin, its end, and what each watch and lookup says about
/// its own.
const MAX_LINES: usize = 12;

const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Liveness probes with a token waited for a review that nobody answered, and failed; the watch was
/// taken for dead after six minutes; a client library logged an error every half minute.
#[tokio::test]
async fn the_server_stays_alive_and_its_watches_recover() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let alone = cluster.exclusive().await;
    let namespace = cluster.namespace("silent").await?;
    namespace.apply(&Burner::new("before").pod()).await?;
    namespace.wait_for::<Pod>("before", is_ready).await?;
    let mut server = MetricsApiServer::start(&namespace).await?;
    let direct = server.direct(&namespace).await?;
    let reader = namespace.access("reader", &[Rule::get(&["pods"])]).await?;
    let lines_before = server.log().lines().count();

    let paused = cluster.pause(&alone, "kube-apiserver").await?;
    let since = Instant::now();
    let mut slowest = Duration::ZERO;
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    while since.elapsed() < OUTAGE {
        ticks.tick().await;
        for token in [None, Some(reader.token())] {
            let sent = Instant::now();
            let alive = direct.get("/livez", token).await?;
            slowest = slowest.max(sent.elapsed());
            let body = String::from_utf8_lossy(&alive.body);
            assert_eq!(
                alive.status,
                StatusCode::OK,
                "after {:?}: {body}",
                since.elapsed()
            );
        }
    }
    drop(paused);
    println!("slowest /livez: {slowest:?}");

    let recovering = Instant::now();
    namespace.apply(&Burner::new("after").pod()).await?;
    let path = format!(
        "/apis/metrics.k8s.io/v1/namespaces/{}/pods/after",
        namespace.name()
    );
    in_time("a pod that was created after the outage", async {
        loop {
            ticks.tick().await;
            server.must_run().unwrap();
            if namespace.kubectl(&["get", "--raw", &path]).await.is_ok() {
                return;
            }
        }
    })
    .await;
    println!("served after {:?}", recovering.elapsed());
    let log = server.log();
    let logged: Vec<&str> = log.lines().skip(lines_before).collect();
    println!("{}", logged.join("\n"));
    assert!(logged.len() <= MAX_LINES, "{} lines", logged.len());
    server.stop(&namespace).await?;
    cluster.reconnect(&alone).await?;
    Ok(namespace.finish().await?)
}
