//! `tls`: a handshake, and how long the certificates are still valid.

use std::time::Duration;

use kubevitals_model::Timestamp;

use crate::run::{Run, system_time};
use crate::{Failure, NetworkSettings, ProbeTls, Reason, Target};

use super::connect::{dial, handshake};

/// The settings of `tls`.
#[derive(Debug, Clone, Default)]
pub struct TlsSettings {
    /// The probe fails if a certificate of the chain is valid for a shorter time.
    pub minimum_validity: Duration,
    pub tls_config: ProbeTls,
    pub network: NetworkSettings,
}

impl TlsSettings {
    pub(crate) async fn run(&self, run: &mut Run<'_>, target: &Target) -> Result<(), Failure> {
        let (host, port) = target.address(run)?;
        let stream = dial(run, host, port, &self.network).await?;
        let name = target.server_name(host, &self.tls_config);
        let _stream = handshake(run, stream, name, &self.tls_config, &[]).await?;
        self.judge(run)
    }

    fn judge(&self, run: &Run<'_>) -> Result<(), Failure> {
        let Some(expiry) = run.earliest_expiry() else {
            return Err(run.fail(Reason::TlsOther, "the certificates cannot be read"));
        };
        let now = system_time(run.context.clock.now());
        let left = expiry.duration_since(now).unwrap_or_default();
        if left <= self.minimum_validity {
            let expiry = Timestamp::from_system_time(expiry).rfc3339_seconds();
            let message = format!(
                "a certificate expires at {}, in {} seconds; {} are wanted",
                expiry.as_str(),
                left.as_secs(),
                self.minimum_validity.as_secs()
            );
            return Err(run.fail(Reason::TlsExpired, message));
        }
        Ok(())
    }
}
