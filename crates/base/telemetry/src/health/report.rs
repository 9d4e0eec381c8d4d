//! The outcome of a probe and its text.

use std::fmt::Write;

use super::{Probe, Status};

/// The maximum length of a reason in bytes. Reasons may quote long messages of other programs.
const MAX_REASON: usize = 1024;

/// The result of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    probe: Probe,
    outcomes: Vec<CheckOutcome>,
    unknown_excludes: Vec<String>,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckOutcome {
    pub name: String,
    pub verdict: Verdict,
}

/// The meaning of a check's status for a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    /// Passed, with a warning.
    Warned(String),
    /// Excluded by the client.
    Excluded,
    /// Failed because the component has just started, with the reason.
    WarmingUp(String),
    /// Failed, with the reason.
    Failed(String),
}

impl Report {
    pub(super) fn new(probe: Probe, outcomes: Vec<CheckOutcome>, excluded: &[String]) -> Self {
        let mut unknown_excludes: Vec<String> = excluded
            .iter()
            .filter(|name| !outcomes.iter().any(|outcome| outcome.name == **name))
            .cloned()
            .collect();
        unknown_excludes.sort();
        unknown_excludes.dedup();
        Self {
            probe,
            outcomes,
            unknown_excludes,
        }
    }

    /// Returns whether every check passes.
    pub fn passed(&self) -> bool {
        self.failing().next().is_none()
    }

    /// Returns all checks, in the order of registration.
    pub fn outcomes(&self) -> &[CheckOutcome] {
        &self.outcomes
    }

    /// Returns the failing checks.
    pub fn failing(&self) -> impl Iterator<Item = &CheckOutcome> {
        self.outcomes
            .iter()
            .filter(|outcome| outcome.verdict.reason().is_some())
    }

    /// Returns the failing checks with their reasons on one line, for a log.
    pub fn reasons(&self) -> String {
        let mut text = String::new();
        for outcome in self.failing() {
            let separator = if text.is_empty() { "" } else { "; " };
            let reason = outcome.verdict.reason().unwrap_or_default();
            let _ = write!(text, "{separator}{}: {reason}", outcome.name);
        }
        text
    }

    /// Returns the response body: `ok` if every check passes and `verbose` is not set, else a line
    /// per check.
    pub fn body(&self, verbose: bool) -> String {
        self.text(verbose, true)
    }

    /// Returns the response body without reasons, as the API server of Kubernetes does, for an
    /// endpoint that is open to all.
    pub fn public_body(&self, verbose: bool) -> String {
        self.text(verbose, false)
    }

    fn text(&self, verbose: bool, with_reasons: bool) -> String {
        if self.passed() && !verbose {
            return String::from("ok");
        }
        let mut text = String::new();
        for CheckOutcome { name, verdict } in &self.outcomes {
            let _ = match verdict {
                Verdict::Warned(warning) if with_reasons => {
                    writeln!(text, "[+]{name} ok: {warning}")
                }
                Verdict::Passed | Verdict::Warned(_) => writeln!(text, "[+]{name} ok"),
                Verdict::Excluded => writeln!(text, "[+]{name} excluded: ok"),
                failed => writeln!(
                    text,
                    "[-]{name} failed: {}",
                    failed
                        .reason()
                        .filter(|_| with_reasons)
                        .unwrap_or("reason withheld")
                ),
            };
        }
        if !self.unknown_excludes.is_empty() {
            let names: Vec<String> = self
                .unknown_excludes
                .iter()
                .map(|name| format!("{name:?}"))
                .collect();
            let _ = writeln!(
                text,
                "warn: some health checks cannot be excluded: no matches for {}",
                names.join(",")
            );
        }
        let verdict = if self.passed() { "passed" } else { "failed" };
        let _ = writeln!(text, "{} check {verdict}", self.probe.name());
        text
    }
}

impl Verdict {
    pub(super) fn from_status(status: Status, probe: Probe) -> Self {
        match status {
            Status::Ok => Self::Passed,
            Status::Warning(warning) => Self::Warned(one_line(&warning)),
            Status::WarmingUp(_) if probe != Probe::Readyz => Self::Passed,
            Status::WarmingUp(waiting_for) => {
                Self::WarmingUp(one_line(&format!("warming up: {waiting_for}")))
            }
            Status::Failing(reason) => Self::Failed(one_line(&reason)),
        }
    }

    /// Returns the reason of a failing check.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Passed | Self::Warned(_) | Self::Excluded => None,
            Self::WarmingUp(reason) | Self::Failed(reason) => Some(reason),
        }
    }

    pub(super) fn is_warming_up(&self) -> bool {
        matches!(self, Self::WarmingUp(_))
    }
}

/// Truncates a reason and keeps it on one line.
fn one_line(reason: &str) -> String {
    let end = reason.floor_char_boundary(MAX_REASON);
    let shown = reason.get(..end).unwrap_or_default();
    let mut line: String = shown
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect();
    if end < reason.len() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_truncated_and_stay_on_one_line() {
        assert_eq!(one_line("a\nb\tc\u{1b}[31m"), "a b c [31m");
        let long = one_line(&"é".repeat(2000));
        assert_eq!(long.chars().count(), MAX_REASON / 2 + 1);
        assert!(long.ends_with('…'));
    }
}
