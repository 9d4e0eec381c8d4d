//! The main function of benchmarks that consist of workers.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::flags::RunFlags;
use crate::jobs::{self, Implementation, Workers};
use crate::measure::{Plan, Schedule};
use crate::result::{Metric, Report};
use crate::session::{self, Session, print_line};
use crate::{BenchError, go, versions};

/// A benchmark of workers of this program, with modes `M`, and of a Go program.
#[derive(Debug)]
pub struct WorkerBench<M> {
    pub name: &'static str,
    /// First line of the help.
    pub about: &'static str,
    /// Program of `bench/go`.
    pub go: &'static str,
    /// Crates and Go modules whose versions are reported.
    pub versions: (&'static [&'static str], &'static [&'static str]),
    /// Baseline of ratios with and without Go.
    pub baseline: (&'static str, &'static str),
    /// Repeats of a full and of a quick run.
    pub repeats: (usize, usize),
    pub metrics: fn() -> Vec<Metric>,
    /// Writes the input of all workers to a folder.
    pub prepare: fn(&Path) -> Result<Input, BenchError>,
    /// Returns the contenders with workers of this program, and with those in Go if it is
    /// installed.
    pub implementations: fn(&Workers, Option<&Workers>) -> Vec<Implementation>,
    /// Runs a worker for a number of passes.
    pub serve: fn(M, u32, &Path) -> io::Result<()>,
}

/// Input of the workers.
#[derive(Debug)]
pub struct Input {
    pub path: PathBuf,
    /// Divisor of the values of a pass, such as its bytes or its pods.
    pub units: f64,
    /// Parameters for the report.
    pub parameters: Vec<(&'static str, u64)>,
}

#[derive(Debug, Parser)]
struct Flags<M: ValueEnum + Send + Sync + 'static> {
    #[command(flatten)]
    run: RunFlags,
    #[command(subcommand)]
    command: Option<Command<M>>,
}

#[derive(Debug, Subcommand)]
enum Command<M: ValueEnum + Send + Sync + 'static> {
    /// Run one worker, for the harness
    #[command(hide = true)]
    Worker {
        #[arg(value_enum)]
        mode: M,
        passes: u32,
        input: PathBuf,
    },
}

impl<M: ValueEnum + Send + Sync + 'static> WorkerBench<M> {
    /// Runs the benchmark, or a worker of it.
    pub fn main(&self) -> ExitCode {
        let command = Flags::<M>::command()
            .bin_name(format!("cargo xtask bench {}", self.name))
            .about(self.about);
        let flags = match Flags::<M>::from_arg_matches(&command.get_matches()) {
            Ok(flags) => flags,
            Err(error) => error.exit(),
        };
        match flags.command {
            None => session::run(&flags.run, async |session| {
                self.run(&flags.run, session).await
            }),
            Some(Command::Worker {
                mode,
                passes,
                input,
            }) => match (self.serve)(mode, passes, &input) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            },
        }
    }

    async fn run(&self, flags: &RunFlags, session: &Session) -> Result<Report, BenchError> {
        let input = (self.prepare)(&session.scratch)?;
        let go = go::build(&session.bench, self.go, &session.scratch).await?;
        if go.is_none() {
            print_line("Go is not installed: its contenders are skipped");
        }
        let scale = flags.pick(4, 1);
        let own = Workers::of_this_program(&input, scale, &session.scratch)?;
        let go = go.map(|program| own.of_program(program));
        let implementations = (self.implementations)(&own, go.as_ref());
        let plan = Plan {
            schedule: Schedule::OneAfterOther,
            repeats: flags.repeats_or(self.repeats.0, self.repeats.1),
        };
        let parameters = input.parameters.iter();
        let size: Vec<String> = parameters
            .map(|(name, value)| format!("{value} {name}"))
            .collect();
        print_line(&format!(
            "{}; {} turns of {} contenders",
            size.join(", "),
            plan.repeats,
            implementations.len()
        ));
        let contenders = jobs::measure(&implementations, plan).await?;
        let (crates, modules) = self.versions;
        let (with_go, without_go) = self.baseline;
        let parameters = input.parameters.into_iter();
        Ok(Report {
            bench: self.name.to_owned(),
            started: session.started.clone(),
            machine: session.machine.clone(),
            versions: versions::of(&session.bench, crates, modules).await,
            parameters: parameters
                .map(|(name, value)| (name.to_owned(), value.to_string()))
                .collect(),
            schedule: plan.schedule,
            baseline: if go.is_some() { with_go } else { without_go }.to_owned(),
            metrics: (self.metrics)(),
            contenders,
        })
    }
}
