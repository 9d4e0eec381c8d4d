//! One-shot reads from the API server: each returns the complete response or the reason why not.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::api::{GetParams, ListParams};
use kubevitals_cli::{RunError, error_chain};
use kubevitals_model::PartialObjectMeta;
use kubevitals_watch::{
    BoxBody, Decoder, KubeTransport, Page, Resource, Transport, TypedKind, WatchEvent,
    decode_event, decode_object, decode_page,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};

/// Timeout of a request for an object or a page.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// Limit of a response: a page of objects that are each as large as etcd stores them.
const MAX_RESPONSE: usize = 256 << 20;

/// Attempts at an overloaded server, and the longest wait between two.
const MAX_ATTEMPTS: u32 = 4;
const MAX_RETRY_AFTER: Duration = Duration::from_secs(10);

pub(crate) struct ApiReader {
    transport: KubeTransport,
    decoder: Decoder,
}

#[derive(Debug)]
pub(crate) enum ApiError {
    NotFound,
    /// With the server's message.
    Forbidden(String),
    /// The list can no longer be continued.
    Expired,
    Failed(String),
}

/// An operation, for error messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation<'o> {
    pub(crate) verb: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) namespace: Option<&'o str>,
}

impl ApiReader {
    pub(crate) fn new(config: kube::Config) -> Result<Self, RunError> {
        Ok(Self {
            transport: KubeTransport::new(config).map_err(RunError::runtime)?,
            decoder: Decoder::default(),
        })
    }

