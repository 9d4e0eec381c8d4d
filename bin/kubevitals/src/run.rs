//! `kubevitals run --roles server,transitions`: several roles in one process, on one set of
//! watches.
//!
//! ```text
//!                    ┌─► server: usage, metrics.k8s.io
//! watch (pods) ──────┤
//!                    └─► transitions: lives, lines
//! watch (nodes) ──────► server
//! watch (events) ─────► transitions
//! ```

use std::io::Write;

use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches, ValueEnum, value_parser};
use kubevitals_cli::{InvalidSetting, RunError};

use crate::cluster::Cluster;
use crate::process::{Context, ProcessFlags};
use crate::server::{self, Server, ServerFlags};
use crate::transitions::{self, Transitions, TransitionsFlags};

/// A role that can share a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// The resource metrics API
    Server,
    /// How long every pod took, and why
    Transitions,
}

/// The roles to run, and the flags of each. What two roles have by the same name is one flag for
/// both.
#[derive(Debug, Clone)]
pub struct RunFlags {
    /// The roles.
    pub roles: Vec<Role>,
    server: ServerFlags,
    transitions: TransitionsFlags,
}

/// Some roles, configured and with nothing opened yet.
pub struct Roles {
    server: Option<Server>,
    transitions: Option<Transitions>,
}

impl RunFlags {
    /// Those of the process, which are one set for all roles.
    pub fn process(&self) -> &ProcessFlags {
        &self.server.process
    }
}

impl Args for RunFlags {
    fn augment_args(command: Command) -> Command {
        let roles = Arg::new("roles")
            .long("roles")
            .value_name("ROLE")
            .help("The roles to run, with commas between them")
            .value_delimiter(',')
            .required(true)
            .value_parser(value_parser!(Role));
        // The second has the wider meaning of what both have: its kubeconfig has a second name.
        let first = TransitionsFlags::augment_args(Command::new("transitions"));
        let second = ServerFlags::augment_args(Command::new("server"));
        let mut command = command.arg(roles);
        let arguments = first.get_arguments().chain(second.get_arguments());
        for argument in arguments {
            let is_there = |known: &Arg| known.get_id() == argument.get_id();
            if command.get_arguments().any(is_there) {
                continue;
            }
            // Letters are few, and what one means to a role another may mean to the next.
            command = command.arg(argument.clone().short(None));
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for RunFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let roles = matches.get_many::<Role>("roles").unwrap_or_default();
        Ok(Self {
            roles: roles.copied().collect(),
            server: ServerFlags::from_arg_matches(matches)?,
            transitions: TransitionsFlags::from_arg_matches(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Roles {
    /// Checks what the flags ask for.
    pub fn configure(flags: &RunFlags) -> Result<Self, InvalidSetting> {
        let has = |role| flags.roles.contains(&role);
        if has(Role::Server)
            && has(Role::Transitions)
            && let Some((flag, value)) = flags.transitions.narrowed()
        {
            return Err(InvalidSetting {
                flag,
                value: value.to_owned(),
                problem: "pods are watched once for all roles, and the server needs all of them"
                    .to_owned(),
                advice: "leave it out, or run `kubevitals transitions` by itself".to_owned(),
            });
        }
        Ok(Self {
            server: (has(Role::Server))
                .then(|| Server::configure(&flags.server))
                .transpose()?,
            transitions: (has(Role::Transitions))
                .then(|| Transitions::configure(&flags.transitions))
                .transpose()?,
        })
    }

    /// Runs them until the end is asked for, or one of them cannot go on. Lines go to `lines`, what
    /// else there is to tell to `told`.
    pub async fn run(
        self,
        context: Context,
        lines: Box<dyn Write + Send>,
        told: &mut (dyn Write + Send),
    ) -> Result<(), RunError> {
        match (self.server, self.transitions) {
            (Some(server), Some(transitions)) => {
                Box::pin(both(server, transitions, context, lines, told)).await
            }
            (Some(server), None) => Box::pin(server.run(context, told)).await,
            (None, Some(transitions)) => transitions.run(context, lines, told).await,
            (None, None) => Ok(()),
        }
    }
}

async fn both(
    server: Server,
    transitions: Transitions,
    mut context: Context,
    lines: Box<dyn Write + Send>,
    told: &mut (dyn Write + Send),
) -> Result<(), RunError> {
    let config = transitions.load().await?;
    let cluster = Cluster::new(config, &mut context.metrics)?;
    let registered = transitions.register(&mut context.metrics);
    let mut watched = transitions.watch(&cluster);
    let nodes = server.watch_nodes(&cluster);
    watched.nodes = Some(nodes.clone());
    let shared = server::Streams {
        nodes: nodes.clone(),
        pods: watched.pods.clone(),
    };
    let begun = server.begin(&cluster, shared, &mut context)?;
    registered.add_checks(&context.health, &watched)?;
    let leases = transitions.leases(&cluster)?;
    let serving = server::Surroundings::of(&context);
    let shutdown = context.shutdown.clone();
    let admin = context.start_admin().await?;
    let following = transitions::Deps {
        shutdown,
        out: Some(lines),
        leases,
        registered,
    };
    tokio::try_join!(
        begun.serve(serving, &admin, told),
        transitions.run_on(watched, following),
    )?;
    nodes.shutdown().await;
    // It ends by the same signal.
    let _ = admin.task.await;
    Ok(())
}
