//! `kubevitals replay`: how long every pod took to start, and why, from recorded watch streams
//! instead of a cluster.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Arg, Args, ValueEnum};
use kubevitals_cli::RunError;
use kubevitals_cli::flags::go_bool;
use kubevitals_jsonl::{LifecycleLines, TransitionLines};
use kubevitals_model::Timestamp;
use kubevitals_recording::{Item, MAX_OBJECT, RecordedObject, Recording, RecordingError};
use kubevitals_telemetry::logs::ansi_allowed;
use kubevitals_terminal::Waterfall;
use kubevitals_transitions::{Arrival, Existing, Output, Tracker, TrackerConfig};
use kubevitals_watch::{Decoder, EventType};

use crate::explain::notices::warn;

/// Objects that cannot be decoded are reported individually up to this number.
const MAX_REPORTED: u64 = 20;

/// Limit of deleted pods, and of pods known only from events: far more than a useful recording has.
const MAX_PENDING: usize = 500_000;

#[derive(Debug, Clone, Args)]
#[command(mut_args(go_bools))]
pub struct ReplayFlags {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = ReplayOutput::Waterfall)]
    pub output: ReplayOutput,

    /// With -o json: write the wrong durations and names of kube-transition-metrics as it does
    #[arg(long)]
    pub compat: bool,

    /// With -o json: also write records for every change of a pod that is not ready yet
    #[arg(long)]
    pub emit_partial: bool,

    /// With -o json: also write a record of type `lifecycle` for each pod, with its UID, phases and
    /// critical path
    #[arg(long)]
    pub lifecycle: bool,

    /// Recordings of pods and events, in any order; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReplayOutput {
    /// The phases of each start as bars, with the cause of the longest
    Waterfall,
    /// The JSON lines that `kubevitals transitions` writes
    Json,
}

/// Prints the records of the tracker.
struct Printer<W: Write> {
    out: BufWriter<W>,
    form: Form,
    /// The first failure; nothing is written after it.
    failure: Option<io::Error>,
}

enum Form {
    Waterfall(Waterfall),
    Json(TransitionLines),
}

/// Counts objects that could not be decoded.
#[derive(Default)]
struct Undecodable {
    count: u64,
}

/// Reads all files and prints the lifecycle of each pod in them.
pub fn run(flags: &ReplayFlags, out: &mut (dyn Write + Send)) -> Result<(), RunError> {
    let is_json = flags.output == ReplayOutput::Json;
    let mut tracker = Tracker::new(TrackerConfig {
        linger: None,
        existing: Existing::All,
        progress: flags.emit_partial && is_json,
        max_ended: MAX_PENDING,
        max_early: MAX_PENDING,
        ..TrackerConfig::default()
    });
    let no_color = std::env::var_os("NO_COLOR");
    let in_color = ansi_allowed(no_color.as_deref(), io::stdout().is_terminal());
    let mut printer = Printer {
        out: BufWriter::new(out),
        form: if is_json {
            Form::Json(TransitionLines {
                compat: flags.compat,
                lifecycle: if flags.lifecycle {
                    LifecycleLines::AtEnd
                } else {
                    LifecycleLines::Never
                },
                ..TransitionLines::default()
            })
        } else {
            Form::Waterfall(Waterfall::new(in_color))
        },
        failure: None,
    };
    let mut undecodable = Undecodable::default();
    // One for all files, to share equal strings.
    let decoder = Decoder::default();
    for file in &flags.files {
        let recording = Recording::new(open(file)?, decoder.clone(), MAX_OBJECT);
        for item in recording {
            apply(item, file, &mut tracker, &mut printer, &mut undecodable)?;
            if printer.failure.is_some() {
                return printer.finish();
            }
        }
    }
    undecodable.report_rest();
    let found = tracker.counts().states;
    tracker.finish(&mut |output| printer.print(&output));
    if found == 0 && printer.failure.is_none() {
        return Err(RunError::runtime(
            "no pods found; record with `kubectl get pods --watch --output-watch-events -o json`",
        ));
    }
    let ignored = tracker.counts().rejected;
    if ignored > 0 {
        warn(&format!(
            "{ignored} states of pods beyond the first million were ignored"
        ));
    }
    printer.finish()
}

