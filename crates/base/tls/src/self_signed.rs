//! A certificate authority of the process, with a leaf that it renews.
//!
//! It is used if no certificate is configured. The authority's certificate goes into the `caBundle`
//! of an `APIService`, so that the API server can verify the connection instead of skipping it.
//!
//! # Rotation without a gap
//!
//! The leaf is renewed at three quarters of its validity by the same authority. When the authority
//! reaches three quarters of its own validity, a successor is added to the bundle but does not sign
//! yet: clients have [`SelfSignedOptions::activation_delay`] to copy the bundle. Then the successor
//! signs a new leaf. The old authority stays in the bundle until it expires.

mod authority;
mod storage;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::CertificateDer;

pub(crate) use self::authority::subject_names;
use self::authority::{Authority, Leaf};
use crate::TlsError;
use crate::refresh::{Refresh, RefreshStatus, Refreshed};

/// A self-signed authority and the server certificate that it signed.
///
/// Call [`Refresh::refresh`] periodically (every hour with the default periods); it does nothing
/// until a renewal is due.
pub struct SelfSigned {
    options: SelfSignedOptions,
    /// The certificate that the next handshake presents.
    serving: ArcSwap<CertifiedKey>,
    bundle: ArcSwap<String>,
    status: ArcSwap<RefreshStatus>,
    current: Mutex<Certificates>,
}

/// Names and validity periods.
#[derive(Debug, Clone)]
pub struct SelfSignedOptions {
    /// The common name in the subjects of the certificates.
    pub common_name: String,
    /// The DNS names and addresses of the server.
    pub names: Vec<String>,
    /// Validity of an authority.
    pub authority_validity: Duration,
    /// Validity of a leaf, at most half of that of the authority.
    pub leaf_validity: Duration,
    /// Time from the publication of a new authority until it signs, at most an eighth of its
    /// validity.
    pub activation_delay: Duration,
    /// Time by which the start of validity lies in the past, for clients whose clock is behind; at
    /// most a quarter of the validity of a leaf.
    pub backdate: Duration,
    /// Files for the authority, so that a restart does not invalidate the bundle that clients have.
    /// Without them, or if they cannot be written at the start, each process generates a new one.
    pub files: Option<SelfSignedFiles>,
}

/// The files of a self-signed authority. Processes must not share them.
///
/// The leaf and its key are not stored: a new leaf of the same authority is as good, and a key that
/// is not on disk needs no protection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfSignedFiles {
    /// The certificate and private key of the authority, readable by the owner alone. One file, so
    /// that it can be replaced atomically.
    pub authority: PathBuf,
    /// The certificate of the authority, for clients.
    pub bundle: PathBuf,
}

struct Certificates {
    /// Oldest first.
    authorities: Vec<Authority>,
    leaf: Leaf,
}

impl SelfSignedOptions {
    /// Returns the defaults: five years for the authority, 90 days for the leaf, an activation
    /// delay of a day, an hour of backdating, and no files.
    pub fn new(common_name: impl Into<String>, names: Vec<String>) -> Self {
        const DAY: Duration = Duration::from_hours(24);
        Self {
            common_name: common_name.into(),
            names,
            authority_validity: DAY * 1825,
            leaf_validity: DAY * 90,
            activation_delay: DAY,
            backdate: Duration::from_hours(1),
            files: None,
        }
    }

    fn check(&self) -> Result<(), TlsError> {
        let reason = if self.leaf_validity < Duration::from_mins(1) {
            "a leaf must be valid for at least a minute"
        } else if self.leaf_validity > self.authority_validity / 2 {
            "the validity of a leaf must not exceed half of that of the authority"
        } else if self.activation_delay > self.authority_validity / 8 {
            "the activation delay must not exceed an eighth of the validity of the authority"
        } else if self.backdate > self.leaf_validity / 4 {
            "the backdating must not exceed a quarter of the validity of a leaf"
        } else {
            return subject_names(&self.names).map(drop);
        };
        Err(TlsError::Validity { reason })
    }
}

impl SelfSignedFiles {
    /// Returns `<stem>-authority.pem` and `<stem>-ca.crt` in a directory.
    pub fn in_directory(directory: &Path, stem: &str) -> Self {
        Self {
            authority: directory.join(format!("{stem}-authority.pem")),
            bundle: directory.join(format!("{stem}-ca.crt")),
        }
    }
}

impl SelfSigned {
    /// Loads or generates an authority, and signs a leaf.
    ///
    /// It generates keys and may read and write files, which takes a few milliseconds. Files that
    /// cannot be used are logged and do not prevent the start: a new authority is as good once
    /// clients have it, and a server that does not start serves nobody.
    pub fn start(mut options: SelfSignedOptions, now: SystemTime) -> Result<Arc<Self>, TlsError> {
        options.check()?;
        let stored = match &options.files {
            Some(files) => stored_authorities(&files.authority),
            None => Vec::new(),
        };
        let (authorities, changed) = succession(stored, &options, now)?;
        let leaf = signer(&authorities, &options, now).sign_leaf(&options, now)?;
        let bundle = bundle_pem(&authorities);
        if let Some(files) = &options.files
            && (changed || !files.bundle.exists())
            && let Err(error) = storage::write(files, &authorities, &bundle)
        {
            tracing::warn!(
                error = error.chain(),
                "cannot store the self-signed authority, so a restart will generate another one"
            );
            options.files = None;
        }
        Ok(Arc::new(Self {
            serving: ArcSwap::from(Arc::clone(&leaf.certified)),
            bundle: ArcSwap::from_pointee(bundle),
            status: ArcSwap::from_pointee(RefreshStatus::first(now, Some(leaf.validity.not_after))),
            current: Mutex::new(Certificates { authorities, leaf }),
            options,
        }))
    }

