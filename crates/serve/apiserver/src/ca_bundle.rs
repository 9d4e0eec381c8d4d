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
//! and keeps up to fifteen of others. A write names the version that it read, so that two writers
//! do not overwrite each other. Authorities of replicas that are gone are evicted in the end; their
//! keys are gone with their pods.
//!
//! A replica should not be ready before its authority is in the bundle: the API server would reject
//! its certificate. [`CaBundleWriter::status`] is the check.
//!
//! Permission to write an APIService is permission to take over its group: grant it for these
//! names, and only if no other controller, such as cert-manager, writes the bundle.

mod merge;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request, StatusCode};
use kubevitals_telemetry::{OutageLog, OutagePart, RequestFailure, Status};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use self::merge::{contains, merged};
use crate::certificate::ServingCertificate;
use crate::config::ServerTelemetry;
use crate::metrics::ApiServerMetrics;
use crate::reviewer::{chain, classify};

/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Interval of checks. An APIService that was deleted and created again has no bundle, and the API
/// server rejects our certificate until the next check. It is no shorter, because a replica that is
/// about to be replaced by one with another certificate would add its own authority once more.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// Time after the start in which other replicas may start too, or disappear.
const START_PERIOD: Duration = Duration::from_mins(1);

/// Maximum number of attempts to write after conflicts. Each conflict is the write of another
/// replica, so that there are as many as replicas at most.
const MAX_ATTEMPTS: usize = 32;

/// Keeps the `caBundle` of APIServices up to date.
pub struct CaBundleWriter {
    client: kube::Client,
    certificate: ServingCertificate,
    api_services: Vec<String>,
    /// Namespace and name of the Service that an APIService must refer to in order to be ours.
    service: Option<(String, String)>,
    interval: Duration,
    status: CaBundleStatus,
    outage: OutageLog,
}

/// Whether the APIServices have our own authority. Clones share it.
#[derive(Clone)]
pub struct CaBundleStatus {
    states: Arc<Mutex<Vec<(String, State)>>>,
    /// Whether an APIService was available when it was last read.
    is_served: Arc<AtomicBool>,
    metrics: Option<ApiServerMetrics>,
}

/// What is known of an APIService.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Our authority is in the bundle, as far as is known.
    InSync,
    /// Our authority is not in the bundle, with the reason.
    Pending(String),
    /// There is none, or another server serves it: nobody verifies us by its bundle.
    NotOurs,
}

/// A failure to update the `caBundle` of an APIService.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaBundleError {
    #[error("the serving certificate is loaded from files, and its authority is unknown")]
    UnknownAuthority,
    #[error("the APIService does not exist")]
    NotFound,
    #[error("it refers to a Service other than {namespace}/{name}")]
    OtherService { namespace: String, name: String },
    #[error("others changed it {attempts} times while it was written")]
    Conflict { attempts: usize },
    #[error("no response within {0:?}")]
    Timeout(Duration),
    #[error("invalid name {name:?} of an APIService")]
    Name {
        name: String,
        #[source]
        source: http::Error,
    },
    #[error("cannot read it")]
    Get(#[source] kube::Error),
    #[error("cannot write it")]
    Patch(#[source] kube::Error),
}

/// The fields of an APIService that are read.
#[derive(Debug, Deserialize)]
struct ApiService {
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: ApiServiceStatus,
}

#[derive(Debug, Default, Deserialize)]
struct ApiServiceStatus {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Debug, Deserialize)]
struct Condition {
    r#type: String,
    status: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
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
    /// For APIServices by name, such as `v1.metrics.k8s.io`. They are checked every minute, since
    /// others may write them too, or create them anew.
    pub fn new(
        client: kube::Client,
        certificate: ServingCertificate,
        api_services: Vec<String>,
    ) -> Self {
        let states = api_services.iter().map(|name| {
            let reason = String::from("it was not read yet");
            (name.clone(), State::Pending(reason))
        });
        Self {
            client,
            certificate,
            status: CaBundleStatus {
                states: Arc::new(Mutex::new(states.collect())),
                is_served: Arc::default(),
                metrics: None,
            },
            api_services,
            service: None,
            interval: CHECK_INTERVAL,
            outage: OutageLog::default(),
        }
    }

