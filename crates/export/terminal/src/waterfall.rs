//! The start of a pod as bars in a terminal.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use kubevitals_model::Timestamp;
use kubevitals_transitions::{End, HumanDuration, Moment, Phase, PodRecord, Segment};

use crate::printable;

/// Columns of the bars; with labels and durations a line fits a terminal of 100.
const BAR_WIDTH: u128 = 48;

/// Columns of a label.
const LABEL_WIDTH: usize = 30;

/// Draws pods and counts those that were ready.
#[derive(Debug)]
pub struct Waterfall {
    in_color: bool,
    /// The time at which a cluster was read; `None` for a recording.
    read_at: Option<Timestamp>,
    pods: u64,
    ready: u64,
    slowest: Option<(Duration, String)>,
}

impl Waterfall {
    /// A waterfall of a recording.
    pub fn new(in_color: bool) -> Self {
        Self {
            in_color,
            read_at: None,
            pods: 0,
            ready: 0,
            slowest: None,
        }
    }

    /// A waterfall of a cluster, read at `now`.
    pub fn live(in_color: bool, now: Timestamp) -> Self {
        Self {
            read_at: Some(now),
            ..Self::new(in_color)
        }
    }

    /// Draws a pod; `pool` is that of its node, if known.
    pub fn draw(
        &mut self,
        record: &PodRecord,
        pool: Option<&str>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        self.count(record);
        writeln!(out, "{}", self.headline(record, pool))?;
        let total = record.total().unwrap_or_default();
        for segment in record.critical_path() {
            let took = HumanDuration(segment.took()).to_string();
            let label = truncated(&label(&segment));
            let bar = self.bar(&segment, record, total);
            writeln!(out, "  {label:LABEL_WIDTH$} {took:>10}  {bar}")?;
        }
        writeln!(out, "  → {}", printable(&record.cause_in(pool)))?;
        let readiness_lost = self.read_at.and_then(|now| record.readiness_lost(now));
        for line in later_events(record).into_iter().chain(readiness_lost) {
            writeln!(out, "  {}", printable(&line))?;
        }
        writeln!(out)
    }

    /// Writes a summary of the pods drawn so far.
    pub fn summarize(&self, out: &mut impl Write) -> io::Result<()> {
        let (pods, ready) = (self.pods, self.ready);
        write!(out, "{pods} pods, {ready} of them ready")?;
        if let Some((took, name)) = &self.slowest {
            write!(
                out,
                "; the slowest was {name} after {}",
                HumanDuration(*took)
            )?;
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
            let name = printable(&record.pod.summary.identity.to_string());
            self.slowest = Some((total, name));
        }
    }

    fn headline(&self, record: &PodRecord, pool: Option<&str>) -> String {
        let name = printable(&record.pod.summary.identity.to_string());
        let total = record.total().map(HumanDuration);
        let total = total.map_or("an unknown time".to_owned(), |total| total.to_string());
        let (code, outcome) = if record.is_upper_bound() {
            ("32", format!("ready after at most {total}"))
        } else if record.is_complete() {
            ("32", format!("ready after {total}"))
        } else if record.is_unseen() {
            ("33", format!("last seen starting after {total}"))
        } else if record.is_over() || record.milestones.deletion.is_some() {
            ("31", format!("not ready after {total}"))
        } else {
            ("33", format!("still starting after {total}"))
        };
        let mut text = format!(
            "{}  {}",
            self.painted("1", &name),
            self.painted(code, &outcome)
        );
        if let Some(node) = &record.pod.summary.node {
            let _ = write!(text, "  on {}", printable(node));
            if let Some(pool) = pool {
                let _ = write!(text, " of pool {}", printable(pool));
            }
        }
        // Every pod of a cluster that is read once began before.
        if record.reconstructed && self.read_at.is_none() {
            text.push_str("  (began before the recording)");
        }
        text
    }

