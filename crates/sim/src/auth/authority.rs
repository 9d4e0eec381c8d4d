//! The certificate authorities of one simulated cluster. Each cluster has its own, so that its
//! credentials are not valid in another.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kubevitals_tls::{ClientAuthority, PemSource, ReloadingKeyPair, TrustRoots};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

use rustls_pki_types::CertificateDer;

use crate::error::SimError;

/// Validity of certificates: simulated clusters do not run for long.
const VALIDITY: Duration = Duration::from_hours(365 * 24);
/// Allows for clients whose clocks are behind.
const BACKDATE: Duration = Duration::from_hours(1);

/// A certificate and its private key, as PEM.
#[derive(Clone)]
pub struct IssuedCertificate {
    pub certificate: String,
    pub key: String,
}

pub(crate) struct Authority {
    certificate: String,
    der: CertificateDer<'static>,
    params: CertificateParams,
    key: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
    now: SystemTime,
}

impl Authority {
    pub(crate) fn new(name: &str, now: SystemTime) -> Result<Self, SimError> {
        let key = KeyPair::generate().map_err(SimError::Certificate)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        date(&mut params, now);
        let certificate = params.self_signed(&key).map_err(SimError::Certificate)?;
        Ok(Self {
            certificate: certificate.pem(),
            der: certificate.der().clone(),
            params: params.clone(),
            key: key.serialize_der(),
            issuer: Issuer::new(params, key),
            now,
        })
    }

    /// The CA certificate, as PEM.
    pub(crate) fn pem(&self) -> &str {
        &self.certificate
    }

    /// Returns the same authority for the serving certificates of kubelets.
    pub(crate) fn for_kubelets(&self) -> Result<crate::kubelet::Authority, SimError> {
        let key = KeyPair::try_from(self.key.as_slice()).map_err(SimError::Certificate)?;
        let issuer = Issuer::new(self.params.clone(), key);
        Ok(crate::kubelet::Authority::new(
            issuer,
            self.der.clone(),
            self.certificate.clone(),
        ))
    }

    /// Issues a client certificate for a user in groups, or for a front proxy.
    pub(crate) fn client(
        &self,
        name: &str,
        groups: &[String],
    ) -> Result<IssuedCertificate, SimError> {
        let mut params = CertificateParams::default();
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, name);
        // A second attribute of the same type would replace the first in this library, so more than
        // one group is an error rather than silently lost.
        match groups {
            [] => {}
            [group] => params
                .distinguished_name
                .push(DnType::OrganizationName, group.as_str()),
            _ => return Err(SimError::SeveralGroups),
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// Issues a server certificate for names and addresses.
    pub(crate) fn server(
        &self,
        name: &str,
        names: &[String],
    ) -> Result<IssuedCertificate, SimError> {
        let mut params = CertificateParams::default();
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, name);
        for name in names {
            params.subject_alt_names.push(match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => {
                    SanType::DnsName(name.as_str().try_into().map_err(SimError::Certificate)?)
                }
            });
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// Returns a verifier of the client certificates of this authority.
    pub(crate) fn client_verifier(&self) -> Result<ClientAuthority, SimError> {
        Ok(ClientAuthority::new(&*roots(self.pem(), self.now)?)?)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<IssuedCertificate, SimError> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        date(&mut params, self.now);
        let key = KeyPair::generate().map_err(SimError::Certificate)?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .map_err(SimError::Certificate)?;
        Ok(IssuedCertificate {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

impl IssuedCertificate {
    /// Loads the key pair for a TLS configuration.
    pub(crate) fn load(
        &self,
        what: &'static str,
        now: SystemTime,
    ) -> Result<Arc<ReloadingKeyPair>, SimError> {
        let inline = |pem: &str| PemSource::Inline {
            label: what,
            pem: Arc::from(pem.as_bytes()),
        };
        Ok(ReloadingKeyPair::load(
            what,
            inline(&self.certificate),
            inline(&self.key),
            now,
        )?)
    }
}

impl std::fmt::Debug for IssuedCertificate {
    /// Omits the private key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedCertificate")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// Parses trust roots from PEM.
pub(crate) fn roots(pem: &str, now: SystemTime) -> Result<Arc<TrustRoots>, SimError> {
    let source = PemSource::Inline {
        label: "certificate authority",
        pem: Arc::from(pem.as_bytes()),
    };
    Ok(TrustRoots::load(
        "certificate authority",
        vec![source],
        now,
    )?)
}

fn date(params: &mut CertificateParams, now: SystemTime) {
    params.not_before = (now - BACKDATE).into();
    params.not_after = (now + VALIDITY).into();
}
