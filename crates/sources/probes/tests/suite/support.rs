//! Servers, certificates and contexts for the tests.

use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kubevitals_model::Clock;
use kubevitals_probes::{
    Allow, ClientTlsSettings, IpProtocol, NetworkSettings, Outcome, Phase, ProbeContext, ProbeTls,
    Prober, Reason, Resolve, ResolveError, ResolveFuture, Target,
};
use kubevitals_tls::{Alpn, PemSource, ReloadingKeyPair, ServerOptions, ServerTls, TlsPolicy};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

/// Long enough for any machine: a run that is expected to end does so at once.
pub(crate) const GENEROUS: Duration = Duration::from_secs(20);
/// For runs that are expected to end by their deadline.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

pub(crate) const DAY: Duration = Duration::from_hours(24);

/// A resolver with fixed answers. `hang.test` has none.
#[derive(Debug, Default)]
pub(crate) struct FakeResolver(pub(crate) HashMap<&'static str, Vec<IpAddr>>);

impl Resolve for FakeResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> ResolveFuture<'a> {
        Box::pin(async move {
            match (host, self.0.get(host)) {
                ("hang.test", _) => std::future::pending().await,
                ("fail.test", _) => Err(ResolveError::Failed("no server answered".to_owned())),
                (_, Some(found)) => Ok(found.clone()),
                (_, None) => Err(ResolveError::NotFound),
            }
        })
    }
}

pub(crate) fn context(timeout: Duration) -> ProbeContext {
    let loopback: IpAddr = [127, 0, 0, 1].into();
    let names = [
        ("server.test", vec![loopback]),
        ("other.test", vec![loopback]),
        ("both.test", vec![loopback, "::1".parse().unwrap()]),
        ("none.test", vec![]),
    ];
    ProbeContext {
        clock: Clock::system(),
        deadline: Instant::now() + timeout,
        resolver: Arc::new(FakeResolver(names.into())),
        allow: Arc::new(Allow::default()),
    }
}

pub(crate) async fn probe(prober: &Prober, target: &str) -> Outcome {
    probe_within(prober, target, GENEROUS).await
}

pub(crate) async fn probe_within(prober: &Prober, target: &str, timeout: Duration) -> Outcome {
    let target = Target::parse(target, prober).unwrap();
    prober.run(&target, &context(timeout)).await
}

#[track_caller]
pub(crate) fn assert_success(outcome: &Outcome) {
    assert!(outcome.is_success(), "{outcome:?}");
}

#[track_caller]
pub(crate) fn assert_failure(outcome: &Outcome, reason: Reason, phase: Phase) {
    let failure = outcome.failure.as_ref().expect("a failure");
    assert_eq!(
        (failure.reason, failure.phase),
        (reason, Some(phase)),
        "{outcome:?}"
    );
}

pub(crate) fn phases(outcome: &Outcome) -> Vec<Phase> {
    outcome.phases.iter().map(|time| time.phase).collect()
}

/// A server of TCP, until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// Serves each connection by `handler`.
    pub(crate) async fn start<F, R>(handler: F) -> Self
    where
        F: Fn(TcpStream) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(handler(stream));
            }
        });
        Self { address, task }
    }

    /// Serves one HTTP response to each request, as it is, and closes.
    pub(crate) async fn http(response: &'static str) -> Self {
        Self::start(move |mut stream| async move {
            use tokio::io::AsyncWriteExt as _;
            let _head = read_head(&mut stream).await;
            let _ = stream.write_all(response.as_bytes()).await;
        })
        .await
    }

    /// Accepts and never answers.
    pub(crate) async fn silent() -> Self {
        Self::start(|stream| async move {
            let _held = stream;
            std::future::pending::<()>().await;
        })
        .await
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An address that nobody listens on.
pub(crate) async fn refused() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// Reads the head of a request.
pub(crate) async fn read_head(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// An authority, and a folder with its certificate.
pub(crate) struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Ca {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = params(&[], 3650 * DAY, DAY);
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    /// What a client needs to trust it.
    pub(crate) fn settings(&self) -> ClientTlsSettings {
        ClientTlsSettings {
            ca_file: Some(self.folder.path().join("ca.pem")),
            ..ClientTlsSettings::default()
        }
    }

    pub(crate) fn trusted(&self) -> ProbeTls {
        ProbeTls::new(self.settings()).unwrap()
    }

    /// An acceptor with a certificate for names.
    pub(crate) fn acceptor(&self, names: &[&str], alpn: &[Alpn]) -> TlsAcceptor {
        self.accepting(&params(names, 90 * DAY, DAY), alpn, TlsPolicy::default())
    }

    /// An acceptor whose certificate has expired.
    pub(crate) fn expired_acceptor(&self, names: &[&str]) -> TlsAcceptor {
        let mut params = params(names, DAY, 30 * DAY);
        params.not_after = (SystemTime::now() - DAY).into();
        self.accepting(&params, &[], TlsPolicy::default())
    }

    /// An acceptor that requires a client certificate of this authority.
    pub(crate) fn strict_acceptor(&self, names: &[&str]) -> TlsAcceptor {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier =
            rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let options = ServerOptions {
            client_verifier: Some(verifier.build().unwrap()),
            ..ServerOptions::default()
        };
        self.accept(&params(names, 90 * DAY, DAY), &options)
    }

    /// Writes a client certificate, and returns the settings that present it.
    pub(crate) fn client_settings(&self) -> ClientTlsSettings {
        let mut params = params(&["client.test"], 90 * DAY, DAY);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let path = |name| self.folder.path().join(name);
        std::fs::write(path("client.pem"), certificate.pem()).unwrap();
        std::fs::write(path("client.key"), key.serialize_pem()).unwrap();
        ClientTlsSettings {
            cert_file: Some(path("client.pem")),
            key_file: Some(path("client.key")),
            ..self.settings()
        }
    }

    pub(crate) fn accepting(
        &self,
        params: &CertificateParams,
        alpn: &[Alpn],
        policy: TlsPolicy,
    ) -> TlsAcceptor {
        let options = ServerOptions {
            alpn: alpn.to_vec(),
            policy,
            ..ServerOptions::default()
        };
        self.accept(params, &options)
    }

    fn accept(&self, params: &CertificateParams, options: &ServerOptions) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let inline = |label, pem: String| PemSource::Inline {
            label,
            pem: Arc::from(pem.into_bytes()),
        };
        let pair = ReloadingKeyPair::load(
            "test",
            inline("certificate", certificate.pem()),
            inline("key", key.serialize_pem()),
            SystemTime::now(),
        );
        let server = ServerTls::new(pair.unwrap(), options).unwrap();
        TlsAcceptor::from(server.config())
    }
}

/// A certificate that is valid for `after`, and since `before`.
pub(crate) fn params(names: &[&str], after: Duration, before: Duration) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.not_before = (SystemTime::now() - before).into();
    params.not_after = (SystemTime::now() + after).into();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

pub(crate) fn ip4() -> NetworkSettings {
    NetworkSettings {
        preferred_ip_protocol: IpProtocol::Ip4,
        ..NetworkSettings::default()
    }
}
