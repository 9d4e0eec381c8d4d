//! Instructions of the hot paths, next to the recorded counts.
//!
//! Each path runs in its own process under callgrind, which counts only the path itself.
#![expect(
    clippy::indexing_slicing,
    reason = "indexes into fixtures of known size"
)]

mod fixture;
mod paths;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kubevitals_bench::BenchError;
use kubevitals_bench::instructions::callgrind::{self, Profile};
use kubevitals_bench::instructions::comparison::{Comparison, Verdict};
use kubevitals_bench::instructions::counted_by_callgrind;
use kubevitals_bench::instructions::record::{Count, Record, Tools};
use kubevitals_bench::session::{print_line, source_folder};
use kubevitals_bench::table::Style;

use self::paths::{HotPath, PATHS};

/// Count the instructions of hot paths, and compare with bench/instructions.json
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench instructions")]
struct Flags {
    /// Paths to count [default: all]
    #[arg(value_name = "PATH")]
    paths: Vec<String>,

    /// Write the counts to the record
    #[arg(long)]
    record: bool,

    /// Fail if a path exceeds its record by more than the threshold, or is not recorded
    #[arg(long, conflicts_with = "record")]
    check: bool,

    /// Ignore changes up to this, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0)]
    threshold: f64,

    /// Show this many of the most expensive functions of each path
    #[arg(long, value_name = "N", default_value_t = 0)]
    top: usize,

    /// Folder in which to keep callgrind's files, for `callgrind_annotate`
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,

    #[command(subcommand)]
    mode: Option<Mode>,
}

#[derive(Debug, Subcommand)]
enum Mode {
    /// Run one path, for callgrind
    #[command(hide = true)]
    Worker { path: String },
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let done = match &flags.mode {
        Some(Mode::Worker { path }) => work(path).map(|()| true),
        None => run(&flags),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            print_line(&format!("error: {}", error.chain()));
            ExitCode::FAILURE
        }
    }
}

/// Runs the counted operations.
fn work(name: &str) -> Result<(), BenchError> {
    let path = find(name)?;
    let mut work = (path.prepare)(path.times);
    counted_by_callgrind(path.times, &mut *work);
    Ok(())
}

/// Counts and compares; returns false if `--check` fails.
fn run(flags: &Flags) -> Result<bool, BenchError> {
    let file = source_folder().join("instructions.json");
    let record = Record::read(&file)?;
    let tools = Tools::here()?;
    let scratch = tempfile::Builder::new()
        .prefix("kubevitals-bench-")
        .tempdir();
    let scratch = scratch.map_err(BenchError::file("create", std::env::temp_dir()))?;
    let folder = flags.keep.as_deref().unwrap_or(scratch.path());
    std::fs::create_dir_all(folder).map_err(BenchError::file("create", folder))?;
    let mut counted = Vec::new();
    for path in chosen(&flags.paths)? {
        let profile = profile(path, folder)?;
        show_top(path, &profile, flags.top);
        counted.push(Count {
            path: path.name.to_owned(),
            operation: path.operation.to_owned(),
            instructions: profile.total.div_ceil(path.times as u64),
        });
    }
    let comparison = Comparison::new(&record, &counted, flags.threshold / 100.0);
    print_line(&comparison.render(Style::of_stdout()));
    if !record.paths.is_empty() {
        for difference in tools.differences(&record.made_with) {
            print_line(&difference);
        }
    }
    if flags.record {
        let order = PATHS.map(|path| path.name);
        record.updated(tools, &counted, &order).write(&file)?;
        print_line(&format!("recorded in {}", file.display()));
        return Ok(true);
    }
    Ok(!flags.check || holds(&comparison, flags.threshold))
}

/// Whether no path exceeds its record; prints those that do.
fn holds(comparison: &Comparison<'_>, threshold: f64) -> bool {
    let worse = comparison.paths(Verdict::Worse);
    let new = comparison.paths(Verdict::New);
    if !worse.is_empty() {
        let worse = worse.join(", ");
        print_line(&format!(
            "more than {threshold} % over the record: {worse}; reduce it, or use --record and give the reason in the commit"
        ));
    }
    if !new.is_empty() {
        print_line(&format!("not recorded: {}; use --record", new.join(", ")));
    }
    worse.is_empty() && new.is_empty()
}

fn profile(path: &HotPath, folder: &Path) -> Result<Profile, BenchError> {
    let program = std::env::current_exe().map_err(BenchError::file("locate", "this program"))?;
    let out = folder.join(format!("callgrind.{}", path.name));
    callgrind::run(&program, &["worker", path.name], &out)
}

fn show_top(path: &HotPath, profile: &Profile, max: usize) {
    for (at, (function, share)) in profile.top(max).into_iter().enumerate() {
        if at == 0 {
            print_line(&format!("{}: {}", path.name, path.operation));
        }
        print_line(&format!("  {:>5.1} %  {function}", share * 100.0));
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static HotPath>, BenchError> {
    if names.is_empty() {
        return Ok(PATHS.iter().collect());
    }
    names.iter().map(|name| find(name)).collect()
}

fn find(name: &str) -> Result<&'static HotPath, BenchError> {
    let found = PATHS.iter().find(|path| path.name == name);
    found.ok_or_else(|| {
        let known = PATHS.map(|path| path.name).join(", ");
        BenchError::NoContender(format!("unknown path `{name}`; known paths: {known}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without callgrind: each path can be prepared and run as often as it is counted.
    #[test]
    fn every_path_can_be_run() {
        for path in &PATHS {
            work(path.name).unwrap();
        }
    }

    #[test]
    fn every_path_has_a_unique_name_and_a_record() {
        let record = Record::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.json"));
        let recorded: Vec<String> = record.unwrap().paths.into_iter().map(|c| c.path).collect();
        assert_eq!(recorded, PATHS.map(|path| path.name));
        assert!(chosen(&["parse".to_owned(), "nothing".to_owned()]).is_err());
    }
}
