//! The path of a request: authentication, authorization, routing, the provider, response.

mod logs;
mod observability;
mod pods;
mod run;
mod sessions;
mod stats;

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use kubevitals_apiserver::{ApiServerError, BackgroundTask, Body, Peer, TrustStatus};
use kubevitals_http::Delivery;
use kubevitals_model::Clock;
use kubevitals_telemetry::{Health, SharedRegistry, panic_message};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use crate::access::Gate;
use crate::config::{KubeletConfig, Limits, MIN_WRITE_TIME};
use crate::metrics::{KubeletMetrics, Recorder};
use crate::provider::Provider;
use crate::response::Failure;
use crate::route::{Route, method_label, path_label, permissions_of_unknown};
use crate::streaming::StreamingServer;

/// Responds to the requests of a kubelet server.
pub(crate) struct KubeletHandler {
    node_name: String,
    provider: Provider,
    gate: Gate,
    health: Health,
    registry: SharedRegistry,
    metrics: KubeletMetrics,
    limits: Limits,
    in_flight: Arc<Semaphore>,
    logs: Arc<Semaphore>,
    streaming: Arc<StreamingServer>,
    debug: bool,
    hidden_metrics: bool,
    pressure_in_micros: bool,
    configz: Option<bytes::Bytes>,
    clock: Clock,
    draining: watch::Receiver<bool>,
    /// The labels of paths whose last request failed: failures are logged once.
    failing: Mutex<BTreeSet<&'static str>>,
}

/// The connection that a request arrived on.
type Connection = kubevitals_http::Connection<Peer>;

/// What a request holds until its response is written.
struct Held {
    _recorder: Recorder,
    _permit: Option<OwnedSemaphorePermit>,
}

/// A response before it is delivered.
pub(crate) struct Reply {
    response: Response<Body>,
    /// Whether it may last for any time, as long as its client reads it.
    is_stream: bool,
    permit: Option<OwnedSemaphorePermit>,
}

impl kubevitals_http::Handler<Peer> for KubeletHandler {
    type Body = Body;

    /// A panic or a timeout becomes a response too. If the client leaves, this future is dropped,
    /// and with it that of the provider: nothing is logged or counted as an error.
    async fn handle(
        &self,
        connection: &Arc<Connection>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let path = path_label(request.uri().path());
        let is_http2 = request.version() == http::Version::HTTP_2;
        let recorder = self.metrics.begin(method_label(request.method()), path);
        let mut deadline = Instant::now() + self.limits.request_timeout;
        let handled = AssertUnwindSafe(self.respond(connection, request)).catch_unwind();
        let outcome = match tokio::time::timeout_at(deadline, handled).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => {
                self.metrics.panics.inc();
                let panic = panic_message(&*panic);
                tracing::error!(path, panic, "request handler panicked");
                Err(Failure::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "this request caused the server to fail",
                ))
            }
            Err(_elapsed) => {
                deadline = Instant::now() + MIN_WRITE_TIME;
                Err(Failure::new(
                    StatusCode::GATEWAY_TIMEOUT,
                    "request did not complete within the allotted timeout",
                ))
            }
        };
        let mut reply = match outcome {
            Ok(reply) => {
                if reply.response.status().as_u16() < 400 {
                    self.succeeded(path);
                }
                reply
            }
            Err(failure) => {
                // HTTP/2 is cheap to open and costly to serve: strangers get one request.
                if is_http2 && failure.status == StatusCode::UNAUTHORIZED {
                    connection.state.close();
                }
                if failure.status.is_server_error() && failure.status != StatusCode::NOT_IMPLEMENTED
                {
                    self.failed(path, &failure);
                }
                Reply::from(failure.into_response())
            }
        };
        self.metrics
            .responded(path, reply.response.status().as_u16());
        let held = Held {
            _recorder: recorder,
            _permit: reply.permit.take(),
        };
        reply.response.extensions_mut().insert(Delivery {
            deadline: (!reply.is_stream).then_some(deadline),
            guard: Some(Arc::new(held)),
        });
        reply.response
    }
}

