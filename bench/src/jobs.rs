//! Workers side by side: contenders, each with a job for some of the tasks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::BenchError;
use crate::contender::Contender;
use crate::measure::{Plan, Values};
use crate::result::ContenderResult;
use crate::worker::{self, WorkerRun};
use crate::worker_bench::Input;

/// A contender and its jobs.
#[derive(Debug, Clone)]
pub struct Implementation {
    /// Name in the table.
    pub name: String,
    /// At most one per task.
    pub jobs: Vec<Job>,
}

/// A worker for one task.
#[derive(Debug, Clone)]
pub struct Job {
    /// Name of the task, equal for all implementations.
    pub task: &'static str,
    pub worker: Contender,
    /// Divisor of the values of a pass, such as its bytes or its pods.
    pub units: f64,
}

/// Starts workers of one program.
#[derive(Debug, Clone)]
pub struct Workers {
    program: PathBuf,
    subcommand: Option<&'static str>,
    input: PathBuf,
    units: f64,
    scale: u32,
    log: PathBuf,
}

/// Measures all implementations in turns, their jobs one after the other.
///
/// For each task the values are `TASK.cpu` and `TASK.pass` (processor and wall-clock seconds per
/// unit), `TASK.speed` (units per wall-clock second), `TASK.peak` (bytes of the whole process) and,
/// if the worker measures it, `TASK.kept` (heap bytes per unit). All implementations must find the
/// same number of items in a task.
pub async fn measure(
    implementations: &[Implementation],
    plan: Plan,
) -> Result<Vec<ContenderResult>, BenchError> {
    let found = RefCell::new(BTreeMap::new());
    let measured = plan
        .run(implementations.len(), async |index, _| {
            let mut values = Values::new();
            let Some(implementation) = implementations.get(index) else {
                return Ok(values);
            };
            for job in &implementation.jobs {
                let worked = worker::run(&job.worker).await?;
                same_work(
                    &mut found.borrow_mut(),
                    implementation,
                    job.task,
                    worked.result.items,
                )?;
                values.extend(values_of(job, &worked));
            }
            Ok(values)
        })
        .await?;
    let named = implementations
        .iter()
        .zip(measured)
        .map(|(implementation, repeats)| ContenderResult {
            name: implementation.name.clone(),
            repeats,
        });
    Ok(named.collect())
}

impl Workers {
    /// Workers of this program, called with `worker MODE PASSES INPUT`. All passes are multiplied
    /// by `scale`.
    pub fn of_this_program(input: &Input, scale: u32, scratch: &Path) -> Result<Self, BenchError> {
        let program =
            std::env::current_exe().map_err(BenchError::file("locate", "this program"))?;
        Ok(Self {
            program,
            subcommand: Some("worker"),
            input: input.path.clone(),
            units: input.units,
            scale,
            log: scratch.join("workers.log"),
        })
    }

    /// Workers of another program with the same input, called with `MODE PASSES INPUT`.
    #[must_use]
    pub fn of_program(&self, program: PathBuf) -> Self {
        Self {
            program,
            subcommand: None,
            ..self.clone()
        }
    }

    /// A job for this program.
    pub fn job(&self, task: &'static str, mode: &str, passes: u32) -> Job {
        let mut arguments: Vec<String> = self.subcommand.map(str::to_owned).into_iter().collect();
        arguments.extend([
            mode.to_owned(),
            (passes * self.scale).to_string(),
            self.input.display().to_string(),
        ]);
        Job {
            task,
            worker: Contender {
                name: format!("{task} of {}", self.program.display()),
                program: self.program.clone(),
                arguments,
                environment: Vec::new(),
                log: self.log.clone(),
            },
            units: self.units,
        }
    }
}

impl Implementation {
    pub fn new(name: &str, jobs: Vec<Job>) -> Self {
        Self {
            name: name.to_owned(),
            jobs,
        }
    }
}

fn values_of(job: &Job, worked: &WorkerRun) -> Values {
    let WorkerRun { result, usage } = worked;
    let all = job.units * f64::from(result.passes);
    let key = |name: &str| format!("{}.{name}", job.task);
    let mut values = Values::from([
        (key("cpu"), usage.cpu.as_secs_f64() / all),
        (key("pass"), result.median_seconds / job.units),
        (key("speed"), job.units / result.median_seconds),
    ]);
    #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
    {
        values.insert(key("peak"), usage.peak as f64);
        values.extend(
            result
                .kept_bytes
                .map(|kept| (key("kept"), kept as f64 / job.units)),
        );
    }
    values
}

fn same_work(
    found: &mut BTreeMap<&'static str, (String, u64)>,
    implementation: &Implementation,
    task: &'static str,
    items: u64,
) -> Result<(), BenchError> {
    let (reference, expected) = found
        .entry(task)
        .or_insert_with(|| (implementation.name.clone(), items));
    if *expected == items {
        return Ok(());
    }
    Err(BenchError::DifferentWork {
        name: implementation.name.clone(),
        found: items,
        reference: reference.clone(),
        expected: *expected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Schedule;

    fn implementation(name: &str, items: u64, folder: &Path) -> Implementation {
        let result = format!(
            r#"{{"passes":2,"best_seconds":0.1,"median_seconds":0.5,"items":{items},"kept_bytes":300}}"#
        );
        let script = format!("echo ready; read go; echo '{result}'; read end; exit 0");
        let worker = Contender {
            name: name.to_owned(),
            program: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), script],
            environment: Vec::new(),
            log: folder.join("log"),
        };
        Implementation {
            name: name.to_owned(),
            jobs: vec![Job {
                task: "parse",
                worker,
                units: 10.0,
            }],
        }
    }

    const PLAN: Plan = Plan {
        schedule: Schedule::OneAfterOther,
        repeats: 1,
    };

    #[tokio::test]
    async fn values_are_per_unit() {
        let folder = tempfile::tempdir().unwrap();
        let measured = measure(&[implementation("a", 7, folder.path())], PLAN)
            .await
            .unwrap();
        let values = &measured[0].repeats[0].values;
        let close = |key: &str, expected: f64| (values[key] - expected).abs() < 1e-9;
        assert!(
            close("parse.pass", 0.05) && close("parse.speed", 20.0) && close("parse.kept", 30.0)
        );
        assert!(values["parse.peak"] > 0.0 && values.contains_key("parse.cpu"));
    }

    #[tokio::test]
    async fn contenders_that_find_different_items_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let implementations = [
            implementation("a", 7, folder.path()),
            implementation("b", 8, folder.path()),
        ];
        let error = measure(&implementations, PLAN).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "b found 8 where a found 7: they did not do the same work"
        );
    }
}
