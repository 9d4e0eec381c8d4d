//! API aggregation, with a second simulated API server as the backend.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use kubevitals_sim::api::{ADDRESS_ANNOTATION, SimApi, SimApiConfig, SimApiHandle};
use kubevitals_sim::objects::Resource;
use kubevitals_tls::{
    Alpn, CertificateInfo, PemSource, ReloadingKeyPair, RequestClientCertificate, ServerOptions,
    ServerTls,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::support::{DEADLINE, admin, sim};

const PATH: &str = "/apis/example.org/v1";

fn api_service(address: &str, group: &str, bundle: Option<&str>) -> Value {
    let mut object = json!({
        "metadata": {"name": format!("v1.{group}"), "annotations": {ADDRESS_ANNOTATION: address}},
        "spec": {"group": group, "version": "v1", "service": {"namespace": "x", "name": "y"},
                 "groupPriorityMinimum": 1, "versionPriority": 1},
    });
    match bundle {
        Some(pem) => object["spec"]["caBundle"] = json!(STANDARD.encode(pem)),
        None => object["spec"]["insecureSkipTLSVerify"] = json!(true),
    }
    object
}

async fn front() -> SimApiHandle {
    let config = SimApiConfig {
        probe_interval: Duration::from_millis(20),
        ..SimApiConfig::default()
    };
    SimApi::start(config).await.unwrap()
}

async fn condition(sim: &SimApiHandle, name: &str, status: &str) -> Value {
    let path = format!(
        "/apis/apiregistration.k8s.io/v1/apiservices?watch=1&fieldSelector=metadata.name%3D{name}"
    );
    let mut events = admin(sim).watch(&path).await;
    tokio::time::timeout(DEADLINE, async {
        loop {
            let event = events.next().await.unwrap();
            let condition = event["object"]["status"]["conditions"][0].clone();
            if condition["status"] == status {
                return condition;
            }
        }
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn an_absent_server_is_unavailable() {
    let sim = front().await;
    sim.writer()
        .create(
            Resource::ApiServices,
            api_service("127.0.0.1:1", "example.org", None),
        )
        .unwrap();
    let decision = condition(&sim, "v1.example.org", "False").await;
    assert_eq!(decision["reason"], "FailedDiscoveryCheck");
    let response = admin(&sim).get(PATH).await;
    assert_eq!(
        (response.code.as_u16(), &response.body[..]),
        (503, &b"service unavailable\n"[..])
    );
    let groups = admin(&sim).json("/apis").await;
    assert!(
        groups["groups"]
            .as_array()
            .unwrap()
            .iter()
            .any(|group| group["name"] == "example.org")
    );
    sim.shutdown().await;
}

#[tokio::test]
async fn a_missing_service_is_named() {
    let sim = front().await;
    let mut object = api_service("", "example.org", None);
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("annotations");
    sim.writer().create(Resource::ApiServices, object).unwrap();
    let decision = condition(&sim, "v1.example.org", "False").await;
    assert_eq!(
        (&decision["reason"], &decision["message"]),
        (
            &json!("ServiceNotFound"),
            &json!("service/y in \"x\" is not present")
        )
    );
    sim.shutdown().await;
}

#[tokio::test]
async fn an_untrusted_certificate_is_rejected() {
    let (sim, backend) = (front().await, sim().await);
    let address = backend.address().to_string();
    let object = api_service(&address, "example.org", Some(sim.kube_ca_pem()));
    sim.writer().create(Resource::ApiServices, object).unwrap();
    let decision = condition(&sim, "v1.example.org", "False").await;
    assert_eq!(decision["reason"], "FailedDiscoveryCheck");
    backend.shutdown().await;
    sim.shutdown().await;
}

/// An extension API server that echoes the request and the client's identity.
async fn backend(sim: &SimApiHandle, alpn: Alpn) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let issued = sim
        .issue_server_certificate("y", &["y.x.svc".to_owned()])
        .unwrap();
    let inline = |pem: &str| PemSource::Inline {
        label: "test",
        pem: Arc::from(pem.as_bytes()),
    };
    let certificate = ReloadingKeyPair::load(
        "test",
        inline(&issued.certificate),
        inline(&issued.key),
        SystemTime::now(),
    )
    .unwrap();
    let options = ServerOptions {
        alpn: vec![alpn],
        client_verifier: Some(RequestClientCertificate::verifier()),
        ..ServerOptions::default()
    };
    let acceptor = TlsAcceptor::from(ServerTls::new(certificate, &options).unwrap().config());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(stream) = acceptor.accept(stream).await else {
                continue;
            };
            let peer = stream
                .get_ref()
                .1
                .peer_certificates()
                .and_then(|chain| chain.first());
            let peer = peer
                .and_then(|der| CertificateInfo::parse(der))
                .map(|info| info.subject);
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let response = echo(&request, peer.as_deref());
                    async move { Ok::<_, Infallible>(response) }
                });
                let builder = auto::Builder::new(TokioExecutor::new());
                let _ended = builder
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    (address, task)
}

fn echo(request: &Request<Incoming>, peer: Option<&str>) -> Response<Full<Bytes>> {
    let all = |name: &str| -> Vec<&str> {
        request
            .headers()
            .get_all(name)
            .iter()
            .map(|value| value.to_str().unwrap())
            .collect()
    };
    let document = if request.uri().path() == PATH {
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "example.org/v1", "resources": [
            {"name": "widgets", "singularName": "widget", "namespaced": true, "kind": "Widget", "verbs": ["get"]},
            {"name": "widgets/status", "singularName": "", "namespaced": true, "kind": "Widget", "verbs": ["get"]}]})
    } else {
        json!({
            "path": request.uri().path_and_query().unwrap().as_str(), "peer": peer,
            "user": all("x-remote-user"), "groups": all("x-remote-group"),
            "authorization": all("authorization"), "method": request.method().as_str(),
        })
    };
    let mut response = Response::new(Full::new(Bytes::from(document.to_string())));
    response
        .headers_mut()
        .insert("content-type", "application/json".parse().unwrap());
    response
}

