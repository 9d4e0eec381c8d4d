//! Probes of targets: configuration, schedule, and what each run measured.
//!
//! ```text
//!  file ──► Config ──► Module, compiled ──┐
//!           targets, interval ──► Schedule ├──► run: resolve, connect, tls, … ──► Outcome ──► OutcomeSink
//!                                          └── one task for each probe and target; a hung one blocks nothing
//! ```

mod context;
mod module;
mod outcome;
mod probers;
mod run;
mod settings;
mod target;

pub use context::{
    AddressRange, Allow, ProbeContext, Resolve, ResolveError, ResolveFuture, SystemResolver,
};
pub use module::Module;
pub use outcome::{Certificate, Facts, Failure, Outcome, Phase, PhaseTime, Reason, ServingStatus};
pub use probers::Prober;
pub use probers::dns::message::{DecodeError as DnsDecodeError, Message as DnsMessage};
pub use probers::dns::{DnsClass, DnsSettings, DnsType, RecordRules};
pub use probers::exec::ExecSettings;
pub use probers::grpc::GrpcSettings;
pub use probers::http::{BasicAuth, Compression, HeaderMatch, HeaderSetting, HttpSettings};
pub use probers::tcp::{QueryResponse, TcpSettings};
pub use probers::tls::TlsSettings;
pub use probers::udp::UdpSettings;
pub use settings::{
    ClientTlsSettings, IpProtocol, NetworkSettings, ProbeTls, Secret, SettingsError, TlsVersion,
    compile_regexp,
};
pub use target::{Target, TargetError};
