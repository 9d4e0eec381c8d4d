//! The interface between a role and the process that runs it.
//!
//! ```text
//! flags ──configure──► Role ──watches──► one set of reflectors for all roles
//!                       └────start────► RunningRole ──run──► until shutdown
//! ```
//!
//! A role is added in its own folder, with a line in [`crate::ROLES`] and a `mod`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{ArgMatches, Args, Command, Error, FromArgMatches as _};
use futures_util::future::BoxFuture;
use kubevitals_cli::{InvalidSetting, RunError, Shutdown};
use kubevitals_telemetry::{Health, LogHandle, Metrics, Page, SharedRegistry};

use crate::cluster::Cluster;
use crate::output::Output;
use crate::process::{ProcessFlags, TaskSet};
use crate::watches::{WatchRequests, Watches};

/// The static part of a role: its command and its flags.
pub trait RoleDefinition: Role + Sized + 'static {
    /// The flags of the role, [`ProcessFlags`] included.
    type Flags: Args;

    /// The subcommand, and the value of `run --roles`.
    const NAME: &'static str;
    /// The summary in `--help`.
    const ABOUT: &'static str;
    /// The text below the flags in `--help`.
    const EXAMPLES: &'static str;
    /// The most worker threads that the role can use.
    const MAX_THREADS: usize;
    /// Whether `run --roles` accepts it.
    const IS_COMBINABLE: bool = true;

    /// Validates the flags. Nothing is opened.
    fn configure(flags: &Self::Flags) -> Result<Self, InvalidSetting>;

    /// The flags of the process among those of the role.
    fn process(flags: &Self::Flags) -> &ProcessFlags;
}

/// A role that is configured and has opened nothing yet.
pub trait Role: Send {
    /// The way to the API server.
    fn kubeconfig(&self) -> Kubeconfig;

    /// Whether standard output carries the data of the role, and nothing else may be written there.
    fn owns_stdout(&self) -> bool {
        false
    }

    /// Adds the watches that the role needs. Roles of one process share them.
    fn watches(&self, requests: &mut WatchRequests) -> Result<(), InvalidSetting>;

    /// Registers metrics and health checks, and starts the tasks of the role. It runs inside the
    /// runtime, before the admin server starts.
    fn start(self: Box<Self>, setup: &mut Setup<'_>) -> Result<Box<dyn RunningRole>, RunError>;
}

/// A role that was started.
pub trait RunningRole: Send {
    /// Runs until shutdown is requested, or fails.
    fn run(self: Box<Self>, context: RoleContext) -> BoxFuture<'static, Result<(), RunError>>;
}

/// The file that a role reads to reach its API server, and the fallback without one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kubeconfig {
    /// `--kubeconfig`.
    pub file: Option<PathBuf>,
    /// Outside of a pod, the files of kubectl are read where no file is named.
    pub fall_back_to_kubectl: bool,
}

/// The process, as a role that starts sees it.
pub struct Setup<'a> {
    /// The API server.
    pub(crate) cluster: &'a Arc<Cluster>,
    /// The open watches.
    pub(crate) watches: &'a mut Watches,
    /// The registry of the role's metrics.
    pub metrics: &'a mut Metrics,
    /// The registry of the role's health checks.
    pub health: &'a Health,
    /// The supervised tasks of the process.
    pub tasks: &'a TaskSet,
    /// Pages that the role adds to the admin server.
    pub pages: &'a mut Vec<Page>,
}

/// The process, as a running role sees it.
#[derive(Clone)]
pub struct RoleContext {
    /// Signals the end.
    pub shutdown: Shutdown,
    /// The registry of health checks.
    pub health: Health,
    /// All metrics of the process, for a role that exposes them on another port too.
    pub registry: SharedRegistry,
    /// Changes the log filter; `None` where a test keeps its own logs.
    pub logs: Option<LogHandle>,
    /// Whether `--profiling` is set.
    pub profiling: bool,
    /// The supervised tasks of the process.
    pub tasks: TaskSet,
    /// The address of the admin server.
    pub admin: SocketAddr,
    /// The output of the role.
    pub output: Output,
}

/// A role in the list of all roles.
#[derive(Clone, Copy)]
pub struct RoleEntry {
    /// See [`RoleDefinition::NAME`].
    pub name: &'static str,
    /// See [`RoleDefinition::MAX_THREADS`].
    pub max_threads: usize,
    /// See [`RoleDefinition::IS_COMBINABLE`].
    pub is_combinable: bool,
    about: &'static str,
    examples: &'static str,
    augment: fn(Command) -> Command,
    validate: fn(&ArgMatches) -> Result<(), Error>,
    configure: fn(&ArgMatches) -> Result<Configured, RunError>,
}

/// A role and the flags of its process.
pub struct Configured {
    /// The role.
    pub role: Box<dyn Role>,
    /// The flags of the process.
    pub process: ProcessFlags,
}

impl RoleEntry {
    /// The entry of `R`.
    pub const fn of<R: RoleDefinition>() -> Self {
        Self {
            name: R::NAME,
            max_threads: R::MAX_THREADS,
            is_combinable: R::IS_COMBINABLE,
            about: R::ABOUT,
            examples: R::EXAMPLES,
            augment: R::Flags::augment_args,
            validate: |matches| R::Flags::from_arg_matches(matches).map(drop),
            configure: |matches| {
                let flags = R::Flags::from_arg_matches(matches).map_err(RunError::runtime)?;
                Ok(Configured {
                    process: R::process(&flags).clone(),
                    role: Box::new(R::configure(&flags)?),
                })
            },
        }
    }

    /// The subcommand of the role.
    pub(crate) fn command(&self) -> Command {
        self.augment(Command::new(self.name))
            .about(self.about)
            .after_help(self.examples)
    }

    /// Adds the flags of the role.
    pub(crate) fn augment(&self, command: Command) -> Command {
        (self.augment)(command)
    }

    /// Reads the flags. Returns clap's error if they are invalid.
    pub(crate) fn validate(&self, matches: &ArgMatches) -> Result<(), Error> {
        (self.validate)(matches)
    }

    /// Reads and validates the flags.
    pub fn configure(&self, matches: &ArgMatches) -> Result<Configured, RunError> {
        (self.configure)(matches)
    }
}

impl std::fmt::Debug for RoleEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RoleEntry").field(&self.name).finish()
    }
}
