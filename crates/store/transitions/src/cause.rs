//! Why a pod took as long as it did, in words.

use std::fmt::Write;
use std::time::Duration;

use crate::facts::Trouble;
use crate::hindrance::{Hindrance, HindranceKind};
use crate::path::{Phase, Segment};
use crate::record::PodRecord;

/// How much of a message is told in one line.
const LONGEST_QUOTE: usize = 160;

impl PodRecord {
    /// One sentence about what took longest: what, for how long of how long, and why if anything says why.
    pub fn cause(&self) -> String {
        let mut text = match self.longest() {
            Some(longest) => self.about(&longest),
            None if self.is_complete() => {
                "ready within the second in which it was created".to_owned()
            }
            None => String::new(),
        };
        if !self.is_complete() {
            let why = self.hindrance.as_ref().map(|found| self.why_not(found));
            let why = why.unwrap_or_else(|| "nothing says why".to_owned());
            text = if text.is_empty() {
                format!("never seen ready: {why}")
            } else {
                format!("never seen ready: {why}; {text}")
            };
        }
        text
    }

    fn about(&self, longest: &Segment) -> String {
        let of = match self.total() {
            Some(total) if total > longest.took() => {
                format!("{} of {}", Spelled(longest.took()), Spelled(total))
            }
            _ => Spelled(longest.took()).to_string(),
        };
        let container = longest.container.as_deref().unwrap_or("?");
        let image = self
            .containers
            .iter()
            .find(|one| Some(&one.name) == longest.container.as_ref())
            .and_then(|one| one.image.as_deref())
            .unwrap_or("?");
        let facts = self.facts.of(container);
        match longest.phase {
            Phase::Gated => format!("it was held back by scheduling gates for {of}"),
            Phase::Scheduling => {
                let why = self.unschedulable.as_ref();
                let why = why.and_then(|found| found.message.as_deref());
                with_quote(format!("it waited for a node for {of}"), why)
            }
            Phase::Sandbox => with_trouble(
                format!("sandbox, network and volumes took {of}"),
                &self.facts.sandbox,
            ),
            Phase::ImagePull if longest.is_done => {
                let bytes = facts
                    .and_then(|facts| facts.pull.done.as_ref())
                    .and_then(|done| done.bytes);
                let mut text = format!("image {image} was pulled for {of}");
                if let Some(bytes) = bytes {
                    let _ = write!(text, ", {}", Size(bytes));
                }
                if let Some(node) = &self.pod.brief.node {
                    let _ = write!(text, " to node {node}");
                }
                text
            }
            Phase::ImagePull => format!("image {image} was tried for {of}"),
            Phase::ContainerStart => {
                format!("container {container} took {of} to be made and started")
            }
            Phase::Init => format!("init container {container} took {of}"),
            Phase::StartupProbe => {
                let text = format!("container {container} took {of} to pass its startup probe");
                facts.map_or(text.clone(), |facts| {
                    with_trouble(text, &facts.startup_probe)
                })
            }
            Phase::Readiness if longest.container.is_some() => {
                let text = if longest.is_done {
                    format!("container {container} ran for {of} before it was ready")
                } else {
                    format!("container {container} ran for {of} without being ready")
                };
                facts.map_or(text.clone(), |facts| {
                    with_trouble(text, &facts.readiness_probe)
                })
            }
            Phase::Readiness => format!("it took {of} until all was reported ready"),
            Phase::ReadinessGates => format!("its readiness gates took {of}"),
            Phase::CrashLoop => format!("container {container} ended again and again for {of}"),
            Phase::Unknown => format!("{of} passed"),
        }
    }

    fn why_not(&self, found: &Hindrance) -> String {
        let container = found.container.as_deref().unwrap_or("?");
        let reason = found.reason.as_deref();
        let said = |text: String| match reason {
            Some(reason) => format!("{text} ({reason})"),
            None => text,
        };
        match found.kind {
            HindranceKind::Gated => format!("scheduling gate {} is closed", reason.unwrap_or("?")),
            HindranceKind::NotScheduled => "the scheduler had not looked at it".to_owned(),
            HindranceKind::Unschedulable => {
                with_quote("no node can take it".to_owned(), found.message.as_deref())
            }
            HindranceKind::NotAccepted => "the kubelet of its node had not taken it on".to_owned(),
            HindranceKind::Sandbox => with_trouble(
                "sandbox, network or volumes were not there".to_owned(),
                &self.facts.sandbox,
            ),
            HindranceKind::ImagePull => with_quote(
                said(format!(
                    "the image of container {container} cannot be pulled"
                )),
                found.message.as_deref(),
            ),
            HindranceKind::ContainerCreation => with_quote(
                said(format!("container {container} was not started")),
                found.message.as_deref(),
            ),
            HindranceKind::Init => format!("init container {container} had not ended"),
            HindranceKind::InitFailed => said(format!("init container {container} fails")),
            HindranceKind::CrashLoop => said(format!("container {container} does not stay up")),
            HindranceKind::StartupProbe => format!("container {container} fails its startup probe"),
            HindranceKind::ReadinessProbe => format!("container {container} is not ready"),
            HindranceKind::ReadinessGate => {
                format!("readiness gate {} is closed", reason.unwrap_or("?"))
            }
            HindranceKind::Ended => said("it ended first".to_owned()),
            HindranceKind::Unseen => {
                "it began before it was watched, and its state no longer says".to_owned()
            }
        }
    }
}

/// A duration for people.
pub struct Spelled(
    /// The duration.
    pub Duration,
);

/// A number of bytes for people.
struct Size(u64);

impl std::fmt::Display for Spelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let millis = self.0.as_millis();
        let (seconds, rest) = (millis / 1_000, millis % 1_000);
        match (seconds, rest) {
            (0, 1..) => write!(f, "{rest} ms"),
            (0..10, 1..) => write!(f, "{seconds}.{} s", rest / 100),
            (0..120, _) => write!(f, "{seconds} s"),
            (120..7_200, _) => write!(f, "{} min {} s", seconds / 60, seconds % 60),
            _ => write!(f, "{} h {} min", seconds / 3_600, seconds / 60 % 60),
        }
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = |unit: u64| (self.0 / unit, self.0 % unit * 10 / unit);
        match self.0 {
            0..1_000 => write!(f, "{} B", self.0),
            1_000..1_000_000 => write!(f, "{} kB", self.0 / 1_000),
            1_000_000..1_000_000_000 => write!(f, "{} MB", self.0 / 1_000_000),
            _ => {
                let (whole, tenth) = tenths(1_000_000_000);
                write!(f, "{whole}.{tenth} GB")
            }
        }
    }
}

fn with_trouble(text: String, trouble: &Trouble) -> String {
    match trouble.times() {
        0 => text,
        1 => with_quote(format!("{text} (failed once)"), trouble.message.as_deref()),
        times => with_quote(
            format!("{text} (failed {times} times)"),
            trouble.message.as_deref(),
        ),
    }
}

/// Whatever a registry or a probe said becomes one line without control characters: it is shown on terminals.
fn with_quote(text: String, said: Option<&str>) -> String {
    let Some(said) = said.filter(|said| !said.is_empty()) else {
        return text;
    };
    let mut quote: String = said
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .take(LONGEST_QUOTE)
        .collect();
    if said.chars().nth(LONGEST_QUOTE).is_some() {
        quote.push('…');
    }
    format!("{text}: {quote}")
}
