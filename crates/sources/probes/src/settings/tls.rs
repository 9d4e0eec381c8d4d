//! `tls_config`: how a target is verified, and who the prober is.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use kubevitals_tls::{
    ClientOptions, ClientTls, MinTlsVersion, PemSource, Refresh as _, ReloadingKeyPair, TlsError,
    TlsPolicy, TrustRoots, system_bundle,
};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use crate::SettingsError;

/// The settings of `tls_config`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientTlsSettings {
    pub insecure_skip_verify: bool,
    /// The authorities to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    /// The name to verify, and to send, instead of the target's.
    pub server_name: Option<String>,
    pub min_version: Option<TlsVersion>,
    pub max_version: Option<TlsVersion>,
}

/// `TLS10` to `TLS13`. The first two are refused: rustls does not speak them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    Tls10,
    Tls11,
    Tls12,
    Tls13,
}

/// Compiled TLS settings. Files are read at the first handshake, and again when they change. Clones
/// share what was read.
#[derive(Debug, Clone, Default)]
pub struct ProbeTls(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    settings: ClientTlsSettings,
    policy: TlsPolicy,
    loaded: Mutex<Option<Loaded>>,
    /// Held while files are read, which may hang: then one thread does.
    reading: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Clone)]
struct Loaded {
    client: ClientTls,
    roots: Option<Arc<TrustRoots>>,
    identity: Option<Arc<ReloadingKeyPair>>,
    checked: Instant,
}

/// How often files are compared with what was read.
const REFRESH: Duration = Duration::from_mins(1);

/// The authorities of the system, shared by all modules that trust them.
static SYSTEM_ROOTS: Mutex<Weak<TrustRoots>> = Mutex::new(Weak::new());

impl ProbeTls {
    /// Checks the settings. Files are not read yet: [`check`](Self::check) does.
    pub fn new(settings: ClientTlsSettings) -> Result<Self, SettingsError> {
        for (setting, version) in [
            ("min_version", settings.min_version),
            ("max_version", settings.max_version),
        ] {
            if version.is_some_and(|version| version < TlsVersion::Tls12) {
                return Err(SettingsError::Unsupported {
                    setting,
                    reason: "versions before TLS 1.2 are not implemented; use TLS12 or TLS13",
                });
            }
        }
        let invalid = |setting, problem: &str| SettingsError::Invalid {
            setting,
            problem: problem.to_owned(),
        };
        if settings.cert_file.is_some() != settings.key_file.is_some() {
            return Err(invalid("cert_file", "it needs key_file, and the reverse"));
        }
        let min_version = match settings.min_version {
            Some(TlsVersion::Tls13) => MinTlsVersion::Tls13,
            _ => MinTlsVersion::Tls12,
        };
        let mut policy = TlsPolicy::new(min_version, None);
        if settings.max_version == Some(TlsVersion::Tls12) {
            if min_version == MinTlsVersion::Tls13 {
                return Err(invalid("max_version", "it is below min_version"));
            }
            policy = policy.with_tls12_only();
        }
        Ok(Self(Arc::new(Shared {
            settings,
            policy,
            ..Shared::default()
        })))
    }

    pub fn settings(&self) -> &ClientTlsSettings {
        &self.0.settings
    }

    /// Reads the files, to find errors before the first probe.
    pub fn check(&self) -> Result<(), TlsError> {
        self.0.load().map(drop)
    }

    /// Returns the client for a handshake now, and reads its files if that is due.
    pub(crate) async fn client(&self) -> Result<ClientTls, TlsError> {
        if let Some(client) = self.0.recent() {
            return Ok(client);
        }
        let permit = Arc::clone(&self.0.reading).lock_owned().await;
        if let Some(client) = self.0.recent() {
            return Ok(client);
        }
        let shared = Arc::clone(&self.0);
        let reading = tokio::task::spawn_blocking(move || {
            let loaded = shared.refresh();
            drop(permit);
            loaded
        });
        match reading.await {
            Ok(client) => client,
            Err(_) => Err(TlsError::NoTrustSources),
        }
    }
}

