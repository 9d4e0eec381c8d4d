//! A kit for aggregated Kubernetes API servers: everything but the resources.
//!
//! A program brings [`ApiGroup`]s of [`ApiResource`]s, which answer; the kit does the rest as
//! Kubernetes does it, so that kubectl, controllers and the aggregation layer notice no difference
//! from a server written in Go:
//!
//! ```text
//! socket ─► TLS, HTTP/1.1 and 2 ─► who asks ─► may they ─► is there room ─► path ─► Accept ─► ApiResource
//!                                     │           │
//!                                     └─ Reviewer ┘  TokenReview, SubjectAccessReview, remembered for seconds
//! ```
//!
//! * [`ServerConfig`] says everything; [`ApiServer::bind`] checks it and listens;
//!   [`ApiServer::serve`] answers, keeps certificates and trust fresh, and drains.
//! * [`ServingCertificate`] is from files or self-made; [`CaBundleWriter`] tells the aggregation
//!   layer.
//! * [`Reviewer`] and [`AuthenticationSource`] are who is asked about users; [`KubeReviewer`] asks
//!   the cluster.
//! * [`wire`] helps resources to write what Go would.
//!
//! Nothing here knows of a resource, and nothing here writes: verbs are `get`, `list` and `watch`.
//!
//! # What differs from a server written in Go
//!
//! * Lists are never cut into pages: `limit` and `continue` are accepted and have no effect.
//! * Discovery and OpenAPI documents are JSON (discovery also YAML); who asks for their protobuf
//!   alone gets 406.
//! * YAML of more than [`Limits::yaml_bytes`] of JSON is refused with 406.
//! * When the cluster's API server cannot be asked, the answer is 503 with the reason instead of
//!   401 or a bare 500.
//! * `application/*` is taken for JSON, `HEAD` is refused on resources, and `Allow` is sent with
//!   405.
//! * No audit log, no priority and fairness, no CBOR, no CORS.

mod authn;
mod authz;
mod body;
mod ca_bundle;
mod cache;
mod catalog;
mod certificate;
mod config;
mod convert;
mod discovery;
mod error;
mod handler;
mod metrics;
mod negotiate;
mod openapi;
mod query;
mod request_info;
mod resource;
mod review;
mod reviews;
mod server;
mod status;
pub mod wire;

pub use authn::TrustStatus;
pub use body::{Body, BodyError};
pub use ca_bundle::CaBundleWriter;
pub use certificate::{ServingCertificate, service_names};
pub use config::{
    AuthenticationConfig, AuthorizationConfig, FrontProxyConfig, Limits, Lookup, RequestHeaders,
    ServerConfig, ServerTelemetry, VersionInfo,
};
pub use error::ApiServerError;
pub use metrics::ApiServerMetrics;
pub use negotiate::MediaType;
pub use request_info::{BadPath, RequestInfo, ResourceTarget, Target};
pub use resource::{
    ApiGroup, ApiResource, Encoding, Form, GetRequest, IncludeObject, ListRequest, Refusal,
    ResourceFacts, Shape, WatchRequest,
};
pub use review::{
    AccessQuestion, AccessVerdict, Attempt, AuthenticationSource, BearerToken, KubeReviewer,
    Pending, ReviewError, Reviewer, TokenVerdict, UserInfo,
};
pub use server::ApiServer;
