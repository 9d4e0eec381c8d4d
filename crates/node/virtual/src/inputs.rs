//! What containers read from the API server, on demand: a node has no right to watch the Secrets of
//! a cluster, and no need to keep them.

mod services;

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{
    BoundObjectReference, TokenRequest as ApiTokenRequest, TokenRequestSpec,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use kube::Api;
use kube::api::{ListParams, PostParams};
use kubevitals_model::Clock;
use parking_lot::Mutex;

use self::services::environment;
use crate::lru::Lru;
use crate::metrics::{InputSource, NodeMetrics};
use crate::runtime::{PodInputs, RuntimeError, RuntimeFuture, ServiceToken, TokenRequest};

/// How long an object is served from the cache, as by a kubelet without watches.
const TTL: Duration = Duration::from_mins(1);

/// The most objects of a kind in the cache.
const ENTRIES: usize = 1_024;

/// The shortest life of a token that the API server issues.
const MIN_EXPIRATION: Duration = Duration::from_mins(10);

/// The namespace and the name of the Service that every pod knows.
const KUBERNETES: (&str, &str) = ("default", "kubernetes");

/// [`PodInputs`] of an API server.
pub struct ApiInputs {
    client: kube::Client,
    clock: Clock,
    metrics: NodeMetrics,
    config_maps: Cache<(String, String), Option<Arc<ConfigMap>>>,
    secrets: Cache<(String, String), Option<Arc<Secret>>>,
    services: Cache<String, Vec<(String, String)>>,
}

/// Values with the time at which they were read.
struct Cache<K, V>(Mutex<Lru<K, (Duration, V)>>);

impl ApiInputs {
    pub fn new(client: kube::Client, clock: Clock, metrics: NodeMetrics) -> Self {
        Self {
            client,
            clock,
            metrics,
            config_maps: Cache::new(),
            secrets: Cache::new(),
            services: Cache::new(),
        }
    }

    /// Returns a value of the cache, or reads it. Failures are not cached.
    async fn read<K: Clone + Eq + Hash, V: Clone>(
        &self,
        resource: &'static str,
        cache: &Cache<K, V>,
        key: K,
        read: impl Future<Output = Result<V, kube::Error>>,
    ) -> Result<V, RuntimeError> {
        let now = self.clock.moment().monotonic;
        if let Some(value) = cache.get(&key, now) {
            self.metrics.count_input(resource, InputSource::Cache);
            return Ok(value);
        }
        match read.await {
            Ok(value) => {
                self.metrics.count_input(resource, InputSource::Api);
                cache.insert(key, now, value.clone());
                Ok(value)
            }
            Err(error) => {
                self.metrics.count_input(resource, InputSource::Failed);
                Err(RuntimeError::Failed {
                    context: format!("cannot read {resource}"),
                    source: Box::new(error),
                })
            }
        }
    }

    async fn services(&self, namespace: &str) -> Result<Vec<(String, String)>, RuntimeError> {
        let read = async {
            let services: Api<Service> = Api::namespaced(self.client.clone(), namespace);
            let listed = services.list(&ListParams::default()).await?;
            Ok(environment(&listed.items))
        };
        let key = namespace.to_owned();
        self.read("services", &self.services, key, read).await
    }

    async fn token(&self, request: TokenRequest) -> Result<ServiceToken, RuntimeError> {
        let namespace = request.pod.key.namespace();
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let expiration = request.expiration.max(MIN_EXPIRATION);
        let spec = TokenRequestSpec {
            audiences: Some(request.audiences),
            expiration_seconds: Some(i64::try_from(expiration.as_secs()).unwrap_or(i64::MAX)),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(request.pod.key.name().to_string()),
                uid: Some(request.pod.uid.to_string()),
            }),
            ..TokenRequestSpec::default()
        };
        let body = ApiTokenRequest {
            spec: Some(spec),
            ..ApiTokenRequest::default()
        };
        let created = accounts
            .create_token_request(&request.service_account, &PostParams::default(), &body)
            .await;
        let status = match created {
            Ok(created) => created.status.unwrap_or_default(),
            Err(error) => {
                self.metrics.count_input("tokens", InputSource::Failed);
                return Err(RuntimeError::Failed {
                    context: format!("cannot request a token of {}", request.service_account),
                    source: Box::new(error),
                });
            }
        };
        self.metrics.count_input("tokens", InputSource::Api);
        let (Some(token), Some(expires)) = (status.token, status.expiration_timestamp) else {
            return Err(RuntimeError::Failed {
                context: format!("cannot request a token of {}", request.service_account),
                source: "the response has none".into(),
            });
        };
        // The server may give a token a shorter or longer life than was asked for.
        let lifetime = expires
            .0
            .as_second()
            .saturating_sub(self.clock.now().unix_seconds());
        let lifetime = Duration::from_secs(u64::try_from(lifetime).unwrap_or(0));
        Ok(ServiceToken {
            token,
            renew_after: renewal(lifetime),
        })
    }
}

