//! `kubevitals replay`: how long every pod took, and why, from recorded watch streams instead of a
//! cluster.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Arg, Args, ValueEnum};
use kubevitals_cli::RunError;
use kubevitals_cli::flags::go_bool;
use kubevitals_jsonl::{LifecycleLines, TransitionLines};
use kubevitals_model::Timestamp;
use kubevitals_recording::{Item, MAX_OBJECT, Recording, RecordingError, What};
use kubevitals_telemetry::logs::ansi_allowed;
use kubevitals_terminal::Waterfall;
use kubevitals_transitions::{Arrival, Existing, Output, Tracker, TrackerConfig};
use kubevitals_watch::{Decoder, EventType};

use crate::explain::notices::warn;

/// Objects that cannot be read are named one by one up to here; then they are only counted.
const MAX_NAMED: u64 = 20;

/// Pods of a recording that are gone, or of which only events came so far: far more than a
/// recording has that anybody can look through.
const MAX_WAITING: usize = 500_000;

/// Flags of the reader of recordings.
#[derive(Debug, Clone, Args)]
#[command(mut_args(go_bools))]
pub struct ReplayFlags {
    /// What to print
    #[arg(short, long, value_enum, default_value_t = ReplayOutput::Waterfall)]
    pub output: ReplayOutput,

    /// With -o json: the durations and names that kube-transition-metrics gets wrong, as it writes
    /// them
    #[arg(long)]
    pub compat: bool,

    /// With -o json: also a set of records for every change of a pod that is not ready yet
    #[arg(long)]
    pub emit_partial: bool,

    /// With -o json: also a record of type `lifecycle` for each pod, with its UID, phases and
    /// critical path
    #[arg(long)]
    pub lifecycle: bool,

    /// Recordings of pods and events, in any order; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
}

/// What a replay prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReplayOutput {
    /// A picture of each pod's start, with the cause of its longest phase in words
    Waterfall,
    /// The JSON lines that `kubevitals transitions` writes
    Json,
}

/// Takes what the tracker tells to where the user reads it.
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

/// What could not be read.
#[derive(Default)]
struct Bad {
    count: u64,
}

/// Reads all files and prints the life of each pod in them.
pub fn run(flags: &ReplayFlags, out: &mut (dyn Write + Send)) -> Result<(), RunError> {
    let is_json = flags.output == ReplayOutput::Json;
    let mut tracker = Tracker::new(TrackerConfig {
        linger: None,
        existing: Existing::All,
        progress: flags.emit_partial && is_json,
        max_ended: MAX_WAITING,
        max_early: MAX_WAITING,
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
            })
        } else {
            Form::Waterfall(Waterfall::new(in_color))
        },
        failure: None,
    };
    let mut bad = Bad::default();
    // One for all files: what they have in common is kept once.
    let decoder = Decoder::default();
    for file in &flags.files {
        let recording = Recording::new(open(file)?, decoder.clone(), MAX_OBJECT);
        for item in recording {
            take(item, file, &mut tracker, &mut printer, &mut bad)?;
            if printer.failure.is_some() {
                return printer.end();
            }
        }
    }
    bad.tell_rest();
    let found = tracker.counts().states;
    tracker.finish(&mut |output| printer.take(&output));
    if found == 0 && printer.failure.is_none() {
        return Err(RunError::runtime(
            "no pod was found; record with `kubectl get pods --watch --output-watch-events -o json`",
        ));
    }
    let refused = tracker.counts().rejected;
    if refused > 0 {
        warn(&format!(
            "{refused} states of pods beyond the first million were left out"
        ));
    }
    printer.end()
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

fn take<W: Write>(
    item: Item,
    file: &Path,
    tracker: &mut Tracker,
    printer: &mut Printer<W>,
    bad: &mut Bad,
) -> Result<(), RunError> {
    let mut out = |output: Output| printer.take(&output);
    match item.what {
        Ok(What::Pod(seen)) => {
            let pod = Arc::new(seen.object);
            if seen.event == EventType::Deleted {
                // The last write of a field says nothing about when the pod was removed.
                tracker.deleted(&pod, Arrival::Live, None, &mut out);
            } else {
                tracker.pod(&pod, Arrival::Live, seen.written, &mut out);
            }
        }
        Ok(What::Event(seen)) => tracker.event(&seen.object, &mut out),
        Ok(What::Ended(_) | What::Other(_)) => {}
        Err(RecordingError::Read(error)) => {
            let (file, offset) = (file.display(), item.offset);
            return Err(RunError::runtime(format!(
                "{file} cannot be read beyond byte {offset}: {error}"
            )));
        }
        Err(error) => bad.tell(file, item.offset, &error),
    }
    Ok(())
}

impl<W: Write> Printer<W> {
    fn take(&mut self, output: &Output) {
        if self.failure.is_some() {
            return;
        }
        let done = match &mut self.form {
            Form::Json(lines) => self.out.write_all(&lines.render(output, told_at(output))),
            Form::Waterfall(waterfall) => match output {
                Output::Lifecycle(record) => waterfall.draw(record, None, &mut self.out),
                Output::Startup(_) | Output::Progress(_) => Ok(()),
            },
        };
        self.failure = done.err();
    }

    fn end(mut self) -> Result<(), RunError> {
        if self.failure.is_none() {
            let summed_up = match &self.form {
                Form::Waterfall(waterfall) => waterfall.summarize(&mut self.out),
                Form::Json(_) => Ok(()),
            };
            self.failure = summed_up.and_then(|()| self.out.flush()).err();
        }
        // What was not written must not be tried again when the buffer goes.
        let (_, _) = self.out.into_parts();
        match self.failure {
            // Whoever read it has seen enough: `kubevitals replay … | head`.
            Some(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(RunError::runtime(format!("cannot write: {error}")))
            }
            _ => Ok(()),
        }
    }
}

impl Bad {
    fn tell(&mut self, file: &Path, offset: u64, error: &RecordingError) {
        self.count += 1;
        if self.count <= MAX_NAMED {
            warn(&format!("{}: byte {offset}: {error}", file.display()));
        }
    }

    fn tell_rest(&self) {
        if self.count > MAX_NAMED {
            warn(&format!(
                "and {} more could not be read",
                self.count - MAX_NAMED
            ));
        }
    }
}

/// A recording is told of in its own time, so that the same recording always gives the same lines.
fn told_at(output: &Output) -> Timestamp {
    let (Output::Startup(record) | Output::Lifecycle(record) | Output::Progress(record)) = output;
    record
        .latest
        .or(record.milestones.created.best())
        .unwrap_or(Timestamp::from_unix_millis(0))
}

/// Written as Go programs take them, since kube-transition-metrics is one.
fn go_bools(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "compat" | "emit_partial" | "lifecycle" => go_bool(arg),
        _ => arg,
    }
}
