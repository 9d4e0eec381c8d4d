//! Whom to trust: what was configured, and what the cluster says, read again and again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use kubevitals_telemetry::Status;
use kubevitals_tls::{ClientAuthority, PemSource, TrustRoots};
use rustls::RootCertStore;

use super::front_proxy::FrontProxy;
use crate::config::{AuthenticationConfig, FrontProxyConfig, Lookup, RequestHeaders};
use crate::error::ApiServerError;
use crate::metrics::ApiServerMetrics;

const CONFIG_MAP: &str = "kube-system/extension-apiserver-authentication";
/// After a failure the ConfigMap is read again so soon.
const RETRY: Duration = Duration::from_secs(1);

/// Whom to trust at one moment.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    client: Option<ClientAuthority>,
    front_proxy: Option<FrontProxy>,
}

/// Whether the server knows whom to trust. Clones share it.
#[derive(Clone)]
pub struct TrustStatus {
    inner: Arc<Inner>,
}

struct Inner {
    current: ArcSwap<Trust>,
    /// `None` once enough is known.
    waits_for: ArcSwap<Option<String>>,
    configured: Configured,
}

/// What was configured, and is not looked up.
struct Configured {
    client: Option<Arc<TrustRoots>>,
    front_proxy: Option<FrontProxyConfig>,
}

/// What the trust was made from, to notice changes. Roots that were reloaded are other ones; they
/// are kept here, so that none can take the place of another unnoticed.
struct Seen {
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
        let incomplete = configured.client.is_none() || configured.front_proxy.is_none();
        let waits_for = match &config.lookup {
            Some(lookup) if incomplete && !lookup.tolerate_failure => {
                Some(format!("configmap {CONFIG_MAP} was not read yet"))
            }
            _ => None,
        };
        Ok(Self {
            inner: Arc::new(Inner {
                current: ArcSwap::from_pointee(trust),
                waits_for: ArcSwap::from_pointee(waits_for),
                configured,
            }),
        })
    }

    /// `WarmingUp`, with the reason, until the first lookup succeeded; `Ok` from then on, since
    /// what was found is kept.
    pub fn status(&self) -> Status {
        match &**self.inner.waits_for.load() {
            Some(reason) => Status::warming_up(reason.clone()),
            None => Status::Ok,
        }
    }

    pub(crate) fn current(&self) -> Arc<Trust> {
        self.inner.current.load_full()
    }

    pub(crate) fn waits(&self) -> bool {
        self.inner.waits_for.load().is_some()
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

    fn seen(&self, data: Option<&BTreeMap<String, String>>) -> Seen {
        Seen {
            client: self.client.as_ref().map(|roots| roots.current()),
            front_proxy: self.front_proxy.as_ref().map(|proxy| proxy.ca.current()),
            data: data.cloned(),
        }
    }
}

impl PartialEq for Seen {
    fn eq(&self, other: &Self) -> bool {
        let same = |one: &Option<Arc<RootCertStore>>, two: &Option<Arc<RootCertStore>>| {
            one.as_ref().map(Arc::as_ptr) == two.as_ref().map(Arc::as_ptr)
        };
        same(&self.client, &other.client)
            && same(&self.front_proxy, &other.front_proxy)
            && self.data == other.data
    }
}

