//! CA bundles, read from one or several files and reloaded.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::RootCertStore;
use tracing::warn;

use crate::TlsError;
use crate::pem::{PemSource, parse_certificates};
use crate::refresh::{Refresh, RefreshStatus, Refreshed};
use crate::reload::{Contents, Parsed, Reloadable};

/// Trusted authorities: all certificates of all sources, reloaded when the sources change.
///
/// Each handshake uses the current ones. Existing connections are not affected.
///
/// Every source must contain at least one usable authority. Certificates that cannot be parsed are
/// ignored beside usable ones, since bundles of public authorities often contain a very old one.
pub struct TrustRoots {
    inner: Reloadable<RootCertStore>,
}

impl TrustRoots {
    /// Reads the bundles.
    pub fn load(
        name: &'static str,
        sources: Vec<PemSource>,
        now: SystemTime,
    ) -> Result<Arc<Self>, TlsError> {
        if sources.is_empty() {
            return Err(TlsError::NoTrustSources);
        }
        Ok(Arc::new(Self {
            inner: Reloadable::load(name, sources, parse, now)?,
        }))
    }

    /// Returns the current authorities, for verifiers of other crates.
    pub fn current(&self) -> Arc<RootCertStore> {
        self.inner.current()
    }
}

/// Where distributions keep the bundle of public authorities, in the order of Go's `crypto/x509`.
const SYSTEM_BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Returns the public authorities that the system trusts: the file in `SSL_CERT_FILE`, or that of
/// the distribution; `None` if there is none.
pub fn system_bundle() -> Option<PemSource> {
    let named = std::env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty());
    let found = SYSTEM_BUNDLES.iter().map(Path::new);
    let path = named.map(PathBuf::from).or_else(|| {
        let mut found = found.filter(|path| path.is_file());
        found.next().map(Path::to_path_buf)
    })?;
    Some(PemSource::File(path))
}

impl Refresh for TrustRoots {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn refresh(&self, now: SystemTime) -> Result<Refreshed, TlsError> {
        self.inner.refresh(now)
    }

    fn status(&self) -> Arc<RefreshStatus> {
        self.inner.status()
    }
}

impl fmt::Debug for TrustRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrustRoots")
            .field("name", &self.inner.name())
            .field("sources", &self.inner.sources())
            .field("authorities", &self.current().len())
            .finish()
    }
}

fn parse(contents: &[Contents]) -> Result<Parsed<RootCertStore>, TlsError> {
    let mut store = RootCertStore::empty();
    let mut ignored = 0_usize;
    for Contents { origin, pem } in contents {
        let certificates = parse_certificates(pem).map_err(|problem| TlsError::Pem {
            origin: origin.clone(),
            problem,
        })?;
        let usable_before = store.len();
        let mut first_failure = None;
        for (index, der) in certificates.into_iter().enumerate() {
            if let Err(source) = store.add(der) {
                ignored += 1;
                first_failure.get_or_insert((index + 1, source));
            }
        }
        if let Some((position, source)) = first_failure
            && store.len() == usable_before
        {
            let origin = origin.clone();
            return Err(TlsError::Certificate {
                origin,
                position,
                source,
            });
        }
    }
    if ignored > 0 {
        // Logged only here, since a rejected bundle is parsed again at each refresh.
        warn!(
            ignored,
            usable = store.len(),
            "ignoring invalid certificates in CA bundles"
        );
    }
    Ok(Parsed {
        value: store,
        not_after: None,
    })
}
