//! One run of a probe: its phases, its facts, and how it ends.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use kubevitals_model::Timestamp;
use kubevitals_tls::{CertificateInfo, HandshakeFailure, ObservedPeer};
use tokio::time::Instant;

use crate::{Certificate, Facts, Failure, Outcome, Phase, PhaseTime, ProbeContext, Reason};

/// A run that is under way.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) context: &'a ProbeContext,
    pub(crate) facts: Facts,
    started: Timestamp,
    began: Instant,
    phases: Vec<PhaseTime>,
    current: Option<(Phase, Instant)>,
    /// The last handshake. Its facts are taken at the end, as it may be cut off.
    peer: Option<ObservedPeer>,
    is_verifying: bool,
    /// Whether a request is a DNS query.
    pub(crate) is_query: bool,
}

/// Maximum number of certificates of a chain that are read.
const MAX_CHAIN: usize = 16;
/// Maximum number of characters of a message.
const MAX_MESSAGE: usize = 500;

impl<'a> Run<'a> {
    pub(crate) fn new(context: &'a ProbeContext) -> Self {
        Self {
            context,
            facts: Facts::default(),
            started: context.clock.now(),
            began: Instant::now(),
            phases: Vec::new(),
            current: None,
            peer: None,
            is_verifying: false,
            is_query: false,
        }
    }

    /// Ends the current phase and begins another. After a redirect phases are entered again: their
    /// times are added up.
    pub(crate) fn enter(&mut self, phase: Phase) {
        let now = Instant::now();
        self.end_phase(now);
        self.current = Some((phase, now));
    }

    /// The phase that is running.
    pub(crate) fn phase(&self) -> Option<Phase> {
        self.current.map(|(phase, _)| phase)
    }

    /// The time that is left.
    pub(crate) fn remaining(&self) -> Duration {
        self.context
            .deadline
            .saturating_duration_since(Instant::now())
    }

    /// A failure in the current phase.
    pub(crate) fn fail(&self, reason: Reason, message: impl AsRef<str>) -> Failure {
        Failure {
            reason,
            phase: self.phase(),
            message: printable(message.as_ref()),
        }
    }

    /// A failure to connect, send or receive.
    pub(crate) fn fail_io(&self, error: &io::Error) -> Failure {
        let message = match HandshakeFailure::from_io(error) {
            Some(failure) => failure.to_string(),
            None => error.to_string(),
        };
        self.fail(io_reason(error, self.phase()), message)
    }

    /// Remembers a handshake that begins, for its facts.
    pub(crate) fn observe(&mut self, peer: ObservedPeer, is_verifying: bool) {
        self.peer = Some(peer);
        self.is_verifying = is_verifying;
    }

    /// Remembers the address that is connected to. After a redirect, what is known of TLS is of
    /// another connection.
    pub(crate) fn connects_to(&mut self, address: IpAddr) {
        self.peer = None;
        self.facts.tls_version = None;
        self.facts.tls_cipher = None;
        self.facts.address = Some(address);
        self.facts.ip_version = Some(if address.is_ipv4() { 4 } else { 6 });
    }

    /// The verdict. `None` is a run that was cut off at its deadline.
    pub(crate) fn finish(mut self, verdict: Option<Result<(), Failure>>) -> Outcome {
        let failure = match verdict {
            Some(Ok(())) => None,
            Some(Err(failure)) => Some(failure),
            None => Some(self.timeout()),
        };
        let now = Instant::now();
        self.end_phase(now);
        if let Some(peer) = self.peer.take() {
            self.read_certificates(&peer);
        }
        Outcome {
            started: self.started,
            duration: now.saturating_duration_since(self.began),
            failure,
            phases: self.phases,
            facts: self.facts,
        }
    }

    /// The failure of a run that is out of time.
    pub(crate) fn timeout(&self) -> Failure {
        let (reason, message) = match self.phase() {
            Some(Phase::Resolve) => (Reason::DnsTimeout, "the lookup of the name took too long"),
            Some(Phase::Request) if self.is_query => (Reason::DnsTimeout, "no answer in time"),
            Some(Phase::Connect) => (Reason::ConnectTimeout, "no connection in time"),
            Some(Phase::Tls) => (Reason::ReadTimeout, "the TLS handshake did not end in time"),
            Some(Phase::Transfer) => (Reason::ReadTimeout, "the response did not end in time"),
            _ => (Reason::ReadTimeout, "no answer in time"),
        };
        self.fail(reason, message)
    }

