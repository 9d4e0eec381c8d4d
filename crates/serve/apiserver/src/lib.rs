//! A kit for aggregated Kubernetes API servers: everything but the resources.

mod body;
mod certificate;
mod config;
mod error;
mod metrics;
mod resource;
mod review;
mod server;

pub use body::{Body, BodyError};
pub use certificate::{ServingCertificate, service_names};
pub use config::{
    AuthenticationConfig, AuthorizationConfig, FrontProxyConfig, Limits, Lookup, RequestHeaders,
    ServerConfig, ServerTelemetry, VersionInfo,
};
pub use error::ApiServerError;
pub use metrics::ApiServerMetrics;
pub use resource::{
    ApiGroup, ApiResource, Encoding, Form, GetRequest, IncludeObject, ListRequest, Refusal,
    ResourceFacts, Shape, WatchRequest,
};
pub use review::{
    AccessQuestion, AccessVerdict, Attempt, AuthenticationSource, BearerToken, KubeReviewer,
    Pending, ReviewError, Reviewer, TokenVerdict, UserInfo,
};
pub use server::{ApiServer, TrustStatus};
