//! A certificate authority of one's own, with a leaf that renews itself.
//!
//! This is what serves when nobody provides a certificate. The authority's public half goes into
//! the `caBundle` of an `APIService`, so that the API server can verify instead of being told not
//! to look.
//!
//! # Rotation without a gap
//!
//! The leaf is made anew at three quarters of its life and the authority stays. When the authority
//! reaches three quarters of its own life, a successor joins the bundle but does not sign yet:
//! whoever copies the bundle gets [`SelfSignedOptions::lead`] to do so. After that time the
//! successor signs a new leaf. The old authority stays in the bundle until it expires.

mod authority;
mod storage;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::CertificateDer;

use self::authority::{Authority, Leaf, subject_names};
use crate::TlsError;
use crate::refresh::{Refresh, RefreshStatus, Refreshed};

/// A self-made authority and the leaf certificate that it signed, for a server.
///
/// Call [`Refresh::refresh`] now and then (an hour is often enough with the default periods);
/// renewal does nothing until it is due.
pub struct SelfSigned {
    options: SelfSignedOptions,
    /// What the next handshake shows. Swapped as a whole.
    serving: ArcSwap<CertifiedKey>,
    bundle: ArcSwap<String>,
    status: ArcSwap<RefreshStatus>,
    state: Mutex<State>,
}

/// What to make, and for how long.
#[derive(Debug, Clone)]
pub struct SelfSignedOptions {
    /// Who this is, for the subjects of the certificates: `kubevitals`.
    pub common_name: String,
    /// The DNS names and addresses by which clients know the server.
    pub names: Vec<String>,
    /// How long an authority lives.
    pub authority_validity: Duration,
    /// How long a leaf lives; at most half as long as an authority.
    pub leaf_validity: Duration,
    /// How long a new authority is published before it signs; at most an eighth of its life.
    pub lead: Duration,
    /// How far the start of validity lies in the past, for clients whose clock is behind; at most a
    /// quarter of the leaf's life.
    pub backdate: Duration,
    /// Where to keep the authority, so that a restart does not invalidate the bundle that clients
    /// have. `None` makes a new one for each process.
    pub files: Option<SelfSignedFiles>,
}

/// Where a self-made authority is kept: files of one process, not to be shared by several.
///
/// The leaf and its key are not kept: a new leaf of the same authority is as good, and a key that
/// is on no disk needs no care.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfSignedFiles {
    /// The authority's certificate and private key in one file, readable by the owner alone. One
    /// file, so that it can be replaced in one step and never holds halves of two authorities.
    pub authority: PathBuf,
    /// The authority's public half, for whoever needs to trust it.
    pub bundle: PathBuf,
}

struct State {
    /// In the order in which they were made.
    authorities: Vec<Authority>,
    leaf: Leaf,
}

impl SelfSignedOptions {
    /// Five years for the authority, 90 days for the leaf, a day of lead, an hour of backdating,
    /// and no files.
    pub fn new(common_name: impl Into<String>, names: Vec<String>) -> Self {
        const DAY: Duration = Duration::from_hours(24);
        Self {
            common_name: common_name.into(),
            names,
            authority_validity: DAY * 1825,
            leaf_validity: DAY * 90,
            lead: DAY,
            backdate: Duration::from_hours(1),
            files: None,
        }
    }

    fn check(&self) -> Result<(), TlsError> {
        let reason = if self.leaf_validity < Duration::from_mins(1) {
            "a leaf must live for a minute at least"
        } else if self.leaf_validity > self.authority_validity / 2 {
            "a leaf must not live longer than half its authority's life"
        } else if self.lead > self.authority_validity / 8 {
            "the lead must not exceed an eighth of the authority's life"
        } else if self.backdate > self.leaf_validity / 4 {
            "the backdating must not exceed a quarter of the leaf's life"
        } else {
            return subject_names(&self.names).map(drop);
        };
        Err(TlsError::Validity { reason })
    }
}

impl SelfSignedFiles {
    /// `<stem>-authority.pem` and `<stem>-ca.crt` in a directory.
    pub fn in_directory(directory: &Path, stem: &str) -> Self {
        Self {
            authority: directory.join(format!("{stem}-authority.pem")),
            bundle: directory.join(format!("{stem}-ca.crt")),
        }
    }
}

