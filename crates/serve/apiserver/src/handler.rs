//! The path of a request: authentication, authorization, limits, routing, response.

mod delivery;
mod health;
mod non_resource;
mod objects;
mod places;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, HeaderValue};
use http::request::Parts;
use http::{Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use kubevitals_http::Delivery;
use kubevitals_http::query::Query;
use kubevitals_telemetry::panic_message;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use self::delivery::{Held, Slot, WatchBody};
use self::places::Places;
use crate::api_groups::ApiGroups;
use crate::authn::{Authenticator, Peer, TrustStatus};
use crate::authz::{Authorizer, impersonate, is_impersonation_requested};
use crate::body::Body;
use crate::config::{Limits, ServerConfig};
use crate::discovery::{Discovery, Document};
use crate::error::ApiServerError;
use crate::metrics::{ApiServerMetrics, Recorder, RequestKind};
use crate::negotiate::{accept_of, media_of_error, wants_pretty};
use crate::openapi::OpenApi;
use crate::request_info::{RequestInfo, Target};
use crate::status::ApiStatus;

/// Maximum number of concurrent conversions to YAML, which need the whole tree in memory.
const MAX_YAML_CONVERSIONS: usize = 4;

/// Maximum length of one header, such as a token that would be sent to the API server for review.
/// The groups of a user are a header each.
const MAX_HEADER_VALUE_BYTES: usize = 64 << 10;

/// The time that the error of a request that took too long has to be written.
pub(crate) const MIN_WRITE_TIME: Duration = Duration::from_secs(5);

/// Responds to the requests of the API server.
pub(crate) struct ApiHandler {
    groups: ApiGroups,
    discovery: Discovery,
    openapi: OpenApi,
    version: Document,
    authenticator: Authenticator,
    authorizer: Authorizer,
    health: kubevitals_telemetry::Health,
    registry: kubevitals_telemetry::SharedRegistry,
    logs: Option<kubevitals_telemetry::LogHandle>,
    #[cfg(feature = "pprof")]
    profiling: bool,
    metrics: Arc<ApiServerMetrics>,
    limits: Limits,
    in_flight: Places,
    watches: Places,
    yaml: Semaphore,
    draining: watch::Receiver<bool>,
    /// The share of requests over HTTP/2 that close their connection, in 2^32.
    goaway_threshold: u32,
}

/// The connection that a request arrived on.
pub(crate) type Connection = kubevitals_http::Connection<Peer>;

/// A response, with its timeout if it is a watch.
pub(crate) struct ApiResponse {
    response: Response<Body>,
    watch: Option<Duration>,
}

impl kubevitals_http::Handler<Peer> for ApiHandler {
    type Body = Body;

    /// A panic or a timeout becomes a response too.
    async fn handle(
        &self,
        connection: &Arc<Connection>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let (head, body) = request.into_parts();
        let accept = accept_of(&head.headers);
        let pretty = wants_pretty(&head.headers, Query::new(head.uri.query()));
        let recorder = Recorder::new(
            Arc::clone(&self.metrics),
            RequestKind::of_method(&head.method),
        );
        let mut deadline = Instant::now() + self.limits.request_timeout;
        let (method, uri) = (head.method.clone(), head.uri.clone());
        let mut context = RequestContext {
            recorder,
            slot: None,
            close: head.version == http::Version::HTTP_2 && self.decides_goaway(),
            is_head: method == http::Method::HEAD,
        };
        let handled = AssertUnwindSafe(self.handle_request(
            connection,
            head,
            body,
            &accept,
            pretty,
            &mut context,
        ));
        let handled = tokio::time::timeout_at(deadline, handled.catch_unwind()).await;
        let error = |status: ApiStatus| {
            ApiResponse::plain(status.into_response(media_of_error(&accept), pretty))
        };
        let response = match handled {
            Ok(Ok(Ok(response))) => response,
            Ok(Ok(Err(status))) => error(status),
            Ok(Err(panic)) => {
                self.metrics.panics.inc();
                let panic = panic_message(&*panic);
                tracing::error!(%method, path = uri.path(), panic, "request handler panicked");
                error(ApiStatus::internal(
                    "this request caused the server to fail",
                ))
            }
            Err(_elapsed) => {
                deadline = Instant::now() + MIN_WRITE_TIME;
                error(ApiStatus::timeout())
            }
        };
        if context.close {
            connection.state.close();
        }
        self.finish(response, context, deadline)
    }
}

impl ApiHandler {
    /// Builds all documents that do not change while the server runs.
    pub(crate) fn new(
        config: ServerConfig,
        trust: TrustStatus,
        draining: watch::Receiver<bool>,
    ) -> Result<Self, ApiServerError> {
        let groups = ApiGroups::new(config.groups)?;
        let telemetry = config.telemetry;
        Ok(Self {
            discovery: Discovery::new(&groups),
            openapi: OpenApi::new(&groups, &config.title, &config.version.git_version)?,
            version: Document::new(&config.version),
            authenticator: Authenticator::new(
                &config.authentication,
                trust,
                telemetry.metrics.access(),
                &telemetry.outage,
            )?,
            authorizer: Authorizer::new(
                &config.authorization,
                telemetry.metrics.access(),
                &telemetry.outage,
            )?,
            health: telemetry.health,
            registry: telemetry.registry,
            logs: telemetry.logs,
            #[cfg(feature = "pprof")]
            profiling: telemetry.profiling,
            metrics: Arc::new(telemetry.metrics),
            in_flight: Places::new(config.limits.in_flight),
            watches: Places::new(config.limits.watches),
            yaml: Semaphore::new(MAX_YAML_CONVERSIONS),
            limits: config.limits,
            groups,
            draining,
            goaway_threshold: threshold(config.goaway_chance),
        })
    }

    /// Whether this request is among those that close their connection.
    fn decides_goaway(&self) -> bool {
        let mut random = [0; 4];
        self.goaway_threshold > 0
            && aws_lc_rs::rand::fill(&mut random).is_ok()
            && u32::from_be_bytes(random) < self.goaway_threshold
    }

    async fn handle_request(
        &self,
        connection: &Connection,
        mut head: Parts,
        body: Incoming,
        accept: &str,
        pretty: bool,
        context: &mut RequestContext,
    ) -> Result<ApiResponse, ApiStatus> {
        let info = RequestInfo::parse(&head.method, &head.uri)
            .map_err(|error| ApiStatus::bad_request(error.to_string()))?;
        context.recorder.kind = self.kind_of(&head, &info);
        if let Some(name) = oversized_header(&head.headers) {
            context.close |= head.version == http::Version::HTTP_2;
            return Err(ApiStatus::new(
                http::StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "",
                format!("the header {name} has more than {MAX_HEADER_VALUE_BYTES} bytes"),
            ));
        }
        let attributes = info.attributes();
        let is_always_allowed = self.authorizer.is_always_allowed(&attributes);

        // Probes must succeed above all while reviews do not.
        if is_always_allowed && self.authenticator.accepts_anonymous() {
            let user = self
                .authenticator
                .identify_now(&connection.peer, &mut head.headers);
            context.close |= head.version == http::Version::HTTP_2 && user.is_none();
            if user.is_some() {
                connection.state.authenticated();
            }
            let is_privileged = user.is_some_and(|user| self.authorizer.is_privileged(&user))
                && !is_impersonation_requested(&head.headers);
            return self
                .path(&head, &info.path, body, accept, pretty, is_privileged)
                .await
                .map(ApiResponse::plain);
        }
        let identity = self
            .authenticator
            .authenticate(&connection.peer, &mut head.headers)
            .await;
        // HTTP/2 is cheap to open and costly to serve: unauthenticated clients get one request.
        context.close |= head.version == http::Version::HTTP_2
            && identity
                .as_ref()
                .map_or(true, |identity| identity.is_anonymous);
        let identity = identity?;
        if !identity.is_anonymous {
            connection.state.authenticated();
        }
        if identity.is_anonymous
            && !is_always_allowed
            && let Some(status) = self.authenticator.not_loaded()
        {
            return Err(status);
        }
        let user = impersonate(&self.authorizer, &identity.user, &mut head.headers)
            .await?
            .unwrap_or(identity.user);
        // Probes must succeed above all under load.
        if !is_always_allowed {
            context.slot = Some(self.slot(&info, &user)?);
        }
        self.authorizer.authorize(&user, attributes).await?;

        match &info.target {
            Target::Resource(target) => self.resource(&head, &info, target, accept, pretty).await,
            Target::Path => self
                .path(
                    &head,
                    &info.path,
                    body,
                    accept,
                    pretty,
                    self.authorizer.is_privileged(&user),
                )
                .await
                .map(ApiResponse::plain),
        }
    }

    /// Acquires a slot among the requests in flight; privileged users need none.
    fn slot(
        &self,
        info: &RequestInfo,
        user: &crate::reviewer::UserInfo,
    ) -> Result<Slot, ApiStatus> {
        let is_watch = info.verb == "watch";
        let (slots, what) = if is_watch {
            (&self.watches, "watches")
        } else {
            (&self.in_flight, "requests")
        };
        let slot = |place| Slot::new(place, self.metrics.in_flight(is_watch));
        match slots.take(&user.name) {
            Some(place) => Ok(slot(Some(place))),
            None if self.authorizer.is_privileged(user) => Ok(slot(None)),
            None => {
                self.metrics.dropped.inc();
                Err(ApiStatus::too_many(
                    format!("Too many {what}, please try again later."),
                    1,
                ))
            }
        }
    }

    fn kind_of(&self, head: &Parts, info: &RequestInfo) -> RequestKind {
        let mut kind = RequestKind::of_method(&head.method);
        match &info.target {
            Target::Path => kind.subresource = non_resource::route_label(&info.path),
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
                if let Some(resolved) = self.groups.resource(target) {
                    kind.group = resolved.group;
                    kind.version = resolved.version;
                    kind.resource = resolved.resource.info().plural;
                }
            }
        }
        kind
    }

    /// Attaches the slot, the deadline and the metrics record to the response.
    fn finish(
        &self,
        response: ApiResponse,
        mut context: RequestContext,
        deadline: Instant,
    ) -> Response<Body> {
        let (mut parts, mut body) = response.response.into_parts();
        if context.is_head {
            // Over HTTP/2 hyper does not remove the body.
            if let Some(size) = body.size_hint().exact() {
                parts
                    .headers
                    .insert(CONTENT_LENGTH, HeaderValue::from(size));
            }
            body = Body::full("");
        }
        context.recorder.code = parts.status.as_u16();
        parts
            .headers
            .entry(CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache, private"));
        parts.extensions.insert(Delivery {
            deadline: response.watch.is_none().then_some(deadline),
            guard: Some(Arc::new(Held {
                _slot: context.slot,
                _recorder: context.recorder,
            })),
        });
        let body = match response.watch {
            None => body,
            Some(timeout) => Body::wrap(WatchBody::new(body, timeout, self.draining.clone())),
        };
        Response::from_parts(parts, body)
    }
}

/// The state of a request until its response is complete.
struct RequestContext {
    recorder: Recorder,
    slot: Option<Slot>,
    /// Whether the connection is closed after this request.
    close: bool,
    /// Whether the request is a `HEAD`.
    is_head: bool,
}

/// Returns the name of a header that is too long.
fn oversized_header(headers: &http::HeaderMap) -> Option<&http::HeaderName> {
    let mut headers = headers.iter();
    let (name, _) = headers.find(|(_, value)| value.len() > MAX_HEADER_VALUE_BYTES)?;
    Some(name)
}

/// Converts a probability to a threshold of random numbers.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is within the range, and a cast saturates"
)]
fn threshold(probability: f64) -> u32 {
    (probability.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u32
}

impl ApiResponse {
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