    fn bar(&self, segment: &Segment, record: &PodRecord, total: Duration) -> String {
        let start = record.milestones.created.best().unwrap_or(segment.from);
        let column = |at: Timestamp| {
            let since = at.since(start).unwrap_or_default().as_millis();
            since * BAR_WIDTH / total.as_millis().max(1)
        };
        let (from, to) = (column(segment.from), column(segment.to));
        let indent = usize::try_from(from.min(BAR_WIDTH - 1)).unwrap_or_default();
        let width = usize::try_from(to.saturating_sub(from).max(1)).unwrap_or(1);
        let cell = if segment.is_done { "█" } else { "░" };
        let bar = self.painted(color(segment.phase), &cell.repeat(width));
        format!("{}{bar}", " ".repeat(indent))
    }

    fn painted(&self, code: &str, text: &str) -> String {
        painted(self.in_color, code, text)
    }
}

/// The name of a segment of the critical path.
pub(crate) fn label(segment: &Segment) -> String {
    phase_label(segment.phase, segment.container.as_deref())
}

/// The name of a phase, of a container if it has one.
pub(crate) fn phase_label(phase: Phase, container: Option<&str>) -> String {
    let what = match phase {
        Phase::Gated => "scheduling gates",
        Phase::Scheduling => "scheduling",
        Phase::Provisioning => "new node",
        Phase::Volumes => "volumes",
        Phase::Sandbox => "sandbox, network, volumes",
        Phase::Network => "network",
        Phase::ImagePullFailed => "failed pulls of",
        Phase::ImagePull => "image of",
        Phase::ContainerStart => "start of",
        Phase::Init => "init container",
        Phase::StartupProbe => "startup probe of",
        Phase::Readiness => "readiness of",
        Phase::ReadinessGates => "readiness gates",
        Phase::CrashLoop => "crash loop of",
        Phase::Unknown => "unknown",
    };
    match (container, phase) {
        (Some(container), _) => format!("{what} {}", printable(container)),
        (None, Phase::Readiness) => "readiness".to_owned(),
        (None, _) => what.to_owned(),
    }
}

fn truncated(label: &str) -> String {
    if label.chars().count() <= LABEL_WIDTH {
        return label.to_owned();
    }
    label.chars().take(LABEL_WIDTH - 1).chain(['…']).collect()
}

/// Text in a colour or a style of a terminal.
pub(crate) fn painted(in_color: bool, code: &str, text: &str) -> String {
    if in_color {
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

pub(crate) fn color(phase: Phase) -> &'static str {
    match phase {
        Phase::Gated | Phase::Scheduling | Phase::Provisioning => "35",
        Phase::Volumes | Phase::Sandbox | Phase::Network => "34",
        Phase::ImagePull => "33",
        Phase::ContainerStart => "36",
        Phase::Init => "94",
        Phase::StartupProbe | Phase::Readiness | Phase::ReadinessGates => "32",
        Phase::ImagePullFailed | Phase::CrashLoop | Phase::Unknown => "31",
    }
}

/// Restarts and deletion, after the start.
fn later_events(record: &PodRecord) -> Vec<String> {
    let mut lines = Vec::new();
    for container in record.containers.iter().filter(|one| one.restarts > 0) {
        let times = match container.restarts {
            1 => "once".to_owned(),
            times => format!("{times} times"),
        };
        let mut line = format!("container {} was restarted {times}", container.name);
        if container.downs > 0 {
            let _ = write!(line, ", down for {}", HumanDuration(container.down));
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
        let lived = lived.map_or(String::new(), |lived| {
            format!(" after {}", HumanDuration(lived))
        });
        let mut line = format!("deletion requested{lived}");
        if let Some(stop) = took(reached.stopped, reached.deletion) {
            let _ = write!(line, ", containers took {} to stop", HumanDuration(stop));
        }
        match record.end {
            End::Deleted => {
                if let Some(gone) = took(reached.gone, reached.deletion) {
                    let _ = write!(line, ", deleted after {}", HumanDuration(gone));
                }
            }
            End::Vanished => line.push_str(", found missing after a gap in the watch"),
            End::Open | End::Unselected => line.push_str(", not deleted yet"),
        }
        lines.push(line);
    }
    lines
}