impl PodInputs for ApiInputs {
    fn config_map(&self, namespace: &str, name: &str) -> RuntimeFuture<'_, Option<Arc<ConfigMap>>> {
        let key = (namespace.to_owned(), name.to_owned());
        Box::pin(async move {
            let objects: Api<ConfigMap> = Api::namespaced(self.client.clone(), &key.0);
            let name = key.1.clone();
            let read = async { Ok(objects.get_opt(&name).await?.map(Arc::new)) };
            self.read("configmaps", &self.config_maps, key, read).await
        })
    }

    fn secret(&self, namespace: &str, name: &str) -> RuntimeFuture<'_, Option<Arc<Secret>>> {
        let key = (namespace.to_owned(), name.to_owned());
        Box::pin(async move {
            let objects: Api<Secret> = Api::namespaced(self.client.clone(), &key.0);
            let name = key.1.clone();
            let read = async { Ok(objects.get_opt(&name).await?.map(Arc::new)) };
            self.read("secrets", &self.secrets, key, read).await
        })
    }

    fn service_account_token(&self, request: TokenRequest) -> RuntimeFuture<'_, ServiceToken> {
        Box::pin(self.token(request))
    }

    fn service_environment(&self, namespace: &str) -> RuntimeFuture<'_, Vec<(String, String)>> {
        let namespace = namespace.to_owned();
        Box::pin(async move {
            let mut all = self.services(&namespace).await?;
            let (default, name) = KUBERNETES;
            if namespace != default {
                let prefix = format!("{}_", name.to_uppercase());
                let others = self.services(default).await?;
                let is_missing = !all.iter().any(|(key, _)| key.starts_with(&prefix));
                let kubernetes = others.into_iter();
                all.extend(kubernetes.filter(|(key, _)| is_missing && key.starts_with(&prefix)));
            }
            Ok(all)
        })
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Cache<K, V> {
    fn new() -> Self {
        Self(Mutex::new(Lru::new(ENTRIES)))
    }

    fn get(&self, key: &K, now: Duration) -> Option<V> {
        let mut entries = self.0.lock();
        let (read, value) = entries.get_mut(key)?;
        (now.saturating_sub(*read) < TTL).then(|| value.clone())
    }

    fn insert(&self, key: K, now: Duration, value: V) {
        self.0.lock().insert(key, (now, value));
    }
}

/// When a token of a life is replaced: after 80 % of it, or 24 hours, as by a kubelet.
fn renewal(lifetime: Duration) -> Duration {
    let day = Duration::from_hours(24);
    lifetime
        .saturating_mul(4)
        .checked_div(5)
        .unwrap_or(lifetime)
        .min(day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_cached_for_a_minute() {
        let cache: Cache<&str, u8> = Cache::new();
        cache.insert("a", Duration::from_secs(5), 1);
        assert_eq!(cache.get(&"a", Duration::from_secs(64)), Some(1));
        assert_eq!(cache.get(&"a", Duration::from_secs(65)), None);
        assert_eq!(cache.get(&"b", Duration::from_secs(5)), None);
    }

    #[test]
    fn tokens_are_renewed_after_80_percent_of_their_life() {
        assert_eq!(renewal(Duration::from_hours(1)), Duration::from_mins(48));
        assert_eq!(renewal(Duration::from_hours(100)), Duration::from_hours(24));
        assert_eq!(renewal(Duration::ZERO), Duration::ZERO);
    }
}
