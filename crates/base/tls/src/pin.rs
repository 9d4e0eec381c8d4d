//! Keys that are trusted because they were seen first.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustls::server::ParsedCertificate;
use rustls_pki_types::CertificateDer;

/// The most bytes of a key that are kept: several times an RSA key of 8,192 bits.
const MAX_KEY_BYTES: usize = 8 << 10;

/// The key of one peer, learnt from the first connection on which the peer proved to hold it.
/// Clones share it.
///
/// Where no authority vouches for a peer, this is what can still be known: that it is the same as
/// before. Whoever answers first is believed, so a pin guards against all who come later and none
/// who was there from the start; it lives as long as the process. Make a new one when the peer is
/// known to be another, such as a node with another UID.
#[derive(Debug, Clone, Default)]
pub struct PinnedKey(Arc<OnceLock<Box<[u8]>>>);

/// A pin, and the key that is about to be pinned.
#[derive(Debug)]
pub(crate) struct Pinning {
    pin: PinnedKey,
    /// A certificate is shown before the peer proves that it holds the key: somebody else's could
    /// be shown.
    unproven: Mutex<Option<Box<[u8]>>>,
}

/// What a pin says about a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// It is for the key known.
    Known,
    /// No key is known yet.
    First,
    /// It is for another key.
    Changed,
    /// It cannot be judged.
    Unreadable,
}

impl PinnedKey {
    /// A pin for a peer not yet seen.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a key is pinned.
    pub fn is_set(&self) -> bool {
        self.0.get().is_some()
    }
}

impl Pinning {
    pub(crate) fn new(pin: PinnedKey) -> Self {
        Self {
            pin,
            unproven: Mutex::new(None),
        }
    }

    pub(crate) fn judge(&self, certificate: &CertificateDer<'_>) -> Judgement {
        let Some(key) = key_of(certificate) else {
            return Judgement::Unreadable;
        };
        match self.pin.0.get() {
            Some(known) if *known == key => Judgement::Known,
            Some(_) => Judgement::Changed,
            None => {
                *self.lock() = Some(key);
                Judgement::First
            }
        }
    }

    /// The peer has proved to hold the key of this certificate.
    pub(crate) fn proven(&self, certificate: &CertificateDer<'_>) {
        if self.pin.is_set() {
            return;
        }
        // Connections of one peer may overlap: whatever was shown last, only what is proven is
        // pinned.
        let shown = self.lock().take();
        if let Some(shown) = shown.filter(|shown| Some(shown) == key_of(certificate).as_ref()) {
            // Another connection may have been quicker; the next handshake is judged by that one.
            let _ = self.pin.0.set(shown);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Box<[u8]>>> {
        self.unproven.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key_of(certificate: &CertificateDer<'_>) -> Option<Box<[u8]>> {
    let certificate = ParsedCertificate::try_from(certificate).ok()?;
    let key = certificate.subject_public_key_info();
    (key.len() <= MAX_KEY_BYTES).then(|| key.as_ref().into())
}