    /// Gets one object.
    pub(crate) async fn get<K: TypedKind>(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<K, ApiError> {
        let request = kube::core::Request::new(path(&K::RESOURCE, namespace));
        let request = request.get(name, &GetParams::default());
        let body = self.send(request.map_err(|error| failed(&error))?).await?;
        decode_object(&body, &self.decoder).map_err(|error| failed(&error))
    }

    /// Lists one page.
    pub(crate) async fn page<K: TypedKind>(
        &self,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> Result<Page<K>, ApiError> {
        let request = kube::core::Request::new(path(&K::RESOURCE, namespace)).list(params);
        let body = self.send(request.map_err(|error| failed(&error))?).await?;
        decode_page(&body, &self.decoder).map_err(|error| failed(&error))
    }

    /// Gets an object of any resource as a type that names the fields it reads.
    pub(crate) async fn get_as<T: DeserializeOwned>(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<T, ApiError> {
        let request = kube::core::Request::new(path(resource, Some(namespace)));
        let request = request.get(name, &GetParams::default());
        let body = self.send(request.map_err(|error| failed(&error))?).await?;
        serde_json::from_slice(&body).map_err(|error| failed(&error))
    }

    /// Lists all pages of any resource, up to `limit` objects.
    pub(crate) async fn list_as<T: DeserializeOwned>(
        &self,
        resource: &Resource,
        namespace: &str,
        mut params: ListParams,
        limit: usize,
    ) -> Result<Vec<T>, ApiError> {
        let mut all = Vec::new();
        loop {
            let request = kube::core::Request::new(path(resource, Some(namespace))).list(&params);
            let body = self.send(request.map_err(|error| failed(&error))?).await?;
            let page: PageOf<T> = serde_json::from_slice(&body).map_err(|error| failed(&error))?;
            all.extend(page.items);
            let next = page.metadata.r#continue.filter(|next| !next.is_empty());
            if next.is_none() || all.len() >= limit {
                return Ok(all);
            }
            params.continue_token = next;
        }
    }

    /// Lists all pages, up to `limit` objects.
    pub(crate) async fn list<K: TypedKind>(
        &self,
        namespace: Option<&str>,
        mut params: ListParams,
        limit: usize,
    ) -> Result<Vec<K>, ApiError> {
        let mut all = Vec::new();
        loop {
            let page = self.page::<K>(namespace, &params).await?;
            all.extend(page.objects);
            if page.next.is_empty() || all.len() >= limit {
                return Ok(all);
            }
            params.continue_token = Some(page.next);
        }
    }

    async fn send(&self, request: Request<Vec<u8>>) -> Result<Bytes, ApiError> {
        let (mut parts, _) = request.into_parts();
        let json = HeaderValue::from_static("application/json");
        parts.headers.insert(ACCEPT, json);
        let mut attempt = 1;
        loop {
            let request = Request::from_parts(parts.clone(), ());
            let outcome = timeout(REQUEST_TIMEOUT, self.try_send(request)).await;
            let outcome = outcome.unwrap_or_else(|_| {
                let seconds = REQUEST_TIMEOUT.as_secs();
                Err(ApiError::Failed(format!(
                    "the API server did not respond within {seconds} s"
                )))
            });
            match outcome? {
                Outcome::Body(body) => return Ok(body),
                Outcome::RetryAfter(wait, _) if attempt < MAX_ATTEMPTS => sleep(wait).await,
                Outcome::RetryAfter(_, message) => return Err(ApiError::Failed(message)),
            }
            attempt += 1;
        }
    }

    async fn try_send(&self, request: Request<()>) -> Result<Outcome, ApiError> {
        let response = self.transport.get(request).await;
        let response = response.map_err(|error| failed(&error))?;
        let status = response.status();
        let retry_after = retry_after(&response);
        let body = read_body(response).await?;
        if status.is_success() {
            return Ok(Outcome::Body(body));
        }
        let message = self.status_message(status, &body);
        Err(match status {
            StatusCode::NOT_FOUND => ApiError::NotFound,
            StatusCode::FORBIDDEN => ApiError::Forbidden(message),
            StatusCode::GONE => ApiError::Expired,
            StatusCode::UNAUTHORIZED => ApiError::Failed(format!(
                "the API server rejected the credentials: {message}"
            )),
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => return Ok(Outcome::RetryAfter(retry_after, message)),
            _ => ApiError::Failed(message),
        })
    }

    /// Returns the message of a Status, or else the HTTP status.
    fn status_message(&self, status: StatusCode, body: &[u8]) -> String {
        match decode_event::<PartialObjectMeta>(body, &self.decoder) {
            Ok(WatchEvent::Error(status)) if !status.message.is_empty() => status.message,
            _ => format!("the API server responded {status}"),
        }
    }
}

/// A page of a list.
#[derive(Deserialize)]
struct PageOf<T> {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    r#continue: Option<String>,
}

enum Outcome {
    Body(Bytes),
    /// The server is overloaded.
    RetryAfter(Duration, String),
}

impl ApiError {
    /// The error of an operation, for the user.
    pub(crate) fn during(self, operation: Operation<'_>) -> RunError {
        RunError::runtime(self.message(operation))
    }

    pub(crate) fn message(self, operation: Operation<'_>) -> String {
        match self {
            Self::NotFound => format!("{} not found", operation.resource),
            Self::Forbidden(message) => format!("no permission to {operation}: {message}"),
            Self::Expired => format!("the list of {} expired repeatedly", operation.resource),
            Self::Failed(message) => format!("cannot {operation}: {message}"),
        }
    }
}

impl fmt::Display for Operation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            verb,
            resource,
            namespace,
        } = self;
        match namespace {
            Some(namespace) => write!(f, "{verb} {resource} in namespace {namespace}"),
            None => write!(f, "{verb} {resource} in all namespaces"),
        }
    }
}

fn path(resource: &Resource, namespace: Option<&str>) -> String {
    let root = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };
    match namespace {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{}", resource.plural),
        None => format!("{root}/{}", resource.plural),
    }
}

async fn read_body(response: Response<BoxBody>) -> Result<Bytes, ApiError> {
    let body = Limited::new(response.into_body(), MAX_RESPONSE);
    #[expect(clippy::disallowed_methods, reason = "the body is limited above")]
    let body = body.collect().await;
    body.map(http_body_util::Collected::to_bytes)
        .map_err(|error| failed(&*error))
}

fn retry_after(response: &Response<BoxBody>) -> Duration {
    let stated = response.headers().get(RETRY_AFTER);
    let stated = stated.and_then(|value| value.to_str().ok()?.parse().ok());
    Duration::from_secs(stated.unwrap_or(1)).min(MAX_RETRY_AFTER)
}

fn failed(error: &dyn std::error::Error) -> ApiError {
    ApiError::Failed(error_chain(error))
}
