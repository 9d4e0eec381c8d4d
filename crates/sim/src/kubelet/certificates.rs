//! Serving certificates of the kubelets, and verification of client certificates.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kubevitals_tls::{
    Alpn, RequestClientCertificate, ServerOptions, ServerTls, install_crypto_provider,
};
use parking_lot::Mutex;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::FleetError;

const DAY: Duration = Duration::from_hours(24);

/// A certificate authority that signs the kubelets' certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

/// A defect of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CertificateDefect {
    None,
    Expired,
    WrongName,
}

/// The last configuration of a node, and the defect of its certificate.
type CachedConfig = Option<(CertificateDefect, Arc<ServerConfig>)>;

/// The TLS configurations of all kubelets, created on the first connection.
pub(crate) struct Certificates {
    authority: Authority,
    /// One key for all: 5,000 keys would take seconds, and no client compares them.
    key: KeyPair,
    signing_key: Arc<dyn SigningKey>,
    cache: Mutex<Vec<CachedConfig>>,
    clients: Arc<dyn ClientCertVerifier>,
}

impl Authority {
    /// Generates an authority, valid for ten years.
    pub fn generate(common_name: &str) -> Result<Self, FleetError> {
        let key = KeyPair::generate().map_err(FleetError::Certificate)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = named(common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        params.not_before = (SystemTime::now() - 30 * DAY).into();
        params.not_after = (SystemTime::now() + 3_650 * DAY).into();
        let certificate = params.self_signed(&key).map_err(FleetError::Certificate)?;
        Ok(Self {
            pem: certificate.pem(),
            certificate: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        })
    }

    /// Uses an existing authority, such as that of the cluster.
    pub fn new(
        issuer: Issuer<'static, KeyPair>,
        certificate: CertificateDer<'static>,
        pem: String,
    ) -> Self {
        Self {
            issuer,
            certificate,
            pem,
        }
    }

    /// Returns the CA certificate, as PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the private key.
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Certificates {
    pub(crate) fn new(authority: Authority, nodes: usize) -> Result<Self, FleetError> {
        install_crypto_provider();
        let provider = CryptoProvider::get_default().map_or_else(
            || Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
            Arc::clone,
        );
        let key = KeyPair::generate().map_err(FleetError::Certificate)?;
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let signing_key = provider
            .key_provider
            .load_private_key(private)
            .map_err(FleetError::Key)?;
        Ok(Self {
            authority,
            key,
            signing_key,
            cache: Mutex::new(vec![None; nodes]),
            clients: RequestClientCertificate::verifier(),
        })
    }

    pub(crate) fn authority_pem(&self) -> &str {
        self.authority.certificate_pem()
    }

    /// Returns the configuration of a node's listener with a certificate that has this defect.
    pub(crate) fn config(
        &self,
        index: usize,
        name: &str,
        ip: IpAddr,
        defect: CertificateDefect,
    ) -> Result<Arc<ServerConfig>, FleetError> {
        let cached = self.cache.lock().get(index).cloned();
        if let Some(Some((had, config))) = cached
            && had == defect
        {
            return Ok(config);
        }
        let config = self.make(name, ip, defect)?;
        let mut cache = self.cache.lock();
        if let Some(slot) = cache.get_mut(index) {
            *slot = Some((defect, Arc::clone(&config)));
        }
        Ok(config)
    }

    fn make(
        &self,
        name: &str,
        ip: IpAddr,
        defect: CertificateDefect,
    ) -> Result<Arc<ServerConfig>, FleetError> {
        let leaf = self.leaf(name, ip, defect)?;
        let chain = vec![leaf, self.authority.certificate.clone()];
        let certified = CertifiedKey::new(chain, Arc::clone(&self.signing_key));
        let options = ServerOptions {
            alpn: vec![Alpn::H2, Alpn::Http11],
            client_verifier: Some(Arc::clone(&self.clients)),
            ..ServerOptions::default()
        };
        let resolver = Arc::new(SingleCertAndKey::from(certified));
        Ok(ServerTls::new(resolver, &options)?.config())
    }

    fn leaf(
        &self,
        name: &str,
        ip: IpAddr,
        defect: CertificateDefect,
    ) -> Result<CertificateDer<'static>, FleetError> {
        let mut params = CertificateParams::default();
        // The subject of a kubelet's certificate signing request.
        params.distinguished_name = named(&format!("system:node:{name}"));
        params
            .distinguished_name
            .push(DnType::OrganizationName, "system:nodes");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let host = if defect == CertificateDefect::WrongName {
            "elsewhere.invalid"
        } else {
            name
        };
        let host = Ia5String::try_from(host).map_err(FleetError::Certificate)?;
        params.subject_alt_names = vec![SanType::DnsName(host)];
        if defect != CertificateDefect::WrongName {
            params.subject_alt_names.push(SanType::IpAddress(ip));
        }
        // Peers verify certificates with their own clocks, so these dates follow the system's clock
        // even if the cluster's clock is stepped.
        let now = SystemTime::now();
        let (from, until) = match defect {
            CertificateDefect::Expired => (now - 3 * DAY, now - DAY),
            CertificateDefect::None | CertificateDefect::WrongName => (now - DAY, now + 365 * DAY),
        };
        params.not_before = from.into();
        params.not_after = until.into();
        let leaf = params
            .signed_by(&self.key, &self.authority.issuer)
            .map_err(FleetError::Certificate)?;
        Ok(leaf.der().clone())
    }
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}