    /// Exposes whether the bundles are in sync, and logs outages with those of the server.
    #[must_use]
    pub fn with_telemetry(mut self, telemetry: &ServerTelemetry) -> Self {
        self.status.metrics = Some(telemetry.metrics.clone());
        self.outage = telemetry.outage.clone();
        self
    }

    /// Whether our own authority is in the bundles, for a readiness check.
    pub fn status(&self) -> CaBundleStatus {
        self.status.clone()
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
        let part = |_| self.outage.periodic("write-ca-bundle");
        let mut parts: Vec<OutagePart> = self.api_services.iter().map(part).collect();
        let started = Instant::now();
        loop {
            let mut pause = pause(self.interval, started.elapsed());
            for (name, outage) in self.api_services.iter().zip(&mut parts) {
                match self.update(name).await {
                    Ok(written) => {
                        let has_recovered = outage.succeeded();
                        if written {
                            tracing::info!(api_service = %name, "updated caBundle");
                        } else if has_recovered {
                            tracing::info!(api_service = %name, "read caBundle again");
                        }
                    }
                    Err(error) => {
                        let reason = chain(&error);
                        // The reason may change with every attempt of one outage.
                        if outage.failed(error.failure(), &reason) {
                            tracing::warn!(api_service = %name, %reason, "failed to update caBundle");
                        }
                        self.status.failed(name, &reason);
                        pause = pause.min(RETRY_INTERVAL);
                    }
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Updates one APIService if it differs; returns whether it did.
    pub async fn update(&self, name: &str) -> Result<bool, CaBundleError> {
        let own = self
            .certificate
            .ca_bundle()
            .ok_or(CaBundleError::UnknownAuthority)?;
        for _ in 0..MAX_ATTEMPTS {
            match self.try_update(name, &own).await {
                Err(CaBundleError::Patch(kube::Error::Api(status)))
                    if status.code == StatusCode::CONFLICT => {}
                done => return done,
            }
        }
        Err(CaBundleError::Conflict {
            attempts: MAX_ATTEMPTS,
        })
    }

    async fn try_update(&self, name: &str, own: &str) -> Result<bool, CaBundleError> {
        let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}");
        let invalid = |source| CaBundleError::Name {
            name: name.to_owned(),
            source,
        };
        let request = Request::get(&path).body(Vec::new()).map_err(invalid)?;
        let found = match self.send(request).await? {
            Ok(found) => found,
            Err(kube::Error::Api(status)) if status.code == StatusCode::NOT_FOUND => {
                self.status.set(name, State::NotOurs);
                return Err(CaBundleError::NotFound);
            }
            Err(error) => return Err(CaBundleError::Get(error)),
        };
        let is_available =
            |condition: &Condition| condition.r#type == "Available" && condition.status == "True";
        let is_served = found.status.conditions.iter().any(is_available);
        self.status.is_served.store(is_served, Ordering::Relaxed);
        let spec = found.spec;
        if let Some((namespace, service)) = &self.service {
            let target = spec.service.as_ref();
            if target.is_none_or(|to| to.namespace != *namespace || to.name != *service) {
                self.status.set(name, State::NotOurs);
                return Err(CaBundleError::OtherService {
                    namespace: namespace.clone(),
                    name: service.clone(),
                });
            }
        }
        let existing = spec.ca_bundle.as_deref().unwrap_or_default();
        let existing = STANDARD.decode(existing).unwrap_or_default();
        let existing = String::from_utf8(existing).unwrap_or_default();
        if contains(&existing, own) {
            self.status.set(name, State::InSync);
        } else {
            let reason = "it does not have the authority of this server yet";
            self.status.set(name, State::Pending(reason.to_owned()));
        }
        let merged = merged(&existing, own, SystemTime::now());
        if merged.is_none() && !spec.skips_verification {
            return Ok(false);
        }
        let bundle = STANDARD.encode(merged.unwrap_or(existing));
        // A merge patch of these two fields: other owners keep the rest. With the version that was
        // read, it fails if another replica has written in between.
        let patch = json!({
            "metadata": {"resourceVersion": found.metadata.resource_version},
            "spec": {"caBundle": bundle, "insecureSkipTLSVerify": false},
        });
        let request = Request::patch(&path)
            .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
            .body(patch.to_string().into_bytes())
            .map_err(invalid)?;
        let _written = self.send(request).await?.map_err(CaBundleError::Patch)?;
        self.status.set(name, State::InSync);
        Ok(true)
    }

    async fn send(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<Result<ApiService, kube::Error>, CaBundleError> {
        tokio::time::timeout(REQUEST_TIMEOUT, self.client.request(request))
            .await
            .map_err(|_elapsed| CaBundleError::Timeout(REQUEST_TIMEOUT))
    }
}

/// The time until the next check after one that did not fail.
fn pause(interval: Duration, since_start: Duration) -> Duration {
    if since_start < START_PERIOD {
        interval.min(RETRY_INTERVAL)
    } else {
        interval
    }
}

impl CaBundleError {
    /// A write may be rejected by a webhook that is away.
    fn failure(&self) -> RequestFailure {
        match self {
            Self::Timeout(_) => RequestFailure::Unavailable,
            Self::Get(error) => classify(error),
            _ => RequestFailure::Other,
        }
    }
}

impl CaBundleStatus {
    /// Returns `WarmingUp` with the reason until our own authority is in all bundles that others
    /// verify us by, and whenever it is found to be missing. A failure to read them changes
    /// nothing: an API server that is away does not make a replica unready.
    pub fn status(&self) -> Status {
        let states = self.states.lock();
        let pending = states.iter().find_map(|(name, state)| match state {
            State::Pending(reason) => Some(format!("caBundle of APIService {name}: {reason}")),
            State::InSync | State::NotOurs => None,
        });
        pending.map_or(Status::Ok, Status::warming_up)
    }

    /// Whether the API server can reach a server of these APIServices: another replica, until this
    /// one is ready. As of the last read, which is at most five seconds old in the first minute.
    pub fn is_served(&self) -> bool {
        self.is_served.load(Ordering::Relaxed)
    }

    fn set(&self, api_service: &str, state: State) {
        if let Some(metrics) = &self.metrics {
            metrics.ca_bundle(
                api_service,
                match state {
                    State::InSync => Some(true),
                    State::Pending(_) => Some(false),
                    State::NotOurs => None,
                },
            );
        }
        let mut states = self.states.lock();
        if let Some((_, known)) = states.iter_mut().find(|(name, _)| name == api_service) {
            *known = state;
        }
    }

    /// Replaces the reason of an APIService that is not in sync.
    fn failed(&self, api_service: &str, reason: &str) {
        let mut states = self.states.lock();
        if let Some((_, State::Pending(known))) =
            states.iter_mut().find(|(name, _)| name == api_service)
        {
            reason.clone_into(known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_services_are_checked_often_at_the_start_and_every_minute_later() {
        let seconds = Duration::from_secs;
        for since_start in [seconds(0), seconds(59)] {
            assert_eq!(pause(CHECK_INTERVAL, since_start), seconds(5));
        }
        for since_start in [seconds(60), seconds(1_000_000)] {
            assert_eq!(pause(CHECK_INTERVAL, since_start), seconds(60));
        }
        assert_eq!(pause(seconds(1), seconds(0)), seconds(1));
    }
}
