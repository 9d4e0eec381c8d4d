//! `grpc`: a call of `grpc.health.v1.Health/Check`.

use http::{HeaderName, HeaderValue};

use crate::{NetworkSettings, ProbeTls};

/// The settings of `grpc`.
#[derive(Debug, Clone, Default)]
pub struct GrpcSettings {
    /// The service to ask about; empty for the server as a whole.
    pub service: String,
    pub tls: bool,
    pub tls_config: ProbeTls,
    pub metadata: Vec<(HeaderName, HeaderValue)>,
    pub network: NetworkSettings,
}
