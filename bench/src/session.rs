//! The frame of every benchmark: stop on a signal, print the table, write the result.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use crate::BenchError;
use crate::flags::RunFlags;
use crate::machine::Machine;
use crate::result::Report;
use crate::table::{self, Style};

/// One run of a benchmark.
#[derive(Debug)]
pub struct Session {
    /// The folder `bench` of the source tree.
    pub bench: PathBuf,
    /// Folder for fixtures and logs; removed at the end unless the run fails.
    pub scratch: PathBuf,
    /// Folder for results.
    pub results: PathBuf,
    /// Whether it is a small run, whose results have names of their own.
    pub quick: bool,
    /// Start time (RFC 3339).
    pub started: String,
    pub machine: Machine,
}

/// Runs a benchmark with one report, as [`run_all`] does.
pub fn run(
    flags: &RunFlags,
    bench: impl AsyncFnOnce(&Session) -> Result<Report, BenchError>,
) -> ExitCode {
    run_all(flags, async |session| {
        let report = bench(session).await?;
        session.show(&report);
        let path = report.write(&session.results, &session.file_name(&report.bench))?;
        print_line(&format!("wrote all values to {}", path.display()));
        Ok(())
    })
}

/// Runs a benchmark until it is complete or interrupted by a signal. Programs that it started are
/// stopped in every case: they are dropped.
///
/// All of it runs on this thread: programs are killed when the thread that started them exits (see
/// [`crate::contender`]).
pub fn run_all(
    flags: &RunFlags,
    bench: impl AsyncFnOnce(&Session) -> Result<(), BenchError>,
) -> ExitCode {
    kubevitals_tls::install_crypto_provider();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(measured(flags, bench)),
        Err(source) => Err(BenchError::Start {
            program: "a runtime".to_owned(),
            source,
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_line(&format!("error: {}", error.chain()));
            ExitCode::FAILURE
        }
    }
}

impl Session {
    /// Returns the name of a result file, without its extension.
    pub fn file_name(&self, bench: &str) -> String {
        if self.quick {
            format!("{bench}.quick")
        } else {
            bench.to_owned()
        }
    }

    /// Prints the table of a report.
    pub fn show(&self, report: &Report) {
        print_line("");
        print_line(&table::render(report, Style::of_stdout()));
    }
}

/// Prints a line of progress to stdout.
pub fn print_line(line: &str) {
    // If stdout is closed, the run continues: the result is in the file.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Ends a run that has conditions: prints that they are met, or fails with those that are not.
pub fn check_conditions(violations: &[String], conditions: &str) -> Result<(), BenchError> {
    if violations.is_empty() {
        print_line(&format!("all conditions met: {conditions}"));
        return Ok(());
    }
    Err(BenchError::ConditionsNotMet(violations.join("; ")))
}

async fn measured(
    flags: &RunFlags,
    bench: impl AsyncFnOnce(&Session) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let scratch = tempfile::Builder::new()
        .prefix("kubevitals-bench-")
        .tempdir();
    let scratch = scratch.map_err(BenchError::file("create", std::env::temp_dir()))?;
    let bench_folder = source_folder();
    let session = Session {
        scratch: scratch.path().to_owned(),
        results: flags
            .results
            .clone()
            .unwrap_or_else(|| bench_folder.join("results")),
        bench: bench_folder,
        quick: flags.quick,
        started: jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
        machine: Machine::read(),
    };
    let outcome = tokio::select! {
        outcome = bench(&session) => outcome,
        () = interrupted() => Err(BenchError::Interrupted),
    };
    if let Err(error) = &outcome
        && !matches!(error, BenchError::Interrupted)
    {
        print_line(&format!("logs are in {}", scratch.keep().display()));
    }
    outcome
}

async fn interrupted() {
    let wait = async |kind| match signal(kind) {
        Ok(mut signals) => {
            signals.recv().await;
        }
        Err(_) => std::future::pending().await,
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::terminate()) => {}
        () = wait(SignalKind::hangup()) => {}
    }
}

/// Returns the folder `bench` of the source tree.
///
/// Read from the environment of `cargo run`: clones that share a target folder share this program.
pub fn source_folder() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    manifest.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf())
}