impl Shared {
    fn recent(&self) -> Option<ClientTls> {
        let loaded = self.loaded.lock();
        let loaded = loaded.as_ref()?;
        let is_recent = loaded.checked.elapsed() < REFRESH;
        is_recent.then(|| loaded.client.clone())
    }

    /// Reads the files for the first time, or again. Files that became invalid leave the previous
    /// ones in use.
    fn refresh(&self) -> Result<ClientTls, TlsError> {
        let known = self.loaded.lock().clone();
        let loaded = match known {
            None => self.load()?,
            Some(mut known) => {
                let now = SystemTime::now();
                let roots = known.roots.as_ref().map(|roots| roots.refresh(now));
                let identity = known.identity.as_ref().map(|own| own.refresh(now));
                for error in [roots, identity]
                    .into_iter()
                    .flatten()
                    .filter_map(Result::err)
                {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "a file of tls_config cannot be read again; its previous contents are used"
                    );
                }
                known.checked = Instant::now();
                known
            }
        };
        let client = loaded.client.clone();
        *self.loaded.lock() = Some(loaded);
        Ok(client)
    }

    fn load(&self) -> Result<Loaded, TlsError> {
        let now = SystemTime::now();
        let file = |path: &Path| PemSource::File(path.to_owned());
        let identity = match (&self.settings.cert_file, &self.settings.key_file) {
            (Some(certificate), Some(key)) => {
                let (certificate, key) = (file(certificate), file(key));
                let name = "client certificate of a probe";
                Some(ReloadingKeyPair::load(name, certificate, key, now)?)
            }
            _ => None,
        };
        let options = ClientOptions {
            policy: self.policy.clone(),
            identity: identity.clone(),
            ..ClientOptions::default()
        };
        let roots = if self.settings.insecure_skip_verify {
            None
        } else if let Some(path) = &self.settings.ca_file {
            let name = "CA bundle of a probe";
            Some(TrustRoots::load(name, vec![file(path)], now)?)
        } else {
            Some(system_roots(now)?)
        };
        let client = match &roots {
            Some(roots) => ClientTls::trusting(Arc::clone(roots), &options)?,
            None => ClientTls::dangerous_without_verification(&options)?,
        };
        Ok(Loaded {
            client,
            roots,
            identity,
            checked: Instant::now(),
        })
    }
}

fn system_roots(now: SystemTime) -> Result<Arc<TrustRoots>, TlsError> {
    let mut shared = SYSTEM_ROOTS.lock();
    if let Some(roots) = shared.upgrade() {
        return Ok(roots);
    }
    let sources = system_bundle().into_iter().collect();
    let roots = TrustRoots::load("system CA bundle", sources, now)?;
    *shared = Arc::downgrade(&roots);
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_are_not_spoken_are_refused_by_name() {
        for version in [TlsVersion::Tls10, TlsVersion::Tls11] {
            let error = ProbeTls::new(ClientTlsSettings {
                min_version: Some(version),
                ..ClientTlsSettings::default()
            });
            let error = error.unwrap_err().to_string();
            assert!(error.starts_with("min_version is not supported"), "{error}");
        }
        let crossed = ProbeTls::new(ClientTlsSettings {
            min_version: Some(TlsVersion::Tls13),
            max_version: Some(TlsVersion::Tls12),
            ..ClientTlsSettings::default()
        });
        assert!(matches!(crossed, Err(SettingsError::Invalid { .. })));
    }

    #[test]
    fn a_certificate_needs_its_key() {
        let error = ProbeTls::new(ClientTlsSettings {
            cert_file: Some("client.pem".into()),
            ..ClientTlsSettings::default()
        });
        assert!(matches!(
            error,
            Err(SettingsError::Invalid {
                setting: "cert_file",
                ..
            })
        ));
    }
}
