//! Writes the `caBundle` of APIServices, so that the aggregation layer verifies this server instead
//! of being told not to.
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
//! # Replicas
//!
//! Each replica signs for itself, and a bundle holds the authorities of all: a writer adds its own
//! and keeps those of others, the newest [`MAX_AUTHORITIES`]. Authorities of replicas that are gone
//! are pushed out in the end; their keys went with their pods.
//!
//! Whoever may write an APIService may take over its group: grant it for these names, and only if
//! nobody else, such as cert-manager, fills the bundle.

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

/// Authorities that a bundle holds at most: enough for any number of replicas that makes sense,
/// with those that a rollout replaces.
const MAX_AUTHORITIES: usize = 8;

const END_OF_CERTIFICATE: &str = "-----END CERTIFICATE-----";

/// Keeps the `caBundle` of some APIServices what it must be.
pub struct CaBundleWriter {
    client: kube::Client,
    certificate: ServingCertificate,
    api_services: Vec<String>,
    /// Namespace and name of the Service that an APIService must lead to in order to be ours.
    service: Option<(String, String)>,
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
    /// For APIServices by name, such as `v1.metrics.k8s.io`; looked at once a minute, since others
    /// may write them too.
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
            every: Duration::from_mins(1),
        }
    }

    /// Leaves APIServices alone that lead to another Service: another server answers there, with
    /// its own authority.
    #[must_use]
    pub fn of_service(mut self, namespace: &str, name: &str) -> Self {
        self.service = Some((namespace.to_owned(), name.to_owned()));
        self
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
        let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}");
        let request = Request::get(&path)
            .body(Vec::new())
            .map_err(|error| error.to_string())?;
        let found: ApiService = self.send(request).await?;
        let spec = found.spec;
        if let Some((namespace, service)) = &self.service {
            let leads_to = spec.service.as_ref();
            if leads_to.is_none_or(|to| to.namespace != *namespace || to.name != *service) {
                return Err(format!(
                    "it does not lead to the Service {namespace}/{service}: another server answers there"
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
        let wanted = STANDARD.encode(merged.unwrap_or(existing));
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
            Ok(Err(kube::Error::Api(status))) => Err(status.message.clone()),
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_elapsed) => Err(format!("no answer within {TIMEOUT:?}")),
        }
    }
}

/// Our own authorities before those that were there; none if ours are among them already.
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

/// The blocks of a bundle. What is none is left out: no API server could use it.
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
    fn replicas_keep_each_others_authorities() {
        let (a, b) = (certificate("a"), certificate("b"));
        assert_eq!(merged("", &a), Some(a.clone()));
        assert_eq!(merged(&a, &b), Some(format!("{b}{a}")));
        let both = format!("{b}{a}");
        assert_eq!(merged(&both, &a), None);
        assert_eq!(merged(&both, &b), None);
        assert_eq!(merged("what is this", &a), Some(a));
    }

    #[test]
    fn a_bundle_does_not_grow_for_ever() {
        let mut bundle = String::new();
        for replica in 0..100 {
            bundle = merged(&bundle, &certificate(&replica.to_string())).unwrap();
            assert!(bundle.contains(&certificate(&replica.to_string())));
        }
        assert_eq!(certificates(&bundle).count(), MAX_AUTHORITIES);
    }
}