fn open(file: &Path) -> Result<Box<dyn Read>, RunError> {
    if file == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    match File::open(file) {
        Ok(open) => Ok(Box::new(open)),
        Err(error) => Err(RunError::runtime(format!(
            "cannot open {}: {error}",
            file.display()
        ))),
    }
}

fn apply<W: Write>(
    item: Item,
    file: &Path,
    tracker: &mut Tracker,
    printer: &mut Printer<W>,
    undecodable: &mut Undecodable,
) -> Result<(), RunError> {
    let mut out = |output: Output| printer.print(&output);
    match item.object {
        Ok(RecordedObject::Pod(seen)) => {
            let pod = Arc::new(seen.object);
            if seen.event == EventType::Deleted {
                // The last write of a field says nothing about the time of removal.
                tracker.deleted(&pod, Arrival::Live, None, &mut out);
            } else {
                tracker.pod(&pod, Arrival::Live, seen.written, &mut out);
            }
        }
        Ok(RecordedObject::Event(seen)) => tracker.event(&seen.object, &mut out),
        Ok(RecordedObject::Ended(_) | RecordedObject::Other(_)) => {}
        Err(RecordingError::Read(error)) => {
            let (file, offset) = (file.display(), item.offset);
            return Err(RunError::runtime(format!(
                "{file} cannot be read beyond byte {offset}: {error}"
            )));
        }
        Err(error) => undecodable.report(file, item.offset, &error),
    }
    Ok(())
}

impl<W: Write> Printer<W> {
    fn print(&mut self, output: &Output) {
        if self.failure.is_some() {
            return;
        }
        let done = match &mut self.form {
            Form::Json(lines) => self
                .out
                .write_all(&lines.render(output, record_time(output))),
            Form::Waterfall(waterfall) => match output {
                Output::Lifecycle(record) => waterfall.draw(record, None, &mut self.out),
                Output::Startup(_) | Output::Progress(_) | Output::ImagePull(..) => Ok(()),
            },
        };
        self.failure = done.err();
    }

    fn finish(mut self) -> Result<(), RunError> {
        if self.failure.is_none() {
            let summarized = match &self.form {
                Form::Waterfall(waterfall) => waterfall.summarize(&mut self.out),
                Form::Json(_) => Ok(()),
            };
            self.failure = summarized.and_then(|()| self.out.flush()).err();
        }
        // A failed write must not be retried when the buffer is dropped.
        let (_, _) = self.out.into_parts();
        match self.failure {
            // A closed pipe means that the reader has seen enough: `kubevitals replay … | head`.
            Some(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(RunError::runtime(format!("cannot write output: {error}")))
            }
            _ => Ok(()),
        }
    }
}

impl Undecodable {
    fn report(&mut self, file: &Path, offset: u64, error: &RecordingError) {
        self.count += 1;
        if self.count <= MAX_REPORTED {
            warn(&format!("{}: byte {offset}: {error}", file.display()));
        }
    }

    fn report_rest(&self) {
        if self.count > MAX_REPORTED {
            warn(&format!(
                "and {} more could not be decoded",
                self.count - MAX_REPORTED
            ));
        }
    }
}

/// The time of a record is that of the recording, so that the same recording always gives the same
/// lines.
fn record_time(output: &Output) -> Timestamp {
    let record = match output {
        Output::Startup(record) | Output::Lifecycle(record) | Output::Progress(record) => record,
        Output::ImagePull(record, target) => {
            let pull = record
                .facts
                .pull(target)
                .and_then(|pull| pull.done.as_ref());
            if let Some(done) = pull {
                return done.at;
            }
            record
        }
    };
    record
        .latest
        .or(record.milestones.created.best())
        .unwrap_or(Timestamp::from_unix_millis(0))
}

/// Booleans as Go programs accept them, since kube-transition-metrics is one.
fn go_bools(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "compat" | "emit_partial" | "lifecycle" => go_bool(arg),
        _ => arg,
    }
}
