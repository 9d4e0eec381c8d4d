//! The start of a pod as bars in a terminal.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use kubevitals_model::Timestamp;
use kubevitals_transitions::{End, Moment, Phase, PodRecord, Segment, Spelled};

/// Columns of the bars; with names and times a line fits a terminal of 100.
const COLUMNS: u128 = 48;

/// Columns of what a bar is about.
const LABEL: usize = 30;

/// Draws pods, and knows how many were ready.
#[derive(Debug)]
pub(crate) struct Waterfall {
    in_color: bool,
    /// The time at which a cluster was looked at; none for a recording.
    looked_at: Option<Timestamp>,
    pods: u64,
    ready: u64,
    slowest: Option<(Duration, String)>,
}

impl Waterfall {
    /// Of a recording.
    pub(crate) fn new(in_color: bool) -> Self {
        Self {
            in_color,
            looked_at: None,
            pods: 0,
            ready: 0,
            slowest: None,
        }
    }

    /// Of a cluster, at this time.
    pub(crate) fn live(in_color: bool, now: Timestamp) -> Self {
        Self {
            looked_at: Some(now),
            ..Self::new(in_color)
        }
    }

    /// Draws a pod, on a node of this pool if that is known.
    pub(crate) fn draw(
        &mut self,
        record: &PodRecord,
        pool: Option<&str>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        self.count(record);
        writeln!(out, "{}", self.headline(record, pool))?;
        let total = record.total().unwrap_or_default();
        for piece in record.critical_path() {
            let took = Spelled(piece.took()).to_string();
            let label = clipped(&label(&piece));
            let bar = self.bar(&piece, record, total);
            writeln!(out, "  {label:LABEL$} {took:>10}  {bar}")?;
        }
        writeln!(out, "  → {}", plain(&record.cause_in(pool)))?;
        let relapse = self.looked_at.and_then(|now| record.relapse(now));
        for line in aftermath(record).into_iter().chain(relapse) {
            writeln!(out, "  {}", plain(&line))?;
        }
        writeln!(out)
    }

    pub(crate) fn sum_up(&self, out: &mut impl Write) -> io::Result<()> {
        let (pods, ready) = (self.pods, self.ready);
        write!(out, "{pods} pods, {ready} of them ready")?;
        if let Some((took, name)) = &self.slowest {
            write!(out, "; the slowest was {name} after {}", Spelled(*took))?;
        }
        writeln!(out)
    }

    fn count(&mut self, record: &PodRecord) {
        self.pods += 1;
        if !record.is_complete() {
            return;
        }
        self.ready += 1;
        let slower = self.slowest.as_ref().map(|(took, _)| *took);
        if let Some(total) = record.total().filter(|total| Some(*total) > slower) {
            let name = plain(&record.pod.brief.identity.to_string());
            self.slowest = Some((total, name));
        }
    }

    fn headline(&self, record: &PodRecord, pool: Option<&str>) -> String {
        let total = record.total().unwrap_or_default();
        let name = plain(&record.pod.brief.identity.to_string());
        let (code, outcome) = if record.is_complete() {
            ("32", format!("ready after {}", Spelled(total)))
        } else if record.is_unseen() {
            ("33", format!("last seen starting after {}", Spelled(total)))
        } else if record.is_over() || record.milestones.deletion.is_some() {
            ("31", format!("not ready after {}", Spelled(total)))
        } else {
            ("33", format!("still starting after {}", Spelled(total)))
        };
        let mut text = format!(
            "{}  {}",
            self.painted("1", &name),
            self.painted(code, &outcome)
        );
        if let Some(node) = &record.pod.brief.node {
            let _ = write!(text, "  on {}", plain(node));
            if let Some(pool) = pool {
                let _ = write!(text, " of pool {}", plain(pool));
            }
        }
        // A cluster that is looked at once has no other pods.
        if record.reconstructed && self.looked_at.is_none() {
            text.push_str("  (began before the recording)");
        }
        text
    }

