//! TLS and credentials for kubelets.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use kube_client_metrics::Hooks;
use kubevitals_cli::{InvalidSetting, RunError};
use kubevitals_scrape::{Bearer, Credentials, RenewedToken, Transport};
use kubevitals_tls::{ClientOptions, ClientTls, PemSource, Refresh, ReloadingKeyPair, TrustRoots};

use super::ca_reloads::CountedReloads;
use super::config::Settings;
use super::flags::KubeletFlags;
use super::kubelet_token::{ServiceAccountName, TokenSource};

/// The transport and the credentials for kubelets.
pub(super) struct KubeletAccess {
    pub(super) transport: Transport,
    pub(super) credentials: Credentials,
    /// The token that must be requested and renewed.
    pub(super) renewed: Option<(Arc<RenewedToken>, ServiceAccountName)>,
    /// Files that are reloaded when they change.
    pub(super) refreshed: Vec<Arc<dyn Refresh>>,
}

impl KubeletAccess {
    /// Uses the flags; without them the CA, token and client certificate for the API server.
    pub(super) fn new(
        settings: &Settings,
        cluster: &kube::Config,
        hooks: &Hooks,
        now: SystemTime,
    ) -> Result<Self, RunError> {
        let flags = &settings.kubelet;
        if flags.deprecated_kubelet_completely_insecure {
            return Ok(Self {
                transport: Transport::InsecureHttp,
                credentials: Credentials::None,
                renewed: None,
                refreshed: Vec::new(),
            });
        }
        let mut refreshed: Vec<Arc<dyn Refresh>> = Vec::new();
        let source = &settings.kubelet_token;
        let identity = match source {
            TokenSource::ClientCertificate | TokenSource::Inherited => {
                identity(flags, cluster, now)?
            }
            TokenSource::ServiceAccount(_) | TokenSource::File(_) => None,
        };
        let mut renewed = None;
        let credentials = match source {
            TokenSource::ServiceAccount(account) => {
                let token = Arc::new(RenewedToken::new());
                renewed = Some((Arc::clone(&token), account.clone()));
                Credentials::Renewed(token)
            }
            TokenSource::File(file) => Credentials::file(file).map_err(RunError::runtime)?,
            // A client certificate is enough, and a kubelet cannot use it against others.
            _ if identity.is_some() => Credentials::None,
            _ => own_token(cluster)?,
        };
        let sends_own_token =
            matches!(source, TokenSource::Inherited) && !matches!(credentials, Credentials::None);
        if sends_own_token && settings.serving.manage_apiservices {
            return Err(privileged_token().into());
        }
        if let Some(identity) = &identity {
            refreshed.push(Arc::<ReloadingKeyPair>::clone(identity));
        }
        let options = ClientOptions {
            identity,
            ..ClientOptions::default()
        };
        let tls = if flags.kubelet_insecure_tls {
            ClientTls::dangerous_without_verification(&options)
        } else {
            let sources = authorities(flags, cluster);
            let roots = TrustRoots::load("kubelet CA", sources, now).map_err(RunError::runtime)?;
            refreshed.push(Arc::new(CountedReloads {
                roots: Arc::<TrustRoots>::clone(&roots),
                hooks: hooks.clone(),
            }));
            ClientTls::trusting(roots, &options)
        };
        Ok(Self {
            transport: Transport::Tls(tls.map_err(RunError::runtime)?),
            credentials,
            renewed,
            refreshed,
        })
    }
}

/// The CAs that verify the certificates of kubelets.
fn authorities(flags: &KubeletFlags, cluster: &kube::Config) -> Vec<PemSource> {
    if !flags.kubelet_certificate_authority.is_empty() {
        let files = flags.kubelet_certificate_authority.iter().cloned();
        return files.map(PemSource::File).collect();
    }
    if let Some(file) = &cluster.root_cert_file {
        return vec![PemSource::File(file.clone())];
    }
    let certificates = cluster.root_cert.iter().flatten();
    let pem: String = certificates.map(|der| pem_block(der)).collect();
    vec![PemSource::Inline {
        label: "certificate-authority-data of the kubeconfig",
        pem: pem.into_bytes().into(),
    }]
}

fn identity(
    flags: &KubeletFlags,
    cluster: &kube::Config,
    now: SystemTime,
) -> Result<Option<Arc<ReloadingKeyPair>>, RunError> {
    let auth = &cluster.auth_info;
    let files = flags.kubelet_client_certificate.as_ref();
    let files = files.zip(flags.kubelet_client_key.as_ref());
    let pair = if let Some((certificate, key)) = files {
        Some((
            PemSource::File(certificate.clone()),
            PemSource::File(key.clone()),
        ))
    } else {
        let certificate = source(
            auth.client_certificate.as_deref(),
            auth.client_certificate_data.as_deref(),
            "client-certificate-data of the kubeconfig",
        )?;
        let data = auth.client_key_data.as_ref();
        let key = source(
            auth.client_key.as_deref(),
            data.map(secrecy::ExposeSecret::expose_secret),
            "client-key-data of the kubeconfig",
        )?;
        certificate.zip(key)
    };
    pair.map(|(certificate, key)| {
        ReloadingKeyPair::load("kubelet client certificate", certificate, key, now)
            .map_err(RunError::runtime)
    })
    .transpose()
}

/// A file, or base64-encoded data.
fn source(
    file: Option<&str>,
    data: Option<&str>,
    label: &'static str,
) -> Result<Option<PemSource>, RunError> {
    use base64::Engine as _;
    if let Some(file) = file {
        return Ok(Some(PemSource::File(PathBuf::from(file))));
    }
    let Some(data) = data else { return Ok(None) };
    let pem = base64::engine::general_purpose::STANDARD
        .decode(data)
        .map_err(|error| RunError::runtime(format!("{label} is not base64: {error}")))?;
    Ok(Some(PemSource::Inline {
        label,
        pem: pem.into(),
    }))
}

/// The token for the API server.
fn own_token(cluster: &kube::Config) -> Result<Credentials, RunError> {
    let auth = &cluster.auth_info;
    if let Some(file) = &auth.token_file {
        return Credentials::file(file).map_err(RunError::runtime);
    }
    match &auth.token {
        Some(token) => {
            use secrecy::ExposeSecret as _;
            let token = Bearer::new(token.expose_secret()).map_err(RunError::runtime)?;
            Ok(Credentials::Token(token))
        }
        None => Ok(Credentials::None),
    }
}

/// With `--manage-apiservices` the own token may change APIServices, and whoever has it can take
/// over `metrics.k8s.io`. It would be sent to every node.
fn privileged_token() -> InvalidSetting {
    InvalidSetting {
        flag: "manage-apiservices",
        value: "true".to_owned(),
        problem: "the token of this server may change APIServices, and every kubelet would see it"
            .to_owned(),
        advice: "name an identity that may only read nodes/metrics: --kubelet-service-account, \
                 --kubelet-token-file or --kubelet-client-certificate"
            .to_owned(),
    }
}

/// Encodes a certificate as PEM: a kubeconfig has DER, and trust roots are loaded from PEM.
fn pem_block(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}
