//! A report that is saved after every measurement, so that a long run can be interrupted and
//! resumed.

use std::path::{Path, PathBuf};

use futures_util::future::try_join_all;

use crate::BenchError;
use crate::measure::{Plan, Repeat, Turn, Values, calibrate};
use crate::result::Report;
use crate::session::print_line;

/// A plan, its results so far, and the file in which they are saved.
#[derive(Debug)]
pub struct Campaign {
    plan: Plan,
    path: PathBuf,
    report: Report,
}

impl Campaign {
    /// Starts with a report that has contenders and no repeats yet.
    pub fn new(plan: Plan, report: Report, folder: &Path, name: &str) -> Self {
        Self {
            plan,
            path: folder.join(format!("{name}.json")),
            report,
        }
    }

    /// Loads the measurements that an earlier run left in the file, if they were made with the same
    /// programs and parameters on the same machine; others are not comparable, and are measured
    /// again.
    #[must_use]
    pub fn resumed(mut self) -> Self {
        let Some(earlier) = self.earlier() else {
            return self;
        };
        if !is_same(&self.report, &earlier) {
            let path = self.path.display();
            print_line(&format!(
                "{path} has other programs, parameters or another machine: measuring again"
            ));
            return self;
        }
        self.report = earlier;
        self
    }

    /// The results so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the turns that remain; a partial turn has only the missing contenders.
    pub fn remaining(&self) -> Vec<Turn> {
        let made = |contender: usize| {
            let measured = self.report.contenders.get(contender);
            measured.map_or(0, |measured| measured.repeats.len())
        };
        let mut turns = self.plan.turns(self.report.contenders.len());
        for turn in &mut turns {
            let repeat = turn.repeat;
            turn.contenders.retain(|one| made(*one) <= repeat);
        }
        turns.retain(|turn| !turn.contenders.is_empty());
        turns
    }

    /// Runs the remaining turns, `max_turns` of them, and saves each. `measure` gets the
    /// contender's index and the repeat.
    pub async fn run(
        &mut self,
        max_turns: usize,
        measure: impl AsyncFn(usize, usize) -> Result<Values, BenchError>,
    ) -> Result<(), BenchError> {
        for turn in self.remaining().into_iter().take(max_turns) {
            let calibration_before = calibrate();
            let together = turn.contenders.iter().map(|one| measure(*one, turn.repeat));
            let measured = try_join_all(together).await?;
            let calibration_after = calibrate();
            for (contender, values) in turn.contenders.into_iter().zip(measured) {
                if let Some(measured) = self.report.contenders.get_mut(contender) {
                    measured.repeats.push(Repeat {
                        values,
                        calibration_before,
                        calibration_after,
                    });
                }
            }
            self.save()?;
        }
        Ok(())
    }

    fn save(&self) -> Result<(), BenchError> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let name = self.path.file_stem().unwrap_or_default().to_string_lossy();
        self.report.write(folder, &name)?;
        Ok(())
    }

    fn earlier(&self) -> Option<Report> {
        let text = std::fs::read(&self.path).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

fn is_same(ours: &Report, earlier: &Report) -> bool {
    let names = |report: &Report| {
        let contenders = report.contenders.iter();
        contenders.map(|one| one.name.clone()).collect::<Vec<_>>()
    };
    ours.bench == earlier.bench
        && ours.machine == earlier.machine
        && ours.versions == earlier.versions
        && ours.parameters == earlier.parameters
        && ours.metrics == earlier.metrics
        && ours.schedule == earlier.schedule
        && names(ours) == names(earlier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Schedule;
    use crate::result::tests::report;

    fn plan(repeats: usize) -> Plan {
        Plan {
            schedule: Schedule::OneAfterOther,
            repeats,
        }
    }

    fn empty() -> Report {
        let mut report = report();
        report
            .contenders
            .iter_mut()
            .for_each(|one| one.repeats.clear());
        report
    }

    async fn one(contender: usize, repeat: usize) -> Result<Values, BenchError> {
        let value = [10.0, 20.0][contender] + [0.0, 1.0, 2.0][repeat];
        Ok(Values::from([("cpu".to_owned(), value)]))
    }

    fn values(campaign: &Campaign) -> Vec<Vec<f64>> {
        let of = |repeats: &[Repeat]| repeats.iter().map(|one| one.values["cpu"]).collect();
        let contenders = campaign.report().contenders.iter();
        contenders.map(|one| of(&one.repeats)).collect()
    }

    #[tokio::test]
    async fn an_interrupted_run_is_resumed() {
        let folder = tempfile::tempdir().unwrap();
        let begin = || Campaign::new(plan(2), empty(), folder.path(), "server");
        begin().run(3, one).await.unwrap();
        let mut again = begin().resumed();
        assert_eq!(values(&again), [vec![10.0, 11.0], vec![20.0]]);
        again.run(usize::MAX, one).await.unwrap();
        assert_eq!(values(&again), [[10.0, 11.0], [20.0, 21.0]]);
        assert!(begin().resumed().remaining().is_empty());
    }

    #[tokio::test]
    async fn repeats_can_be_added_later() {
        let folder = tempfile::tempdir().unwrap();
        let begin = |repeats| Campaign::new(plan(repeats), empty(), folder.path(), "server");
        begin(1).run(usize::MAX, one).await.unwrap();
        let mut more = begin(3).resumed();
        more.run(usize::MAX, one).await.unwrap();
        assert_eq!(values(&more), [[10.0, 11.0, 12.0], [20.0, 21.0, 22.0]]);
    }

    #[tokio::test]
    async fn results_of_another_program_are_not_reused() {
        let folder = tempfile::tempdir().unwrap();
        let begin = |report| Campaign::new(plan(1), report, folder.path(), "server");
        begin(empty()).run(usize::MAX, one).await.unwrap();
        let mut other = empty();
        other
            .versions
            .insert("peer".to_owned(), "v0.9.1".to_owned());
        assert_eq!(begin(other).resumed().remaining().len(), 2);
    }
}
