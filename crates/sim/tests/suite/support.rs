//! A raw HTTP client, so that tests see status codes, headers and bytes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kubevitals_sim::api::{IssuedCertificate, SimApi, SimApiConfig, SimApiHandle};
use kubevitals_sim::objects::Resource;
use kubevitals_tls::{ClientOptions, ClientTls, PemSource, ReloadingKeyPair, TrustRoots};
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Longer than anything here takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// An HTTP client with credentials.
#[derive(Clone, Default)]
pub(crate) struct Client {
    address: String,
    ca: String,
    certificate: Option<IssuedCertificate>,
    headers: Vec<(&'static str, String)>,
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) code: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The lines of a watch.
pub(crate) struct Events {
    body: Incoming,
    buffer: Vec<u8>,
}

pub(crate) async fn sim() -> SimApiHandle {
    SimApi::start(SimApiConfig::default()).await.unwrap()
}

pub(crate) fn admin(sim: &SimApiHandle) -> Client {
    let admin = sim
        .issue_client_certificate("admin", Some("system:masters"))
        .unwrap();
    Client {
        certificate: Some(admin),
        ..anonymous(sim)
    }
}

pub(crate) fn anonymous(sim: &SimApiHandle) -> Client {
    Client {
        address: sim.address().to_string(),
        ca: sim.kube_ca_pem().to_owned(),
        ..Client::default()
    }
}

/// A client with or without a token, for any server at `address` with a certificate of the cluster.
pub(crate) fn bearer(sim: &SimApiHandle, address: &str, token: Option<&str>) -> Client {
    let client = Client {
        address: address.to_owned(),
        ..anonymous(sim)
    };
    match token {
        Some(token) => client.with("authorization", format!("Bearer {token}")),
        None => client,
    }
}

pub(crate) fn pod(name: &str, node: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running"},
    })
}

pub(crate) fn add_pods(sim: &SimApiHandle, names: &[&str]) {
    for name in names {
        sim.writer()
            .create(Resource::Pods, pod(name, "n1"))
            .unwrap();
    }
}

impl Client {
    pub(crate) fn with(mut self, header: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((header, value.into()));
        self
    }

    pub(crate) fn with_certificate(mut self, certificate: IssuedCertificate) -> Self {
        self.certificate = Some(certificate);
        self
    }

    pub(crate) async fn get(&self, path: &str) -> TestResponse {
        self.send(Method::GET, path, None).await
    }

    pub(crate) async fn json(&self, path: &str) -> Value {
        let response = self.get(path).await;
        assert_eq!(response.code, 200, "{path}: {:?}", response.body);
        response.json()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> TestResponse {
        self.send(
            Method::POST,
            path,
            Some(("application/json", body.to_string())),
        )
        .await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> TestResponse {
        self.send(
            Method::PUT,
            path,
            Some(("application/json", body.to_string())),
        )
        .await
    }

    pub(crate) async fn patch(&self, kind: &'static str, path: &str, body: &Value) -> TestResponse {
        self.send(Method::PATCH, path, Some((kind, body.to_string())))
            .await
    }

    pub(crate) async fn delete(&self, path: &str) -> TestResponse {
        self.send(Method::DELETE, path, None).await
    }

    pub(crate) async fn watch(&self, path: &str) -> Events {
        let response = self.start(Method::GET, path, None).await;
        assert_eq!(response.status(), 200);
        Events {
            body: response.into_body(),
            buffer: Vec::new(),
        }
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, String)>,
    ) -> TestResponse {
        let response = self.start(method, path, body).await;
        let (parts, body) = response.into_parts();
        #[expect(clippy::disallowed_methods, reason = "the body is limited")]
        let body = Limited::new(body, 100_000_000)
            .collect()
            .await
            .unwrap()
            .to_bytes();
        TestResponse {
            code: parts.status,
            headers: parts.headers,
            body,
        }
    }

    async fn start(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, String)>,
    ) -> Response<Incoming> {
        let inline = |pem: &str| PemSource::Inline {
            label: "test",
            pem: Arc::from(pem.as_bytes()),
        };
        let now = SystemTime::now();
        let roots = TrustRoots::load("test", vec![inline(&self.ca)], now).unwrap();
        let identity = self.certificate.as_ref().map(|issued| {
            let (certificate, key) = (inline(&issued.certificate), inline(&issued.key));
            ReloadingKeyPair::load("test", certificate, key, now).unwrap()
        });
        let options = ClientOptions {
            identity,
            ..ClientOptions::default()
        };
        let tls = ClientTls::trusting(roots, &options).unwrap();
        let stream = TcpStream::connect(&self.address).await.unwrap();
        let name = ServerName::IpAddress(stream.peer_addr().unwrap().ip().into());
        let stream = TlsConnector::from(tls.config())
            .connect(name, stream)
            .await
            .unwrap();
        let (mut sender, driver) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(driver);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "sim");
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = match body {
            None => request.body(Full::default()),
            Some((kind, text)) => request
                .header("content-type", kind)
                .body(Full::new(Bytes::from(text))),
        };
        tokio::time::timeout(DEADLINE, sender.send_request(request.unwrap()))
            .await
            .unwrap()
            .unwrap()
    }
}

impl TestResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Code, reason and message of a `Status`.
    pub(crate) fn status(&self) -> (u16, String, String) {
        let status = self.json();
        assert_eq!(status["kind"], "Status");
        assert_eq!(status["code"], self.code.as_u16());
        let text = |member: &str| status[member].as_str().unwrap_or_default().to_owned();
        (self.code.as_u16(), text("reason"), text("message"))
    }
}

impl Events {
    /// The next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        tokio::time::timeout(DEADLINE, self.read()).await.unwrap()
    }

    /// The type of the next event, and the name of its object.
    pub(crate) async fn brief(&mut self) -> Option<(String, String)> {
        let event = self.next().await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Some((
            text(&event["type"]),
            text(&event["object"]["metadata"]["name"]),
        ))
    }

    async fn read(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            match self.body.frame().await? {
                Ok(frame) => self.buffer.extend_from_slice(frame.data_ref().unwrap()),
                Err(_) => return None,
            }
        }
    }
}
