//! What every role has around it: logs, a runtime, an admin server, signals and a bounded end.

use std::future::Future;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::num::NonZero;
use std::time::Duration;

use clap::Args;
use kubevitals_cli::flags::{LogFlags, LoggingFormat, go_bool};
use kubevitals_cli::{
    Ending, InvalidSetting, RunError, Shutdown, forward_signals, shutdown_channel, supervise,
};
use kubevitals_model::GoDuration;
use kubevitals_telemetry::{
    Admin, AdminMetrics, AdminServer, BuildInfo, Health, Limits, LogFilter, LogFormat, LogHandle,
    LogOptions, Metrics, Profiling, SharedRegistry, logs,
};
use tokio::task::JoinHandle;

/// Flags of every role that keeps running.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Process", mut_arg("profiling", go_bool))]
pub struct ProcessFlags {
    /// Where health, metrics and the log level are served, in plain HTTP; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub admin_bind_address: SocketAddr,

    /// How long open work may take after SIGTERM or Ctrl-C
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub shutdown_grace_period: GoDuration,

    /// Serve CPU profiles to loopback peers under /debug/pprof/ (needs the `pprof` feature)
    #[arg(long)]
    pub profiling: bool,
}

/// [`ProcessFlags`] and [`LogFlags`], checked.
#[derive(Debug, Clone)]
pub struct ProcessConfig {
    /// See [`ProcessFlags::admin_bind_address`].
    pub admin_address: SocketAddr,
    /// See [`ProcessFlags::shutdown_grace_period`].
    pub grace: Duration,
    /// See [`ProcessFlags::profiling`].
    pub profiling: Profiling,
    /// How to log.
    pub logs: LogOptions,
}

/// What a role is given to live in.
#[derive(Debug)]
pub struct Context {
    /// Asks the role to end.
    pub shutdown: Shutdown,
    /// Where the role says how it is.
    pub health: Health,
    /// Where the role registers its metrics before it calls [`Context::start_admin`].
    pub metrics: Metrics,
    /// Changes the log filter; none where a test keeps its own logs.
    pub logs: Option<LogHandle>,
    admin_address: SocketAddr,
    profiling: Profiling,
}

/// An admin server at work.
#[derive(Debug)]
pub struct Administered {
    /// Where it listens.
    pub address: SocketAddr,
    /// Ends once the end is asked for.
    pub task: JoinHandle<()>,
    /// All metrics of the process, for roles that expose them elsewhere too.
    pub registry: SharedRegistry,
}

impl ProcessConfig {
    /// Checks what the flags ask for, before anything is opened.
    pub fn new(flags: &ProcessFlags, logs: &LogFlags) -> Result<Self, InvalidSetting> {
        if flags.profiling && !cfg!(feature = "pprof") {
            return Err(InvalidSetting {
                flag: "profiling",
                value: "true".to_owned(),
                problem: "this program was built without profiles".to_owned(),
                advice: "build it with `--features pprof`, or leave the flag out".to_owned(),
            });
        }
        let grace =
            Duration::try_from(flags.shutdown_grace_period).map_err(|_| InvalidSetting {
                flag: "shutdown-grace-period",
                value: flags.shutdown_grace_period.to_string(),
                problem: "time does not run backwards".to_owned(),
                advice: "write a duration such as 30s, or 0s not to wait".to_owned(),
            })?;
        Ok(Self {
            admin_address: flags.admin_bind_address,
            grace,
            profiling: if flags.profiling {
                Profiling::Loopback
            } else {
                Profiling::Off
            },
            logs: log_options(logs)?,
        })
    }
}

impl Context {
    /// A role's surroundings.
    pub fn new(config: &ProcessConfig, shutdown: Shutdown, logs: Option<LogHandle>) -> Self {
        let build = BuildInfo {
            version: env!("CARGO_PKG_VERSION"),
            revision: option_env!("KUBEVITALS_REVISION"),
            rustc: None,
        };
        Self {
            shutdown,
            health: Health::new(),
            metrics: Metrics::new().with_process(&build),
            logs,
            admin_address: config.admin_address,
            profiling: config.profiling,
        }
    }

    /// Whether the user allowed CPU profiles.
    pub fn allows_profiles(&self) -> bool {
        matches!(self.profiling, Profiling::Loopback)
    }

