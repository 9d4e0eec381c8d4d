//! Requests for certificates that an authority of the cluster signs.

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};

use crate::TlsError;
use crate::self_signed::subject_names;

/// A new key and the request of a server certificate for it. It has no `Debug`, since it holds the
/// private key.
pub struct CertificateRequest {
    params: CertificateParams,
    key: KeyPair,
}

impl CertificateRequest {
    /// Generates a key.
    pub fn new(common_name: &str, organization: &str, names: &[String]) -> Result<Self, TlsError> {
        let mut subject = DistinguishedName::new();
        subject.push(DnType::OrganizationName, organization);
        subject.push(DnType::CommonName, common_name);
        let mut params = CertificateParams::default();
        params.distinguished_name = subject;
        params.subject_alt_names = subject_names(names)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().map_err(TlsError::Generate)?;
        Ok(Self { params, key })
    }

    /// The request (PKCS #10) as PEM.
    pub fn pem(&self) -> Result<String, TlsError> {
        // An authority decides about extensions other than names; those of Kubernetes refuse some.
        let mut params = self.params.clone();
        params.key_usages.clear();
        params.extended_key_usages.clear();
        let request = params
            .serialize_request(&self.key)
            .map_err(TlsError::Generate)?;
        request.pem().map_err(TlsError::Generate)
    }

    /// The private key as PEM.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// A certificate that the key signs itself, to serve until the authority has signed.
    pub fn self_signed_pem(&self) -> Result<String, TlsError> {
        let certificate = self.params.self_signed(&self.key);
        Ok(certificate.map_err(TlsError::Generate)?.pem())
    }
}
