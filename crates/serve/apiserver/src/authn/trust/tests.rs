use std::sync::Mutex;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls_pki_types::{CertificateDer, UnixTime};

use super::*;
use crate::reviewer::{AuthenticationSource, ReviewError, ReviewFuture};

type Data = BTreeMap<String, String>;

/// Returns the configured result.
struct StubSource(Mutex<Result<Option<Data>, &'static str>>);

/// An authority, and a client certificate that it signed.
struct Ca {
    pem: String,
    client: CertificateDer<'static>,
}

/// The loop over a source that tests change.
struct Looking {
    source: Arc<StubSource>,
    status: TrustStatus,
    task: tokio::task::JoinHandle<()>,
}

impl AuthenticationSource for StubSource {
    fn authentication(&self) -> ReviewFuture<'_, Option<Data>> {
        let result = self.0.lock().unwrap().clone();
        Box::pin(
            async move { result.map_err(|error| ReviewError::new("cannot get configmap", error)) },
        )
    }
}

impl Ca {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "x");
        let key = KeyPair::generate().unwrap();
        let client = params.signed_by(&key, &issuer).unwrap().der().clone();
        Self { pem, client }
    }

    fn is_authority(&self, authority: &ClientAuthority) -> bool {
        authority
            .verify(std::slice::from_ref(&self.client), UnixTime::now())
            .is_ok()
    }

    fn is_client_ca_of(&self, status: &TrustStatus) -> bool {
        let trust = status.current();
        trust
            .client_authority()
            .is_some_and(|a| self.is_authority(a))
    }

    fn is_front_proxy_of(&self, status: &TrustStatus) -> bool {
        let trust = status.current();
        trust
            .front_proxy()
            .is_some_and(|proxy| self.is_authority(&proxy.authority))
    }
}

impl Looking {
    fn start(first: Result<Option<Data>, &'static str>) -> Self {
        kubevitals_tls::install_crypto_provider();
        let source = Arc::new(StubSource(Mutex::new(first)));
        let lookup = || Lookup::new(Arc::<StubSource>::clone(&source));
        let status = TrustStatus::new(&config(Some(lookup()))).unwrap();
        let metrics = AccessMetrics::unregistered();
        let outage = OutageLog::default();
        let task = tokio::spawn(lookup_loop(status.clone(), Some(lookup()), metrics, outage));
        Self {
            source,
            status,
            task,
        }
    }

    async fn set(&self, result: Result<Option<Data>, &'static str>) {
        *self.source.0.lock().unwrap() = result;
        tokio::time::sleep(Duration::from_secs(11)).await;
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn data(entries: &[(&str, &str)]) -> Data {
    entries
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
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

#[tokio::test(start_paused = true)]
async fn a_failed_refresh_keeps_the_previous_configuration() {
    let looking = Looking::start(Err("connection refused"));
    let status = &looking.status;
    looking.set(Err("connection refused")).await;
    let Status::WarmingUp(reason) = status.status() else {
        panic!("{:?}", status.status())
    };
    assert_eq!(reason, "cannot get configmap: connection refused");
    looking.set(Ok(None)).await;
    assert!(status.is_loading(), "the ConfigMap does not exist");
    let rubbish = data(&[("client-ca-file", "rubbish")]);
    looking.set(Ok(Some(rubbish.clone()))).await;
    assert!(status.is_loading());

    let (clients, proxies) = (Ca::new(), Ca::new());
    let good = data(&[(CLIENT_CA, &clients.pem), (FRONT_PROXY_CA, &proxies.pem)]);
    looking.set(Ok(Some(good.clone()))).await;
    assert_eq!(status.status(), Status::Ok);
    let holds = || clients.is_client_ca_of(status) && proxies.is_front_proxy_of(status);
    assert!(holds());
    let loaded = status.current();
    looking.set(Ok(Some(good.clone()))).await;
    looking.set(Err("down")).await;
    looking.set(Ok(None)).await;
    assert!(
        Arc::ptr_eq(&loaded, &status.current()),
        "nothing has changed"
    );
    for worse in [rubbish, Data::new(), data(&[(CLIENT_CA, " ")])] {
        looking.set(Ok(Some(worse))).await;
        assert!(holds());
        assert_eq!(status.status(), Status::Ok);
    }
    let rotated = Ca::new();
    looking
        .set(Ok(Some(data(&[
            (CLIENT_CA, &rotated.pem),
            (FRONT_PROXY_CA, &proxies.pem),
        ]))))
        .await;
    assert!(rotated.is_client_ca_of(status) && !clients.is_client_ca_of(status));
    assert!(proxies.is_front_proxy_of(status));
}

/// A malformed `requestheader-allowed-names` used to mean "any name": every certificate of the
/// front proxy's authority could assert any user.
#[tokio::test(start_paused = true)]
async fn malformed_entries_keep_the_front_proxy_that_was_known() {
    let proxies = Ca::new();
    let good = data(&[
        (FRONT_PROXY_CA, &proxies.pem),
        ("requestheader-username-headers", r#"["X-Remote-User"]"#),
        ("requestheader-allowed-names", r#"["front-proxy-client"]"#),
    ]);
    let looking = Looking::start(Ok(Some(good.clone())));
    let status = &looking.status;
    status.loaded().await;
    for key in [
        "requestheader-allowed-names",
        "requestheader-username-headers",
        "requestheader-uid-headers",
        "requestheader-group-headers",
        "requestheader-extra-headers-prefix",
    ] {
        for value in [
            r#"["front-proxy-client""#,
            "front-proxy-client",
            "null",
            "{}",
            "[1]",
            r#""x""#,
            " ",
            "\u{feff}[]",
        ] {
            let (clients, other) = (Ca::new(), Ca::new());
            let mut edited = good.clone();
            edited.insert(key.to_owned(), value.to_owned());
            edited.insert(CLIENT_CA.to_owned(), clients.pem.clone());
            edited.insert(FRONT_PROXY_CA.to_owned(), other.pem.clone());
            looking.set(Ok(Some(edited))).await;
            let current = status.current();
            assert_eq!(
                current.front_proxy().unwrap().allowed_names,
                ["front-proxy-client"],
                "{key}: {value}"
            );
            assert!(proxies.is_front_proxy_of(status), "{key}: {value}");
            assert!(
                clients.is_client_ca_of(status),
                "the client CA is another entry"
            );
        }
    }
}

/// At the start there is nothing to keep: the server waits, closed.
#[tokio::test(start_paused = true)]
async fn a_malformed_entry_at_the_start_is_not_loaded() {
    let looking = Looking::start(Ok(Some(data(&[
        (FRONT_PROXY_CA, &Ca::new().pem),
        ("requestheader-allowed-names", "["),
    ]))));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let Status::WarmingUp(reason) = looking.status.status() else {
        panic!("{:?}", looking.status.status())
    };
    assert!(reason.contains("requestheader-allowed-names"), "{reason}");
    assert!(looking.status.current().front_proxy().is_none());
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