impl SelfSigned {
    /// Makes an authority, or takes up the one that is kept, and a leaf.
    ///
    /// This computes keys and may read and write files: a few milliseconds.
    pub fn start(options: SelfSignedOptions, now: SystemTime) -> Result<Arc<Self>, TlsError> {
        options.check()?;
        let kept = match &options.files {
            Some(files) => storage::read(&files.authority)?,
            None => Vec::new(),
        };
        let (authorities, changed) = succession(kept, &options, now)?;
        let leaf = signer(&authorities, &options, now).sign_leaf(&options, now)?;
        let bundle = bundle_of(&authorities);
        if let Some(files) = &options.files
            && (changed || !files.bundle.exists())
        {
            storage::write(files, &authorities, &bundle)?;
        }
        Ok(Arc::new(Self {
            serving: ArcSwap::from(Arc::clone(&leaf.certified)),
            bundle: ArcSwap::from_pointee(bundle),
            status: ArcSwap::from_pointee(RefreshStatus::first(now, Some(leaf.life.not_after))),
            state: Mutex::new(State { authorities, leaf }),
            options,
        }))
    }

    /// The public certificates of all authorities that clients should trust, as PEM: the content of
    /// a `caBundle`. It changes when an authority is added or expires.
    pub fn ca_bundle_pem(&self) -> Arc<String> {
        self.bundle.load_full()
    }

    /// The leaf certificate that the next handshake presents.
    pub fn leaf(&self) -> Option<CertificateDer<'static>> {
        self.serving.load().cert.first().cloned()
    }

    fn renew(&self, now: SystemTime) -> Result<Refreshed, TlsError> {
        // A panic while renewing leaves the state as it was: it is replaced at the very end.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (authorities, changed) = succession(state.authorities.clone(), &self.options, now)?;
        let signer = signer(&authorities, &self.options, now);
        let leaf = if state.leaf.life.is_due(now) || !signer.signed(&state.leaf) {
            Some(signer.sign_leaf(&self.options, now)?)
        } else {
            None
        };
        if !changed && leaf.is_none() {
            return Ok(Refreshed::Unchanged);
        }
        if changed {
            let bundle = bundle_of(&authorities);
            // A successor that is not on disk must not be published: a restart would lose it.
            if let Some(files) = &self.options.files {
                storage::write(files, &authorities, &bundle)?;
            }
            self.bundle.store(Arc::new(bundle));
            state.authorities = authorities;
        }
        if let Some(leaf) = leaf {
            self.serving.store(Arc::clone(&leaf.certified));
            state.leaf = leaf;
        }
        let not_after = Some(state.leaf.life.not_after);
        self.status
            .rcu(|status| status.after_replacement(now, not_after));
        Ok(Refreshed::Replaced)
    }
}

impl Refresh for SelfSigned {
    fn what(&self) -> &'static str {
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

/// Drops authorities that have expired and adds one if none is valid or the newest is due.
///
/// One that lies in the future stays: perhaps it is today's clock that is wrong, as on a machine
/// that boots before it knows the time, and then clients rely on it again in a minute.
fn succession(
    mut authorities: Vec<Authority>,
    options: &SelfSignedOptions,
    now: SystemTime,
) -> Result<(Vec<Authority>, bool), TlsError> {
    let before = authorities.len();
    authorities.retain(|authority| now <= authority.life.not_after);
    keep_newest(&mut authorities);
    let mut changed = authorities.len() != before;
    let newest = authorities
        .iter()
        .rfind(|authority| authority.life.contains(now));
    if newest.is_none_or(|newest| newest.life.is_due(now)) {
        authorities.push(Authority::make(options, now)?);
        keep_newest(&mut authorities);
        changed = true;
    }
    Ok((authorities, changed))
}

/// A clock that jumps to and fro must not grow the bundle without end.
fn keep_newest(authorities: &mut Vec<Authority>) {
    const KEPT: usize = 3;
    let surplus = authorities.len().saturating_sub(KEPT);
    authorities.drain(..surplus);
}

/// The newest valid authority that clients have had time to learn of, or else the oldest.
fn signer<'a>(
    authorities: &'a [Authority],
    options: &SelfSignedOptions,
    now: SystemTime,
) -> &'a Authority {
    let known = |authority: &&Authority| {
        now.duration_since(authority.life.not_before)
            .is_ok_and(|age| age >= options.lead.saturating_add(options.backdate))
    };
    let mut valid = authorities
        .iter()
        .filter(|authority| authority.life.contains(now));
    valid
        .clone()
        .rfind(known)
        .or_else(|| valid.next())
        .expect("`succession` leaves at least one valid authority")
}

fn bundle_of(authorities: &[Authority]) -> String {
    authorities.iter().map(Authority::certificate_pem).collect()
}
