//! Writes the `caBundle` of APIServices, so that the aggregation layer verifies this server instead of being told not to.
//!
//! # What it needs
//!
//! A `ClusterRole` that names the very objects:
//!
//! ```yaml
//! rules:
//! - apiGroups: [apiregistration.k8s.io]
//!   resources: [apiservices]
//!   resourceNames: [v1.example.dev]
//!   verbs: [get, patch]
//! ```
//!
//! Whoever may write an APIService may take over its group: grant it for these names, and only if nobody else, such as
//! cert-manager, fills the bundle.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use serde::Deserialize;
use serde_json::json;

use crate::certificate::ServingCertificate;

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// After a failure it is tried again so soon.
const RETRY: Duration = Duration::from_secs(5);

/// Keeps the `caBundle` of some APIServices what it must be.
pub struct CaBundleWriter {
    client: kube::Client,
    certificate: ServingCertificate,
    api_services: Vec<String>,
    every: Duration,
}

/// What is known of an APIService.
#[derive(Debug, Deserialize)]
struct ApiService {
    spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    ca_bundle: Option<String>,
    #[serde(default, rename = "insecureSkipTLSVerify")]
    skips_verification: bool,
}

impl CaBundleWriter {
    /// For APIServices by name, such as `v1.metrics.k8s.io`; looked at once a minute, since others may write them too.
    pub fn new(
        client: kube::Client,
        certificate: ServingCertificate,
        api_services: Vec<String>,
    ) -> Self {
        Self {
            client,
            certificate,
            api_services,
            every: Duration::from_mins(1),
        }
    }

    /// Looks so often.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Writes for as long as it is polled. One line is logged per change of state, not per look.
    pub async fn run(self) {
        let mut failing: Vec<Option<String>> = vec![None; self.api_services.len()];
        loop {
            let mut pause = self.every;
            for (name, failing) in self.api_services.iter().zip(&mut failing) {
                match self.look(name).await {
                    Ok(written) => {
                        if written {
                            tracing::info!(api_service = %name, "caBundle written");
                        }
                        *failing = None;
                    }
                    Err(problem) => {
                        if failing.as_ref() != Some(&problem) {
                            tracing::warn!(api_service = %name, %problem, "caBundle cannot be written");
                        }
                        *failing = Some(problem);
                        pause = pause.min(RETRY);
                    }
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Writes one if it differs; whether it did.
    pub async fn look(&self, name: &str) -> Result<bool, String> {
        let Some(bundle) = self.certificate.ca_bundle() else {
            return Err(String::from(
                "the serving certificate comes from files, whose authority is not known here",
            ));
        };
        let wanted = STANDARD.encode(bundle.as_bytes());
        let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}");
        let request = Request::get(&path)
            .body(Vec::new())
            .map_err(|error| error.to_string())?;
        let found: ApiService = self.send(request).await?;
        if found.spec.ca_bundle.as_deref() == Some(&*wanted) && !found.spec.skips_verification {
            return Ok(false);
        }
        // A merge patch of just these two: whoever owns the rest keeps it.
        let patch = json!({"spec": {"caBundle": wanted, "insecureSkipTLSVerify": false}});
        let request = Request::patch(&path)
            .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
            .body(patch.to_string().into_bytes())
            .map_err(|error| error.to_string())?;
        let _written: ApiService = self.send(request).await?;
        Ok(true)
    }

    async fn send(&self, request: Request<Vec<u8>>) -> Result<ApiService, String> {
        match tokio::time::timeout(TIMEOUT, self.client.request(request)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_elapsed) => Err(format!("no answer within {TIMEOUT:?}")),
        }
    }
}