/// Keeps the trust fresh for as long as it is polled.
pub(crate) async fn lookup_loop(
    status: TrustStatus,
    lookup: Option<Lookup>,
    metrics: ApiServerMetrics,
) {
    let inner = &status.inner;
    let every = lookup
        .as_ref()
        .map_or(RETRY * 10, |lookup| lookup.every.max(RETRY));
    let mut failing: Option<String> = None;
    let mut seen: Option<Seen> = None;
    loop {
        let found = match &lookup {
            Some(lookup) if inner.configured.needs_lookup() => {
                let found = lookup.source.authentication().await;
                metrics.looked_up(found.is_ok());
                found.map_err(|error| error.to_string()).and_then(|found| {
                    found
                        .map(Some)
                        .ok_or_else(|| format!("configmap {CONFIG_MAP} does not exist"))
                })
            }
            _ => Ok(None),
        };
        let (found, problem) = match found {
            Ok(found) => (found, None),
            Err(reason) => (None, Some(reason)),
        };
        let outcome = match problem {
            Some(reason) if seen.is_none() => Err(reason),
            problem => {
                // Files may have changed even if the ConfigMap cannot be read.
                let known = seen.as_ref().and_then(|seen| seen.data.as_ref());
                let now = inner.configured.seen(found.as_ref().or(known));
                let renewed = renew(inner, &mut seen, now);
                problem.map_or(renewed, Err)
            }
        };
        let pause = match outcome {
            Ok(()) => {
                if failing.take().is_some() {
                    tracing::info!(config_map = CONFIG_MAP, "whom to trust can be read again");
                }
                inner.waits_for.store(Arc::new(None));
                every
            }
            Err(reason) => {
                if failing.as_ref() != Some(&reason) {
                    tracing::warn!(%reason, "whom to trust cannot be found out; what was known stays in force");
                }
                if inner.waits_for.load().is_some() {
                    inner.waits_for.store(Arc::new(Some(reason.clone())));
                }
                failing = Some(reason);
                RETRY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Puts another trust in force, if what it is made from has changed.
fn renew(inner: &Inner, seen: &mut Option<Seen>, now: Seen) -> Result<(), String> {
    if seen.as_ref() == Some(&now) {
        return Ok(());
    }
    let trust = inner
        .configured
        .trust(now.data.as_ref())
        .map_err(|error| describe(&error))?;
    inner.current.store(Arc::new(trust));
    *seen = Some(now);
    tracing::info!("who may speak for others and who signs client certificates is known");
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

/// The lists are JSON in text; what cannot be read is empty, which trusts nobody's word.
fn request_headers(data: &BTreeMap<String, String>) -> RequestHeaders {
    let list = |key: &str| -> Vec<String> {
        let Some(text) = data.get(key).filter(|text| !text.is_empty()) else {
            return Vec::new();
        };
        serde_json::from_str(text).unwrap_or_else(|error| {
            tracing::warn!(key, %error, "an entry of the configmap is no list of texts");
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
    use crate::review::{AuthenticationSource, Pending, ReviewError};

    type Data = BTreeMap<String, String>;

    /// Gives what it was told to.
    struct Told(Mutex<Result<Option<Data>, &'static str>>);

    impl AuthenticationSource for Told {
        fn authentication(&self) -> Pending<'_, Option<Data>> {
            let told = self.0.lock().unwrap().clone();
            Box::pin(async move {
                told.map_err(|problem| ReviewError {
                    what: "cannot get configmap",
                    problem: problem.to_owned(),
                })
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
    async fn what_was_known_stays_in_force() {
        let source = Arc::new(Told(Mutex::new(Err("connection refused"))));
        let lookup = Lookup::new(Arc::<Told>::clone(&source));
        let status = TrustStatus::new(&config(Some(lookup))).unwrap();
        let lookup = Lookup::new(Arc::<Told>::clone(&source));
        let metrics = ApiServerMetrics::unregistered();
        let task = tokio::spawn(lookup_loop(status.clone(), Some(lookup), metrics));
        let tell = async |told| {
            *source.0.lock().unwrap() = told;
            tokio::time::sleep(Duration::from_secs(11)).await;
        };
        tell(Err("connection refused")).await;
        let Status::WarmingUp(reason) = status.status() else {
            panic!("{:?}", status.status())
        };
        assert_eq!(reason, "cannot get configmap: connection refused");
        tell(Ok(None)).await;
        assert!(status.waits(), "there is no such ConfigMap");
        tell(Ok(Some(data(&[("client-ca-file", "rubbish")])))).await;
        assert!(status.waits());

        let good = data(&[
            ("client-ca-file", &ca()),
            ("requestheader-client-ca-file", &ca()),
        ]);
        tell(Ok(Some(good.clone()))).await;
        assert_eq!(status.status(), Status::Ok);
        let known = status.current();
        assert!(known.client_authority().is_some() && known.front_proxy().is_some());

        for worse in [
            Err("down"),
            Ok(None),
            Ok(Some(data(&[("client-ca-file", "rubbish")]))),
        ] {
            tell(worse).await;
            assert!(Arc::ptr_eq(&known, &status.current()));
            assert_eq!(status.status(), Status::Ok);
        }
        tell(Ok(Some(good))).await;
        assert!(
            Arc::ptr_eq(&known, &status.current()),
            "nothing has changed"
        );
        tell(Ok(Some(data(&[("client-ca-file", &ca())])))).await;
        assert!(
            status.current().front_proxy().is_none(),
            "a rotation is followed"
        );
        task.abort();
    }

    #[test]
    fn who_tolerates_failures_does_not_wait() {
        let source = Arc::new(Told(Mutex::new(Ok(None))));
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
