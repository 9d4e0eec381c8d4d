use std::collections::HashMap;
use std::future::pending;

use kubevitals_model::Timestamp;
use tokio::time::Instant;

use super::*;
use crate::outcome::{Facts, Failure, Outcome, Reason};
use crate::probe::{Completed, ProbeInfo, Run, Threshold};
use crate::state::Verdict;
use crate::{Module, Prober, Target};

const INTERVAL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(5);
const GRACE: Duration = Duration::from_secs(10);

/// What a target does.
#[derive(Debug, Clone, Copy)]
enum Behaviour {
    Succeed(Duration),
    Refuse,
    Hang,
    Panic,
}

/// Answers in memory, and notes the starts.
#[derive(Default)]
struct Memory {
    targets: Mutex<HashMap<String, Behaviour>>,
    starts: Mutex<Vec<(String, Instant)>>,
    /// Runs in progress, and the most there ever were.
    running: Mutex<(usize, usize)>,
}

/// Notes what it is told.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

struct Running<'a>(&'a Memory);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.lock().0 -= 1;
    }
}

impl Executor for Memory {
    fn execute<'a>(&'a self, job: &'a Job) -> Run<'a> {
        Box::pin(async move {
            let begin = Instant::now();
            self.starts
                .lock()
                .push((job.target.as_str().to_owned(), begin));
            {
                let mut running = self.running.lock();
                running.0 += 1;
                running.1 = running.1.max(running.0);
            }
            let _running = Running(self);
            let behaviour = self.targets.lock()[job.target.as_str()];
            let reason = match behaviour {
                Behaviour::Succeed(after) => {
                    tokio::time::sleep(after).await;
                    None
                }
                Behaviour::Refuse => Some(Reason::ConnectRefused),
                Behaviour::Hang => pending().await,
                Behaviour::Panic => panic!("as the test wants"),
            };
            Outcome {
                started: Timestamp::from_unix_millis(0),
                duration: begin.elapsed(),
                failure: reason.map(|reason| Failure {
                    reason,
                    phase: None,
                    message: "x".repeat(5_000),
                }),
                phases: Vec::new(),
                facts: Facts::default(),
            }
        })
    }
}

impl OutcomeSink for Notes {
    fn completed(&self, completed: &Completed) {
        let result = completed
            .outcome
            .failure
            .as_ref()
            .map_or("ok", |failure| failure.reason.as_str());
        self.0.lock().push(format!("{} {result}", completed.target));
    }

    fn removed(&self, _probe: &ProbeInfo, target: &str) {
        self.0.lock().push(format!("{target} removed"));
    }
}

struct Harness {
    memory: Arc<Memory>,
    notes: Arc<Notes>,
    scheduler: Scheduler,
}

impl Harness {
    fn new(concurrency: usize, targets: &[(&str, Behaviour)]) -> Self {
        let memory = Arc::new(Memory::default());
        for (target, behaviour) in targets {
            memory
                .targets
                .lock()
                .insert((*target).to_owned(), *behaviour);
        }
        let notes = Arc::new(Notes::default());
        let scheduler = Scheduler::new(SchedulerOptions {
            clock: Clock::system(),
            executor: Arc::clone(&memory) as Arc<dyn Executor>,
            sink: Arc::clone(&notes) as Arc<dyn OutcomeSink>,
            concurrency,
            history: 10,
        });
        Self {
            memory,
            notes,
            scheduler,
        }
    }

    fn set(&self, target: &str, behaviour: Behaviour) {
        self.memory
            .targets
            .lock()
            .insert(target.to_owned(), behaviour);
    }

    fn starts(&self, target: &str) -> Vec<Instant> {
        let starts = self.memory.starts.lock();
        let own = starts.iter().filter(|(name, _)| name == target);
        own.map(|(_, at)| *at).collect()
    }

    fn status(&self, target: &str) -> Arc<TargetStatus> {
        let statuses = self.scheduler.statuses();
        let found = statuses.into_iter().find(|s| &**s.target() == target);
        found.unwrap()
    }
}

fn job(probe: &str, target: &str, interval: Duration) -> Job {
    // It takes any text as its target.
    let prober = Prober::Exec(Box::default());
    Job {
        probe: Arc::new(ProbeInfo {
            name: probe.into(),
            module: "tcp_connect".into(),
            kind: "tcp",
            labels: Vec::new(),
            interval,
            jitter: Duration::ZERO,
            timeout: TIMEOUT,
            threshold: Threshold {
                failures: 2,
                successes: 1,
            },
        }),
        target: Target::parse(target, &prober).unwrap(),
        module: Arc::new(Module {
            timeout: TIMEOUT,
            prober,
        }),
    }
}

fn jobs(targets: &[&str]) -> Vec<Job> {
    let of = |target: &&str| job("probe", target, INTERVAL);
    targets.iter().map(of).collect()
}

