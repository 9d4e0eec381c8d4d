//! Generation and signing of certificates.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{DnsName, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::SelfSignedOptions;
use crate::TlsError;
use crate::provider::shared_provider;

/// The validity period of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: SystemTime,
    pub(super) not_after: SystemTime,
}

/// A certificate authority. It is cheap to clone, and has no `Debug` since it holds a private key.
#[derive(Clone)]
pub(super) struct Authority {
    pub(super) validity: Validity,
    /// The certificate. It identifies the authority: serial numbers and keys are random.
    certificate_pem: Arc<str>,
    issuer: Arc<Issuer<'static, KeyPair>>,
}

/// A server certificate and its key.
pub(super) struct Leaf {
    pub(super) validity: Validity,
    pub(super) certified: Arc<CertifiedKey>,
    authority_pem: Arc<str>,
}

impl Validity {
    fn starting(now: SystemTime, validity: Duration, backdate: Duration) -> Result<Self, TlsError> {
        /// Dates in certificates end with the year 9999.
        const LAST_SECOND: Duration = Duration::from_secs(253_402_300_799);
        let not_after = now
            .checked_add(validity)
            .filter(|end| {
                end.duration_since(UNIX_EPOCH)
                    .is_ok_and(|since| since <= LAST_SECOND)
            })
            .ok_or(TlsError::Validity {
                reason: "the end lies after the year 9999",
            })?;
        let not_before = now.checked_sub(backdate).unwrap_or(UNIX_EPOCH);
        Ok(Self {
            not_before: whole_second(not_before),
            not_after: whole_second(not_after),
        })
    }

    pub(super) fn contains(&self, now: SystemTime) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    /// Returns whether a renewal is due: at three quarters of the validity, which leaves a quarter
    /// to notice failures; or at once if the clock was wrong when this one was generated.
    pub(super) fn is_due(&self, now: SystemTime) -> bool {
        let whole = self
            .not_after
            .duration_since(self.not_before)
            .unwrap_or_default();
        now.duration_since(self.not_before)
            .map_or(true, |age| age >= whole / 4 * 3)
    }
}

impl Authority {
    pub(super) fn generate(options: &SelfSignedOptions, now: SystemTime) -> Result<Self, TlsError> {
        let validity = Validity::starting(now, options.authority_validity, options.backdate)?;
        let key = KeyPair::generate().map_err(TlsError::Generate)?;
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut params = authority_params(&format!("{}-ca@{since}", options.common_name));
        params.not_before = validity.not_before.into();
        params.not_after = validity.not_after.into();
        params.serial_number = Some(random_serial()?);
        let certificate_pem = params
            .self_signed(&key)
            .map_err(TlsError::Generate)?
            .pem()
            .into();
        Ok(Self {
            validity,
            certificate_pem,
            issuer: Arc::new(Issuer::new(params, key)),
        })
    }

    /// Restores a stored authority; `subject` must be its common name.
    pub(super) fn restore(validity: Validity, pem: String, subject: &str, key: KeyPair) -> Self {
        let issuer = Arc::new(Issuer::new(authority_params(subject), key));
        Self {
            validity,
            certificate_pem: pem.into(),
            issuer,
        }
    }

    pub(super) fn sign_leaf(
        &self,
        options: &SelfSignedOptions,
        now: SystemTime,
    ) -> Result<Leaf, TlsError> {
        let mut validity = Validity::starting(now, options.leaf_validity, options.backdate)?;
        // A leaf must not outlive its authority.
        validity.not_after = validity.not_after.min(self.validity.not_after);
        validity.not_before = validity.not_before.max(self.validity.not_before);
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(&options.common_name);
        params.subject_alt_names = subject_names(&options.names)?;
        params.not_before = validity.not_before.into();
        params.not_after = validity.not_after.into();
        params.serial_number = Some(random_serial()?);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(TlsError::Generate)?;
        let leaf = params
            .signed_by(&key, &self.issuer)
            .map_err(TlsError::Generate)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let certified = CertifiedKey::from_der(vec![leaf.der().clone()], key, shared_provider())
            .map_err(TlsError::Configuration)?;
        Ok(Leaf {
            validity,
            certified: Arc::new(certified),
            authority_pem: Arc::clone(&self.certificate_pem),
        })
    }

    pub(super) fn signed(&self, leaf: &Leaf) -> bool {
        leaf.authority_pem == self.certificate_pem
    }

    pub(super) fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    pub(super) fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }
}

/// Parses the names of a certificate.
pub(crate) fn subject_names(names: &[String]) -> Result<Vec<SanType>, TlsError> {
    if names.is_empty() {
        return Err(TlsError::NoSubjectNames);
    }
    names
        .iter()
        .map(|name| {
            if let Ok(address) = name.parse::<IpAddr>() {
                return Ok(SanType::IpAddress(address));
            }
            let invalid = || TlsError::SubjectName {
                name: crate::x509::bounded(name),
            };
            DnsName::try_from(name.as_str()).map_err(|_| invalid())?;
            Ok(SanType::DnsName(
                name.as_str().try_into().map_err(|_| invalid())?,
            ))
        })
        .collect()
}

fn authority_params(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(common_name);
    // It must not sign further authorities.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn subject(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

/// Returns a random serial number of 127 bits: positive, of fixed length, and never zero.
fn random_serial() -> Result<SerialNumber, TlsError> {
    let mut bytes = [0_u8; 16];
    shared_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| TlsError::Random)?;
    let [first, ..] = &mut bytes;
    *first = *first & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

/// Truncates to seconds, since certificates have no fractions.
fn whole_second(time: SystemTime) -> SystemTime {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH + Duration::from_secs(since.as_secs())
}
