//! Pinned keys: trust on first use.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustls::server::ParsedCertificate;
use rustls_pki_types::CertificateDer;

/// Maximum length of a key: several times that of an RSA key of 8,192 bits.
const MAX_KEY_BYTES: usize = 8 << 10;

/// The key of one peer, pinned on the first connection on which the peer proved to hold it. Clones
/// share it.
///
/// It shows that a peer with a certificate of an unknown authority is the same as before. The first
/// peer is trusted, so a pin protects against attackers that come later, not against one that was
/// there from the start. It is kept in memory only. Use a new one for another peer, such as a node
/// with another UID.
#[derive(Debug, Clone, Default)]
pub struct PinnedKey(Arc<OnceLock<Box<[u8]>>>);

/// A pin, and the key that is to be pinned.
#[derive(Debug)]
pub(crate) struct Pinning {
    pin: PinnedKey,
    /// The key of a presented certificate. The peer has yet to prove that it holds it.
    unproven: Mutex<Option<Box<[u8]>>>,
}

/// The result of comparing a certificate with a pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PinCheck {
    Match,
    /// No key is pinned yet.
    First,
    Mismatch,
    Unreadable,
}

impl PinnedKey {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether a key is pinned.
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

    pub(crate) fn check(&self, certificate: &CertificateDer<'_>) -> PinCheck {
        let Some(key) = key_of(certificate) else {
            return PinCheck::Unreadable;
        };
        match self.pin.0.get() {
            Some(pinned) if *pinned == key => PinCheck::Match,
            Some(_) => PinCheck::Mismatch,
            None => {
                *self.unproven.lock() = Some(key);
                PinCheck::First
            }
        }
    }

    /// Pins the key of a certificate, which the peer has proved to hold.
    pub(crate) fn confirm(&self, certificate: &CertificateDer<'_>) {
        if self.pin.is_set() {
            return;
        }
        // Connections of one peer may overlap: only the key that was proven is pinned.
        let key = self.unproven.lock().take();
        if let Some(key) = key.filter(|key| Some(key) == key_of(certificate).as_ref()) {
            // If another connection was faster, its key counts from the next handshake on.
            let _ = self.pin.0.set(key);
        }
    }
}

fn key_of(certificate: &CertificateDer<'_>) -> Option<Box<[u8]>> {
    let certificate = ParsedCertificate::try_from(certificate).ok()?;
    let key = certificate.subject_public_key_info();
    (key.len() <= MAX_KEY_BYTES).then(|| key.as_ref().into())
}
