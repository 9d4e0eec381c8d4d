//! A workload that is driven by a task.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::SteppedClock;
use kubevitals_sim::node_set::NodeSet;
use kubevitals_sim::objects::Resource;
use kubevitals_sim::seed::Seed;
use kubevitals_sim::workload::{Scenario, Workload, WorkloadConfig, WorkloadHandle, drive};
use tokio::sync::watch;

use crate::node_support::{START, Store, at};

/// Steps a clock with the runtime's paused time, which advances while all tasks sleep.
async fn run_clock(clock: SteppedClock) {
    const TICK: Duration = Duration::from_millis(1);
    loop {
        tokio::time::sleep(TICK).await;
        clock.advance(TICK);
    }
}

#[tokio::test(start_paused = true)]
async fn transitions_run_when_due_until_stopped() {
    let store = Arc::new(Store::default());
    let clock = SteppedClock::new(at(START));
    tokio::spawn(run_clock(clock.clone()));
    let node_set = NodeSet::new(2, "node", Seed::new(1));
    let mut workload = Workload::new(WorkloadConfig::default(), node_set, Seed::new(1));
    workload.populate(clock.now(), &*store);
    let handle = WorkloadHandle::new(workload);
    let (stop, stopped) = watch::channel(false);
    let driver = tokio::spawn(drive(
        handle.clone(),
        clock.clock(),
        Arc::clone(&store) as _,
        stopped,
    ));
    tokio::time::sleep(Duration::from_secs(5)).await;
    handle.with(|workload| {
        let manifest = Scenario::Job.manifest("quick".into(), Seed::new(1));
        workload.launch("default", manifest, clock.now(), &*store);
    });
    tokio::time::sleep(Duration::from_secs(15)).await;
    let succeeded = store.count(Resource::Jobs, |job| job["status"]["succeeded"] == 3);
    assert!(succeeded > 0);
    // Deleted half a minute after its completion.
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert!(store.list(Resource::Pods).is_empty());
    assert!(store.list(Resource::Jobs).is_empty());
    stop.send(true).unwrap();
    driver.await.unwrap();
    let before = store.all().len();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(store.all().len(), before, "nothing happens any more");
}
