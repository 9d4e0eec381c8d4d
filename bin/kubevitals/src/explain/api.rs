//! The few questions to an API server, each asked once and answered in full or with the reason why
//! not.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::api::{GetParams, ListParams};
use kubevitals_cli::RunError;
use kubevitals_watch::{
    BoxBody, Decoder, KubeTransport, Metadata, Page, Transport, TypedKind, WatchEvent,
    decode_event, decode_object, decode_page,
};
use tokio::time::{sleep, timeout};

use crate::kubeconfig::with_causes;

/// No answer takes longer: neither one object nor a page of a list.
const PATIENCE: Duration = Duration::from_mins(1);

/// The largest answer: a page of objects that are each as large as the server stores them.
const MAX_ANSWER: usize = 256 << 20;

/// How often a server that has too much to do is asked again, and how long is waited at most.
const ATTEMPTS: u32 = 4;
const MAX_WAIT: Duration = Duration::from_secs(10);

/// An API server.
pub(super) struct Api {
    transport: KubeTransport,
    decoder: Decoder,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum ApiError {
    NotFound,
    /// In the server's words.
    Forbidden(String),
    /// The list can no longer be continued.
    Expired,
    Failed(String),
}

/// What is asked for, to say what is missing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'q> {
    pub(super) verb: &'static str,
    pub(super) resource: &'static str,
    pub(super) namespace: Option<&'q str>,
}

impl Api {
    pub(super) fn new(config: kube::Config) -> Result<Self, RunError> {
        Ok(Self {
            transport: KubeTransport::new(config).map_err(RunError::runtime)?,
            decoder: Decoder::default(),
        })
    }

    /// One object.
    pub(super) async fn get<K: TypedKind>(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<K, ApiError> {
        let request = kube::core::Request::new(path::<K>(namespace));
        let request = request.get(name, &GetParams::default());
        let body = self.ask(request.map_err(|error| failed(&error))?).await?;
        decode_object(&body, &self.decoder).map_err(|error| failed(&error))
    }

    /// One page of a list.
    pub(super) async fn page<K: TypedKind>(
        &self,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> Result<Page<K>, ApiError> {
        let request = kube::core::Request::new(path::<K>(namespace)).list(params);
        let body = self.ask(request.map_err(|error| failed(&error))?).await?;
        decode_page(&body, &self.decoder).map_err(|error| failed(&error))
    }

    /// All of a list that is not long.
    pub(super) async fn list<K: TypedKind>(
        &self,
        namespace: Option<&str>,
        mut params: ListParams,
        most: usize,
    ) -> Result<Vec<K>, ApiError> {
        let mut all = Vec::new();
        loop {
            let page = self.page::<K>(namespace, &params).await?;
            all.extend(page.objects);
            if page.next.is_empty() || all.len() >= most {
                return Ok(all);
            }
            params.continue_token = Some(page.next);
        }
    }

    async fn ask(&self, request: Request<Vec<u8>>) -> Result<Bytes, ApiError> {
        let (mut parts, _) = request.into_parts();
        let json = HeaderValue::from_static("application/json");
        parts.headers.insert(ACCEPT, json);
        let mut attempt = 1;
        loop {
            let request = Request::from_parts(parts.clone(), ());
            let answer = timeout(PATIENCE, self.answer(request)).await;
            let answer = answer.unwrap_or_else(|_| {
                let seconds = PATIENCE.as_secs();
                Err(ApiError::Failed(format!(
                    "the API server has not answered within {seconds} s"
                )))
            });
            match answer? {
                Answer::Body(body) => return Ok(body),
                Answer::Later(wait, _) if attempt < ATTEMPTS => sleep(wait).await,
                Answer::Later(_, words) => return Err(ApiError::Failed(words)),
            }
            attempt += 1;
        }
    }

    async fn answer(&self, request: Request<()>) -> Result<Answer, ApiError> {
        let answer = self.transport.get(request).await;
        let answer = answer.map_err(|error| failed(&error))?;
        let status = answer.status();
        let wait = wait(&answer);
        let body = read(answer).await?;
        if status.is_success() {
            return Ok(Answer::Body(body));
        }
        let words = self.words(status, &body);
        Err(match status {
            StatusCode::NOT_FOUND => ApiError::NotFound,
            StatusCode::FORBIDDEN => ApiError::Forbidden(words),
            StatusCode::GONE => ApiError::Expired,
            StatusCode::UNAUTHORIZED => ApiError::Failed(format!(
                "the API server does not know these credentials: {words}"
            )),
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => return Ok(Answer::Later(wait, words)),
            _ => ApiError::Failed(words),
        })
    }

    /// What the server said, or else what its status means.
    fn words(&self, status: StatusCode, body: &[u8]) -> String {
        match decode_event::<Metadata>(body, &self.decoder) {
            Ok(WatchEvent::Error(said)) if !said.message.is_empty() => said.message,
            _ => format!("the API server answered {status}"),
        }
    }
}

enum Answer {
    Body(Bytes),
    /// The server has too much to do, and says so.
    Later(Duration, String),
}

impl ApiError {
    /// For the user, with what would help.
    pub(super) fn about(self, question: Question<'_>) -> RunError {
        RunError::runtime(self.words(question))
    }

    pub(super) fn words(self, question: Question<'_>) -> String {
        match self {
            Self::NotFound => format!("{} not found", question.resource),
            Self::Forbidden(words) => format!("permission to {question} is missing: {words}"),
            Self::Expired => format!("{} changed too fast to be listed", question.resource),
            Self::Failed(words) => format!("cannot {question}: {words}"),
        }
    }
}

impl fmt::Display for Question<'_> {
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

fn path<K: TypedKind>(namespace: Option<&str>) -> String {
    let resource = K::RESOURCE;
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

async fn read(answer: Response<BoxBody>) -> Result<Bytes, ApiError> {
    let body = Limited::new(answer.into_body(), MAX_ANSWER);
    #[expect(clippy::disallowed_methods, reason = "the body is limited above")]
    let body = body.collect().await;
    body.map(http_body_util::Collected::to_bytes)
        .map_err(|error| failed(&*error))
}

fn wait(answer: &Response<BoxBody>) -> Duration {
    let stated = answer.headers().get(RETRY_AFTER);
    let stated = stated.and_then(|value| value.to_str().ok()?.parse().ok());
    Duration::from_secs(stated.unwrap_or(1)).min(MAX_WAIT)
}

fn failed(error: &dyn std::error::Error) -> ApiError {
    ApiError::Failed(with_causes(error))
}
