//! A real hyper client over loopback.

use std::sync::Mutex;
use std::time::Duration;

use http::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::Body;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    fn hooks(&self) -> Hooks {
        let (names, connections) = (self.clone(), self.clone());
        Hooks::default()
            .with_resolver_latency(move |host: &str, _: Duration| {
                names.0.lock().unwrap().push(format!("name {host}"));
            })
            .with_connect_latency(move |host: &str, outcome: ConnectOutcome, _: Duration| {
                let line = format!("{} {host}", outcome.as_str());
                connections.0.lock().unwrap().push(line);
            })
    }
}

#[tokio::test]
async fn names_and_connections_are_reported_once_and_addresses_are_not_resolved() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut request = [0; 1024];
                while socket.read(&mut request).await.is_ok_and(|read| read > 0) {
                    let response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                    socket.write_all(response).await.unwrap();
                }
            });
        }
    });
    let calls = Recorder::default();
    let hooks = calls.hooks();
    let connector = HttpConnector::new_with_resolver(Resolver::system(&hooks));
    let connector = Connector::new(connector, &hooks);
    let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build(connector);
    let get = |url: String| client.request(Request::get(url).body(Body::empty()).unwrap());
    for host in ["user:secret@127.0.0.1", "127.0.0.1"] {
        get(format!("http://{host}:{port}/")).await.unwrap();
    }
    assert_eq!(
        calls.0.lock().unwrap()[0],
        format!("connected 127.0.0.1:{port}")
    );
    calls.0.lock().unwrap().clear();
    get(format!("http://localhost:{port}/")).await.unwrap();
    assert_eq!(
        *calls.0.lock().unwrap(),
        [
            "name localhost".to_owned(),
            format!("connected localhost:{port}")
        ]
    );
    server.abort();
    assert!(server.await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn a_failed_connection_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let calls = Recorder::default();
    let mut connector = Connector::new(HttpConnector::new(), &calls.hooks());
    let uri: Uri = format!("http://{address}/").parse().unwrap();
    assert!(connector.call(uri).await.is_err());
    assert_eq!(*calls.0.lock().unwrap(), [format!("failed {address}")]);
}
