//! Pinned keys: trust on first use.

use std::sync::Arc;

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
/// there from the start. Once a trusted authority has signed a certificate of the peer, no other is
/// accepted any more. It is kept in memory only. Use a new one for another peer, such as a node
/// with another UID.
#[derive(Debug, Clone, Default)]
pub struct PinnedKey(Arc<Mutex<Pin>>);

/// What is known of a peer.
#[derive(Debug, Default)]
enum Pin {
    #[default]
    Unknown,
    /// Its key, in a certificate of an unknown authority.
    Key(Box<[u8]>),
    /// It has a certificate of a trusted authority.
    Verified,
}

/// A pin, and what is to be pinned.
#[derive(Debug)]
pub(crate) struct Pinning {
    pin: PinnedKey,
    /// A presented certificate. The peer has yet to prove that it holds its key.
    unproven: Mutex<Option<Unproven>>,
}

#[derive(Debug)]
struct Unproven {
    key: Box<[u8]>,
    /// Whether a trusted authority signed the certificate.
    is_verified: bool,
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
        matches!(*self.0.lock(), Pin::Key(_))
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
        match &*self.pin.0.lock() {
            Pin::Key(pinned) if *pinned == key => PinCheck::Match,
            Pin::Key(_) | Pin::Verified => PinCheck::Mismatch,
            Pin::Unknown => {
                let is_verified = false;
                *self.unproven.lock() = Some(Unproven { key, is_verified });
                PinCheck::First
            }
        }
    }

    /// Handles a certificate that a trusted authority signed for the peer.
    pub(crate) fn verified(&self, certificate: &CertificateDer<'_>) {
        if matches!(*self.pin.0.lock(), Pin::Verified) {
            return;
        }
        // Anybody can present a certificate that is not theirs.
        *self.unproven.lock() = key_of(certificate).map(|key| Unproven {
            key,
            is_verified: true,
        });
    }

    /// Pins what was learnt from a certificate, whose key the peer has proved to hold.
    pub(crate) fn confirm(&self, certificate: &CertificateDer<'_>) {
        // Connections of one peer may overlap: only the key that was proven is pinned.
        let unproven = self.unproven.lock().take();
        let is_proven = |unproven: &Unproven| Some(&unproven.key) == key_of(certificate).as_ref();
        let Some(Unproven { key, is_verified }) = unproven.filter(is_proven) else {
            return;
        };
        let mut pin = self.pin.0.lock();
        match &*pin {
            _ if is_verified => *pin = Pin::Verified,
            Pin::Unknown => *pin = Pin::Key(key),
            // Another connection was faster. Its key counts from the next handshake on.
            Pin::Key(_) | Pin::Verified => {}
        }
    }
}

fn key_of(certificate: &CertificateDer<'_>) -> Option<Box<[u8]>> {
    let certificate = ParsedCertificate::try_from(certificate).ok()?;
    let key = certificate.subject_public_key_info();
    (key.len() <= MAX_KEY_BYTES).then(|| key.as_ref().into())
}
