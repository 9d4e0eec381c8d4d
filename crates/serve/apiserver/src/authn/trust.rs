//! Client CA and front proxy: from the configuration, and from the cluster, refreshed periodically.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use kubevitals_telemetry::{OutageLog, RequestFailure, Status};
use kubevitals_tls::{ClientAuthority, TrustRoots};
use rustls::RootCertStore;
use tokio::sync::watch;

use super::config_map::{self, CLIENT_CA, FRONT_PROXY_CA, authority, request_headers};
use super::front_proxy::FrontProxy;
use crate::config::{AuthenticationConfig, FrontProxyConfig, Lookup};
use crate::error::ApiServerError;
use crate::metrics::AccessMetrics;

const CONFIG_MAP: &str = config_map::NAME;
/// Interval of reads after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The authorities in force.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    client: Option<ClientAuthority>,
    front_proxy: Option<FrontProxy>,
}

/// Whether the client CA and the front proxy are loaded. Clones share it.
#[derive(Clone)]
pub struct TrustStatus {
    inner: Arc<Inner>,
}

struct Inner {
    current: ArcSwap<Trust>,
    /// The reason of the last failed read; `None` once loaded.
    not_loaded: watch::Sender<Option<String>>,
    configured: Configured,
}

/// The authorities of the configuration, which are not looked up.
struct Configured {
    client: Option<Arc<TrustRoots>>,
    front_proxy: Option<FrontProxyConfig>,
}

/// The inputs of the current [`Trust`], to detect changes. Reloaded roots are other allocations;
/// they are kept here, so that no address is reused unnoticed.
struct Inputs {
    client: Option<Arc<RootCertStore>>,
    front_proxy: Option<Arc<RootCertStore>>,
    data: Option<BTreeMap<String, String>>,
}

/// The last inputs that differed from those before, and the reason why a part of them is not in
/// force.
struct Attempt {
    inputs: Inputs,
    error: Option<String>,
}

impl Trust {
    pub(crate) fn client_authority(&self) -> Option<&ClientAuthority> {
        self.client.as_ref()
    }

    pub(crate) fn front_proxy(&self) -> Option<&FrontProxy> {
        self.front_proxy.as_ref()
    }
}

impl TrustStatus {
    pub(crate) fn new(config: &AuthenticationConfig) -> Result<Self, ApiServerError> {
        let configured = Configured {
            client: config.client_ca.clone(),
            front_proxy: config.front_proxy.clone(),
        };
        let trust = Trust {
            client: configured.client(None)?,
            front_proxy: configured.front_proxy(None)?,
        };
        let not_loaded = match &config.lookup {
            Some(lookup) if configured.needs_lookup() && !lookup.tolerate_failure => {
                Some(format!("configmap {CONFIG_MAP} was not read yet"))
            }
            _ => None,
        };
        Ok(Self {
            inner: Arc::new(Inner {
                current: ArcSwap::from_pointee(trust),
                not_loaded: watch::Sender::new(not_loaded),
                configured,
            }),
        })
    }

    /// Returns `WarmingUp` with the reason until the first lookup succeeds, and `Ok` from then on,
    /// since later failures keep the previous configuration.
    pub fn status(&self) -> Status {
        match &*self.inner.not_loaded.borrow() {
            Some(reason) => Status::warming_up(reason.clone()),
            None => Status::Ok,
        }
    }

    /// Waits until the configuration is loaded.
    pub async fn loaded(&self) {
        let mut not_loaded = self.inner.not_loaded.subscribe();
        // The sender lives as long as `self`.
        let _closed = not_loaded.wait_for(Option::is_none).await;
    }

    pub(crate) fn current(&self) -> Arc<Trust> {
        self.inner.current.load_full()
    }

    pub(crate) fn is_loading(&self) -> bool {
        self.inner.not_loaded.borrow().is_some()
    }
}

impl Configured {
    fn client(
        &self,
        data: Option<&BTreeMap<String, String>>,
    ) -> Result<Option<ClientAuthority>, ApiServerError> {
        match (&self.client, data) {
            (Some(roots), _) => Ok(Some(ClientAuthority::new(roots)?)),
            (None, Some(data)) => authority(data, CLIENT_CA),
            (None, None) => Ok(None),
        }
    }

    /// The authority, the headers and the names belong together: one that cannot be read must not
    /// leave the others in force without it.
    fn front_proxy(
        &self,
        data: Option<&BTreeMap<String, String>>,
    ) -> Result<Option<FrontProxy>, ApiServerError> {
        match (&self.front_proxy, data) {
            (Some(proxy), _) => {
                FrontProxy::new(ClientAuthority::new(&proxy.ca)?, &proxy.headers).map(Some)
            }
            (None, Some(data)) => {
                let headers = request_headers(data)?;
                match authority(data, FRONT_PROXY_CA)? {
                    Some(authority) => FrontProxy::new(authority, &headers).map(Some),
                    None => Ok(None),
                }
            }
            (None, None) => Ok(None),
        }
    }

    fn needs_lookup(&self) -> bool {
        self.client.is_none() || self.front_proxy.is_none()
    }

    fn inputs(&self, data: Option<&BTreeMap<String, String>>) -> Inputs {
        Inputs {
            client: self.client.as_ref().map(|roots| roots.current()),
            front_proxy: self.front_proxy.as_ref().map(|proxy| proxy.ca.current()),
            data: data.cloned(),
        }
    }
}

