//! Writes the `caBundle` of APIServices, so that the aggregation layer verifies this server instead
//! of skipping verification.
//!
//! # Permissions
//!
//! A `ClusterRole` that names these objects:
//!
//! ```yaml
//! rules:
//! - apiGroups: [apiregistration.k8s.io]
//!   resources: [apiservices]
//!   resourceNames: [v1.example.dev]
//!   verbs: [get, patch]
//! ```
//!
//! # Replicas
//!
//! Each replica signs for itself, and a bundle holds the authorities of all: a writer adds its own
//! and keeps those of others, the newest [`MAX_AUTHORITIES`]. Authorities of replicas that are gone
//! are evicted in the end; their keys are gone with their pods.
//!
//! Permission to write an APIService is permission to take over its group: grant it for these
//! names, and only if no other controller, such as cert-manager, writes the bundle.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use serde::Deserialize;
use serde_json::json;

use crate::certificate::ServingCertificate;

/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum number of authorities in a bundle: enough for any sensible number of replicas, with
/// those that a rollout replaces.
const MAX_AUTHORITIES: usize = 8;

const END_OF_CERTIFICATE: &str = "-----END CERTIFICATE-----";

/// Keeps the `caBundle` of APIServices up to date.
pub struct CaBundleWriter {
    client: kube::Client,
    certificate: ServingCertificate,
    api_services: Vec<String>,
    /// Namespace and name of the Service that an APIService must refer to in order to be ours.
    service: Option<(String, String)>,
    interval: Duration,
}

/// The fields of an APIService that are read.
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
    #[serde(default)]
    service: Option<ServiceReference>,
}

#[derive(Debug, Deserialize)]
struct ServiceReference {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

impl CaBundleWriter {
    /// For APIServices by name, such as `v1.metrics.k8s.io`. They are checked once a minute, since
    /// others may write them too.
    pub fn new(
        client: kube::Client,
        certificate: ServingCertificate,
        api_services: Vec<String>,
    ) -> Self {
        Self {
            client,
            certificate,
            api_services,
            service: None,
            interval: Duration::from_mins(1),
        }
    }

    /// Ignores APIServices that refer to another Service: another server serves them, with its own
    /// authority.
    #[must_use]
    pub fn of_service(mut self, namespace: &str, name: &str) -> Self {
        self.service = Some((namespace.to_owned(), name.to_owned()));
        self
    }

    /// Sets the interval of checks.
    #[must_use]
    pub fn with_interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Runs until it is dropped. Logs changes of state, not single checks.
    pub async fn run(self) {
        let mut failing: Vec<Option<String>> = vec![None; self.api_services.len()];
        loop {
            let mut pause = self.interval;
            for (name, failing) in self.api_services.iter().zip(&mut failing) {
                match self.update(name).await {
                    Ok(written) => {
                        if written {
                            tracing::info!(api_service = %name, "updated caBundle");
                        }
                        *failing = None;
                    }
                    Err(reason) => {
                        if failing.as_ref() != Some(&reason) {
                            tracing::warn!(api_service = %name, %reason, "failed to update caBundle");
                        }
                        *failing = Some(reason);
                        pause = pause.min(RETRY_INTERVAL);
                    }
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Updates one APIService if it differs; returns whether it did.
    pub async fn update(&self, name: &str) -> Result<bool, String> {
        let Some(bundle) = self.certificate.ca_bundle() else {
            return Err(String::from(
                "the serving certificate is loaded from files, and its authority is unknown",
            ));
        };
        let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}");
        let request = Request::get(&path)
            .body(Vec::new())
            .map_err(|error| error.to_string())?;
        let found: ApiService = self.send(request).await?;
        let spec = found.spec;
        if let Some((namespace, service)) = &self.service {
            let target = spec.service.as_ref();
            if target.is_none_or(|to| to.namespace != *namespace || to.name != *service) {
                return Err(format!(
                    "it refers to a Service other than {namespace}/{service}"
                ));
            }
        }
        let existing = spec.ca_bundle.as_deref().unwrap_or_default();
        let existing = STANDARD.decode(existing).unwrap_or_default();
        let existing = String::from_utf8(existing).unwrap_or_default();
        let merged = merged(&existing, &bundle);
        if merged.is_none() && !spec.skips_verification {
            return Ok(false);
        }
        let bundle = STANDARD.encode(merged.unwrap_or(existing));
        // A merge patch of these two fields: other owners keep the rest.
        let patch = json!({"spec": {"caBundle": bundle, "insecureSkipTLSVerify": false}});
        let request = Request::patch(&path)
            .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
            .body(patch.to_string().into_bytes())
            .map_err(|error| error.to_string())?;
        let _written: ApiService = self.send(request).await?;
        Ok(true)
    }

    async fn send(&self, request: Request<Vec<u8>>) -> Result<ApiService, String> {
        match tokio::time::timeout(REQUEST_TIMEOUT, self.client.request(request)).await {
            Ok(Err(kube::Error::Api(status))) => Err(status.message.clone()),
            Ok(response) => response.map_err(|error| error.to_string()),
            Err(_elapsed) => Err(format!("no response within {REQUEST_TIMEOUT:?}")),
        }
    }
}

/// Returns our own authorities followed by the existing ones; `None` if ours are among them.
fn merged(existing: &str, own: &str) -> Option<String> {
    let theirs: Vec<&str> = certificates(existing).collect();
    let own: Vec<&str> = certificates(own).collect();
    if own.iter().all(|certificate| theirs.contains(certificate)) {
        return None;
    }
    let others = theirs.into_iter().filter(|other| !own.contains(other));
    let all = own.iter().copied().chain(others).take(MAX_AUTHORITIES);
    Some(all.flat_map(|certificate| [certificate, "\n"]).collect())
}

/// Returns the certificates of a bundle. Other text is dropped, since no API server could use it.
fn certificates(pem: &str) -> impl Iterator<Item = &str> {
    pem.split_inclusive(END_OF_CERTIFICATE)
        .map(str::trim)
        .filter(|block| block.starts_with("-----BEGIN CERTIFICATE-----"))
        .filter(|block| block.ends_with(END_OF_CERTIFICATE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(content: &str) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{content}\n{END_OF_CERTIFICATE}\n")
    }

    #[test]
    fn replicas_keep_the_authorities_of_others() {
        let (a, b) = (certificate("a"), certificate("b"));
        assert_eq!(merged("", &a), Some(a.clone()));
        assert_eq!(merged(&a, &b), Some(format!("{b}{a}")));
        let both = format!("{b}{a}");
        assert_eq!(merged(&both, &a), None);
        assert_eq!(merged(&both, &b), None);
        assert_eq!(merged("not a certificate", &a), Some(a));
    }

    #[test]
    fn a_bundle_is_bounded() {
        let mut bundle = String::new();
        for replica in 0..100 {
            bundle = merged(&bundle, &certificate(&replica.to_string())).unwrap();
            assert!(bundle.contains(&certificate(&replica.to_string())));
        }
        assert_eq!(certificates(&bundle).count(), MAX_AUTHORITIES);
    }
}
