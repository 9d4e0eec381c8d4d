//! One simulated kubelet: a real TLS socket that answers `/metrics/resource` in the kubelet's own bytes.
//!
//! Counters are closed-form, a function of the container and the time, so that what a scrape computes from them can be
//! compared with the truth.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kubevitals_cli::Shutdown;
use kubevitals_model::Timestamp;
use kubevitals_promtext::{Encoder, LabelName, MetricName, MetricType};
use kubevitals_tls::{Alpn, SelfSigned, ServerOptions, ServerTls};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::DemoError;

/// No demo needs more clients at once; further ones wait in the listener's queue.
const MAX_CONNECTIONS: usize = 16;

/// Memory is counted in pages.
const PAGE: f64 = 4096.0;

/// What runs on the node.
#[derive(Debug)]
pub(super) struct Workload {
    started: Timestamp,
    pods: Vec<SimulatedPod>,
}

#[derive(Debug)]
struct SimulatedPod {
    namespace: &'static str,
    name: String,
    containers: [SimulatedContainer; 2],
}

#[derive(Debug)]
struct SimulatedContainer {
    name: &'static str,
    cores: f64,
    memory: f64,
}

/// A bound but not yet serving kubelet.
#[derive(Debug)]
pub(super) struct Kubelet {
    listener: TcpListener,
    tls: ServerTls,
    workload: Arc<Workload>,
}

impl Workload {
    /// `pods` pods of two containers each that started at `started`; the same pods each time.
    pub(super) fn new(pods: u16, started: Timestamp) -> Self {
        const APPS: [&str; 5] = ["checkout", "search", "mail", "ledger", "gateway"];
        const NAMESPACES: [&str; 3] = ["shop", "payments", "platform"];
        let pods = (0..usize::from(pods)).map(|at| {
            let app = APPS.iter().cycle().nth(at).copied().unwrap_or_default();
            let namespace = NAMESPACES
                .iter()
                .cycle()
                .nth(at)
                .copied()
                .unwrap_or_default();
            // Spread over three orders of magnitude without a random source.
            let share = f64::from(u16::try_from(at * 37 % 101).unwrap_or_default() + 1) / 101.0;
            SimulatedPod {
                namespace,
                name: format!("{app}-{at:03}"),
                containers: [
                    SimulatedContainer {
                        name: "app",
                        cores: 0.9 * share * share,
                        memory: ((12_288.0 + 102_400.0 * share).round()) * PAGE,
                    },
                    SimulatedContainer {
                        name: "proxy",
                        cores: 0.004,
                        memory: 3_060.0 * PAGE,
                    },
                ],
            }
        });
        Self {
            started,
            pods: pods.collect(),
        }
    }

    /// What the kubelet would answer at `now`.
    pub(super) fn body(&self, now: Timestamp) -> Vec<u8> {
        let alive = now.since(self.started).unwrap_or_default().as_secs_f64();
        let mut out = Vec::with_capacity(self.pods.len() * 512);
        let mut encoder = Encoder::new(&mut out);
        let mut family = |name, help, kind, value: &dyn Fn(&SimulatedContainer) -> f64, at| {
            let mut family = encoder.family(MetricName::from_static(name), Some(help), Some(kind));
            for (container, pod) in self.sorted() {
                let labels = [
                    (LabelName::from_static("container"), container.name),
                    (LabelName::from_static("namespace"), pod.namespace),
                    (LabelName::from_static("pod"), pod.name.as_str()),
                ];
                family.sample(&labels, value(container), at);
            }
        };
        let at = Some(now.unix_millis());
        family(
            "container_cpu_usage_seconds_total",
            "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
            MetricType::Counter,
            &|container| container.cores * alive,
            at,
        );
        family(
            "container_memory_working_set_bytes",
            "[STABLE] Current working set of the container in bytes",
            MetricType::Gauge,
            &|container| container.memory,
            at,
        );
        family(
            "container_start_time_seconds",
            "[STABLE] Start time of the container since unix epoch in seconds",
            MetricType::Gauge,
            &|_| self.started_seconds(),
            None,
        );
        out
    }

    /// The containers as a kubelet lists them: by container, namespace and pod.
    fn sorted(&self) -> Vec<(&SimulatedContainer, &SimulatedPod)> {
        let mut all: Vec<_> = self
            .pods
            .iter()
            .flat_map(|pod| pod.containers.iter().map(move |container| (container, pod)))
            .collect();
        all.sort_by_key(|(container, pod)| (container.name, pod.namespace, &pod.name));
        all
    }

    fn started_seconds(&self) -> f64 {
        self.started
            .since(Timestamp::from_unix_millis(0))
            .unwrap_or_default()
            .as_secs_f64()
    }
}

impl Kubelet {
    /// Opens a port of its own on loopback.
    pub(super) async fn bind(
        workload: Workload,
        certificate: Arc<SelfSigned>,
    ) -> Result<Self, DemoError> {
        let options = ServerOptions {
            alpn: vec![Alpn::Http11],
            ..ServerOptions::default()
        };
        let tls = ServerTls::new(certificate, &options)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .map_err(DemoError::Bind)?;
        Ok(Self {
            listener,
            tls,
            workload: Arc::new(workload),
        })
    }

    pub(super) fn address(&self) -> Result<SocketAddr, DemoError> {
        self.listener.local_addr().map_err(DemoError::Bind)
    }

    /// Answers until the end is asked for.
    pub(super) async fn serve(self, mut shutdown: Shutdown) {
        let acceptor = TlsAcceptor::from(self.tls.config());
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept(), if connections.len() < MAX_CONNECTIONS => accepted,
                Some(_) = connections.join_next() => continue,
                () = shutdown.requested() => return,
            };
            let Ok((stream, _)) = accepted else { continue };
            let acceptor = acceptor.clone();
            let workload = Arc::clone(&self.workload);
            connections.spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let service = service_fn(|request| {
                    let answer = answer(&workload, &request);
                    async move { Ok::<_, Infallible>(answer) }
                });
                // A client that goes away in the middle is no news for a demo.
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    }
}

fn answer(workload: &Workload, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET || request.uri().path() != "/metrics/resource" {
        let mut refused = Response::new(Full::from("only GET /metrics/resource is here\n"));
        *refused.status_mut() = StatusCode::NOT_FOUND;
        return refused;
    }
    let body = workload.body(Timestamp::from_system_time(SystemTime::now()));
    let mut answer = Response::new(Full::from(body));
    answer.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
    );
    answer
}
