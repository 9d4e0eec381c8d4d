//! The serving certificate: from files, or self-signed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use kubevitals_tls::{
    PemSource, Refresh, ReloadingKeyPair, SelfSigned, SelfSignedFiles, SelfSignedOptions, TlsError,
};
use rustls::server::ResolvesServerCert;

use crate::transport::{BackgroundTask, refresh_task};

/// A certificate that is refreshed while the server runs. Clones share it.
#[derive(Clone)]
pub struct ServingCertificate {
    resolver: Arc<dyn ResolvesServerCert>,
    refresh: Vec<Arc<dyn Refresh>>,
    authority: Option<Arc<SelfSigned>>,
}

impl ServingCertificate {
    /// Loads two files, and reloads them when they change: `--tls-cert-file` and
    /// `--tls-private-key-file`, or a mounted Secret.
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

    /// Generates a certificate for these names, and renews and rotates it. With a directory the
    /// authority outlives the process, so that the `caBundle` of clients stays valid; two processes
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

    /// Uses any resolver; `refresh` is called once a minute.
    pub fn custom(resolver: Arc<dyn ResolvesServerCert>, refresh: Vec<Arc<dyn Refresh>>) -> Self {
        Self {
            resolver,
            refresh,
            authority: None,
        }
    }

    /// Returns the authorities that clients need to verify a self-signed certificate, as PEM: the
    /// content of a `caBundle`. It changes when an authority is added or expires.
    pub fn ca_bundle(&self) -> Option<Arc<String>> {
        self.authority.as_ref().map(|own| own.ca_bundle_pem())
    }

    pub(crate) fn resolver(&self) -> Arc<dyn ResolvesServerCert> {
        Arc::clone(&self.resolver)
    }

    /// Returns the task that reloads or renews the certificate. It runs as long as the server.
    pub fn refresh_task(&self) -> BackgroundTask {
        refresh_task("refresh-serving-certificates", self.refresh.clone())
    }

    pub(crate) fn refreshed(&self) -> &[Arc<dyn Refresh>] {
        &self.refresh
    }
}

/// Returns the DNS names of a Service in the cluster, and `localhost` for probes and
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
