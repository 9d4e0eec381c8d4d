//! What every benchmark does around its measure: end cleanly on a signal, print the table, write
//! the result.

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
    /// For fixtures and logs; gone at the end unless the run fails.
    pub scratch: PathBuf,
    /// Where results are kept.
    pub results: PathBuf,
    /// Whether it is a small run, whose results are kept apart.
    pub quick: bool,
    /// When it began (RFC 3339).
    pub started: String,
    /// The machine.
    pub machine: Machine,
}

/// Runs a benchmark with one report to its end, as [`run_all`] does.
pub fn run(
    flags: &RunFlags,
    bench: impl AsyncFnOnce(&Session) -> Result<Report, BenchError>,
) -> ExitCode {
    run_all(flags, async |session| {
        let report = bench(session).await?;
        session.show(&report);
        let path = report.write(&session.results, &session.file_name(&report.bench))?;
        say(&format!("every number is in {}", path.display()));
        Ok(())
    })
}

/// Runs a benchmark to its end, or to the first Ctrl-C. What it started is ended in every case:
/// leaving drops it.
///
/// All of it runs on this thread: programs end with the thread that started them (see
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
            say(&format!("error: {}", error.chain()));
            ExitCode::FAILURE
        }
    }
}

impl Session {
    /// What the file of a result is called, without its ending.
    pub fn file_name(&self, bench: &str) -> String {
        if self.quick {
            format!("{bench}.quick")
        } else {
            bench.to_owned()
        }
    }

    /// Prints the table of a report.
    pub fn show(&self, report: &Report) {
        say("");
        say(&table::render(report, Style::of_stdout()));
    }
}

/// One line on the terminal: what is being done, or what is left out.
pub fn say(line: &str) {
    // Nobody listens any more: the run goes on, the result is in the file.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// The end of a run that has conditions: says that they held, or fails with those that were missed.
pub fn held(missed: &[String], conditions: &str) -> Result<(), BenchError> {
    if missed.is_empty() {
        say(&format!("all held: {conditions}"));
        return Ok(());
    }
    Err(BenchError::Missed(missed.join("; ")))
}

async fn measured(
    flags: &RunFlags,
    bench: impl AsyncFnOnce(&Session) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let scratch = tempfile::Builder::new()
        .prefix("kubevitals-bench-")
        .tempdir();
    let scratch = scratch.map_err(BenchError::file("make", std::env::temp_dir()))?;
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
        say(&format!("logs are kept in {}", scratch.keep().display()));
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

/// The folder `bench` of the source tree.
///
/// Asked of the cargo that runs us: clones that share a target folder share this program too.
pub fn source_folder() -> PathBuf {
    let asked = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    asked.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf())
}
