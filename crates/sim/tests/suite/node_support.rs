//! A store that records all writes, and a client of kubelets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubevitals_model::Timestamp;
use kubevitals_sim::objects::{ObjectWriter, Resource, WriteError};
use kubevitals_tls::{Alpn, ClientOptions, ClientTls, PemSource, TrustRoots};
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The instant at which most tests begin.
pub(crate) const START: i64 = 1_794_773_530_000;
/// Deadline for events that must happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
const MAX_BODY: usize = 16 << 20;

/// A change, as a watch would show it.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) kind: &'static str,
    pub(crate) resource: Resource,
    pub(crate) object: Value,
}

/// Keeps objects and all their changes.
#[derive(Debug, Default)]
pub(crate) struct Store {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    version: u64,
    objects: BTreeMap<(Resource, String), Value>,
    changes: Vec<Change>,
}

#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) status: StatusCode,
    pub(crate) content_type: String,
    pub(crate) body: Bytes,
}

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_unix_millis(millis)
}

impl Store {
    pub(crate) fn changes(&self, resource: Resource) -> Vec<Change> {
        let inner = self.inner.lock().unwrap();
        let matching = inner
            .changes
            .iter()
            .filter(|change| change.resource == resource);
        matching.cloned().collect()
    }

    /// Number of changes of a resource that match.
    pub(crate) fn count(&self, resource: Resource, predicate: impl Fn(&Value) -> bool) -> usize {
        let inner = self.inner.lock().unwrap();
        let changes = inner
            .changes
            .iter()
            .filter(|change| change.resource == resource);
        changes.filter(|change| predicate(&change.object)).count()
    }

    pub(crate) fn all(&self) -> Vec<Change> {
        self.inner.lock().unwrap().changes.clone()
    }

    pub(crate) fn list(&self, resource: Resource) -> Vec<Value> {
        let inner = self.inner.lock().unwrap();
        let matching = inner
            .objects
            .iter()
            .filter(|((kind, _), _)| *kind == resource);
        matching.map(|(_, object)| object.clone()).collect()
    }

    fn write(
        &self,
        kind: &'static str,
        resource: Resource,
        object: Value,
    ) -> Result<u64, WriteError> {
        let mut inner = self.inner.lock().unwrap();
        let key = key(&object);
        let exists = inner.objects.contains_key(&(resource, key.clone()));
        match (kind, exists) {
            ("ADDED", true) => return Err(WriteError::AlreadyExists { resource, key }),
            ("MODIFIED" | "DELETED", false) => return Err(WriteError::NotFound { resource, key }),
            _ => {}
        }
        inner.version += 1;
        if kind == "DELETED" {
            inner.objects.remove(&(resource, key));
        } else {
            inner.objects.insert((resource, key), object.clone());
        }
        inner.changes.push(Change {
            kind,
            resource,
            object,
        });
        Ok(inner.version)
    }
}

fn key(object: &Value) -> String {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().expect("every object has a name");
    format!("{}/{name}", metadata["namespace"].as_str().unwrap_or(""))
}

impl ObjectWriter for Store {
    fn create(&self, resource: Resource, object: Value) -> Result<u64, WriteError> {
        self.write("ADDED", resource, object)
    }

    fn replace(&self, resource: Resource, object: Value) -> Result<u64, WriteError> {
        self.write("MODIFIED", resource, object)
    }

    fn delete(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<u64, WriteError> {
        let key = format!("{}/{name}", namespace.unwrap_or(""));
        let removed = self
            .inner
            .lock()
            .unwrap()
            .objects
            .get(&(resource, key.clone()))
            .cloned();
        match removed {
            Some(object) => self.write("DELETED", resource, object),
            None => Err(WriteError::NotFound { resource, key }),
        }
    }
}

/// A client configuration that trusts an authority, or any certificate for `None`.
pub(crate) fn tls(authority: Option<&str>, alpn: Alpn) -> ClientTls {
    kubevitals_tls::install_crypto_provider();
    let options = ClientOptions {
        alpn: vec![alpn],
        ..ClientOptions::default()
    };
    match authority {
        Some(pem) => {
            let source = PemSource::Inline {
                label: "authority of the kubelets",
                pem: pem.as_bytes().into(),
            };
            let roots = TrustRoots::load("kubelets", vec![source], SystemTime::now()).unwrap();
            ClientTls::trusting(roots, &options).unwrap()
        }
        None => ClientTls::dangerous_without_verification(&options).unwrap(),
    }
}

/// Sends one request to a kubelet on a new connection. Errors are returned as text.
pub(crate) async fn get(
    address: SocketAddr,
    path: &str,
    token: Option<&str>,
    tls: &ClientTls,
) -> Result<TestResponse, String> {
    let exchange = exchange(address, path, token, tls);
    tokio::time::timeout(DEADLINE, exchange)
        .await
        .expect("a response before the deadline")
}

async fn exchange(
    address: SocketAddr,
    path: &str,
    token: Option<&str>,
    tls: &ClientTls,
) -> Result<TestResponse, String> {
    let tcp = TcpStream::connect(address)
        .await
        .map_err(|e| e.to_string())?;
    let name = ServerName::IpAddress(address.ip().into());
    let stream = TlsConnector::from(tls.config())
        .connect(name, tcp)
        .await
        .map_err(|error| error.to_string())?;
    let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let mut request = Request::get(format!("https://{address}{path}"));
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let response = if h2 {
        let io = TokioIo::new(stream);
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
                .await
                .map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        sender.send_request(request).await
    } else {
        let io = TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io)
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        sender.send_request(request).await
    };
    let response = response.map_err(|error| chain(&error))?;
    let status = response.status();
    let content_type = response.headers().get("content-type");
    let content_type = content_type.map_or("", |v| v.to_str().unwrap()).to_owned();
    #[expect(clippy::disallowed_methods, reason = "limited")]
    let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    Ok(TestResponse {
        status,
        content_type,
        body,
    })
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}

/// Reads the recording of this name.
pub(crate) fn fixture(name: &str) -> String {
    let path = format!(
        "{}/tests/fixtures/kubernetes-1.37/{name}",
        std::env::var("CARGO_MANIFEST_DIR").unwrap()
    );
    std::fs::read_to_string(path).unwrap()
}