    /// Returns the certificates of all authorities that clients should trust, as PEM for a
    /// `caBundle`. It changes when an authority is added or expires.
    pub fn ca_bundle_pem(&self) -> Arc<String> {
        self.bundle.load_full()
    }

    /// Returns the leaf certificate that the next handshake presents.
    pub fn leaf(&self) -> Option<CertificateDer<'static>> {
        self.serving.load().cert.first().cloned()
    }

    fn renew(&self, now: SystemTime) -> Result<Refreshed, TlsError> {
        let mut current = self.current.lock();
        let (authorities, changed) = succession(current.authorities.clone(), &self.options, now)?;
        let signer = signer(&authorities, &self.options, now);
        let leaf = if current.leaf.validity.is_due(now) || !signer.signed(&current.leaf) {
            Some(signer.sign_leaf(&self.options, now)?)
        } else {
            None
        };
        if !changed && leaf.is_none() {
            return Ok(Refreshed::Unchanged);
        }
        if changed {
            let bundle = bundle_pem(&authorities);
            // A successor that is not stored must not be published: a restart would lose it.
            if let Some(files) = &self.options.files {
                storage::write(files, &authorities, &bundle)?;
            }
            self.bundle.store(Arc::new(bundle));
            current.authorities = authorities;
        }
        if let Some(leaf) = leaf {
            self.serving.store(Arc::clone(&leaf.certified));
            current.leaf = leaf;
        }
        let not_after = Some(current.leaf.validity.not_after);
        self.status
            .rcu(|status| status.after_replacement(now, not_after));
        Ok(Refreshed::Replaced)
    }
}

impl Refresh for SelfSigned {
    fn name(&self) -> &'static str {
        "self-signed certificate"
    }

    fn refresh(&self, now: SystemTime) -> Result<Refreshed, TlsError> {
        let result = self.renew(now);
        match &result {
            Err(error) => {
                self.status.rcu(|status| status.after_failure(now, error));
            }
            Ok(Refreshed::Unchanged) if self.status.load().last_error.is_some() => {
                self.status.rcu(|status| status.after_success());
            }
            Ok(_) => {}
        }
        result
    }

    fn status(&self) -> Arc<RefreshStatus> {
        self.status.load_full()
    }
}

impl ResolvesServerCert for SelfSigned {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.serving.load_full())
    }
}

impl fmt::Debug for SelfSigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SelfSigned")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Reads the stored authorities. A file that cannot be used is moved aside, so that it neither ends
/// every restart nor is lost.
fn stored_authorities(path: &Path) -> Vec<Authority> {
    storage::read(path).unwrap_or_else(|error| {
        let error = error.chain();
        match storage::move_aside(path) {
            Ok(moved) => tracing::warn!(
                error,
                moved_to = %moved.display(),
                "cannot use the stored authority, generating another one"
            ),
            Err(move_error) => tracing::warn!(
                error,
                %move_error,
                "cannot use the stored authority nor move it aside, generating another one"
            ),
        }
        Vec::new()
    })
}

/// Removes expired authorities and adds one if none is valid or the newest is due. Returns whether
/// there was a change.
///
/// One that lies in the future stays: the current clock may be wrong, as on a machine that boots
/// before it has synchronized its clock.
fn succession(
    mut authorities: Vec<Authority>,
    options: &SelfSignedOptions,
    now: SystemTime,
) -> Result<(Vec<Authority>, bool), TlsError> {
    let before = authorities.len();
    authorities.retain(|authority| now <= authority.validity.not_after);
    keep_newest(&mut authorities);
    let mut changed = authorities.len() != before;
    let newest = authorities
        .iter()
        .rfind(|authority| authority.validity.contains(now));
    if newest.is_none_or(|newest| newest.validity.is_due(now)) {
        authorities.push(Authority::generate(options, now)?);
        keep_newest(&mut authorities);
        changed = true;
    }
    Ok((authorities, changed))
}

/// Bounds the bundle, which a clock that jumps back and forth would grow.
fn keep_newest(authorities: &mut Vec<Authority>) {
    const MAX_AUTHORITIES: usize = 3;
    let surplus = authorities.len().saturating_sub(MAX_AUTHORITIES);
    authorities.drain(..surplus);
}

/// Returns the newest valid authority whose activation delay has passed, or else the oldest.
fn signer<'a>(
    authorities: &'a [Authority],
    options: &SelfSignedOptions,
    now: SystemTime,
) -> &'a Authority {
    let is_active = |authority: &&Authority| {
        now.duration_since(authority.validity.not_before)
            .is_ok_and(|age| age >= options.activation_delay.saturating_add(options.backdate))
    };
    let mut valid = authorities
        .iter()
        .filter(|authority| authority.validity.contains(now));
    valid
        .clone()
        .rfind(is_active)
        .or_else(|| valid.next())
        .expect("`succession` leaves at least one valid authority")
}

fn bundle_pem(authorities: &[Authority]) -> String {
    authorities.iter().map(Authority::certificate_pem).collect()
}