    fn end_phase(&mut self, now: Instant) {
        let Some((phase, began)) = self.current.take() else {
            return;
        };
        let duration = now.saturating_duration_since(began);
        match self.phases.iter_mut().find(|known| known.phase == phase) {
            Some(known) => known.duration = known.duration.saturating_add(duration),
            None => self.phases.push(PhaseTime { phase, duration }),
        }
    }

    /// The earliest expiry of what the peer presented so far.
    pub(crate) fn earliest_expiry(&self) -> Option<SystemTime> {
        let chain = self.peer.as_ref()?.chain().iter().take(MAX_CHAIN);
        let infos = chain.filter_map(|der| CertificateInfo::parse(der));
        infos.map(|info| info.not_after).min()
    }

    fn read_certificates(&mut self, peer: &ObservedPeer) {
        let chain = peer.chain().iter().take(MAX_CHAIN);
        let mut infos = chain.filter_map(|der| Some((der, CertificateInfo::parse(der)?)));
        let Some((der, own)) = infos.next() else {
            return;
        };
        let expiry = infos.map(|(_, info)| info.not_after).min();
        let expiry = expiry.map_or(own.not_after, |earliest| earliest.min(own.not_after));
        let expiry = Timestamp::from_system_time(expiry);
        self.facts.certificate_expiry = Some(expiry);
        self.facts.verified_chain_expiry =
            Some(expiry).filter(|_| self.is_verifying && peer.is_accepted());
        self.facts.certificate = Some(Arc::new(Certificate {
            subject: own.subject,
            issuer: own.issuer,
            names: own.names,
            serial_number: own.serial_number,
            fingerprint_sha256: hex(digest(&SHA256, der).as_ref()),
            not_before: Timestamp::from_system_time(own.not_before),
            not_after: Timestamp::from_system_time(own.not_after),
        }));
    }
}

/// The reason of a failure to connect, send or receive.
pub(crate) fn io_reason(error: &io::Error, phase: Option<Phase>) -> Reason {
    use io::ErrorKind;
    if let Some(failure) = HandshakeFailure::from_io(error) {
        return tls_reason(&failure);
    }
    match error.kind() {
        ErrorKind::ConnectionRefused => Reason::ConnectRefused,
        ErrorKind::TimedOut if phase == Some(Phase::Connect) => Reason::ConnectTimeout,
        ErrorKind::TimedOut => Reason::ReadTimeout,
        // A firewall that rejects may answer with a prohibition, which is "permission denied" here.
        ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::AddrNotAvailable
        | ErrorKind::PermissionDenied => Reason::ConnectUnreachable,
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::NotConnected => Reason::ConnectReset,
        ErrorKind::UnexpectedEof => Reason::ReadEof,
        _ => Reason::Internal,
    }
}

/// The reason of a failure of TLS, in the handshake or later.
fn tls_reason(failure: &HandshakeFailure) -> Reason {
    match failure {
        HandshakeFailure::Expired { .. } => Reason::TlsExpired,
        HandshakeFailure::UntrustedIssuer { .. } => Reason::TlsUnknownCa,
        HandshakeFailure::NameMismatch { .. } => Reason::TlsNameMismatch,
        HandshakeFailure::Protocol { .. } => Reason::TlsProtocol,
        HandshakeFailure::RefusedByPeer { alert } => match alert.as_str() {
            "protocol_version"
            | "handshake_failure"
            | "insufficient_security"
            | "no_application_protocol"
            | "unexpected_message"
            | "decode_error"
            | "illegal_parameter" => Reason::TlsProtocol,
            _ => Reason::TlsOther,
        },
        HandshakeFailure::NotYetValid { .. }
        | HandshakeFailure::AuthorityAsServer { .. }
        | HandshakeFailure::BadCertificate { .. }
        | HandshakeFailure::KeyChanged => Reason::TlsOther,
    }
}

/// Shortens text of others and replaces control characters.
pub(crate) fn printable(text: &str) -> String {
    let safe = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut short: String = text.chars().take(MAX_MESSAGE).map(safe).collect();
    if text.chars().nth(MAX_MESSAGE).is_some() {
        short.push('…');
    }
    short
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        let _never_fails = write!(text, "{byte:02x}");
    }
    text
}

/// The wall clock as the verification of certificates needs it.
pub(crate) fn system_time(now: Timestamp) -> SystemTime {
    let millis = now.unix_millis();
    let since = Duration::from_millis(millis.unsigned_abs());
    let time = if millis < 0 {
        UNIX_EPOCH.checked_sub(since)
    } else {
        UNIX_EPOCH.checked_add(since)
    };
    time.unwrap_or(UNIX_EPOCH)
}