impl PartialEq for Inputs {
    fn eq(&self, other: &Self) -> bool {
        let same = |one: &Option<Arc<RootCertStore>>, two: &Option<Arc<RootCertStore>>| {
            one.as_ref().map(Arc::as_ptr) == two.as_ref().map(Arc::as_ptr)
        };
        same(&self.client, &other.client)
            && same(&self.front_proxy, &other.front_proxy)
            && self.data == other.data
    }
}

/// Refreshes the trust until the future is dropped.
pub(crate) async fn lookup_loop(
    status: TrustStatus,
    lookup: Option<Lookup>,
    metrics: AccessMetrics,
    outage: OutageLog,
) {
    let inner = &status.inner;
    let mut outage = outage.periodic("look-up-authentication");
    let interval = lookup.as_ref().map_or(RETRY_INTERVAL * 10, |lookup| {
        lookup.interval.max(RETRY_INTERVAL)
    });
    let mut failing: Option<String> = None;
    let mut last: Option<Attempt> = None;
    loop {
        let lookup = lookup.as_ref().filter(|_| inner.configured.needs_lookup());
        let read = match lookup {
            Some(lookup) => {
                let read = lookup.source.authentication().await;
                read.map_err(|error| (error.failure(), error.to_string()))
                    .and_then(|data| {
                        let missing = || format!("configmap {CONFIG_MAP} does not exist");
                        data.map(Some)
                            .ok_or_else(|| (RequestFailure::Other, missing()))
                    })
            }
            None => Ok(None),
        };
        let (data, error) = match read {
            Ok(data) => (data, None),
            Err(error) => (None, Some(error)),
        };
        let outcome = match error {
            Some(error) if last.is_none() => Err(error),
            error => {
                // Files may have changed even if the ConfigMap cannot be read.
                let previous = last.as_ref().and_then(|last| last.inputs.data.as_ref());
                let current = inner.configured.inputs(data.as_ref().or(previous));
                let updated = update(inner, &mut last, current);
                error.map_or(
                    updated.map_err(|reason| (RequestFailure::Other, reason)),
                    Err,
                )
            }
        };
        if lookup.is_some() {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            metrics.looked_up(outcome.is_ok().then(|| now.unwrap_or_default()));
        }
        let pause = match outcome {
            Ok(()) => {
                failing = None;
                if outage.succeeded() {
                    tracing::info!(
                        config_map = CONFIG_MAP,
                        "authentication configuration recovered"
                    );
                }
                inner
                    .not_loaded
                    .send_if_modified(|reason| reason.take().is_some());
                interval
            }
            Err((failure, reason)) => {
                let is_first = outage.failed(failure, &reason);
                let is_other = failing.as_ref().is_some_and(|known| *known != reason);
                if is_first || (is_other && failure == RequestFailure::Other) {
                    tracing::warn!(
                        config_map = CONFIG_MAP,
                        %reason,
                        has_previous = inner.not_loaded.borrow().is_none(),
                        "failed to load the authentication configuration, retrying"
                    );
                }
                inner.not_loaded.send_if_modified(|current| {
                    let is_loading = current.is_some();
                    if is_loading {
                        *current = Some(reason.clone());
                    }
                    is_loading
                });
                failing = (failure == RequestFailure::Other).then_some(reason);
                RETRY_INTERVAL
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Replaces the trust if its inputs have changed. A part that cannot be read stays as it was, and
/// does not hold back the others.
fn update(inner: &Inner, last: &mut Option<Attempt>, inputs: Inputs) -> Result<(), String> {
    if let Some(last) = last
        && last.inputs == inputs
    {
        return last.error.clone().map_or(Ok(()), Err);
    }
    let known = inner.current.load();
    let data = inputs.data.as_ref();
    let (client, client_error) = part(
        inner.configured.client(data),
        known.client.as_ref(),
        CLIENT_CA,
    );
    let (front_proxy, front_proxy_error) = part(
        inner.configured.front_proxy(data),
        known.front_proxy.as_ref(),
        FRONT_PROXY_CA,
    );
    let error = match (client_error, front_proxy_error) {
        (Some(one), Some(other)) => Some(format!("{one}; {other}")),
        (one, other) => one.or(other),
    };
    tracing::info!(
        config_map = data.map(|_| CONFIG_MAP),
        client_ca = client.is_some(),
        front_proxy = front_proxy.is_some(),
        "loaded the authentication configuration"
    );
    inner.current.store(Arc::new(Trust {
        client,
        front_proxy,
    }));
    *last = Some(Attempt {
        inputs,
        error: error.clone(),
    });
    error.map_or(Ok(()), Err)
}

/// Returns what was read, or what is known and why. An authority that disappears stays in force
/// until the process ends, as in Go: the API server never removes one, so that it is a mistake,
/// and a mistake must not lock out all users.
fn part<T: Clone>(
    read: Result<Option<T>, ApiServerError>,
    known: Option<&T>,
    key: &str,
) -> (Option<T>, Option<String>) {
    match read {
        Ok(None) if known.is_some() => (known.cloned(), Some(format!("{key} has disappeared"))),
        Ok(read) => (read, None),
        Err(error) => (known.cloned(), Some(describe(&error))),
    }
}

fn describe(error: &ApiServerError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
