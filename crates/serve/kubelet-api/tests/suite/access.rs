//! Who may do what, over TLS.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Method;
use kubevitals_kubelet_api::{AccessControl, TransportConfig};

use crate::client::Client;
use crate::recorded::{self, SUMMARY};
use crate::support::{Authority, Invented, Rules, Running, certificate, delegated, everything};

/// A server with TLS and access control.
async fn secured(access: AccessControl) -> (Running, Client, Arc<Invented>) {
    kubevitals_tls::install_crypto_provider();
    let invented = Arc::new(Invented {
        stats: Arc::new(recorded::summary(SUMMARY)),
        ..Invented::default()
    });
    let (certificate, ca) = certificate();
    let server = Running::with(everything(&invented), |config| {
        config.transport = TransportConfig::tls(certificate);
        config.access = access;
        config.debug = true;
    })
    .await;
    let client = Client::of(&server).tls(&ca);
    (server, client, invented)
}

const PATHS: [&str; 14] = [
    "/pods",
    "/runningpods/",
    "/metrics",
    "/metrics/resource",
    "/metrics/cadvisor",
    "/metrics/probes",
    "/stats/summary",
    "/healthz",
    "/configz",
    "/containerLogs/ns/short/app",
    "/exec/ns/pod/app?output=1&command=ls",
    "/attach/ns/pod/app?output=1",
    "/portForward/ns/pod",
    "/nothing",
];

#[tokio::test]
async fn strangers_are_rejected_everywhere() {
    let rules = Arc::new(Rules::default());
    let clients = Authority::new("clients");
    let (server, client, invented) = secured(delegated(&rules, Some(&clients))).await;
    let others = Authority::new("others");
    for path in PATHS {
        let response = client.get(path).await;
        assert_eq!(
            (response.code, response.text()),
            (401, "Unauthorized\n"),
            "{path}"
        );
        let bad = client.clone().with("authorization", "Bearer nonsense");
        assert_eq!(bad.get(path).await.code, 401, "{path}");
        let header = client.clone().with("x-remote-user", "operator");
        assert_eq!(header.get(path).await.code, 401, "{path}");
        let foreign = client.clone().showing(others.client("operator"));
        assert_eq!(foreign.get(path).await.code, 401, "{path}");
        assert_eq!(
            client.clone().token_of("nobody").get(path).await.code,
            403,
            "{path}"
        );
    }
    assert!(invented.executed.lock().is_none() && invented.logged.lock().is_none());
    server.stop().await;
}

#[tokio::test]
async fn whoever_may_read_metrics_may_not_run_commands() {
    let rules = Arc::new(Rules::default());
    let (server, client, invented) = secured(delegated(&rules, Some(&Authority::new("c")))).await;
    let scraper = client.clone().token_of("scraper");
    for path in [
        "/metrics",
        "/metrics/resource",
        "/metrics/cadvisor",
        "/stats/summary",
    ] {
        assert_eq!(scraper.get(path).await.code, 200, "{path}");
    }
    for path in [
        "/pods",
        "/healthz",
        "/configz",
        "/containerLogs/ns/short/app",
        "/exec/ns/pod/app?output=1&command=ls",
        "/attach/ns/pod/app?output=1",
        "/portForward/ns/pod",
    ] {
        assert_eq!(scraper.get(path).await.code, 403, "{path}");
    }
    // In the kubelet `get nodes/proxy` is enough for a WebSocket.
    let reader = client.clone().token_of("proxy-reader");
    assert_eq!(reader.get("/containerLogs/ns/short/app").await.code, 200);
    assert_eq!(
        reader.get("/pods").await.code,
        200,
        "as before Kubernetes 1.33"
    );
    assert_eq!(reader.get("/metrics").await.code, 403);
    for method in [Method::GET, Method::POST] {
        for path in [
            "/exec/ns/pod/app?output=1&command=ls",
            "/attach/ns/pod/app?output=1",
            "/portForward/ns/pod",
        ] {
            let response = reader.send(method.clone(), path).await;
            assert_eq!(response.code, 403, "{path}");
            assert_eq!(
                response.text(),
                "Forbidden (user=proxy-reader, verb=create, resource=nodes, subresource=proxy)\n"
            );
        }
    }
    assert_eq!(reader.post("/run/ns/pod/app?cmd=ls").await.code, 403);
    assert!(invented.executed.lock().is_none());
    let pods = client.token_of("pod-reader");
    assert_eq!(pods.get("/pods").await.code, 200);
    assert_eq!(pods.get("/runningpods/").await.code, 200);
    assert_eq!(pods.get("/containerLogs/ns/short/app").await.code, 403);
    server.stop().await;
}

