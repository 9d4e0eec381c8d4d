//! The process around roles: logs, a runtime, an admin server, signals and bounded draining.

mod open_files;
mod tasks;

use std::future::Future;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::num::NonZero;
use std::time::Duration;

use clap::Args;
use kubevitals_cli::flags::{LogFlags, LoggingFormat, go_bool};
use kubevitals_cli::{
    Ending, InvalidSetting, ResultExt as _, RunError, Shutdown, forward_signals, shutdown_channel,
    supervise,
};
use kubevitals_model::GoDuration;
use kubevitals_telemetry::{
    Admin, AdminMetrics, AdminServer, BuildInfo, Health, Limits, LogFilter, LogFormat, LogHandle,
    LogOptions, Metrics, Page, Profiling, SharedRegistry, logs,
};
use tokio::sync::oneshot;

pub(crate) use self::open_files::OpenFiles;
pub use self::tasks::{TaskFailure, TaskSet};

/// Flags of every role that keeps running.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Process", mut_arg("profiling", go_bool))]
pub struct ProcessFlags {
    /// Address of the admin server (health, metrics, log level) in plain HTTP; port 0 takes a free
    /// one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub admin_bind_address: SocketAddr,

    /// Time that open requests and queues have to drain after SIGTERM or Ctrl-C
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub shutdown_grace_period: GoDuration,

    /// Serve profiles of CPU time and of the heap to loopback peers under /debug/pprof/, and sample
    /// allocations for them
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
    /// The log options.
    pub logs: LogOptions,
}

/// The state of the process before its admin server starts.
#[derive(Debug)]
pub struct Context {
    /// Signals the end.
    pub shutdown: Shutdown,
    /// The registry of health checks.
    pub health: Health,
    /// The registry of metrics; [`Context::start_admin`] freezes it.
    pub metrics: Metrics,
    /// Changes the log filter; `None` where a test keeps its own logs.
    pub logs: Option<LogHandle>,
    /// Pages that roles add to the admin server.
    pub pages: Vec<Page>,
    admin_address: SocketAddr,
    profiling: Profiling,
}

/// A running admin server.
#[derive(Debug)]
pub struct AdminHandle {
    /// The address that it listens on.
    pub address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
    /// All metrics of the process, for roles that expose them on another port too.
    pub registry: SharedRegistry,
}

impl ProcessConfig {
    /// Validates the flags. Nothing is opened.
    pub fn new(flags: &ProcessFlags, logs: &LogFlags) -> Result<Self, InvalidSetting> {
        if flags.profiling && !cfg!(feature = "pprof") {
            return Err(InvalidSetting {
                flag: "profiling",
                value: "true".to_owned(),
                problem: "this program was built without profiles".to_owned(),
                advice: "build it with the feature `pprof`, or leave the flag out".to_owned(),
            });
        }
        let grace =
            Duration::try_from(flags.shutdown_grace_period).map_err(|_| InvalidSetting {
                flag: "shutdown-grace-period",
                value: flags.shutdown_grace_period.to_string(),
                problem: "must not be negative".to_owned(),
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
    /// A process with no role yet.
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
            pages: Vec::new(),
            admin_address: config.admin_address,
            profiling: config.profiling,
        }
    }

    /// Whether the user allowed profiles.
    pub fn allows_profiles(&self) -> bool {
        matches!(self.profiling, Profiling::Loopback)
    }

    /// Freezes the registry and starts the admin server among the supervised tasks. Its readiness
    /// fails once shutdown is requested; it serves until [`AdminHandle::stop`], so that probes and
    /// metrics work while the roles drain.
    pub async fn start_admin(mut self, tasks: &TaskSet) -> Result<AdminHandle, RunError> {
        let metrics = AdminMetrics::register(self.metrics.sub("kubevitals_admin"));
        let registry = self.metrics.freeze();
        let admin = Admin {
            metrics,
            health: self.health.clone(),
            registry: registry.clone(),
            logs: self.logs,
            profiling: self.profiling,
        };
        let mut limits = Limits::default();
        limits.http.connections = limits.http.connections.min(OpenFiles::current().admin);
        let server = AdminServer::bind(self.admin_address, admin, limits)
            .await
            .map_err(RunError::runtime)?
            .with_pages(self.pages);
        let address = server.local_addr();
        let (mut shutdown, health) = (self.shutdown, self.health);
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let stopped = async move {
            let draining = async {
                shutdown.requested().await;
                health.start_shutdown();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                _ = stopped => {}
                () = draining => {}
            }
        };
        tasks.spawn("admin-server", async move {
            server.serve(stopped).await;
            let _ = end.send(());
        });
        Ok(AdminHandle {
            address,
            stop,
            ended,
            registry,
        })
    }
}

impl AdminHandle {
    /// Drains the admin server and waits for its end.
    pub async fn stop(self) {
        drop(self.stop);
        let _ = self.ended.await;
    }
}

/// Tasks that a worker polls before it polls the network. The default of 61 suits tasks of
/// microseconds. A piece of a list takes half a millisecond, so a request of `/livez` would wait
/// tens of milliseconds at each of its steps.
const EVENT_INTERVAL: u32 = 4;

/// Runs `work` until it ends or a signal ends it, with the logs, runtime and signals of the
/// process.
///
/// There are at most as many worker threads as processors, and at most `max_threads`: idle workers
/// cost memory and wake each other for nothing.
pub(crate) fn run<F>(
    config: &ProcessConfig,
    max_threads: usize,
    work: impl FnOnce(Context) -> F,
) -> Result<(), RunError>
where
    F: Future<Output = Result<(), RunError>>,
{
    let logs = logs::init(&config.logs).context("cannot set up logging")?;
    open_files::raise_limit();
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(processors.min(max_threads))
        .event_interval(EVENT_INTERVAL)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let ending: Result<_, RunError> = runtime.block_on(async {
        let signals = forward_signals().context("cannot handle signals")?;
        let (trigger, shutdown) = shutdown_channel();
        let context = Context::new(config, shutdown, Some(logs));
        Ok(supervise(work(context), signals, trigger, config.grace).await)
    });
    // Work that is left on blocking threads must not delay the end.
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

/// Translates the levels of zerolog, which kube-transition-metrics accepts.
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

    #[tokio::test]
    async fn an_admin_server_that_ends_early_is_reported_like_any_task() {
        let config = ProcessConfig {
            admin_address: SocketAddr::from(([127, 0, 0, 1], 0)),
            grace: Duration::ZERO,
            profiling: Profiling::Off,
            logs: LogOptions::default(),
        };
        let (_trigger, shutdown) = shutdown_channel();
        let context = Context::new(&config, shutdown.clone(), None);
        let tasks = TaskSet::new(&context.health, shutdown).unwrap();
        let admin = context.start_admin(&tasks).await.unwrap();
        drop(admin.stop);
        let failure = tasks.expect_failure().await;
        assert_eq!(failure.to_string(), "task admin-server ended unexpectedly");
    }

    #[test]
    fn the_levels_of_kube_transition_metrics_are_accepted() {
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
