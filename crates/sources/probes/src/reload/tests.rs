use std::fs;

use super::*;
use crate::config::NoTargets;
use crate::outcome::{Facts, Outcome};
use crate::probe::{Completed, Executor, Job, OutcomeSink, Run};
use crate::scheduler::SchedulerOptions;

/// Every run succeeds.
struct Success;

struct NoSink;

impl Executor for Success {
    fn execute<'a>(&'a self, _job: &'a Job) -> Run<'a> {
        Box::pin(std::future::ready(Outcome {
            started: Timestamp::from_unix_millis(0),
            duration: Duration::ZERO,
            failure: None,
            phases: Vec::new(),
            facts: Facts::default(),
        }))
    }
}

impl OutcomeSink for NoSink {
    fn completed(&self, _completed: &Completed) {}
}

struct Harness {
    folder: tempfile::TempDir,
    scheduler: Arc<Scheduler>,
    reloader: Arc<Reloader>,
}

const TWO: &str = "probes: [{name: web, module: http_2xx, targets: [a, b], jitter: 0s}]";

impl Harness {
    fn new(text: &str) -> Self {
        Self::try_new(text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn try_new(text: &str) -> Result<Self, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.yaml"), text).unwrap();
        let scheduler = Arc::new(Scheduler::new(SchedulerOptions {
            clock: Clock::system(),
            executor: Arc::new(Success),
            sink: Arc::new(NoSink),
            concurrency: 10,
            history: 10,
        }));
        let options = ReloaderOptions {
            clock: Clock::system(),
            paths: vec![folder.path().to_owned()],
            variables: Variables::default(),
            builtins: vec!["http_get", "kubelet"],
            targets: Arc::new(NoTargets),
            scheduler: Arc::clone(&scheduler),
            executor: None,
            allow: Allow::default(),
        };
        let (reloader, _) = Reloader::start(options)?;
        Ok(Self {
            folder,
            scheduler,
            reloader: Arc::new(reloader),
        })
    }

    fn write(&self, text: &str) {
        fs::write(self.folder.path().join("a.yaml"), text).unwrap();
    }

    fn total(&self, target: &str) -> u64 {
        let statuses = self.scheduler.statuses();
        let status = statuses.iter().find(|status| &**status.target() == target);
        status.unwrap().statistics().total
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_is_applied_and_counters_stay() {
    let harness = Harness::new(TWO);
    assert_eq!(
        harness.scheduler.stats().targets,
        3,
        "two, and the built-in one"
    );
    assert_eq!(harness.reloader.config().unavailable().len(), 1);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(harness.reloader.reload(), ReloadResult::Unchanged);
    harness.write(&TWO.replace("[a, b]", "[a, c]"));
    let applied = Applied {
        added: 1,
        kept: 2,
        removed: 1,
    };
    assert_eq!(harness.reloader.reload(), ReloadResult::Applied(applied));
    assert_eq!((harness.total("a"), harness.total("c")), (2, 0));
    assert_eq!(harness.reloader.status().successes, 2);
}

#[tokio::test(start_paused = true)]
async fn a_bad_file_keeps_the_old_configuration_and_is_reported_once() {
    let harness = Harness::new(TWO);
    harness.write("probes: [{nam: x}]");
    for _ in 0..3 {
        harness.reloader.reload();
    }
    let status = harness.reloader.status();
    assert_eq!((status.successes, status.failures), (1, 1));
    assert!(status.error.unwrap().contains("did you mean `name`"));
    assert_eq!(harness.scheduler.stats().targets, 3);
    harness.write(TWO);
    assert!(
        matches!(harness.reloader.reload(), ReloadResult::Applied(applied) if applied.kept == 3)
    );
    assert_eq!(harness.reloader.status().error, None);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_read_keeps_the_old_configuration() {
    let harness = Harness::new(TWO);
    let file = harness.folder.path().join("a.yaml");
    fs::write(&file, b"probes: \xff").unwrap();
    assert_eq!(harness.reloader.reload(), ReloadResult::Rejected);
    assert_eq!(harness.reloader.reload(), ReloadResult::Rejected);
    assert_eq!(harness.reloader.status().failures, 1);
    harness.write(TWO);
    assert!(matches!(
        harness.reloader.reload(),
        ReloadResult::Applied(_)
    ));
}

#[tokio::test]
async fn the_first_configuration_must_be_valid() {
    assert!(Harness::try_new("probes: 1").is_err());
}

#[tokio::test(start_paused = true)]
async fn the_configuration_may_choose_the_built_in_probes() {
    let harness = Harness::new("builtin_probes: []");
    assert_eq!(harness.scheduler.stats().targets, 0);
    assert!(harness.reloader.config().unavailable().is_empty());
}

#[tokio::test(start_paused = true)]
async fn files_are_read_again_at_the_interval() {
    let harness = Harness::new(TWO);
    let running = tokio::spawn(Arc::clone(&harness.reloader).run(Duration::from_secs(10)));
    harness.write("builtin_probes: []");
    while harness.reloader.status().successes < 2 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(harness.scheduler.stats().targets, 0);
    running.abort();
}
