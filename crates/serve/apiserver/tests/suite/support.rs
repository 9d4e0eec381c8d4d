//! A server with widgets, certificates of two authorities, and a reviewer with rules of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::StreamExt as _;
use kubevitals_apiserver::wire::envelope::{
    EventKind, put_envelope, put_json_event, put_protobuf_event,
};
use kubevitals_apiserver::wire::meta::{ObjectMeta, put_list_meta};
use kubevitals_apiserver::wire::protobuf::{put_bytes, put_int};
use kubevitals_apiserver::{
    AccessDecision, AccessReview, ApiGroup, ApiResource, ApiServer, ApiServerMetrics, Attributes,
    AuthenticationConfig, AuthorizationConfig, BearerToken, Body, Encoding, FrontProxyConfig,
    GetRequest, ListRequest, Representation, RequestHeaders, ResourceInfo, ReviewError,
    ReviewFuture, Reviewer, ServerConfig, ServerTelemetry, ServingCertificate, Shape, StatusError,
    TokenReviewResult, UserInfo, VersionInfo, WatchRequest,
};
use kubevitals_telemetry::{Health, Metrics, OutageLog, Probe, SharedRegistry, Status};
use kubevitals_tls::{PemSource, TrustRoots};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

/// Far longer than anything here takes: reached only by a hang.
const DEADLINE: Duration = Duration::from_mins(1);

/// Waits for what must happen.
pub(crate) fn within<T>(
    what: &str,
    future: impl Future<Output = T>,
) -> Pin<Box<impl Future<Output = T>>> {
    // Boxed: futures of tests are large.
    Box::pin(async move {
        let result = tokio::time::timeout(DEADLINE, future).await;
        result.unwrap_or_else(|_| panic!("not within {DEADLINE:?}: {what}"))
    })
}

/// Widgets with a weight: `widget-0` in `ns-0` and so on; the last digit of both is the same.
pub(crate) struct Widgets {
    info: ResourceInfo,
    count: usize,
    /// Responds only when triggered.
    pub(crate) stall: bool,
    /// Has a reference for each body that is not dropped.
    bodies: Arc<()>,
}

/// A running server.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) server_ca: String,
    pub(crate) clients: Authority,
    pub(crate) proxies: Authority,
    pub(crate) reviewer: Arc<Rules>,
    pub(crate) registry: SharedRegistry,
    pub(crate) health: Health,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

/// Signs certificates.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, as PEM.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Tokens are `token-of-NAME`; `reader` may read widgets, `scraper` may read metrics.
#[derive(Default)]
pub(crate) struct Rules {
    pub(crate) tokens_asked: AtomicUsize,
    pub(crate) access_asked: AtomicUsize,
    pub(crate) down: AtomicBool,
    /// Reviews get no response.
    pub(crate) silent: AtomicBool,
}

impl Reviewer for Rules {
    fn review_token<'a>(&'a self, token: &'a BearerToken) -> ReviewFuture<'a, TokenReviewResult> {
        self.tokens_asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            self.check("cannot create tokenreviews").await?;
            Ok(match token.expose().strip_prefix("token-of-") {
                Some(name) => TokenReviewResult::Valid(UserInfo {
                    name: name.to_owned(),
                    ..UserInfo::default()
                }),
                None => TokenReviewResult::Invalid,
            })
        })
    }

    fn review_access<'a>(&'a self, review: &'a AccessReview) -> ReviewFuture<'a, AccessDecision> {
        self.access_asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            self.check("cannot create subjectaccessreviews").await?;
            let user = review.user.name.as_str();
            let allowed = match &review.attributes {
                Attributes::Resource { verb, .. } if verb == "impersonate" => user == "boss",
                Attributes::Resource { group, .. } => user == "reader" && group == "example.dev",
                Attributes::Path { path, .. } => {
                    user == "scraper" && path == "/metrics"
                        || user == "reader" && !path.starts_with("/debug") && path != "/metrics"
                }
            };
            Ok(AccessDecision {
                allowed,
                reason: String::new(),
            })
        })
    }
}

