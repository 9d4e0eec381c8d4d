//! Compares the starts of two revisions, or of two recordings.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use kubevitals_cli::RunError;
use kubevitals_jsonl::LineStarts;
use kubevitals_model::Timestamp;
use kubevitals_transitions::stats::StartStats;
use kubevitals_transitions::stats::threshold::{Outcome, Threshold, Verdict};

use crate::Notices;
use crate::api::ApiReader;
use crate::nodes::Nodes;
use crate::report::{self, RevisionPods};
use crate::workload::{Revision, WorkloadName};

/// The starts before and after a change.
#[derive(Debug, Clone)]
pub struct DiffReport {
    pub before: DiffSide,
    pub after: DiffSide,
    pub verdicts: Vec<Verdict>,
    /// The fewest pods of a side for a verdict.
    pub min_pods: usize,
}

/// One side of a comparison.
#[derive(Debug, Clone)]
pub struct DiffSide {
    /// A revision or the name of a file.
    pub label: String,
    pub stats: StartStats,
}

/// The checks of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checks {
    pub thresholds: Vec<Threshold>,
    pub min_pods: usize,
}

impl DiffReport {
    fn new(before: DiffSide, after: DiffSide, checks: &Checks) -> Self {
        let check =
            |threshold: &Threshold| threshold.check(&before.stats, &after.stats, checks.min_pods);
        Self {
            verdicts: checks.thresholds.iter().map(check).collect(),
            before,
            after,
            min_pods: checks.min_pods,
        }
    }

    /// Whether both sides have enough pods to compare them.
    pub fn has_enough_pods(&self) -> bool {
        let sides = [&self.before, &self.after];
        let mut sides = sides.into_iter();
        sides.all(|side| side.stats.known() >= self.min_pods)
    }

    /// The outcome of all checks: the worst.
    pub fn outcome(&self) -> Option<Outcome> {
        let has = |outcome| self.verdicts.iter().any(|found| found.outcome == outcome);
        [Outcome::Beyond, Outcome::TooFew, Outcome::Within]
            .into_iter()
            .find(|outcome| has(*outcome))
    }
}

/// Compares two revisions of a workload; without names, the newest with the one before.
pub(crate) async fn revisions(
    api: &ApiReader,
    workload: &WorkloadName,
    names: Option<[&str; 2]>,
    checks: &Checks,
    now: Timestamp,
    notices: &mut dyn Notices,
) -> Result<DiffReport, RunError> {
    let mut found = report::read_workload(api, workload, None, now, notices).await?;
    let (before, after) = if let Some([before, after]) = names {
        let before = take(workload, before, &mut found)?;
        (before, take(workload, after, &mut found)?)
    } else {
        let mut newest = found.into_iter();
        let (Some(after), Some(before)) = (newest.next(), newest.next()) else {
            return Err(RunError::runtime(format!(
                "{workload} has pods of one revision at most; {RECORDED}"
            )));
        };
        (before, after)
    };
    let mut nodes = Nodes::default();
    let before = explain(api, before, now, &mut nodes, notices).await;
    let after = explain(api, after, now, &mut nodes, notices).await;
    Ok(DiffReport::new(before, after, checks))
}

fn take(
    workload: &WorkloadName,
    name: &str,
    found: &mut Vec<(Revision, RevisionPods)>,
) -> Result<(Revision, RevisionPods), RunError> {
    let mut revisions = found.iter();
    match revisions.position(|(revision, _)| revision.is_called(name)) {
        Some(at) => Ok(found.remove(at)),
        None => Err(no_pods(workload, name, found)),
    }
}

async fn explain(
    api: &ApiReader,
    (revision, pods): (Revision, RevisionPods),
    now: Timestamp,
    nodes: &mut Nodes,
    notices: &mut dyn Notices,
) -> DiffSide {
    let starts = pods.explain(api, now, nodes, notices).await;
    DiffSide {
        label: revision.to_string(),
        stats: starts.stats,
    }
}

const RECORDED: &str = "pods of an old revision are gone soon: record them with `kubevitals \
    transitions --lifecycle`, and compare two files";

fn no_pods(workload: &WorkloadName, name: &str, found: &[(Revision, RevisionPods)]) -> RunError {
    let known: Vec<String> = found
        .iter()
        .map(|(revision, _)| revision.to_string())
        .collect();
    let known = match &*known {
        [] => "no revision".to_owned(),
        known => known.join(", "),
    };
    RunError::runtime(format!(
        "{workload} has no pods of revision {name}, but of {known}; {RECORDED}"
    ))
}

/// Compares the starts in two files of JSON lines.
pub fn files(
    paths: [&Path; 2],
    namespace: Option<&str>,
    checks: &Checks,
    notices: &mut dyn Notices,
) -> Result<DiffReport, RunError> {
    let [before, after] = paths.map(|path| read_file(path, namespace, notices));
    Ok(DiffReport::new(before?, after?, checks))
}

fn read_file(
    path: &Path,
    namespace: Option<&str>,
    notices: &mut dyn Notices,
) -> Result<DiffSide, RunError> {
    let label = path.display().to_string();
    let failed = |error| RunError::runtime(format!("cannot read {label}: {error}"));
    let file = File::open(path).map_err(failed)?;
    let starts = LineStarts::read(BufReader::new(file), namespace).map_err(failed)?;
    if starts.unreadable > 0 {
        let lines = starts.unreadable;
        notices.warn(&format!("{label}: {lines} lines are no records of pods"));
    }
    if starts.left_out > 0 {
        let pods = starts.left_out;
        notices.warn(&format!("{label}: {pods} further pods are left out"));
    }
    let stats = starts.stats();
    if stats.pods == 0 {
        return Err(RunError::runtime(format!(
            "{label} has no starts; `kubevitals transitions --lifecycle` and `kubevitals replay -o \
             json --lifecycle` write them"
        )));
    }
    if starts.lacks_phases() {
        notices.warn(&format!(
            "{label} has no phases and causes: write it with --lifecycle"
        ));
    }
    Ok(DiffSide { label, stats })
}

impl Revision {
    /// Whether a user's word means this revision: its number or its hash.
    fn is_called(&self, name: &str) -> bool {
        *self.hash == *name || self.number.is_some_and(|number| number.to_string() == name)
    }
}