const QUICK: Behaviour = Behaviour::Succeed(Duration::from_millis(1));

#[tokio::test(start_paused = true)]
async fn every_target_runs_once_in_an_interval() {
    let harness = Harness::new(10, &[("a", QUICK), ("b", QUICK)]);
    harness.scheduler.apply(jobs(&["a", "b"]));
    tokio::time::sleep(10 * INTERVAL).await;
    for target in ["a", "b"] {
        let starts = harness.starts(target);
        assert_eq!(starts.len(), 10, "{target}");
        assert!(starts.windows(2).all(|pair| {
            let apart = pair[1] - pair[0];
            apart.abs_diff(INTERVAL) < Duration::from_millis(5)
        }));
    }
    assert_ne!(harness.starts("a")[0], harness.starts("b")[0]);
    let stats = harness.scheduler.stats();
    assert_eq!((stats.targets, stats.started, stats.missed), (2, 20, 0));
    assert_eq!(harness.status("a").statistics().verdict, Verdict::Up);
}

#[tokio::test(start_paused = true)]
async fn a_hung_target_blocks_no_other_and_times_out() {
    let harness = Harness::new(10, &[("hung", Behaviour::Hang), ("ok", QUICK)]);
    harness.scheduler.apply(jobs(&["hung", "ok"]));
    tokio::time::sleep(4 * INTERVAL).await;
    assert_eq!(harness.starts("ok").len(), 4);
    let hung = harness.status("hung").statistics();
    assert!(hung.total >= 3 && hung.total == hung.timeout, "{hung:?}");
    assert_eq!(hung.verdict, Verdict::Down);
    assert_eq!(harness.scheduler.stats().missed, 0);
}

