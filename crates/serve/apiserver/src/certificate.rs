//! The certificate that a server shows: from files, or made by itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use kubevitals_tls::{
    PemSource, Refresh, ReloadingKeyPair, SelfSigned, SelfSignedFiles, SelfSignedOptions, TlsError,
};
use rustls::server::ResolvesServerCert;

/// A certificate that stays fresh while the server runs. Clones share it.
#[derive(Clone)]
pub struct ServingCertificate {
    resolver: Arc<dyn ResolvesServerCert>,
    refresh: Vec<Arc<dyn Refresh>>,
    authority: Option<Arc<SelfSigned>>,
}

impl ServingCertificate {
    /// From two files, read again when they change: `--tls-cert-file` and `--tls-private-key-file`,
    /// or a mounted Secret.
    pub fn from_files(
        certificate: PathBuf,
        key: PathBuf,
        now: SystemTime,
    ) -> Result<Self, TlsError> {
        let pair = ReloadingKeyPair::load(
            "serving certificate",
            PemSource::File(certificate),
            PemSource::File(key),
            now,
        )?;
        Ok(Self {
            resolver: Arc::<ReloadingKeyPair>::clone(&pair),
            refresh: vec![pair],
            authority: None,
        })
    }

    /// Made by the server itself for these names, renewed and rotated. With a folder the authority
    /// outlives the process, so that the `caBundle` that clients have stays good; two processes
    /// must not share it.
    ///
    /// Use [`service_names`] for the names of a Service.
    pub fn self_signed(
        common_name: &str,
        names: Vec<String>,
        directory: Option<&Path>,
        now: SystemTime,
    ) -> Result<Self, TlsError> {
        let mut options = SelfSignedOptions::new(common_name, names);
        options.files = directory.map(|folder| SelfSignedFiles::in_directory(folder, common_name));
        let own = SelfSigned::start(options, now)?;
        Ok(Self {
            resolver: Arc::<SelfSigned>::clone(&own),
            refresh: vec![Arc::<SelfSigned>::clone(&own)],
            authority: Some(own),
        })
    }

    /// From elsewhere; `refresh` is looked at once a minute.
    pub fn custom(resolver: Arc<dyn ResolvesServerCert>, refresh: Vec<Arc<dyn Refresh>>) -> Self {
        Self {
            resolver,
            refresh,
            authority: None,
        }
    }

    /// What clients must trust to verify this server, as PEM, if it signs its own certificate: the
    /// content of a `caBundle`. It changes when an authority is added or expires.
    pub fn ca_bundle(&self) -> Option<Arc<String>> {
        self.authority.as_ref().map(|own| own.ca_bundle_pem())
    }

    pub(crate) fn resolver(&self) -> Arc<dyn ResolvesServerCert> {
        Arc::clone(&self.resolver)
    }

    pub(crate) fn refreshed(&self) -> &[Arc<dyn Refresh>] {
        &self.refresh
    }
}

/// The names by which clients in the cluster know a Service, and `localhost` for probes and
/// port-forwards.
pub fn service_names(service: &str, namespace: &str, cluster_domain: &str) -> Vec<String> {
    let mut names = vec![
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}"),
        service.to_owned(),
        String::from("localhost"),
        String::from("127.0.0.1"),
        String::from("::1"),
    ];
    if !cluster_domain.is_empty() {
        names.insert(0, format!("{service}.{namespace}.svc.{cluster_domain}"));
    }
    names
}