    fn bar(&self, piece: &Segment, record: &PodRecord, total: Duration) -> String {
        let start = record.milestones.created.best().unwrap_or(piece.from);
        let column = |at: Timestamp| {
            let since = at.since(start).unwrap_or_default().as_millis();
            since * COLUMNS / total.as_millis().max(1)
        };
        let (from, to) = (column(piece.from), column(piece.to));
        let indent = usize::try_from(from.min(COLUMNS - 1)).unwrap_or_default();
        let width = usize::try_from(to.saturating_sub(from).max(1)).unwrap_or(1);
        let cell = if piece.is_done { "█" } else { "░" };
        let bar = self.painted(color(piece.phase), &cell.repeat(width));
        format!("{}{bar}", " ".repeat(indent))
    }

    fn painted(&self, code: &str, text: &str) -> String {
        if self.in_color {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// What was read from a file may hold anything: what a terminal would obey becomes a blank.
pub(crate) fn plain(text: &str) -> String {
    let blank = |char: char| if char.is_control() { ' ' } else { char };
    text.chars().map(blank).collect()
}

/// What a piece of the way is called.
pub(crate) fn label(piece: &Segment) -> String {
    let what = match piece.phase {
        Phase::Gated => "scheduling gates",
        Phase::Scheduling => "scheduling",
        Phase::Sandbox => "sandbox, network, volumes",
        Phase::ImagePull => "image of",
        Phase::ContainerStart => "start of",
        Phase::Init => "init container",
        Phase::StartupProbe => "startup probe of",
        Phase::Readiness => "readiness of",
        Phase::ReadinessGates => "readiness gates",
        Phase::CrashLoop => "crash loop of",
        Phase::Unknown => "unknown",
    };
    match (&piece.container, piece.phase) {
        (Some(container), _) => format!("{what} {}", plain(container)),
        (None, Phase::Readiness) => "readiness".to_owned(),
        (None, _) => what.to_owned(),
    }
}

fn clipped(label: &str) -> String {
    if label.chars().count() <= LABEL {
        return label.to_owned();
    }
    label.chars().take(LABEL - 1).chain(['…']).collect()
}

fn color(phase: Phase) -> &'static str {
    match phase {
        Phase::Gated | Phase::Scheduling => "35",
        Phase::Sandbox => "34",
        Phase::ImagePull => "33",
        Phase::ContainerStart => "36",
        Phase::Init => "94",
        Phase::StartupProbe | Phase::Readiness | Phase::ReadinessGates => "32",
        Phase::CrashLoop | Phase::Unknown => "31",
    }
}

/// What came after the start.
fn aftermath(record: &PodRecord) -> Vec<String> {
    let mut lines = Vec::new();
    for container in record.containers.iter().filter(|one| one.restarts > 0) {
        let times = match container.restarts {
            1 => "once".to_owned(),
            times => format!("{times} times"),
        };
        let mut line = format!("container {} was restarted {times}", container.name);
        if container.downs > 0 {
            let _ = write!(line, ", down for {}", Spelled(container.down));
        }
        if let Some(exit) = &container.last_exit {
            let _ = write!(line, ", last exit {}", exit.code);
            if let Some(reason) = &exit.reason {
                let _ = write!(line, " ({reason})");
            }
        }
        lines.push(line);
    }
    let reached = &record.milestones;
    let took = |to: Option<Moment>, from: Option<Moment>| to?.since(from?);
    if let Some(deletion) = reached.deletion {
        let lived = deletion.since(reached.created);
        let lived = lived.map_or(String::new(), |lived| format!(" after {}", Spelled(lived)));
        let mut line = format!("deletion was asked for{lived}");
        if let Some(stop) = took(reached.stopped, reached.deletion) {
            let _ = write!(line, ", containers took {} to end", Spelled(stop));
        }
        match record.end {
            End::Deleted => {
                if let Some(gone) = took(reached.gone, reached.deletion) {
                    let _ = write!(line, ", gone after {}", Spelled(gone));
                }
            }
            End::Vanished => line.push_str(", missing after a gap"),
            End::Open => line.push_str(", not gone yet"),
        }
        lines.push(line);
    }
    lines
}
