//! `kubevitals run --roles server,transitions`: several roles in one process, on one set of
//! watches. A role by itself runs the same way.
//!
//! ```text
//!                    ┌─► server: usage, metrics.k8s.io
//! watch (pods) ──────┤
//!                    └─► transitions: lifecycles, lines
//! watch (nodes) ──────► server
//! watch (events) ─────► transitions
//! ```

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};
use futures_util::FutureExt as _;
use kubevitals_cli::{InvalidSetting, RunError};
use kubevitals_telemetry::panic_message;
use tokio::task::JoinSet;

use crate::ROLES;
use crate::cluster::Cluster;
use crate::kubeconfig;
use crate::output::Output;
use crate::process::{Context, ProcessFlags, TaskSet};
use crate::role::{Configured, Kubeconfig, Role, RoleContext, RoleEntry, Setup};
use crate::watches::WatchRequests;

/// The roles to run, and the flags of all roles. A flag that several roles have is one flag.
#[derive(Debug, Clone)]
pub struct RunFlags {
    roles: Vec<&'static RoleEntry>,
    matches: ArgMatches,
}

/// Some roles, configured and with nothing opened yet.
pub struct Roles {
    configured: Vec<(&'static str, Box<dyn Role>)>,
    requests: WatchRequests,
    process: ProcessFlags,
}

/// The roles that can share a process.
fn combinable() -> impl DoubleEndedIterator<Item = &'static RoleEntry> {
    ROLES.iter().filter(|role| role.is_combinable)
}

