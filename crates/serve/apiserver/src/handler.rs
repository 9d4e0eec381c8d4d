//! One request from its head to its last byte: who asks, may they, is there room, what is the
//! answer.

mod deadline_body;
mod documents;
mod health;
mod objects;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, HeaderValue};
use http::request::Parts;
use http::{Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use kubevitals_http::query::Query;
use tokio::sync::{Semaphore, watch};

use self::deadline_body::{DeadlineBody, Slot};
use crate::authn::{Authenticator, Peer, TrustStatus};
use crate::authz::{Authorizer, impersonate};
use crate::body::Body;
use crate::catalog::Catalog;
use crate::config::{Limits, ServerConfig};
use crate::discovery::{Discovery, Document};
use crate::error::ApiServerError;
use crate::metrics::{ApiServerMetrics, Recorder, RequestKind};
use crate::negotiate::{accept_of, refusal, wants_pretty};
use crate::openapi::OpenApi;
use crate::request_info::{RequestInfo, Target};
use crate::status::Failure;

/// YAML is made from a tree in memory: few at a time.
const YAML_AT_ONCE: usize = 4;

/// Answers requests, wherever they come from.
pub(crate) struct ApiHandler {
    catalog: Catalog,
    discovery: Discovery,
    openapi: OpenApi,
    version: Document,
    authenticator: Authenticator,
    authorizer: Authorizer,
    health: kubevitals_telemetry::Health,
    registry: kubevitals_telemetry::SharedRegistry,
    logs: Option<kubevitals_telemetry::LogHandle>,
    #[cfg(feature = "pprof")]
    profiler: Option<kubevitals_telemetry::profile::Profiler>,
    metrics: Arc<ApiServerMetrics>,
    limits: Limits,
    in_flight: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    yaml: Semaphore,
    draining: watch::Receiver<bool>,
}

/// The connection that a request arrived on.
pub(crate) type Connection = kubevitals_http::Connection<Peer>;

/// An answer, and whether it goes on until somebody ends it.
pub(crate) struct Answer {
    response: Response<Body>,
    watch: Option<std::time::Duration>,
}

impl kubevitals_http::Handler<Peer> for ApiHandler {
    type Body = Body;

    async fn handle(
        &self,
        connection: &Arc<Connection>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        self.respond(Arc::clone(connection), request).await
    }
}

impl ApiHandler {
    /// Makes everything that does not change while the server runs.
    pub(crate) fn new(
        config: ServerConfig,
        trust: TrustStatus,
        draining: watch::Receiver<bool>,
    ) -> Result<Self, ApiServerError> {
        let catalog = Catalog::new(config.groups)?;
        let metrics = config.telemetry.metrics;
        Ok(Self {
            discovery: Discovery::new(&catalog),
            openapi: OpenApi::new(&catalog, &config.title, &config.version.git_version)?,
            version: Document::new(&config.version),
            authenticator: Authenticator::new(&config.authentication, trust, &metrics)?,
            authorizer: Authorizer::new(&config.authorization, &metrics)?,
            health: config.telemetry.health,
            registry: config.telemetry.registry,
            logs: config.telemetry.logs,
            #[cfg(feature = "pprof")]
            profiler: config
                .telemetry
                .profiling
                .then(kubevitals_telemetry::profile::Profiler::new),
            metrics: Arc::new(metrics),
            in_flight: Arc::new(Semaphore::new(config.limits.in_flight.max(1))),
            watches: Arc::new(Semaphore::new(config.limits.watches.max(1))),
            yaml: Semaphore::new(YAML_AT_ONCE),
            limits: config.limits,
            catalog,
            draining,
        })
    }

    /// Responds to one request. A panic or a timeout becomes a response too.
    async fn respond<B>(&self, connection: Arc<Connection>, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let (head, body) = request.into_parts();
        let accept = accept_of(&head.headers);
        let pretty = wants_pretty(&head.headers, Query::new(head.uri.query()));
        let recorder = Recorder::new(
            Arc::clone(&self.metrics),
            RequestKind::of_method(&head.method),
        );
        let deadline = tokio::time::Instant::now() + self.limits.request_timeout;
        let mut work = Work {
            recorder,
            slot: None,
            close: false,
            is_head: head.method == http::Method::HEAD,
        };
        let answered =
            AssertUnwindSafe(self.answer(&connection, head, body, &accept, pretty, &mut work));
        let answered = tokio::time::timeout_at(deadline, answered.catch_unwind()).await;
        let answer = match answered {
            Ok(Ok(Ok(answer))) => answer,
            Ok(Ok(Err(failure))) => Answer::plain(failure.into_response(refusal(&accept), pretty)),
            Ok(Err(_panic)) => {
                self.metrics.panics.inc();
                tracing::error!("a request was ended by a bug");
                let failure = Failure::internal("this request caused the server to fail");
                Answer::plain(failure.into_response(refusal(&accept), pretty))
            }
            Err(_elapsed) => {
                Answer::plain(Failure::timeout().into_response(refusal(&accept), pretty))
            }
        };
        if work.close {
            connection.state.close();
        }
        self.finish(connection, answer, work, deadline)
    }

    async fn answer<B>(
        &self,
        connection: &Connection,
        mut head: Parts,
        body: B,
        accept: &str,
        pretty: bool,
        work: &mut Work,
    ) -> Result<Answer, Failure>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let info = RequestInfo::read(&head.method, &head.uri)
            .map_err(|error| Failure::bad_request(error.to_string()))?;
        work.recorder.kind = self.kind_of(&head, &info);
        let attempt = info.attempt();
        let open = self.authorizer.is_open(&attempt);

        let identity = self
            .authenticator
            .authenticate(&connection.peer, &mut head.headers)
            .await;
        // HTTP/2 is cheap to open and costly to serve: strangers get one request.
        work.close = head.version == http::Version::HTTP_2
            && identity
                .as_ref()
                .map_or(true, |identity| identity.is_anonymous);
        let identity = identity?;
        if identity.is_anonymous
            && !open
            && let Some(failure) = self.authenticator.not_yet()
        {
            return Err(failure);
        }
        let user = impersonate(&self.authorizer, &identity.user, &mut head.headers)
            .await?
            .unwrap_or(identity.user);
        // Probes must be answered above all when much is going on.
        if !open {
            work.slot = Some(self.slot(&info, &user)?);
        }
        self.authorizer.authorize(&user, attempt).await?;

        match &info.target {
            Target::Resource(target) => self.resource(&head, &info, target, accept, pretty).await,
            Target::Path => self
                .path(&head, &info.path, body, accept, pretty)
                .await
                .map(Answer::plain),
        }
    }

    /// A place among those that are served; the privileged need none.
    fn slot(&self, info: &RequestInfo, user: &crate::review::UserInfo) -> Result<Slot, Failure> {
        let is_watch = info.verb == "watch";
        let (places, what) = if is_watch {
            (&self.watches, "watches")
        } else {
            (&self.in_flight, "requests")
        };
        let taken = |permit| Slot::new(permit, self.metrics.in_flight(is_watch));
        match Arc::clone(places).try_acquire_owned() {
            Ok(place) => Ok(taken(Some(place))),
            Err(_) if self.authorizer.is_privileged(user) => Ok(taken(None)),
            Err(_) => {
                self.metrics.dropped.inc();
                Err(Failure::too_many(
                    format!("Too many {what}, please try again later."),
                    1,
                ))
            }
        }
    }

    fn kind_of(&self, head: &Parts, info: &RequestInfo) -> RequestKind {
        let mut kind = RequestKind::of_method(&head.method);
        match &info.target {
            Target::Path => kind.subresource = documents::route_label(&info.path),
            Target::Resource(target) => {
                if kind.verb == "GET" {
                    kind.verb = match info.verb.as_str() {
                        "list" => "LIST",
                        "watch" => "WATCH",
                        _ => "GET",
                    };
                }
                kind.scope = if target.parts > 1 {
                    "resource"
                } else if target.namespace.is_empty() {
                    "cluster"
                } else {
                    "namespace"
                };
                if let Some(found) = self.catalog.resource(target) {
                    kind.group = found.group;
                    kind.version = found.version;
                    kind.resource = found.resource.facts().plural;
                }
            }
        }
        kind
    }

    /// Gives the body what it holds until its end.
    fn finish(
        &self,
        connection: Arc<Connection>,
        answer: Answer,
        mut work: Work,
        deadline: tokio::time::Instant,
    ) -> Response<Body> {
        let (mut parts, mut body) = answer.response.into_parts();
        if work.is_head {
            // Over HTTP/2 nobody else takes the body away.
            if let Some(size) = body.size_hint().exact() {
                parts
                    .headers
                    .insert(CONTENT_LENGTH, HeaderValue::from(size));
            }
            body = Body::full("");
        }
        work.recorder.code = parts.status.as_u16();
        parts
            .headers
            .entry(CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache, private"));
        let body = match answer.watch {
            None => DeadlineBody::response(body, work.slot, work.recorder, connection, deadline),
            Some(longest) => DeadlineBody::watch(
                body,
                work.slot,
                work.recorder,
                connection,
                longest,
                self.draining.clone(),
            ),
        };
        Response::from_parts(parts, Body::wrap(body))
    }
}

/// What a request holds while it is worked on.
struct Work {
    recorder: Recorder,
    slot: Option<Slot>,
    /// Whether the connection shall end with this request.
    close: bool,
    /// Whether only the head of the answer is wanted.
    is_head: bool,
}

impl Answer {
    const fn plain(response: Response<Body>) -> Self {
        Self {
            response,
            watch: None,
        }
    }
}

impl RequestKind {
    fn of_method(method: &http::Method) -> Self {
        let verb = match method.as_str() {
            "GET" => "GET",
            "HEAD" => "HEAD",
            "POST" => "POST",
            "PUT" => "PUT",
            "PATCH" => "PATCH",
            "DELETE" => "DELETE",
            "OPTIONS" => "OPTIONS",
            _ => "OTHER",
        };
        Self {
            verb,
            group: "",
            version: "",
            resource: "",
            subresource: "",
            scope: "",
        }
    }
}
