//! `tcp`: a connection, with TLS or without, and a dialogue of lines.

use regex::bytes::Regex;

use crate::{NetworkSettings, ProbeTls};

/// The settings of `tcp`.
#[derive(Debug, Clone, Default)]
pub struct TcpSettings {
    /// The steps of the dialogue. Without any, a connection is all that is asked for.
    pub query_response: Vec<QueryResponse>,
    pub tls: bool,
    pub tls_config: ProbeTls,
    pub network: NetworkSettings,
}

/// A step of a dialogue, in this order: expect, send, start TLS.
#[derive(Debug, Clone, Default)]
pub struct QueryResponse {
    /// Lines are read until one matches.
    pub expect: Option<Regex>,
    /// These bytes are read.
    pub expect_bytes: Option<Vec<u8>>,
    /// Labels from the groups of `expect`: name and template, as in `${1}`.
    pub labels: Vec<(String, String)>,
    /// Sent with a line feed; groups of `expect` may be used.
    pub send: Option<String>,
    pub starttls: bool,
}