impl Args for RunFlags {
    fn augment_args(command: Command) -> Command {
        let roles = Arg::new("roles")
            .long("roles")
            .value_name("ROLE")
            .help("Roles to run, separated by commas")
            .value_delimiter(',')
            .required(true)
            .value_parser(PossibleValuesParser::new(
                combinable().map(|role| role.name),
            ));
        let mut command = command.arg(roles);
        // The last role that has a flag defines it: later roles accept more values and names.
        for role in combinable().rev() {
            for flag in role.augment(Command::new(role.name)).get_arguments() {
                let is_known = |known: &Arg| known.get_id() == flag.get_id();
                if !command.get_arguments().any(is_known) {
                    // Two roles may use the same letter for different flags.
                    command = command.arg(flag.clone().short(None));
                }
            }
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for RunFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let names = matches.get_many::<String>("roles").unwrap_or_default();
        let names: Vec<&str> = names.map(String::as_str).collect();
        let roles: Vec<_> = ROLES
            .iter()
            .filter(|role| names.contains(&role.name))
            .collect();
        for role in &roles {
            role.validate(matches)?;
        }
        Ok(Self {
            roles,
            matches: matches.clone(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl RunFlags {
    /// The flags of one role by itself.
    pub(crate) fn of_role(role: &'static RoleEntry, matches: &ArgMatches) -> Result<Self, Error> {
        role.validate(matches)?;
        Ok(Self {
            roles: vec![role],
            matches: matches.clone(),
        })
    }

    /// The value of a flag that names a file, if a role has the flag and it is given.
    pub(crate) fn path(&self, id: &str) -> Option<&PathBuf> {
        self.matches.try_get_one(id).ok().flatten()
    }

    /// The most worker threads that the roles can use.
    pub(crate) fn max_threads(&self) -> usize {
        let threads = self.roles.iter().map(|role| role.max_threads);
        threads.max().unwrap_or(1)
    }
}

impl Roles {
    /// Validates the flags of all roles and merges their watches.
    pub fn configure(flags: &RunFlags) -> Result<Self, RunError> {
        let mut roles = Vec::new();
        let mut merged = WatchRequests::default();
        let mut process_flags = None;
        for entry in &flags.roles {
            let Configured { role, process } = entry.configure(&flags.matches)?;
            role.watches(&mut merged)?;
            process_flags.get_or_insert(process);
            roles.push((entry.name, role));
        }
        let process = process_flags.ok_or_else(no_role)?;
        Ok(Self {
            configured: roles,
            requests: merged,
            process,
        })
    }

    /// The flags of the process, which are one set for all roles.
    pub fn process(&self) -> &ProcessFlags {
        &self.process
    }

    /// Whether standard output carries data.
    pub(crate) fn owns_stdout(&self) -> bool {
        self.configured.iter().any(|(_, role)| role.owns_stdout())
    }

    /// Runs the roles until shutdown is requested, or one of them or one of its tasks fails.
    pub async fn run(self, context: Context, output: Output) -> Result<(), RunError> {
        let config = kubeconfig::load_first(&self.kubeconfigs()).await?;
        self.run_on(config, context, output).await
    }

    /// Runs the roles on the API server of `config`.
    pub(crate) async fn run_on(
        self,
        config: kube::Config,
        mut context: Context,
        output: Output,
    ) -> Result<(), RunError> {
        let cluster = Arc::new(Cluster::new(config, &mut context.metrics)?);
        let mut watches = self.requests.open(&cluster);
        let tasks = TaskSet::new(&context.health, context.shutdown.clone())?;
        watches.supervise(&tasks);
        let mut started = Vec::new();
        for (name, role) in self.configured {
            let role = role.start(&mut Setup {
                cluster: &cluster,
                watches: &mut watches,
                metrics: &mut context.metrics,
                health: &context.health,
                tasks: &tasks,
                pages: &mut context.pages,
            })?;
            started.push((name, role));
        }
        let shutdown = context.shutdown.clone();
        let (health, logs, profiling) = (
            context.health.clone(),
            context.logs.clone(),
            context.allows_profiles(),
        );
        let admin = context.start_admin(&tasks).await?;
        let context = RoleContext {
            shutdown,
            health,
            registry: admin.registry.clone(),
            logs,
            profiling,
            tasks: tasks.clone(),
            admin: admin.address,
            output,
        };
        let mut running = JoinSet::new();
        for (name, role) in started {
            let run = role.run(context.clone());
            running.spawn(run_role(name, run));
        }
        let result = tokio::select! {
            result = join_all_roles(&mut running) => result,
            failure = tasks.failed() => Err(RunError::runtime(failure)),
        };
        running.shutdown().await;
        if result.is_ok() {
            admin.stop().await;
        }
        tasks.shutdown().await;
        watches.shutdown().await;
        result
    }

    fn kubeconfigs(&self) -> Vec<Kubeconfig> {
        let roles = self.configured.iter();
        roles.map(|(_, role)| role.kubeconfig()).collect()
    }
}

/// Waits until all roles have ended, or one fails.
async fn join_all_roles(running: &mut JoinSet<Result<(), RunError>>) -> Result<(), RunError> {
    while let Some(ended) = running.join_next().await {
        ended.map_err(RunError::runtime)??;
    }
    Ok(())
}

/// Runs a role; a panic becomes an error with the name of the role.
async fn run_role(
    name: &'static str,
    role: impl Future<Output = Result<(), RunError>>,
) -> Result<(), RunError> {
    let ended = AssertUnwindSafe(role).catch_unwind().await;
    ended.unwrap_or_else(|panic| {
        let message = panic_message(&*panic);
        Err(RunError::runtime(format!(
            "role {name} panicked: {message}"
        )))
    })
}

fn no_role() -> InvalidSetting {
    InvalidSetting {
        flag: "roles",
        value: String::new(),
        problem: "no role is named".to_owned(),
        advice: "name one or more roles, such as server,transitions".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use clap::Parser as _;
    use futures_util::future::BoxFuture;
    use kubevitals_cli::flags::LogFlags;
    use kubevitals_cli::shutdown_channel;

    use super::*;
    use crate::process::ProcessConfig;
    use crate::role::RunningRole;

    /// A role whose only task fails.
    struct Failing;

    impl Role for Failing {
        fn kubeconfig(&self) -> Kubeconfig {
            Kubeconfig::default()
        }

        fn watches(&self, _requests: &mut WatchRequests) -> Result<(), InvalidSetting> {
            Ok(())
        }

        fn start(self: Box<Self>, setup: &mut Setup<'_>) -> Result<Box<dyn RunningRole>, RunError> {
            setup
                .tasks
                .spawn("follow-pods", async { panic!("no such pod") });
            Ok(self)
        }
    }

    impl RunningRole for Failing {
        fn run(
            self: Box<Self>,
            mut context: RoleContext,
        ) -> BoxFuture<'static, Result<(), RunError>> {
            Box::pin(async move {
                context.shutdown.requested().await;
                Ok(())
            })
        }
    }

    #[derive(Debug, clap::Parser)]
    struct Flags {
        #[command(flatten)]
        process: ProcessFlags,
        #[command(flatten)]
        logs: LogFlags,
    }

    #[tokio::test]
    async fn a_role_that_panics_fails_with_its_name() {
        let error = run_role("server", async { panic!("no {}", "port") }).await;
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "role server panicked: no port");
    }

    /// Without supervision, the role went on with frozen data and passing checks.
    #[tokio::test]
    async fn a_task_that_panics_ends_the_process_with_its_name() {
        kubevitals_tls::install_crypto_provider();
        let flags = Flags::parse_from(["test"]);
        let config = ProcessConfig::new(&flags.process, &flags.logs).unwrap();
        let (_trigger, shutdown) = shutdown_channel();
        let roles = Roles {
            configured: vec![("failing", Box::new(Failing))],
            requests: WatchRequests::default(),
            process: flags.process,
        };
        let unused = SocketAddr::from(([127, 0, 0, 1], 9));
        let cluster = kube::Config::new(format!("http://{unused}").parse().unwrap());
        let context = Context::new(&config, shutdown, None);
        let output = Output::new(std::io::sink(), None);
        let error = roles.run_on(cluster, context, output).await.unwrap_err();
        assert_eq!(error.to_string(), "task follow-pods panicked: no such pod");
    }
}
