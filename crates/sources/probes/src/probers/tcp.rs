//! `tcp`: a connection, with TLS or without, and a dialogue of lines.

mod dialogue;

use std::fmt;

use regex::bytes::Regex;

use crate::run::Run;
use crate::{Failure, NetworkSettings, Phase, ProbeTls, Target};

use super::connect::{dial, handshake};
use dialogue::Dialogue;

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
#[derive(Clone, Default)]
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

impl fmt::Debug for QueryResponse {
    /// What is sent is left out: it may be a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryResponse")
            .field("expect", &self.expect)
            .field("sends", &self.send.is_some())
            .field("starttls", &self.starttls)
            .finish_non_exhaustive()
    }
}

impl TcpSettings {
    pub(crate) async fn run(&self, run: &mut Run<'_>, target: &Target) -> Result<(), Failure> {
        let (host, port) = target.address(run)?;
        let stream = dial(run, host, port, &self.network).await?;
        let name = target.server_name(host, &self.tls_config);
        let mut dialogue = if self.tls {
            Dialogue::new(handshake(run, stream, name, &self.tls_config, &[]).await?)
        } else {
            Dialogue::new(stream)
        };
        for step in &self.query_response {
            if run.phase() != Some(Phase::Request) {
                run.enter(Phase::Request);
            }
            dialogue.step(run, step).await?;
            if step.starttls {
                dialogue = dialogue.start_tls(run, name, &self.tls_config).await?;
            }
        }
        Ok(())
    }
}
