//! What a probe measured.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::Timestamp;

/// One run of a probe against one target.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// When the run started, by the wall clock.
    pub started: Timestamp,
    /// From the start to the verdict.
    pub duration: Duration,
    /// `None` if the probe succeeded.
    pub failure: Option<Failure>,
    /// The phases that were entered, in order. The last one may not have ended.
    pub phases: Vec<PhaseTime>,
    /// Facts about the target, for `/probe` and for gauges: status code, certificate expiry.
    pub facts: Facts,
}

/// Why a probe failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub reason: Reason,
    /// The phase that was running.
    pub phase: Option<Phase>,
    /// The details, for people: never a label.
    pub message: String,
}

/// The time spent in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseTime {
    pub phase: Phase,
    pub duration: Duration,
}

/// A step of a probe. The names are those of `blackbox_exporter` where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// The lookup of the target's name.
    Resolve,
    Connect,
    Tls,
    /// From the request to the first byte of the response.
    Processing,
    /// From the first byte of the response to its end.
    Transfer,
    /// A DNS query, a call of gRPC's health service, a dialogue, datagrams, or a command.
    Request,
}

/// Why a probe failed: a closed set, fit for a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    DnsNxdomain,
    DnsServfail,
    DnsTimeout,
    DnsNoAddress,
    ConnectRefused,
    ConnectTimeout,
    ConnectUnreachable,
    ConnectReset,
    TlsProtocol,
    TlsExpired,
    TlsUnknownCa,
    TlsNameMismatch,
    TlsOther,
    HttpStatus,
    HttpVersion,
    HttpRedirects,
    HeaderMismatch,
    BodyMismatch,
    BodyTooLarge,
    ReadTimeout,
    ReadEof,
    ExpectMismatch,
    Rcode,
    AnswerMismatch,
    GrpcStatus,
    GrpcNotServing,
    ExecExit,
    NotAllowed,
    Canceled,
    Internal,
}

/// Facts that a probe learned of its target, each at most once. Text is bounded, whatever the
/// target sent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facts {
    pub ip_version: Option<u8>,
    /// The address that was connected to, after redirects the last one.
    pub address: Option<IpAddr>,
    pub http_status: Option<u16>,
    pub http_version: Option<http::Version>,
    /// Number of redirects that were followed.
    pub http_redirects: Option<u32>,
    /// Whether the last response came over TLS.
    pub http_ssl: Option<bool>,
    /// `Content-Length`.
    pub http_content_length: Option<u64>,
    /// The size of the body, after decompression.
    pub http_body_length: Option<u64>,
    pub http_last_modified: Option<Timestamp>,
    /// The earliest end of validity of the certificates that the target presented, also if they
    /// could not be verified.
    pub certificate_expiry: Option<Timestamp>,
    /// The same, if the chain was verified.
    pub verified_chain_expiry: Option<Timestamp>,
    /// The target's own certificate.
    pub certificate: Option<Arc<Certificate>>,
    /// As in `TLS 1.3`.
    pub tls_version: Option<&'static str>,
    /// The suite by its name in the registry of IANA.
    pub tls_cipher: Option<&'static str>,
    /// Whether the last connection had TLS, for gRPC.
    pub grpc_ssl: Option<bool>,
    pub grpc_status: Option<i32>,
    /// The answer of gRPC's health service.
    pub grpc_serving: Option<ServingStatus>,
    pub dns_rcode: Option<u16>,
    pub dns_answers: Option<u32>,
    pub dns_authority: Option<u32>,
    pub dns_additional: Option<u32>,
    /// The serial number of the first SOA record in the answer.
    pub dns_serial: Option<u32>,
    /// Labels from the groups of an `expect`, by name.
    pub expect_labels: Vec<(String, String)>,
    /// Datagrams sent and answered, for UDP.
    pub datagrams: Option<(u32, u32)>,
    /// The exit code of a command.
    pub exit_code: Option<i32>,
}