impl Rules {
    async fn check(&self, operation: &'static str) -> Result<(), ReviewError> {
        if self.silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.down.load(Ordering::SeqCst) {
            return Err(ReviewError::new(operation, "connection refused"));
        }
        Ok(())
    }
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    pub(crate) fn client(&self, name: &str, groups: &[&str]) -> Credentials {
        self.sign(name, groups, |_| {})
    }

    pub(crate) fn expired(&self, name: &str) -> Credentials {
        self.sign(name, &[], |params| {
            params.not_before = rcgen::date_time_ymd(2001, 1, 1);
            params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        })
    }

    fn sign(
        &self,
        name: &str,
        groups: &[&str],
        alter: impl FnOnce(&mut CertificateParams),
    ) -> Credentials {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        for group in groups {
            params
                .distinguished_name
                .push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        alter(&mut params);
        Credentials {
            certificate: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    pub(crate) fn roots(&self) -> Arc<TrustRoots> {
        TrustRoots::load("test", vec![inline(&self.pem)], SystemTime::now()).unwrap()
    }
}

pub(crate) fn inline(pem: &str) -> PemSource {
    PemSource::Inline {
        label: "test",
        pem: Arc::from(pem.as_bytes()),
    }
}

impl Running {
    /// Starts a server with 25 widgets.
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// Starts a server with an altered configuration.
    pub(crate) async fn with(alter: impl FnOnce(&mut ServerConfig)) -> Self {
        kubevitals_tls::install_crypto_provider();
        let reviewer = Arc::new(Rules::default());
        let (clients, proxies) = (Authority::new("clients"), Authority::new("proxies"));
        let authentication = AuthenticationConfig {
            tokens: Some(Arc::<Rules>::clone(&reviewer)),
            token_ttl: Duration::from_secs(10),
            client_ca: Some(clients.roots()),
            front_proxy: Some(FrontProxyConfig {
                ca: proxies.roots(),
                headers: RequestHeaders {
                    uid: vec![String::from("x-remote-uid")],
                    allowed_names: vec![String::from("front-proxy")],
                    ..RequestHeaders::default()
                },
            }),
            lookup: None,
            anonymous: true,
        };
        let authorization = AuthorizationConfig::delegated(Arc::<Rules>::clone(&reviewer));
        let (telemetry, registry, health) = telemetry();
        let certificate = certificate(&["localhost", "127.0.0.1"]);
        let server_ca = certificate.ca_bundle().unwrap().to_string();
        let mut config = ServerConfig::new(
            loopback(),
            certificate,
            authentication,
            authorization,
            telemetry,
        );
        config.title = String::from("Widgets");
        config.version = VersionInfo {
            major: String::from("1"),
            minor: String::from("37"),
            git_version: String::from("v0.0.0"),
            ..VersionInfo::default()
        };
        config.groups = vec![widgets(25)];
        alter(&mut config);
        let server = ApiServer::bind(config).await.unwrap();
        let address = server.local_addr();
        let (stop, task) = spawn(server);
        Self {
            address,
            server_ca,
            clients,
            proxies,
            reviewer,
            registry,
            health,
            stop: Some(stop),
            task,
        }
    }

    /// Starts the shutdown.
    pub(crate) fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Shuts down and waits for the end.
    pub(crate) async fn stop(mut self) {
        self.begin_stop();
        within("the server ends", self.task).await.unwrap();
    }
}

/// Runs a server with its tasks until the sender is dropped.
pub(crate) fn spawn(mut server: ApiServer) -> (oneshot::Sender<()>, JoinHandle<()>) {
    let mut tasks = JoinSet::new();
    for (_, task) in server.take_tasks() {
        tasks.spawn(task);
    }
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move {
        let _tasks = tasks;
        let stopped = async {
            let _ended = stopped.await;
        };
        server.serve(stopped).await;
    });
    (stop, task)
}

pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

pub(crate) fn certificate(names: &[&str]) -> ServingCertificate {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    ServingCertificate::self_signed("widgets", names, None, SystemTime::now()).unwrap()
}

pub(crate) fn telemetry() -> (ServerTelemetry, SharedRegistry, Health) {
    let mut metrics = Metrics::new();
    let own = ApiServerMetrics::register(&mut metrics);
    let registry = metrics.freeze();
    let health = Health::new();
    health.check("log", Probe::ALL, || Status::Ok).unwrap();
    let telemetry = ServerTelemetry {
        health: health.clone(),
        registry: registry.clone(),
        metrics: own,
        logs: None,
        profiling: false,
        outage: OutageLog::default(),
    };
    (telemetry, registry, health)
}

pub(crate) fn widgets(count: usize) -> ApiGroup {
    widgets_with_bodies(count, &Arc::default())
}

/// Widgets whose lists and watches hold a reference to `bodies`.
pub(crate) fn widgets_with_bodies(count: usize, bodies: &Arc<()>) -> ApiGroup {
    ApiGroup {
        name: "example.dev",
        versions: &["v1", "v1beta1"],
        resources: vec![
            Arc::new(Widgets {
                info: info("widgets", true),
                count,
                stall: false,
                bodies: Arc::clone(bodies),
            }),
            Arc::new(Widgets {
                info: info("gadgets", false),
                count: 2,
                stall: true,
                bodies: Arc::default(),
            }),
        ],
    }
}

fn info(plural: &'static str, namespaced: bool) -> ResourceInfo {
    ResourceInfo {
        plural,
        singular: "",
        kind: "Widget",
        list_kind: "WidgetList",
        namespaced,
        selectable_fields: &["metadata.name", "metadata.namespace"],
        watchable: namespaced,
        schemas: r##"{
            "dev.example.v1.Widget": {"type": "object", "description": "A widget.", "properties": {
                "apiVersion": {"type": "string"}, "kind": {"type": "string"},
                "metadata": {"allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}], "default": {}},
                "weight": {"type": "integer", "description": "What it weighs."}}},
            "dev.example.v1.WidgetList": {"type": "object", "properties": {
                "items": {"type": "array", "items": {"$ref": "#/components/schemas/dev.example.v1.Widget"}},
                "metadata": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"}}}
        }"##,
    }
}

impl Widgets {
    fn json(&self, version: &str, at: usize) -> Vec<u8> {
        let mut object = json!({
            "kind": "Widget",
            "apiVersion": format!("example.dev/{version}"),
            "metadata": {"name": format!("widget-{at}"), "labels": {"parity": parity(at)}},
            "weight": at,
        });
        if self.info.namespaced {
            object["metadata"]["namespace"] = json!(format!("ns-{at}"));
        }
        serde_json::to_vec(&object).unwrap()
    }

    fn message(at: usize) -> Vec<u8> {
        let (name, namespace) = (format!("widget-{at}"), format!("ns-{at}"));
        let mut out = Vec::new();
        let labels = [("parity", parity(at))];
        let meta = ObjectMeta {
            name: &name,
            namespace: &namespace,
            labels: &labels,
            ..ObjectMeta::default()
        };
        meta.put(&mut out, 1);
        put_int(&mut out, 2, i64::try_from(at).unwrap());
        out
    }

    fn object(&self, version: &str, at: usize, representation: Representation) -> Vec<u8> {
        match (representation.shape, representation.encoding) {
            (Shape::Object, Encoding::Json) => self.json(version, at),
            (Shape::Object, Encoding::Protobuf) => {
                let mut out = Vec::new();
                put_envelope(
                    &mut out,
                    &format!("example.dev/{version}"),
                    "Widget",
                    &Self::message(at),
                );
                out
            }
            (Shape::Table { version, include }, _) => {
                let row = json!({"cells": [format!("widget-{at}"), at], "include": format!("{include:?}")});
                let table = json!({"kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "rows": [row]});
                serde_json::to_vec(&table).unwrap()
            }
            (Shape::Metadata { version }, _) => {
                let object = json!({"kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"),
                                    "metadata": {"name": format!("widget-{at}")}});
                serde_json::to_vec(&object).unwrap()
            }
        }
    }

    fn selected(&self, request: &ListRequest<'_>) -> Vec<usize> {
        (0..self.count)
            .filter(|at| {
                let (name, namespace) = (format!("widget-{at}"), format!("ns-{at}"));
                request.namespace.is_none_or(|wanted| wanted == namespace)
                    && request
                        .labels
                        .matches(|key| (key == "parity").then(|| parity(*at)))
                    && request.fields.iter().all(|term| {
                        term.holds(if term.field == "metadata.name" {
                            &name
                        } else {
                            &namespace
                        })
                    })
            })
            .collect()
    }
}

impl ApiResource for Widgets {
    fn info(&self) -> &ResourceInfo {
        &self.info
    }

    fn get(&self, request: &GetRequest<'_>) -> Result<Body, StatusError> {
        assert_ne!(request.name, "bug", "this widget is a bug");
        if request.name == "stall" && self.stall {
            return Ok(Body::stream(futures_util::stream::pending()));
        }
        let at = request
            .name
            .strip_prefix("widget-")
            .and_then(|at| at.parse::<usize>().ok());
        match at.filter(|at| *at < self.count) {
            Some(at) => Ok(Body::full(self.object(
                request.version,
                at,
                request.representation,
            ))),
            None => Err(StatusError::NotFound {
                message: format!("widgets {:?} not found: it was never made", request.name),
            }),
        }
    }

    fn list(&self, request: &ListRequest<'_>) -> Result<Body, StatusError> {
        let selected = self.selected(request);
        let version = request.version.to_owned();
        if request.representation.encoding == Encoding::Protobuf {
            let mut message = Vec::new();
            put_list_meta(&mut message, 1, "7");
            for at in selected {
                put_bytes(&mut message, 2, &Self::message(at));
            }
            let mut out = Vec::new();
            put_envelope(
                &mut out,
                &format!("example.dev/{version}"),
                "WidgetList",
                &message,
            );
            return Ok(Body::full(out));
        }
        if let Shape::Table { .. } | Shape::Metadata { .. } = request.representation.shape {
            let first = selected.first().copied().unwrap_or_default();
            return Ok(Body::full(self.object(
                &version,
                first,
                request.representation,
            )));
        }
        let head = format!(
            "{{\"kind\":\"WidgetList\",\"apiVersion\":\"example.dev/{version}\",\"metadata\":{{\"resourceVersion\":\"7\"}},\"items\":["
        );
        let items: Vec<Bytes> = selected
            .iter()
            .enumerate()
            .map(|(position, at)| {
                let mut piece = if position > 0 { vec![b','] } else { Vec::new() };
                piece.extend_from_slice(&self.json(&version, *at));
                Bytes::from(piece)
            })
            .collect();
        let pieces = std::iter::once(Bytes::from(head))
            .chain(items)
            .chain([Bytes::from_static(b"]}\n")]);
        let body = Arc::clone(&self.bodies);
        Ok(Body::pieces(
            pieces.inspect(move |_| drop(Arc::clone(&body))),
        ))
    }

    fn watch(&self, request: &WatchRequest<'_>) -> Result<Body, StatusError> {
        if request.resource_version == "1" {
            return Err(StatusError::Expired {
                message: String::from("too old resource version: 1 (7)"),
            });
        }
        let form = request.list.representation;
        let events: Vec<Bytes> = self
            .selected(&request.list)
            .into_iter()
            .map(|at| {
                let object = self.object(request.list.version, at, form);
                let mut event = Vec::new();
                match form.encoding {
                    Encoding::Json => put_json_event(&mut event, EventKind::Added, &object),
                    Encoding::Protobuf => put_protobuf_event(&mut event, EventKind::Added, &object),
                }
                Bytes::from(event)
            })
            .collect();
        let body = Arc::clone(&self.bodies);
        Ok(Body::stream(
            futures_util::stream::iter(events)
                .chain(futures_util::stream::pending())
                .inspect(move |_| drop(Arc::clone(&body))),
        ))
    }
}

const fn parity(at: usize) -> &'static str {
    if at.is_multiple_of(2) { "even" } else { "odd" }
}