#[tokio::test]
async fn the_finest_permission_is_reviewed_first_and_decisions_are_cached() {
    let rules = Arc::new(Rules::default());
    let (server, client, _) = secured(delegated(&rules, Some(&Authority::new("c")))).await;
    let operator = client.clone().token_of("operator");
    for _ in 0..3 {
        assert_eq!(operator.get("/pods").await.code, 200);
    }
    assert_eq!(*rules.asked.lock(), ["get nodes/pods"]);
    rules.asked.lock().clear();
    let reader = client.token_of("proxy-reader");
    for _ in 0..3 {
        assert_eq!(reader.get("/pods").await.code, 200);
    }
    assert_eq!(*rules.asked.lock(), ["get nodes/pods", "get nodes/proxy"]);
    server.stop().await;
}

#[tokio::test]
async fn a_client_certificate_is_enough() {
    let rules = Arc::new(Rules::default());
    let clients = Authority::new("clients");
    let (server, client, invented) = secured(delegated(&rules, Some(&clients))).await;
    let operator = client.clone().showing(clients.client("operator"));
    assert_eq!(operator.get("/metrics/resource").await.code, 200);
    let scraper = client.showing(clients.client("scraper"));
    assert_eq!(scraper.get("/metrics/resource").await.code, 200);
    assert_eq!(scraper.get("/pods").await.code, 403);
    // The session begins: the provider was asked.
    operator.get("/exec/ns/pod/app?output=1&command=ls").await;
    assert_eq!(invented.executed.lock().as_ref().unwrap().command, ["ls"]);
    server.stop().await;
}

/// The ConfigMap names a front proxy too, whose headers a kubelet does not read.
#[tokio::test]
async fn the_authority_of_clients_is_looked_up_and_the_front_proxy_is_not() {
    let (clients, proxies) = (Authority::new("clients"), Authority::new("proxies"));
    let data = [
        ("client-ca-file", clients.pem.clone()),
        ("requestheader-client-ca-file", proxies.pem.clone()),
        (
            "requestheader-username-headers",
            String::from("[\"X-Remote-User\"]"),
        ),
        (
            "requestheader-allowed-names",
            String::from("[\"front-proxy\"]"),
        ),
    ];
    let rules = Arc::new(Rules {
        config_map: data
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect::<BTreeMap<_, _>>(),
        ..Rules::default()
    });
    let (server, client, _) = secured(delegated(&rules, None)).await;
    let operator = client.clone().showing(clients.client("operator"));
    // Until the ConfigMap is read there is no telling who it is.
    let reached = async {
        loop {
            match operator.get("/metrics/resource").await.code {
                503 => tokio::task::yield_now().await,
                code => return code,
            }
        }
    };
    assert_eq!(
        tokio::time::timeout(crate::support::DEADLINE, reached)
            .await
            .unwrap(),
        200
    );
    let proxy = client.showing(proxies.client("front-proxy"));
    let proxied = proxy.with("x-remote-user", "operator");
    assert_eq!(proxied.get("/metrics/resource").await.code, 401);
    server.stop().await;
}

#[tokio::test]
async fn anonymous_requests_need_to_be_configured_and_allowed() {
    let rules = Arc::new(Rules::default());
    let mut access = delegated(&rules, Some(&Authority::new("c")));
    if let AccessControl::Delegated { authentication, .. } = &mut access {
        authentication.anonymous = true;
    }
    let (server, client, _) = secured(access).await;
    let response = client.get("/metrics/resource").await;
    assert_eq!(
        (response.code, response.text()),
        (
            403,
            "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource=metrics)\n"
        )
    );
    server.stop().await;
}