impl KubeletHandler {
    /// Returns also the tasks that refresh authorities.
    pub(crate) fn new(
        config: KubeletConfig,
        streaming: Arc<StreamingServer>,
        draining: watch::Receiver<bool>,
    ) -> Result<(Self, Vec<BackgroundTask>), ApiServerError> {
        let telemetry = config.telemetry;
        let (gate, tasks) = Gate::new(config.access, &telemetry.metrics, &telemetry.outage)?;
        let handler = Self {
            node_name: config.node_name,
            provider: config.provider,
            gate,
            health: telemetry.health,
            registry: telemetry.registry,
            metrics: telemetry.metrics,
            in_flight: Arc::new(Semaphore::new(config.limits.in_flight.max(1))),
            logs: Arc::new(Semaphore::new(config.limits.logs.max(1))),
            limits: config.limits,
            streaming,
            debug: config.debug,
            hidden_metrics: config.hidden_metrics,
            pressure_in_micros: config.pressure_in_micros,
            configz: config.configz.map(|config| config.to_string().into()),
            clock: config.clock,
            draining,
            failing: Mutex::default(),
        };
        Ok((handler, tasks))
    }

    pub(crate) fn trust_status(&self) -> Option<TrustStatus> {
        self.gate.trust_status()
    }

    async fn respond(
        &self,
        connection: &Connection,
        mut request: Request<Incoming>,
    ) -> Result<Reply, Failure> {
        let method = request.method().clone();
        let route = Route::parse(request.uri().path());
        let permissions = match &route {
            Some(route) => route.permissions(&method),
            None => permissions_of_unknown(request.uri().path(), &method),
        };
        let is_known = self
            .gate
            .admit(
                &connection.peer,
                request.headers_mut(),
                &self.node_name,
                permissions,
            )
            .await?;
        if is_known {
            connection.state.authenticated();
        }
        let route = route.filter(|route| self.debug || *route != Route::RunningPods);
        let Some(route) = route else {
            return Err(Failure::new(StatusCode::NOT_FOUND, "404 page not found"));
        };
        if !route.allows(&method) {
            return Err(Failure::method_not_allowed(route.allow()));
        }
        let (places, what) = match route {
            Route::ContainerLogs(_) => (&self.logs, "logs"),
            _ => (&self.in_flight, "requests"),
        };
        let permit = Arc::clone(places).try_acquire_owned();
        let permit = permit.map_err(|_full| Failure::too_many(what))?;
        let mut reply = self.dispatch(route, request).await?;
        reply.permit = Some(permit);
        Ok(reply)
    }

    async fn dispatch(&self, route: Route, request: Request<Incoming>) -> Result<Reply, Failure> {
        let response = match route {
            Route::ContainerLogs(target) => {
                return self.container_logs(target, request.uri().query()).await;
            }
            Route::Pods => self.pods().await?,
            Route::RunningPods => self.running_pods().await?,
            Route::Exec(target) => self.exec(target, request).await?,
            Route::Attach(target) => self.attach(target, request).await?,
            Route::Run(target) => self.run(target, request.uri().query()).await?,
            Route::PortForward(target) => self.port_forward(target, request).await?,
            Route::StatsSummary => self.stats_summary(request).await?,
            Route::ResourceMetrics => self.resource_metrics(request.headers()).await?,
            Route::CadvisorMetrics => self.cadvisor_metrics(request.headers()).await?,
            Route::ProbeMetrics => self.probe_metrics(request.headers()).await?,
            Route::Metrics => self.own_metrics(request.headers()).await?,
            Route::Healthz(check) => self.healthz(check.as_deref(), request.uri().query())?,
            Route::Configz => self.configz()?,
        };
        Ok(Reply::from(response))
    }

    /// Logs the first failure of a path, and then none until it has succeeded.
    fn failed(&self, path: &'static str, failure: &Failure) {
        let is_first = self.failing.lock().insert(path);
        if is_first {
            tracing::warn!(
                path,
                status = failure.status.as_u16(),
                reason = failure.message,
                "request failed"
            );
        }
    }

    fn succeeded(&self, path: &'static str) {
        let was_failing = self.failing.lock().remove(path);
        if was_failing {
            tracing::info!(path, "requests succeed again");
        }
    }
}

impl From<Response<Body>> for Reply {
    fn from(response: Response<Body>) -> Self {
        Self {
            response,
            is_stream: false,
            permit: None,
        }
    }
}
