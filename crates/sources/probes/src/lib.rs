//! Probes of targets: configuration, schedule, and what each run measured.
//!
//! ```text
//!  file ──► Config ──► Module, compiled ──┐
//!           targets, interval ──► Schedule ├──► run: resolve, connect, tls, … ──► Outcome ──► OutcomeSink
//!                                          └── one task for each probe and target; a hung one blocks nothing
//! ```

mod blackbox;
mod builtin;
mod config;
mod context;
mod convert;
mod endpoint;
mod error;
mod executor;
mod histogram;
mod history;
mod module;
mod outcome;
mod probe;
mod probers;
mod reload;
mod run;
mod schedule;
mod scheduler;
mod settings;
mod state;
mod target;

pub use blackbox::render_probe;
pub use builtin::PROBES as BUILTIN_PROBES;
pub use config::files::read_sources;
pub use config::{
    Config, DiscoveredTarget, MAX_JOBS, MAX_MODULES, MAX_PROBES, MAX_TARGETS, NoTargets, Source,
    TargetSource, Unavailable, Variables,
};
pub use context::{
    AddressRange, Allow, ProbeContext, Resolve, ResolveError, ResolveFuture, SystemResolver,
};
pub use convert::{Conversion, ConversionWarning, convert_blackbox};
pub use endpoint::{DEFAULT_MODULE, EndpointError, EndpointProbe, EndpointRequest, TargetPattern};
pub use error::{ConfigError, Problem, Problems};
pub use executor::ProbeExecutor;
pub use histogram::{BUCKETS, Histogram};
pub use history::{History, HistoryEntry};
pub use module::Module;
pub use outcome::{Certificate, Facts, Failure, Outcome, Phase, PhaseTime, Reason, ServingStatus};
pub use probe::{Completed, Executor, Job, LabelPairs, OutcomeSink, ProbeInfo, Run, Threshold};
pub use probers::Prober;
pub use probers::dns::message::{DecodeError as DnsDecodeError, Message as DnsMessage};
pub use probers::dns::{DnsClass, DnsSettings, DnsType, RecordRules};
pub use probers::exec::ExecSettings;
pub use probers::grpc::GrpcSettings;
pub use probers::http::{BasicAuth, Compression, HeaderMatch, HeaderSetting, HttpSettings};
pub use probers::tcp::{QueryResponse, TcpSettings};
pub use probers::tls::TlsSettings;
pub use probers::udp::UdpSettings;
pub use reload::{ReloadResult, ReloadStatus, Reloader, ReloaderOptions};
pub use scheduler::{Applied, Drained, Scheduler, SchedulerOptions, SchedulerStats};
pub use settings::{
    ClientTlsSettings, IpProtocol, NetworkSettings, ProbeTls, Secret, SettingsError, TlsVersion,
    compile_regexp,
};
pub use state::{Statistics, TargetStatus, Verdict};
pub use target::{Target, TargetError};
