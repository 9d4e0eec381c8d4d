//! Contents of files that are reloaded while the process runs.
//!
//! Files are compared by content. Secret and `ConfigMap` volumes swap a symbolic link to a
//! directory, so that neither modification times nor file notifications are reliable.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::TlsError;
use crate::pem::PemSource;
use crate::refresh::{Refresh, RefreshStatus, Refreshed};

/// Contents parsed from sources, replaced as a whole when the sources change.
pub(crate) struct Reloadable<T> {
    name: &'static str,
    sources: Vec<PemSource>,
    parse: fn(&[Contents]) -> Result<Parsed<T>, TlsError>,
    /// Randomly keyed, so that nobody can construct contents with equal fingerprints.
    hasher: RandomState,
    current: ArcSwap<T>,
    status: ArcSwap<RefreshStatus>,
    /// The fingerprint of the current contents. Locked for a whole refresh, so that there is one at
    /// a time.
    loaded: Mutex<u64>,
}

/// The text of one source.
pub(crate) struct Contents {
    pub(crate) origin: String,
    pub(crate) pem: Vec<u8>,
}

/// The parsed contents of the sources.
pub(crate) struct Parsed<T> {
    pub(crate) value: T,
    pub(crate) not_after: Option<SystemTime>,
}

impl<T> Reloadable<T> {
    /// Loads the contents for the first time.
    pub(crate) fn load(
        name: &'static str,
        sources: Vec<PemSource>,
        parse: fn(&[Contents]) -> Result<Parsed<T>, TlsError>,
        now: SystemTime,
    ) -> Result<Self, TlsError> {
        let hasher = RandomState::new();
        let (contents, fingerprint) = read_stable(|| read_all(&sources), &hasher, None)?;
        let Parsed { value, not_after } = parse(&contents)?;
        Ok(Self {
            name,
            sources,
            parse,
            hasher,
            current: ArcSwap::from_pointee(value),
            status: ArcSwap::from_pointee(RefreshStatus::first(now, not_after)),
            loaded: Mutex::new(fingerprint),
        })
    }

    pub(crate) fn current(&self) -> Arc<T> {
        self.current.load_full()
    }

    pub(crate) fn sources(&self) -> &[PemSource] {
        &self.sources
    }

    fn reload(&self, loaded: u64) -> Result<Option<(Parsed<T>, u64)>, TlsError> {
        let (contents, fingerprint) =
            read_stable(|| read_all(&self.sources), &self.hasher, Some(loaded))?;
        if fingerprint == loaded {
            return Ok(None);
        }
        Ok(Some(((self.parse)(&contents)?, fingerprint)))
    }
}

impl<T: Send + Sync> Refresh for Reloadable<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn refresh(&self, now: SystemTime) -> Result<Refreshed, TlsError> {
        let mut loaded = self.loaded.lock();
        let status = self.status.load();
        match self.reload(*loaded) {
            Ok(None) => {
                if status.last_error.is_some() {
                    self.status.store(Arc::new(status.after_success()));
                }
                Ok(Refreshed::Unchanged)
            }
            Ok(Some((Parsed { value, not_after }, fingerprint))) => {
                self.current.store(Arc::new(value));
                self.status
                    .store(Arc::new(status.after_replacement(now, not_after)));
                *loaded = fingerprint;
                Ok(Refreshed::Replaced)
            }
            Err(error) => {
                self.status
                    .store(Arc::new(status.after_failure(now, &error)));
                Err(error)
            }
        }
    }

    fn status(&self) -> Arc<RefreshStatus> {
        self.status.load_full()
    }
}

/// Reads a consistent snapshot of all sources: a volume may be swapped between two reads, and
/// certificate and key must belong together.
fn read_stable(
    mut read: impl FnMut() -> Result<Vec<Contents>, TlsError>,
    hasher: &RandomState,
    known: Option<u64>,
) -> Result<(Vec<Contents>, u64), TlsError> {
    const ATTEMPTS: usize = 4;
    let mut previous = known;
    let mut contents = Vec::new();
    for _ in 0..ATTEMPTS {
        contents = read()?;
        let fingerprint = fingerprint(&contents, hasher);
        if previous == Some(fingerprint) {
            return Ok((contents, fingerprint));
        }
        previous = Some(fingerprint);
    }
    let origins: Vec<_> = contents
        .into_iter()
        .map(|contents| contents.origin)
        .collect();
    Err(TlsError::Unstable {
        origin: origins.join(", "),
    })
}

fn read_all(sources: &[PemSource]) -> Result<Vec<Contents>, TlsError> {
    let read = |source: &PemSource| {
        Ok(Contents {
            origin: source.origin(),
            pem: source.read()?,
        })
    };
    sources.iter().map(read).collect()
}

fn fingerprint(contents: &[Contents], hasher: &RandomState) -> u64 {
    let mut state = hasher.build_hasher();
    for Contents { pem, .. } in contents {
        state.write_usize(pem.len());
        state.write(pem);
    }
    state.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `read_stable` on a volume that holds these texts one after the other.
    fn stable(texts: &[&str], known: Option<&str>) -> Result<(String, usize), TlsError> {
        let hasher = RandomState::new();
        let one = |text: &str| {
            vec![Contents {
                origin: "tls.crt".to_owned(),
                pem: text.as_bytes().to_vec(),
            }]
        };
        let known = known.map(|text| fingerprint(&one(text), &hasher));
        let mut reads = 0;
        let read = || {
            reads += 1;
            Ok(one(texts[reads - 1]))
        };
        let (contents, _) = read_stable(read, &hasher, known)?;
        let text = String::from_utf8(contents[0].pem.clone()).unwrap();
        Ok((text, reads))
    }

    #[test]
    fn contents_must_be_read_twice_alike() {
        let expected = |text: &str, reads| (text.to_owned(), reads);
        assert_eq!(stable(&["old"], Some("old")).unwrap(), expected("old", 1));
        assert_eq!(
            stable(&["new", "new"], Some("old")).unwrap(),
            expected("new", 2)
        );
        let swapped = ["new certificate, old key", "new", "new"];
        assert_eq!(stable(&swapped, Some("old")).unwrap(), expected("new", 3));
        assert_eq!(
            stable(&["first", "first"], None).unwrap(),
            expected("first", 2)
        );
    }

    #[test]
    fn contents_that_keep_changing_are_rejected() {
        let error = stable(&["a", "b", "c", "d"], Some("old")).unwrap_err();
        assert_eq!(error.to_string(), "tls.crt keeps changing while it is read");
    }

    #[test]
    fn moving_text_between_files_is_a_change() {
        let hasher = RandomState::new();
        let split = |texts: [&str; 2]| {
            let contents = texts.map(|text| Contents {
                origin: String::new(),
                pem: text.as_bytes().to_vec(),
            });
            fingerprint(&contents, &hasher)
        };
        assert_ne!(split(["ab", "c"]), split(["a", "bc"]));
    }
}