/// The fields of a certificate, each bounded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    pub subject: String,
    pub issuer: String,
    /// DNS names and addresses, the first of them.
    pub names: Vec<String>,
    /// In hexadecimal digits.
    pub serial_number: String,
    pub fingerprint_sha256: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

/// An answer of gRPC's health service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServingStatus {
    Unknown,
    Serving,
    NotServing,
    ServiceUnknown,
}

impl Outcome {
    pub fn is_success(&self) -> bool {
        self.failure.is_none()
    }
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 30] = [
        Self::DnsNxdomain,
        Self::DnsServfail,
        Self::DnsTimeout,
        Self::DnsNoAddress,
        Self::ConnectRefused,
        Self::ConnectTimeout,
        Self::ConnectUnreachable,
        Self::ConnectReset,
        Self::TlsProtocol,
        Self::TlsExpired,
        Self::TlsUnknownCa,
        Self::TlsNameMismatch,
        Self::TlsOther,
        Self::HttpStatus,
        Self::HttpVersion,
        Self::HttpRedirects,
        Self::HeaderMismatch,
        Self::BodyMismatch,
        Self::BodyTooLarge,
        Self::ReadTimeout,
        Self::ReadEof,
        Self::ExpectMismatch,
        Self::Rcode,
        Self::AnswerMismatch,
        Self::GrpcStatus,
        Self::GrpcNotServing,
        Self::ExecExit,
        Self::NotAllowed,
        Self::Canceled,
        Self::Internal,
    ];

    /// The value of the label `reason` and of the attribute `error.type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DnsNxdomain => "dns_nxdomain",
            Self::DnsServfail => "dns_servfail",
            Self::DnsTimeout => "dns_timeout",
            Self::DnsNoAddress => "dns_no_address",
            Self::ConnectRefused => "connect_refused",
            Self::ConnectTimeout => "connect_timeout",
            Self::ConnectUnreachable => "connect_unreachable",
            Self::ConnectReset => "connect_reset",
            Self::TlsProtocol => "tls_protocol",
            Self::TlsExpired => "tls_expired",
            Self::TlsUnknownCa => "tls_unknown_ca",
            Self::TlsNameMismatch => "tls_name_mismatch",
            Self::TlsOther => "tls_other",
            Self::HttpStatus => "http_status",
            Self::HttpVersion => "http_version",
            Self::HttpRedirects => "http_redirects",
            Self::HeaderMismatch => "header_mismatch",
            Self::BodyMismatch => "body_mismatch",
            Self::BodyTooLarge => "body_too_large",
            Self::ReadTimeout => "read_timeout",
            Self::ReadEof => "read_eof",
            Self::ExpectMismatch => "expect_mismatch",
            Self::Rcode => "rcode",
            Self::AnswerMismatch => "answer_mismatch",
            Self::GrpcStatus => "grpc_status",
            Self::GrpcNotServing => "grpc_not_serving",
            Self::ExecExit => "exec_exit",
            Self::NotAllowed => "not_allowed",
            Self::Canceled => "canceled",
            Self::Internal => "internal",
        }
    }

    /// Whether the probe ran out of time.
    pub const fn is_timeout(self) -> bool {
        matches!(
            self,
            Self::DnsTimeout | Self::ConnectTimeout | Self::ReadTimeout
        )
    }
}

impl ServingStatus {
    pub const ALL: [Self; 4] = [
        Self::Unknown,
        Self::Serving,
        Self::NotServing,
        Self::ServiceUnknown,
    ];

    /// The name in the protocol.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Serving => "SERVING",
            Self::NotServing => "NOT_SERVING",
            Self::ServiceUnknown => "SERVICE_UNKNOWN",
        }
    }
}

impl Phase {
    /// The value of the label `phase`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Processing => "processing",
            Self::Transfer => "transfer",
            Self::Request => "request",
        }
    }
}
