//! API aggregation: groups that another server serves.
//!
//! An `APIService` names a Service; requests to its group and version are proxied there over TLS,
//! with the front-proxy certificate and the user in `X-Remote-*` headers. Services of a simulated
//! cluster often have no endpoints, so an `APIService` may also name the address to dial in the
//! annotation [`ADDRESS_ANNOTATION`]; the certificate must still be for the name of the Service.

#![expect(
    clippy::indexing_slicing,
    reason = "JSON trees: a missing member reads as null, and all writes go to objects"
)]

mod backend;
mod proxy;
mod resolve;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_tls::ReloadingKeyPair;
use parking_lot::RwLock;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use self::backend::{Backend, Connections};
use crate::api::discovery::RemoteGroup;
use crate::api::resources;
use crate::objects::Resource;
use crate::store::{Precondition, Query, Record, Store, timestamp};

/// Annotation of an `APIService` with the `host:port` to dial instead of its Service.
pub const ADDRESS_ANNOTATION: &str = "sim.kubevitals.dev/address";

/// All groups that other servers serve.
pub(crate) struct Aggregator {
    store: Arc<Store>,
    /// The front-proxy certificate.
    identity: Arc<ReloadingKeyPair>,
    services: RwLock<BTreeMap<String, Arc<RemoteService>>>,
    connections: Connections,
    probe_timeout: Duration,
}

/// One version of one group.
#[derive(Debug)]
pub(crate) struct RemoteService {
    group: String,
    version: String,
    /// `None` if there is no address to dial.
    backend: Option<Backend>,
    /// The resources of its last discovery response.
    resources: Option<Value>,
    is_available: bool,
}

/// The availability of a service, as reported in its condition.
struct Availability {
    is_available: bool,
    reason: &'static str,
    message: String,
}

impl Aggregator {
    pub(crate) fn new(store: Arc<Store>, identity: Arc<ReloadingKeyPair>) -> Self {
        Self {
            store,
            identity,
            services: RwLock::default(),
            connections: Connections::default(),
            probe_timeout: Duration::from_secs(5),
        }
    }

    /// Returns the service for a path, or `None` if this server serves it.
    pub(crate) fn service_for(&self, path: &str) -> Option<Arc<RemoteService>> {
        let mut parts = path.trim_start_matches('/').split('/');
        if parts.next() != Some("apis") {
            return None;
        }
        let (group, version) = (parts.next()?, parts.next()?);
        let name = format!("{version}.{group}");
        let services = self.services.read();
        services.get(&name).map(Arc::clone)
    }

    /// Returns the groups for discovery.
    pub(crate) fn groups(&self) -> Vec<RemoteGroup> {
        let services = self.services.read();
        services
            .values()
            .map(|service| RemoteGroup {
                group: service.group.clone(),
                version: service.version.clone(),
                resources: service.resources.clone(),
                is_available: service.is_available,
            })
            .collect()
    }

    /// Probes all services whenever one of their objects changes, and at every tick.
    pub(crate) async fn run(&self, every: Duration) {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut changes = [
            Resource::ApiServices,
            Resource::Services,
            Resource::Endpoints,
            Resource::EndpointSlices,
        ]
        .map(|resource| self.store.subscribe(resource));
        loop {
            let [api_services, services, endpoints, slices] = &mut changes;
            tokio::select! {
                _ = ticks.tick() => {}
                Ok(()) = api_services.changed() => {}
                Ok(()) = services.changed() => {}
                Ok(()) = endpoints.changed() => {}
                Ok(()) = slices.changed() => {}
            }
            self.refresh().await;
        }
    }

    /// Closes all connections.
    pub(crate) async fn shutdown(&self) {
        self.connections.close().await;
    }

    async fn refresh(&self) {
        let Ok(snapshot) = self
            .store
            .snapshot(&Query::all(Resource::ApiServices), None, None, 0)
        else {
            return;
        };
        let mut services = BTreeMap::new();
        for record in snapshot.records {
            let object = record.value(resources::info(Resource::ApiServices));
            if !object["spec"]["service"].is_object() {
                continue;
            }
            let (service, availability) = self.probe(&object).await;
            self.report(&record, object, &availability);
            services.insert(record.name().to_owned(), Arc::new(service));
        }
        *self.services.write() = services;
    }

    async fn probe(&self, object: &Value) -> (RemoteService, Availability) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, version) = (
            text(&object["spec"]["group"]),
            text(&object["spec"]["version"]),
        );
        let path = format!("/apis/{group}/{version}");
        let resources = self
            .service_for(&path)
            .and_then(|service| service.resources.clone());
        let mut service = RemoteService {
            group,
            version,
            backend: None,
            resources,
            is_available: false,
        };
        let backend = match resolve::resolve(&self.store, object, &self.identity) {
            Ok(backend) => backend,
            Err(availability) => return (service, availability),
        };
        let url = format!("https://{}{path}", backend.address());
        let outcome = tokio::time::timeout(
            self.probe_timeout,
            proxy::discover(&self.connections, &backend, &path),
        )
        .await;
        let availability = match outcome {
            Ok(Ok(resources)) => {
                service.resources = Some(resources);
                service.is_available = true;
                Availability {
                    is_available: true,
                    reason: "Passed",
                    message: "all checks passed".to_owned(),
                }
            }
            Ok(Err(problem)) => failed(&url, &problem),
            Err(_) => failed(&url, "context deadline exceeded"),
        };
        service.backend = Some(backend);
        (service, availability)
    }

    /// Updates the condition if it has changed.
    fn report(&self, record: &Record, mut object: Value, availability: &Availability) {
        let status = if availability.is_available {
            "True"
        } else {
            "False"
        };
        let old = object["status"]["conditions"]
            .as_array()
            .and_then(|conditions| conditions.iter().find(|c| c["type"] == "Available"))
            .cloned()
            .unwrap_or_default();
        if old["status"] == status
            && old["reason"] == availability.reason
            && old["message"] == availability.message.as_str()
        {
            return;
        }
        let since = if old["status"] == status {
            old["lastTransitionTime"].clone()
        } else {
            json!(timestamp(self.store.now()))
        };
        object["status"] = json!({"conditions": [{
            "type": "Available", "status": status, "reason": availability.reason,
            "message": availability.message, "lastTransitionTime": since,
        }]});
        if let Value::Object(object) = object {
            let precondition = Precondition::Version(record.version());
            if let Err(error) = self.store.put(Resource::ApiServices, object, precondition) {
                // Changed concurrently; the next round retries.
                debug!(%error, "cannot report availability");
            }
        }
    }
}

fn failed(url: &str, problem: &str) -> Availability {
    Availability {
        is_available: false,
        reason: "FailedDiscoveryCheck",
        message: format!("failing or missing response from {url}: {problem}"),
    }
}
