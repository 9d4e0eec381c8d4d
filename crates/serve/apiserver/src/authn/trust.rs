//! Client CA and front proxy: from the configuration, and from the cluster, refreshed periodically.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use kubevitals_telemetry::Status;
use kubevitals_tls::{ClientAuthority, PemSource, TrustRoots};
use rustls::RootCertStore;
use tokio::sync::watch;

use super::front_proxy::FrontProxy;
use crate::config::{AuthenticationConfig, FrontProxyConfig, Lookup, RequestHeaders};
use crate::error::ApiServerError;
use crate::metrics::ApiServerMetrics;

const CONFIG_MAP: &str = "kube-system/extension-apiserver-authentication";
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
        let trust = configured.trust(None)?;
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
    fn trust(&self, data: Option<&BTreeMap<String, String>>) -> Result<Trust, ApiServerError> {
        let client = match (&self.client, data) {
            (Some(roots), _) => Some(ClientAuthority::new(roots)?),
            (None, Some(data)) => authority(data, "client-ca-file")?,
            (None, None) => None,
        };
        let front_proxy = match (&self.front_proxy, data) {
            (Some(proxy), _) => Some(FrontProxy::new(
                ClientAuthority::new(&proxy.ca)?,
                &proxy.headers,
            )?),
            (None, Some(data)) => match authority(data, "requestheader-client-ca-file")? {
                Some(authority) => Some(FrontProxy::new(authority, &request_headers(data))?),
                None => None,
            },
            (None, None) => None,
        };
        Ok(Trust {
            client,
            front_proxy,
        })
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
    metrics: ApiServerMetrics,
) {
    let inner = &status.inner;
    let interval = lookup.as_ref().map_or(RETRY_INTERVAL * 10, |lookup| {
        lookup.interval.max(RETRY_INTERVAL)
    });
    let mut failing: Option<String> = None;
    let mut inputs: Option<Inputs> = None;
    loop {
        let read = match &lookup {
            Some(lookup) if inner.configured.needs_lookup() => {
                let read = lookup.source.authentication().await;
                metrics.looked_up(read.is_ok());
                read.map_err(|error| error.to_string()).and_then(|data| {
                    data.map(Some)
                        .ok_or_else(|| format!("configmap {CONFIG_MAP} does not exist"))
                })
            }
            _ => Ok(None),
        };
        let (data, error) = match read {
            Ok(data) => (data, None),
            Err(reason) => (None, Some(reason)),
        };
        let outcome = match error {
            Some(reason) if inputs.is_none() => Err(reason),
            error => {
                // Files may have changed even if the ConfigMap cannot be read.
                let previous = inputs.as_ref().and_then(|inputs| inputs.data.as_ref());
                let current = inner.configured.inputs(data.as_ref().or(previous));
                let updated = update(inner, &mut inputs, current);
                error.map_or(updated, Err)
            }
        };
        let pause = match outcome {
            Ok(()) => {
                if failing.take().is_some() {
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
            Err(reason) => {
                if failing.as_ref() != Some(&reason) {
                    tracing::warn!(
                        config_map = CONFIG_MAP,
                        %reason,
                        has_previous = inputs.is_some(),
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
                failing = Some(reason);
                RETRY_INTERVAL
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Replaces the trust if its inputs have changed.
fn update(inner: &Inner, inputs: &mut Option<Inputs>, current: Inputs) -> Result<(), String> {
    if inputs.as_ref() == Some(&current) {
        return Ok(());
    }
    let trust = inner
        .configured
        .trust(current.data.as_ref())
        .map_err(|error| describe(&error))?;
    let (client_ca, front_proxy) = (trust.client.is_some(), trust.front_proxy.is_some());
    inner.current.store(Arc::new(trust));
    let config_map = current.data.as_ref().map(|_| CONFIG_MAP);
    *inputs = Some(current);
    tracing::info!(
        config_map,
        client_ca,
        front_proxy,
        "loaded the authentication configuration"
    );
    Ok(())
}

fn authority(
    data: &BTreeMap<String, String>,
    key: &'static str,
) -> Result<Option<ClientAuthority>, ApiServerError> {
    let Some(pem) = data.get(key).filter(|pem| !pem.trim().is_empty()) else {
        return Ok(None);
    };
    let source = PemSource::Inline {
        label: key,
        pem: Arc::from(pem.as_bytes()),
    };
    let roots = TrustRoots::load(key, vec![source], SystemTime::now())?;
    Ok(Some(ClientAuthority::new(&roots)?))
}

/// The lists are JSON in strings; a malformed one is empty, which trusts no header.
fn request_headers(data: &BTreeMap<String, String>) -> RequestHeaders {
    let list = |key: &str| -> Vec<String> {
        let Some(text) = data.get(key).filter(|text| !text.is_empty()) else {
            return Vec::new();
        };
        serde_json::from_str(text).unwrap_or_else(|error| {
            tracing::warn!(key, %error, "ignoring an entry of the configmap that is not a list of strings");
            Vec::new()
        })
    };
    RequestHeaders {
        username: list("requestheader-username-headers"),
        uid: list("requestheader-uid-headers"),
        group: list("requestheader-group-headers"),
        extra_prefix: list("requestheader-extra-headers-prefix"),
        allowed_names: list("requestheader-allowed-names"),
    }
}

fn describe(error: &ApiServerError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::reviewer::{AuthenticationSource, ReviewError, ReviewFuture};

    type Data = BTreeMap<String, String>;

    /// Returns the configured result.
    struct StubSource(Mutex<Result<Option<Data>, &'static str>>);

    impl AuthenticationSource for StubSource {
        fn authentication(&self) -> ReviewFuture<'_, Option<Data>> {
            let result = self.0.lock().unwrap().clone();
            Box::pin(async move {
                result.map_err(|error| ReviewError::new("cannot get configmap", error))
            })
        }
    }

    fn data(entries: &[(&str, &str)]) -> Data {
        entries
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn ca() -> String {
        let own = rcgen::generate_simple_self_signed([String::from("ca")]).unwrap();
        own.cert.pem()
    }

    fn config(lookup: Option<Lookup>) -> AuthenticationConfig {
        AuthenticationConfig {
            tokens: None,
            token_ttl: Duration::ZERO,
            client_ca: None,
            front_proxy: None,
            lookup,
            anonymous: true,
        }
    }

    #[test]
    fn lists_of_the_config_map_are_json() {
        let headers = request_headers(&data(&[
            ("requestheader-username-headers", r#"["X-Remote-User"]"#),
            ("requestheader-allowed-names", r#"["front-proxy-client"]"#),
            ("requestheader-group-headers", "nonsense"),
        ]));
        assert_eq!(headers.username, ["X-Remote-User"]);
        assert_eq!(headers.allowed_names, ["front-proxy-client"]);
        assert!(headers.group.is_empty() && headers.uid.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_refresh_keeps_the_previous_configuration() {
        let source = Arc::new(StubSource(Mutex::new(Err("connection refused"))));
        let lookup = Lookup::new(Arc::<StubSource>::clone(&source));
        let status = TrustStatus::new(&config(Some(lookup))).unwrap();
        let lookup = Lookup::new(Arc::<StubSource>::clone(&source));
        let metrics = ApiServerMetrics::unregistered();
        let task = tokio::spawn(lookup_loop(status.clone(), Some(lookup), metrics));
        let set = async |result| {
            *source.0.lock().unwrap() = result;
            tokio::time::sleep(Duration::from_secs(11)).await;
        };
        set(Err("connection refused")).await;
        let Status::WarmingUp(reason) = status.status() else {
            panic!("{:?}", status.status())
        };
        assert_eq!(reason, "cannot get configmap: connection refused");
        set(Ok(None)).await;
        assert!(status.is_loading(), "the ConfigMap does not exist");
        set(Ok(Some(data(&[("client-ca-file", "rubbish")])))).await;
        assert!(status.is_loading());

        let good = data(&[
            ("client-ca-file", &ca()),
            ("requestheader-client-ca-file", &ca()),
        ]);
        set(Ok(Some(good.clone()))).await;
        assert_eq!(status.status(), Status::Ok);
        let loaded = status.current();
        assert!(loaded.client_authority().is_some() && loaded.front_proxy().is_some());

        for worse in [
            Err("down"),
            Ok(None),
            Ok(Some(data(&[("client-ca-file", "rubbish")]))),
        ] {
            set(worse).await;
            assert!(Arc::ptr_eq(&loaded, &status.current()));
            assert_eq!(status.status(), Status::Ok);
        }
        set(Ok(Some(good))).await;
        assert!(
            Arc::ptr_eq(&loaded, &status.current()),
            "nothing has changed"
        );
        set(Ok(Some(data(&[("client-ca-file", &ca())])))).await;
        assert!(
            status.current().front_proxy().is_none(),
            "a rotation is followed"
        );
        task.abort();
    }

    #[test]
    fn a_tolerated_failure_does_not_block_readiness() {
        let source = Arc::new(StubSource(Mutex::new(Ok(None))));
        let mut lookup = Lookup::new(source);
        lookup.tolerate_failure = true;
        assert_eq!(
            TrustStatus::new(&config(Some(lookup))).unwrap().status(),
            Status::Ok
        );
        assert_eq!(
            TrustStatus::new(&config(None)).unwrap().status(),
            Status::Ok
        );
    }
}
