//! Benchmarks that are made of workers: contenders side by side, each with a job for some of the
//! tasks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::BenchError;
use crate::contender::Contender;
use crate::measure::{Plan, Values};
use crate::result::Measured;
use crate::worker::{self, Worked};

/// A contender and what it does.
#[derive(Debug, Clone)]
pub struct Side {
    /// What the table calls it.
    pub name: String,
    /// At most one for each task.
    pub jobs: Vec<Job>,
}

/// A worker for one task.
#[derive(Debug, Clone)]
pub struct Job {
    /// The task, which all sides call the same.
    pub task: &'static str,
    /// The program that does it.
    pub worker: Contender,
    /// What one pass is divided by, such as its bytes or its pods.
    pub units: f64,
}

/// How workers of this program and of others are started.
#[derive(Debug, Clone)]
pub struct Workers {
    program: PathBuf,
    input: PathBuf,
    log: PathBuf,
}

/// Measures all sides in turns, their jobs one after the other.
///
/// For each task the values are `TASK.cpu` and `TASK.pass` (seconds of processor and of the clock
/// for one unit), `TASK.speed` (units per second of the clock), `TASK.peak` (bytes of the whole
/// process) and, where it was asked for, `TASK.kept` (bytes of the heap for one unit). All sides
/// must find the same in one task.
pub async fn measure(sides: &[Side], plan: Plan) -> Result<Vec<Measured>, BenchError> {
    let found = RefCell::new(BTreeMap::new());
    let measured = plan
        .run(sides.len(), async |index, _| {
            let mut values = Values::new();
            let Some(side) = sides.get(index) else {
                return Ok(values);
            };
            for job in &side.jobs {
                let worked = worker::run(&job.worker).await?;
                same_work(&mut found.borrow_mut(), side, job.task, worked.answer.items)?;
                values.extend(values_of(job, &worked));
            }
            Ok(values)
        })
        .await?;
    let named = sides.iter().zip(measured).map(|(side, repeats)| Measured {
        name: side.name.clone(),
        repeats,
    });
    Ok(named.collect())
}

impl Workers {
    /// Workers that are this very program, called with `worker MODE PASSES INPUT`.
    pub fn of_this_program(input: &Path, scratch: &Path) -> Result<Self, BenchError> {
        let program = std::env::current_exe().map_err(BenchError::file("find", "this program"))?;
        Ok(Self {
            program,
            input: input.to_owned(),
            log: scratch.join("workers.log"),
        })
    }

    /// A job for this program.
    pub fn job(&self, task: &'static str, mode: &str, passes: u32, units: f64) -> Job {
        let words = ["worker".to_owned(), mode.to_owned(), passes.to_string()];
        self.start(&self.program, words.to_vec(), task, units)
    }

    /// A job for another program, called with `MODE PASSES INPUT`.
    pub fn job_of(
        &self,
        program: &Path,
        task: &'static str,
        mode: &str,
        passes: u32,
        units: f64,
    ) -> Job {
        self.start(
            program,
            vec![mode.to_owned(), passes.to_string()],
            task,
            units,
        )
    }

    fn start(
        &self,
        program: &Path,
        mut arguments: Vec<String>,
        task: &'static str,
        units: f64,
    ) -> Job {
        arguments.push(self.input.display().to_string());
        Job {
            task,
            worker: Contender {
                name: format!("{task} of {}", program.display()),
                program: program.to_owned(),
                arguments,
                environment: Vec::new(),
                log: self.log.clone(),
            },
            units,
        }
    }
}

fn values_of(job: &Job, worked: &Worked) -> Values {
    let Worked { answer, usage } = worked;
    let all = job.units * f64::from(answer.passes);
    let key = |name: &str| format!("{}.{name}", job.task);
    let mut values = Values::from([
        (key("cpu"), usage.cpu.as_secs_f64() / all),
        (key("pass"), answer.median_seconds / job.units),
        (key("speed"), job.units / answer.median_seconds),
    ]);
    #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
    {
        values.insert(key("peak"), usage.peak as f64);
        values.extend(
            answer
                .kept_bytes
                .map(|kept| (key("kept"), kept as f64 / job.units)),
        );
    }
    values
}

fn same_work(
    found: &mut BTreeMap<&'static str, (String, u64)>,
    side: &Side,
    task: &'static str,
    items: u64,
) -> Result<(), BenchError> {
    let (reference, expected) = found
        .entry(task)
        .or_insert_with(|| (side.name.clone(), items));
    if *expected == items {
        return Ok(());
    }
    Err(BenchError::DifferentWork {
        name: side.name.clone(),
        found: items,
        reference: reference.clone(),
        expected: *expected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Schedule;

    fn side(name: &str, items: u64, folder: &Path) -> Side {
        let answer = format!(
            r#"{{"passes":2,"best_seconds":0.1,"median_seconds":0.5,"items":{items},"kept_bytes":300}}"#
        );
        let script = format!("echo ready; read go; echo '{answer}'; read end; exit 0");
        let worker = Contender {
            name: name.to_owned(),
            program: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), script],
            environment: Vec::new(),
            log: folder.join("log"),
        };
        Side {
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
    async fn figures_are_for_one_unit() {
        let folder = tempfile::tempdir().unwrap();
        let measured = measure(&[side("a", 7, folder.path())], PLAN).await.unwrap();
        let values = &measured[0].repeats[0].values;
        let close = |key: &str, expected: f64| (values[key] - expected).abs() < 1e-9;
        assert!(
            close("parse.pass", 0.05) && close("parse.speed", 20.0) && close("parse.kept", 30.0)
        );
        assert!(values["parse.peak"] > 0.0 && values.contains_key("parse.cpu"));
    }

    #[tokio::test]
    async fn who_finds_something_else_did_not_do_the_same_work() {
        let folder = tempfile::tempdir().unwrap();
        let sides = [side("a", 7, folder.path()), side("b", 8, folder.path())];
        let error = measure(&sides, PLAN).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "b found 8 where a found 7: they did not do the same work"
        );
    }
}
