//! The real kubelet, over verified TLS.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use kubevitals_tls::{Alpn, ClientOptions, ClientTls, PeerNames, PemSource, TrustRoots};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::access::Access;
use crate::cluster::Cluster;
use crate::error::E2eError;
use crate::usage::ResourceMetrics;
use crate::wait::DEADLINE;

/// Limit of a response body in bytes.
const MAX_BODY: usize = 32 << 20;

/// Polling interval for changes that a kubelet does not announce.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A client of the cluster's kubelet, with or without a token.
#[derive(Debug, Clone)]
pub struct Kubelet {
    address: SocketAddr,
    tls: ClientTls,
    access: Option<Access>,
}

/// A response of a kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletResponse {
    /// The status.
    pub status: StatusCode,
    /// The body.
    pub body: Bytes,
}

impl Kubelet {
    /// The kubelet of the cluster's node, whose certificate must be signed by the cluster's
    /// authority for the node. Without `access` no token is sent.
    pub fn of(cluster: &Cluster, access: Option<&Access>) -> Result<Self, E2eError> {
        let address = cluster.kubelet_address();
        Ok(Self {
            address,
            tls: verified_by(cluster, &[cluster.node_name(), &address.ip().to_string()])?,
            access: access.cloned(),
        })
    }

    /// Sends one request on a new connection.
    pub async fn get(&self, path: &str) -> Result<KubeletResponse, E2eError> {
        let url = format!("https://{}{path}", self.address);
        let token = self.access.as_ref().map(Access::token);
        // Never to an unverified server.
        let token = token.filter(|_| self.tls.verified().is_some());
        get_once(self.address, &self.tls, token, &url).await
    }

    /// Returns the usage of its containers.
    pub async fn resource_metrics(&self) -> Result<ResourceMetrics, E2eError> {
        let answer = self.get("/metrics/resource").await?;
        if answer.status != StatusCode::OK {
            let body = String::from_utf8_lossy(&answer.body);
            return Err(E2eError::Get {
                url: format!("https://{}/metrics/resource", self.address),
                reason: format!("{}: {body}", answer.status),
            });
        }
        ResourceMetrics::parse(&answer.body)
    }

    /// Polls usage until `wanted` returns a value: a kubelet samples about every ten seconds and
    /// does not announce it.
    pub async fn watch_metrics<T>(
        &self,
        what: &str,
        mut wanted: impl FnMut(&ResourceMetrics) -> Option<T>,
    ) -> Result<T, E2eError> {
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        let found = async {
            loop {
                ticks.tick().await;
                if let Some(found) = wanted(&self.resource_metrics().await?) {
                    return Ok(found);
                }
            }
        };
        match tokio::time::timeout(DEADLINE, found).await {
            Ok(found) => found,
            Err(_) => Err(E2eError::Deadline {
                what: format!("{what} on /metrics/resource"),
                waited: DEADLINE,
                last_seen: format!("{:?}", self.resource_metrics().await?),
            }),
        }
    }
}

/// TLS to a server of these names whose certificate the cluster's authority signed.
pub(crate) fn verified_by(cluster: &Cluster, names: &[&str]) -> Result<ClientTls, E2eError> {
    let authority = PemSource::File(cluster.authority().to_owned());
    let roots = TrustRoots::load("kubelets", vec![authority], SystemTime::now())?;
    let options = ClientOptions {
        alpn: vec![Alpn::Http11],
        ..ClientOptions::default()
    };
    let names = PeerNames::new(names.iter().copied())?;
    Ok(ClientTls::trusting(roots, &options)?.for_peer(names))
}

/// Sends one request to a server on a new connection.
pub(crate) async fn get_once(
    address: SocketAddr,
    tls: &ClientTls,
    token: Option<&str>,
    url: &str,
) -> Result<KubeletResponse, E2eError> {
    let failed = |reason| E2eError::Get {
        url: url.to_owned(),
        reason,
    };
    match tokio::time::timeout(DEADLINE, exchange(address, tls, token, url)).await {
        Ok(answer) => answer.map_err(|error| failed(causes(&*error))),
        Err(_) => Err(failed(format!("no response after {DEADLINE:?}"))),
    }
}

async fn exchange(
    address: SocketAddr,
    tls: &ClientTls,
    token: Option<&str>,
    url: &str,
) -> Result<KubeletResponse, Box<dyn std::error::Error + Send + Sync>> {
    let tcp = TcpStream::connect(address).await?;
    let name = ServerName::IpAddress(address.ip().into());
    let stream = TlsConnector::from(tls.config()).connect(name, tcp).await?;
    let mut request = Request::get(url).header("host", address.to_string());
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new())?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status();
    #[expect(clippy::disallowed_methods, reason = "limited")]
    let body = Limited::new(response.into_body(), MAX_BODY)
        .collect()
        .await?;
    connection.abort();
    Ok(KubeletResponse {
        status,
        body: body.to_bytes(),
    })
}

/// Formats an error with all its causes in one line.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}