async fn requests_are_proxied(alpn: Alpn) {
    let sim = front().await;
    let (address, task) = backend(&sim, alpn).await;
    let object = api_service(&address.to_string(), "example.org", Some(sim.kube_ca_pem()));
    sim.writer().create(Resource::ApiServices, object).unwrap();
    let decision = condition(&sim, "v1.example.org", "True").await;
    assert_eq!(
        (&decision["reason"], &decision["message"]),
        (&json!("Passed"), &json!("all checks passed"))
    );
    let client = admin(&sim)
        .with("x-remote-user", "liar")
        .with("x-remote-group", "liars");
    let echoed = client
        .json(&format!("{PATH}/namespaces/a/widgets?limit=5"))
        .await;
    assert_eq!(
        echoed,
        json!({"path": format!("{PATH}/namespaces/a/widgets?limit=5"), "method": "GET",
               "peer": "CN=front-proxy-client", "user": ["admin"],
               "groups": ["system:masters", "system:authenticated"], "authorization": []})
    );
    let posted = client
        .post(&format!("{PATH}/namespaces/a/widgets"), &json!({}))
        .await
        .json();
    assert_eq!(posted["method"], "POST");
    let aggregated = admin(&sim).with(
        "accept",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    );
    let groups = aggregated.json("/apis").await;
    let group = groups["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|g| g["metadata"]["name"] == "example.org")
        .unwrap();
    assert_eq!(group["versions"][0]["freshness"], "Current");
    assert_eq!(
        group["versions"][0]["resources"][0]["subresources"][0]["subresource"],
        "status"
    );
    assert_eq!(
        client.json("/apis/example.org").await["preferredVersion"]["version"],
        "v1"
    );
    // Without permission no request reaches the backend.
    let other_client = crate::support::anonymous(&sim)
        .get(&format!("{PATH}/widgets"))
        .await;
    assert_eq!(other_client.code, 403);
    task.abort();
    sim.shutdown().await;
}

#[tokio::test]
async fn requests_are_proxied_over_http2() {
    requests_are_proxied(Alpn::H2).await;
}

#[tokio::test]
async fn requests_are_proxied_over_http1() {
    requests_are_proxied(Alpn::Http11).await;
}
