//! The metadata server of a machine of Google Cloud.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use kubevitals_http_client::{AGENT, ConnectError, HttpClient, Options};
use thiserror::Error;
use tokio::time::timeout;

/// By name, as Google's own libraries fall back to: it resolves on Google alone.
const DEFAULT_HOST: &str = "metadata.google.internal";

/// The server is on the same machine.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum size of a value.
const MAX_VALUE: usize = 64 << 10;

/// The metadata server. Clones share its connections.
#[derive(Debug, Clone)]
pub struct MetadataServer {
    http: Arc<HttpClient>,
    /// Host and port.
    host: String,
}

/// A value that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MetadataError {
    #[error("there is no metadata server at {host}: {problem}")]
    Unavailable { host: String, problem: String },
    #[error("the metadata server answered {status} for {path}")]
    Status { status: StatusCode, path: String },
    #[error("the answer for {path} is not from a metadata server")]
    NotMetadata { path: String },
}

impl MetadataServer {
    /// The server that `GCE_METADATA_HOST` names, which `get` reads, or that of Google. No
    /// connection is opened.
    pub fn new(get: impl Fn(&str) -> Option<String>) -> Result<Self, ConnectError> {
        let host = get("GCE_METADATA_HOST").filter(|host| !host.is_empty());
        Ok(Self {
            // Never through a proxy: the address is of this machine.
            http: Arc::new(HttpClient::new(&Options::default())?),
            host: host.unwrap_or_else(|| DEFAULT_HOST.to_owned()),
        })
    }

    /// The ID of the project.
    pub async fn project(&self) -> Result<String, MetadataError> {
        self.text("project/project-id").await
    }

    /// The name of the GKE cluster.
    pub async fn cluster_name(&self) -> Result<String, MetadataError> {
        self.text("instance/attributes/cluster-name").await
    }

    /// The location of the GKE cluster: its region, or its zone.
    pub async fn cluster_location(&self) -> Result<String, MetadataError> {
        self.text("instance/attributes/cluster-location").await
    }

    /// The address of the default service account.
    pub async fn email(&self) -> Result<String, MetadataError> {
        self.text("instance/service-accounts/default/email").await
    }

    /// The token of the default service account, as JSON.
    pub(crate) async fn token(&self) -> Result<Bytes, MetadataError> {
        self.get("instance/service-accounts/default/token").await
    }

    async fn text(&self, path: &str) -> Result<String, MetadataError> {
        let value = self.get(path).await?;
        let text = std::str::from_utf8(&value).unwrap_or_default().trim();
        if text.is_empty() {
            let path = path.to_owned();
            return Err(MetadataError::NotMetadata { path });
        }
        Ok(text.to_owned())
    }

    async fn get(&self, path: &str) -> Result<Bytes, MetadataError> {
        let unavailable = |problem: String| MetadataError::Unavailable {
            host: self.host.clone(),
            problem,
        };
        let flavor = HeaderValue::from_static("Google");
        let request = Request::get(format!("http://{}/computeMetadata/v1/{path}", self.host))
            .header("metadata-flavor", &flavor)
            .header(header::USER_AGENT, AGENT)
            .body(Full::new(Bytes::new()))
            .map_err(|error| unavailable(error.to_string()))?;
        let sent = timeout(TIMEOUT, self.http.send(request, MAX_VALUE)).await;
        let response = match sent {
            Ok(Ok((response, _))) => response,
            Ok(Err(error)) => return Err(unavailable(error.to_string())),
            Err(_) => return Err(unavailable(format!("no answer within {TIMEOUT:?}"))),
        };
        let path = path.to_owned();
        if response.status() != StatusCode::OK {
            let status = response.status();
            return Err(MetadataError::Status { status, path });
        }
        // A captive portal or a proxy answers everything.
        if response.headers().get("metadata-flavor") != Some(&flavor) {
            return Err(MetadataError::NotMetadata { path });
        }
        Ok(response.into_body())
    }
}
