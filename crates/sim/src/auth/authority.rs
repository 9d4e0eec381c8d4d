//! The certificate authorities of one simulated cluster. Each cluster has its own, so that
//! credentials of one mean nothing to another.

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

/// How long certificates are valid: simulated clusters do not grow old.
const VALIDITY: Duration = Duration::from_hours(365 * 24);
/// Clocks of clients may be behind.
const BACKDATE: Duration = Duration::from_hours(1);

/// A certificate and its private key, as PEM.
#[derive(Clone)]
pub struct IssuedCertificate {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// A certificate authority.
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

    /// The authority's own certificate, as PEM.
    pub(crate) fn pem(&self) -> &str {
        &self.certificate
    }

    /// The same authority for the kubelets' serving certificates, as in a cluster that signs them
    /// itself.
    pub(crate) fn for_kubelets(&self) -> Result<crate::kubelet::Authority, SimError> {
        let key = KeyPair::try_from(self.key.as_slice()).map_err(SimError::Certificate)?;
        let issuer = Issuer::new(self.params.clone(), key);
        Ok(crate::kubelet::Authority::given(
            issuer,
            self.der.clone(),
            self.certificate.clone(),
        ))
    }

    /// A certificate for a client: a user in groups, or a front proxy.
    pub(crate) fn client(
        &self,
        name: &str,
        groups: &[String],
    ) -> Result<IssuedCertificate, SimError> {
        let mut params = CertificateParams::default();
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, name);
        // A second attribute of the same type would replace the first, so several groups cannot be
        // written with this library; the caller is told rather than given less.
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

    /// A certificate for a server under names and addresses.
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

    /// Judges client certificates by this authority alone.
    pub(crate) fn judge(&self) -> Result<ClientAuthority, SimError> {
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
    /// For use in a TLS configuration.
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
    /// Without the private key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedCertificate")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// Trust in the authorities of a PEM text.
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
