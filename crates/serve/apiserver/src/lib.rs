//! A kit for aggregated Kubernetes API servers: everything but the resources.
//!
//! A program has [`ApiGroup`]s of [`ApiResource`]s; the kit does the rest as Kubernetes does it, so
//! that kubectl, controllers and the aggregation layer notice no difference from a server written
//! in Go:
//!
//! ```text
//! kubevitals-http ─► TLS, HTTP/1.1 and 2 ─► authn ─► authz ─► limits ─► path ─► Accept ─► ApiResource
//!                                             │         │
//!                                             └ Reviewer┘  TokenReview, SubjectAccessReview, cached
//! ```
//!
//! * [`ServerConfig`] is the whole configuration; [`ApiServer::bind`] validates it and listens;
//!   [`ApiServer::serve`] serves, refreshes certificates and authorities, and drains.
//! * [`ServingCertificate`] is loaded from files or self-signed; [`CaBundleWriter`] publishes its
//!   authority to the aggregation layer.
//! * [`Reviewer`] and [`AuthenticationSource`] authenticate and authorize users; [`KubeReviewer`]
//!   delegates to the cluster.
//! * [`Access`], [`TlsTransport`] and [`ServingCertificate`] are the same parts for other servers,
//!   such as a kubelet.
//! * [`wire`] helps resources to encode objects as Go does.
//!
//! Nothing here depends on a resource, and everything is read-only: verbs are `get`, `list` and
//! `watch`.
//!
//! # Differences from a server written in Go
//!
//! * Lists are never paged: `limit` and `continue` are accepted and have no effect.
//! * Discovery and OpenAPI documents are JSON (discovery also YAML); a client that accepts protobuf
//!   alone gets 406.
//! * YAML of more than [`Limits::yaml_bytes`] of JSON is rejected with 406.
//! * When the cluster's API server is unavailable, the response is 503 with the reason instead of
//!   401 or a bare 500.
//! * Paths that are always allowed are served without a token review, also with an invalid token.
//! * Constrained impersonation (the verbs `impersonate:MODE`) is not supported.
//! * `application/*` means JSON, `HEAD` is rejected on resources, and `Allow` is sent with
//!   405.
//! * No audit log, no priority and fairness, no CBOR, no CORS.

mod access;
mod api_groups;
mod authn;
mod authz;
mod body;
mod ca_bundle;
mod cache;
mod certificate;
mod config;
mod discovery;
mod encode;
mod error;
mod handler;
mod metrics;
mod negotiate;
mod openapi;
mod query;
mod rate_limit;
mod request_info;
mod resource;
mod review_cache;
mod reviewer;
mod server;
mod status;
mod transport;
pub mod wire;

pub use access::{Access, AccessError};
pub use authn::{Identity, Peer, TrustStatus};
pub use body::{Body, BodyError};
pub use ca_bundle::{CaBundleError, CaBundleStatus, CaBundleWriter};
pub use certificate::{ServingCertificate, service_names};
pub use config::{
    AuthenticationConfig, AuthorizationConfig, FrontProxyConfig, Limits, Lookup, RequestHeaders,
    ServerConfig, ServerTelemetry, VersionInfo,
};
pub use encode::yaml::from_json as yaml_from_json;
pub use error::ApiServerError;
pub use metrics::{AccessMetrics, ApiServerMetrics};
pub use request_info::{InvalidPath, RequestInfo, ResourceTarget, Target};
pub use resource::{
    ApiGroup, ApiResource, Encoding, GetRequest, IncludeObject, ListRequest, Representation,
    ResourceInfo, Shape, StatusError, WatchRequest,
};
pub use reviewer::{
    AccessDecision, AccessReview, Attributes, AuthenticationSource, BearerToken, KubeReviewer,
    ReviewError, ReviewFuture, Reviewer, SelectorOperator, SelectorRequirement, TokenReviewResult,
    UserInfo,
};
pub use server::ApiServer;
pub use transport::{BackgroundTask, PlainTransport, TlsTransport};