    /// Ends the registration of metrics and starts the admin server. It ends once the end is asked
    /// for.
    pub async fn start_admin(mut self) -> Result<Administered, RunError> {
        let metrics = AdminMetrics::register(self.metrics.sub("kubevitals_admin"));
        let registry = self.metrics.freeze();
        let admin = Admin {
            metrics,
            health: self.health,
            registry: registry.clone(),
            logs: self.logs,
            profiling: self.profiling,
        };
        let server = AdminServer::bind(self.admin_address, admin, Limits::default())
            .await
            .map_err(RunError::runtime)?;
        let address = server.local_addr();
        let mut shutdown = self.shutdown;
        let task = tokio::spawn(server.serve(async move { shutdown.requested().await }));
        Ok(Administered {
            address,
            task,
            registry,
        })
    }
}

/// After so many tasks a thread looks what has come from the network. The runtime's own 61 are for
/// tasks of microseconds: with pieces of lists, half a millisecond each, whoever asks for `/livez`
/// would wait tens of milliseconds at each of its steps.
const TASKS_BETWEEN_LOOKS: u32 = 4;

/// Runs a role until it ends or a signal ends it, with logs, a runtime and signals of the process.
///
/// There are no more threads than processors, nor than `most_threads`: those that have nothing to
/// do cost memory, and wake each other for nothing.
pub(crate) fn run_role<F>(
    config: &ProcessConfig,
    most_threads: usize,
    role: impl FnOnce(Context) -> F,
) -> Result<(), RunError>
where
    F: Future<Output = Result<(), RunError>>,
{
    let logs = logs::init(&config.logs).map_err(RunError::runtime)?;
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(processors.min(most_threads))
        .event_interval(TASKS_BETWEEN_LOOKS)
        .enable_all()
        .build()
        .map_err(RunError::runtime)?;
    let ending: Result<_, RunError> = runtime.block_on(async {
        let signals = forward_signals().map_err(RunError::runtime)?;
        let (trigger, shutdown) = shutdown_channel();
        let context = Context::new(config, shutdown, Some(logs));
        Ok(supervise(role(context), signals, trigger, config.grace).await)
    });
    // What a role has left on blocking threads must not hold up the end.
    runtime.shutdown_background();
    match ending? {
        Ending::Finished(result) => result,
        Ending::GraceExpired => Err(RunError::runtime(format!(
            "work was still open {:?} after the signal; --shutdown-grace-period allows more",
            config.grace
        ))),
        Ending::Forced(signal) => Err(RunError::runtime(format!(
            "ended by a second {} while draining",
            signal.name()
        ))),
    }
}

fn log_options(flags: &LogFlags) -> Result<LogOptions, InvalidSetting> {
    let filter = match flags.verbosity {
        Some(verbosity) => LogFilter::from_verbosity(verbosity.into()),
        None => level(&flags.log_level)
            .parse()
            .map_err(|error| InvalidSetting {
                flag: "log-level",
                value: flags.log_level.clone(),
                problem: format!("{error}"),
                advice: "write a level such as `info`, or `info,kubevitals_tls=debug`".to_owned(),
            })?,
    };
    let no_color = std::env::var_os("NO_COLOR");
    Ok(LogOptions {
        format: match flags.logging_format {
            LoggingFormat::Text => LogFormat::Text,
            LoggingFormat::Json => LogFormat::Json,
        },
        filter,
        ansi: logs::ansi_allowed(no_color.as_deref(), std::io::stderr().is_terminal()),
    })
}

/// Levels of zerolog, which kube-transition-metrics takes, in our words.
fn level(text: &str) -> &str {
    match text {
        "disabled" | "DISABLED" => "off",
        "fatal" | "FATAL" | "panic" | "PANIC" => "error",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_taken_as_kube_transition_metrics_spells_them() {
        for (spelled, meant) in [
            ("INFO", "info"),
            ("Debug", "debug"),
            ("disabled", "off"),
            ("FATAL", "error"),
            ("info,kubevitals_tls=debug", "info,kubevitals_tls=debug"),
        ] {
            let parse = |text: &str| level(text).parse::<LogFilter>().unwrap();
            let (spelled, meant) = (parse(spelled), parse(meant));
            assert_eq!(
                spelled.to_string().to_lowercase(),
                meant.to_string().to_lowercase()
            );
        }
    }
}