#[tokio::test(start_paused = true)]
async fn the_limit_holds_and_the_wait_for_a_place_is_measured() {
    let slow = Behaviour::Succeed(Duration::from_secs(4));
    let targets: Vec<String> = (0..20).map(|n| format!("t{n}")).collect();
    let behaviours: Vec<_> = targets.iter().map(|t| (t.as_str(), slow)).collect();
    let harness = Harness::new(2, &behaviours);
    harness
        .scheduler
        .apply(targets.iter().map(|t| job("probe", t, INTERVAL)).collect());
    tokio::time::sleep(20 * INTERVAL).await;
    assert_eq!(harness.memory.running.lock().1, 2);
    let stats = harness.scheduler.stats();
    assert!(stats.lag.sum() > Duration::from_secs(10), "{stats:?}");
    assert!(stats.missed > 0, "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn ticks_during_a_run_are_missed_and_counted() {
    let harness = Harness::new(10, &[("slow", Behaviour::Succeed(Duration::from_secs(4)))]);
    let mut slow = jobs(&["slow"]);
    let mut probe = (*slow[0].probe).clone();
    probe.interval = Duration::from_secs(1);
    slow[0].probe = Arc::new(probe);
    harness.scheduler.apply(slow);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let statistics = harness.status("slow").statistics();
    assert!((4..=5).contains(&statistics.total), "{statistics:?}");
    assert!(statistics.missed >= 3 * statistics.total, "{statistics:?}");
    assert_eq!(statistics.missed, harness.scheduler.stats().missed);
}

#[tokio::test(start_paused = true)]
async fn a_change_keeps_tasks_and_counters_of_what_stays() {
    let harness = Harness::new(10, &[("a", QUICK), ("b", QUICK), ("c", QUICK)]);
    let applied = harness.scheduler.apply(jobs(&["a", "b", "b"]));
    assert_eq!((applied.added, applied.kept, applied.removed), (2, 0, 0));
    tokio::time::sleep(2 * INTERVAL).await;
    let ticks = harness.starts("a");
    let applied = harness.scheduler.apply(jobs(&["a", "c"]));
    assert_eq!((applied.added, applied.kept, applied.removed), (1, 1, 1));
    tokio::time::sleep(2 * INTERVAL).await;
    assert_eq!(harness.status("a").statistics().total, 4);
    let apart = harness.starts("a")[2] - ticks[1];
    assert!(apart.abs_diff(INTERVAL) < Duration::from_millis(5));
    assert_eq!(harness.status("c").statistics().total, 2);
    let notes = harness.notes.0.lock().clone();
    let of_b: Vec<_> = notes.iter().filter(|note| note.starts_with('b')).collect();
    assert_eq!(of_b, ["b ok", "b ok", "b removed"]);
}

#[tokio::test(start_paused = true)]
async fn the_run_of_a_removed_target_is_dropped() {
    let harness = Harness::new(10, &[("a", Behaviour::Hang)]);
    harness.scheduler.apply(jobs(&["a"]));
    while harness.starts("a").is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(harness.scheduler.stats().in_flight, 1);
    harness.scheduler.apply(Vec::new());
    tokio::task::yield_now().await;
    assert_eq!(harness.memory.running.lock().0, 0);
    assert_eq!(harness.scheduler.stats().in_flight, 0);
    assert_eq!(*harness.notes.0.lock(), ["a removed"]);
}

#[tokio::test(start_paused = true)]
async fn a_new_interval_holds_from_the_next_run_on() {
    let harness = Harness::new(10, &[("a", QUICK)]);
    harness.scheduler.apply(jobs(&["a"]));
    tokio::time::sleep(2 * INTERVAL).await;
    let second = Duration::from_secs(1);
    harness.scheduler.apply(vec![job("probe", "a", second)]);
    tokio::time::sleep(10 * second).await;
    assert_eq!(harness.status("a").statistics().total, 12);
    assert_eq!(harness.status("a").probe().interval, second);
}

/// The change was lost when it came while the task waited for a place.
#[tokio::test(start_paused = true)]
async fn a_new_interval_that_comes_while_a_run_waits_for_its_place_holds_too() {
    let harness = Harness::new(1, &[("hung", Behaviour::Hang), ("a", QUICK)]);
    harness.scheduler.apply(jobs(&["hung"]));
    while harness.starts("hung").is_empty() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let second = Duration::from_secs(1);
    let hung = || job("probe", "hung", 10 * INTERVAL);
    harness
        .scheduler
        .apply(vec![hung(), job("probe", "a", second)]);
    // The first tick of `a` passes, and the only place is taken.
    tokio::time::sleep(2 * second).await;
    assert!(harness.starts("a").is_empty());
    harness
        .scheduler
        .apply(vec![hung(), job("probe", "a", 10 * second)]);
    tokio::time::sleep(TIMEOUT).await;
    let first = harness.starts("a")[0];
    tokio::time::sleep(21 * second).await;
    let after: Vec<_> = harness.starts("a").iter().map(|at| *at - first).collect();
    assert!((2..=4).contains(&after.len()), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_of_its_run_alone() {
    let harness = Harness::new(10, &[("a", Behaviour::Panic)]);
    harness.scheduler.apply(jobs(&["a"]));
    tokio::time::sleep(INTERVAL).await;
    harness.set("a", QUICK);
    tokio::time::sleep(INTERVAL).await;
    assert_eq!(*harness.notes.0.lock(), ["a internal", "a ok"]);
    assert_eq!(harness.scheduler.stats().panics, 1);
    assert_eq!(harness.scheduler.stats().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_runs_in_progress_and_starts_no_more() {
    let slow = Behaviour::Succeed(Duration::from_secs(4));
    let harness = Harness::new(10, &[("a", slow)]);
    harness.scheduler.apply(jobs(&["a"]));
    while harness.starts("a").is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(
        harness.scheduler.shutdown(GRACE).await,
        Drained { abandoned: 0 }
    );
    assert_eq!(*harness.notes.0.lock(), ["a ok"]);
    tokio::time::sleep(3 * INTERVAL).await;
    assert_eq!(harness.starts("a").len(), 1);
    assert_eq!(harness.scheduler.apply(jobs(&["a"])), Applied::default());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_what_remains_after_the_grace_period() {
    let harness = Harness::new(10, &[("a", Behaviour::Hang), ("b", QUICK)]);
    harness.scheduler.apply(jobs(&["a", "b"]));
    while harness.starts("a").is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let begin = Instant::now();
    let grace = Duration::from_secs(1);
    assert_eq!(
        harness.scheduler.shutdown(grace).await,
        Drained { abandoned: 1 }
    );
    assert!(begin.elapsed() < 2 * grace);
    assert_eq!(harness.memory.running.lock().0, 0);
}

#[tokio::test(start_paused = true)]
async fn the_last_results_are_kept_and_older_failures_too() {
    let harness = Harness::new(10, &[("bad", Behaviour::Refuse), ("ok", QUICK)]);
    harness.scheduler.apply(jobs(&["bad"]));
    tokio::time::sleep(2 * INTERVAL).await;
    harness.scheduler.apply(jobs(&["ok"]));
    tokio::time::sleep(20 * INTERVAL).await;
    let history = harness.scheduler.history();
    let targets: Vec<_> = history
        .entries()
        .iter()
        .map(|entry| entry.completed.target.to_string())
        .collect();
    assert_eq!(targets.len(), 12, "{targets:?}");
    assert_eq!(&targets[10..], ["bad", "bad"]);
    let entry = history.newest("bad", "tcp_connect").unwrap();
    assert_eq!(entry.id, 2);
    assert!(history.get(2).is_some() && history.get(3).is_none());
    let text = entry.render();
    assert!(
        text.contains("connect_refused") && text.len() < 2_000,
        "{text}"
    );
}
