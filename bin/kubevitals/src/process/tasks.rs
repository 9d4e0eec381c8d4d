//! The supervised tasks of the process.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use kubevitals_cli::{RunError, Shutdown};
use kubevitals_telemetry::{Health, HealthCell, Probe, panic_message};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The health check that names the task that failed.
const CHECK: &str = "tasks";

/// Tasks that must run until shutdown. Clones share them.
///
/// A task that panics or returns earlier leaves a process that looks healthy and serves old data.
/// So its name goes to `/livez`, and [`TaskSet::failed`] ends the process.
#[derive(Clone)]
pub struct TaskSet {
    tasks: Arc<Mutex<JoinSet<()>>>,
    shutdown: Shutdown,
    failure: watch::Sender<Option<TaskFailure>>,
    check: HealthCell,
}

/// A task that ended before shutdown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskFailure {
    name: &'static str,
    /// The message of the panic; `None` if the task returned.
    panic: Option<String>,
}

impl TaskSet {
    /// An empty set, with its health check registered.
    pub(crate) fn new(health: &Health, shutdown: Shutdown) -> Result<Self, RunError> {
        let check = health
            .failure_cell(CHECK, Probe::LIVENESS)
            .map_err(RunError::runtime)?;
        Ok(Self {
            tasks: Arc::default(),
            shutdown,
            failure: watch::Sender::new(None),
            check,
        })
    }

    /// Runs `task` on the current runtime until it ends or [`TaskSet::shutdown`] aborts it.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let set = self.clone();
        self.tasks.lock().spawn(async move {
            let panic = AssertUnwindSafe(task).catch_unwind().await.err();
            if panic.is_some() || !set.shutdown.is_requested() {
                set.fail(TaskFailure {
                    name,
                    panic: panic.map(|panic| panic_message(&*panic).to_owned()),
                });
            }
        });
    }

    /// Waits until a task fails.
    pub async fn failed(&self) -> TaskFailure {
        let mut failure = self.failure.subscribe();
        let reported = failure.wait_for(Option::is_some).await;
        let reported = reported.ok().and_then(|failure| failure.clone());
        match reported {
            Some(failure) => failure,
            // The sender is in `self`: it is not dropped meanwhile.
            None => std::future::pending().await,
        }
    }

    /// Aborts the tasks that still run, and waits until they are gone.
    pub async fn shutdown(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.shutdown().await;
    }

    /// The first failure is the one that is reported: others follow from it.
    fn fail(&self, failure: TaskFailure) {
        tracing::error!(task = failure.name, panic = failure.panic, "task failed");
        self.failure.send_if_modified(|reported| {
            if reported.is_some() {
                return false;
            }
            self.check.set_failing(failure.to_string());
            *reported = Some(failure);
            true
        });
    }
}

impl fmt::Debug for TaskSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskSet")
            .field("failure", &*self.failure.borrow())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for TaskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.panic {
            Some(message) => write!(f, "task {} panicked: {message}", self.name),
            None => write!(f, "task {} ended unexpectedly", self.name),
        }
    }
}

impl std::error::Error for TaskFailure {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kubevitals_cli::{ShutdownTrigger, shutdown_channel};

    use super::*;

    fn tasks() -> (TaskSet, Health, ShutdownTrigger) {
        let (trigger, shutdown) = shutdown_channel();
        let health = Health::new();
        let tasks = TaskSet::new(&health, shutdown).unwrap();
        (tasks, health, trigger)
    }

    impl TaskSet {
        /// The failure of a task, which must come.
        pub(crate) async fn expect_failure(&self) -> TaskFailure {
            let limit = Duration::from_mins(1);
            let failed = tokio::time::timeout(limit, self.failed()).await;
            failed.unwrap_or_else(|_| panic!("no task has failed within {limit:?}"))
        }
    }

    fn livez(health: &Health) -> String {
        health.report(Probe::Livez, &[]).body(true)
    }

    #[tokio::test]
    async fn a_task_that_panics_fails_livez_with_its_name() {
        let (tasks, health, _trigger) = tasks();
        tasks.spawn("follow-pods", async { panic!("slot {} is gone", 7) });
        let failure = tasks.expect_failure().await;
        assert_eq!(
            failure.to_string(),
            "task follow-pods panicked: slot 7 is gone"
        );
        assert!(livez(&health).contains("task follow-pods panicked"));
    }

    #[tokio::test]
    async fn a_task_that_returns_before_shutdown_has_failed() {
        let (tasks, health, _trigger) = tasks();
        tasks.spawn("expire", async {});
        let failure = tasks.expect_failure().await;
        assert_eq!(failure.to_string(), "task expire ended unexpectedly");
        assert!(livez(&health).contains("task expire ended unexpectedly"));
    }

    #[tokio::test]
    async fn a_task_may_end_once_shutdown_is_requested() {
        let (tasks, health, trigger) = tasks();
        let (ended, was_ended) = tokio::sync::oneshot::channel();
        let mut shutdown = tasks.shutdown.clone();
        tasks.spawn("refresh", async move {
            shutdown.requested().await;
            let _ = ended.send(());
        });
        trigger.trigger();
        let ended = tokio::time::timeout(Duration::from_mins(1), was_ended).await;
        ended.expect("the task sees the shutdown").unwrap();
        tasks.shutdown().await;
        assert!(tasks.failed().now_or_never().is_none());
        // Metrics-server has no such check, and its tests compare the whole report.
        assert!(!livez(&health).contains("tasks"), "{}", livez(&health));
    }

    #[tokio::test]
    async fn the_first_failure_is_reported() {
        let (tasks, _health, _trigger) = tasks();
        tasks.spawn("first", async { panic!("cause") });
        tasks.expect_failure().await;
        tasks.spawn("second", async {});
        tasks.shutdown().await;
        assert_eq!(tasks.expect_failure().await.name, "first");
    }
}
