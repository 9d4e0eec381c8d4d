//! Measures memory and time of a population: `population [NODES] [PODS_PER_NODE] [CHURN_PER_S]`.
//!
//! Objects go to a writer that only counts them: this measures nodes and pods without a store.
#![expect(clippy::print_stdout, reason = "an example's output")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kubevitals_model::Clock;
use kubevitals_sim::kubelet::{Fleet, FleetConfig};
use kubevitals_sim::node_set::NodeSet;
use kubevitals_sim::objects::{ObjectWriter, Resource, WriteError};
use kubevitals_sim::seed::Seed;
use kubevitals_sim::workload::{ChurnRate, Workload, WorkloadConfig};
use serde_json::Value;

#[derive(Default)]
struct CountingWriter(AtomicU64);

impl CountingWriter {
    fn count(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl ObjectWriter for CountingWriter {
    fn create(&self, _: Resource, _: Value) -> Result<u64, WriteError> {
        Ok(self.count())
    }

    fn replace(&self, _: Resource, _: Value) -> Result<u64, WriteError> {
        Ok(self.count())
    }

    fn delete(&self, _: Resource, _: Option<&str>, _: &str) -> Result<u64, WriteError> {
        Ok(self.count())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|argument| argument.parse::<usize>());
    let nodes = arguments.next().transpose()?.unwrap_or(5_000);
    let pods_per_node = arguments.next().transpose()?.unwrap_or(30);
    let churn = arguments.next().transpose()?.unwrap_or(0);

    let started = Instant::now();
    let clock = Clock::system();
    let node_set = NodeSet::new(nodes, "node", Seed::new(1));
    let fleet = Fleet::start(FleetConfig::default(), Arc::clone(&node_set), clock.clone()).await?;
    report("kubelets listen", started);

    let store = CountingWriter::default();
    let config = WorkloadConfig {
        pods_per_node,
        churn: ChurnRate::per_second(churn as u64),
        ..WorkloadConfig::default()
    };
    let mut workload = Workload::new(config, node_set, Seed::new(1));
    let start = clock.now();
    workload.populate(start, &store);
    report("population written", started);

    // A minute of simulated time, as fast as possible.
    let before = (store.0.load(Ordering::Relaxed), Instant::now());
    let minute = start
        .checked_add(Duration::from_mins(1))
        .ok_or("the end of time")?;
    workload.step(minute, &store);
    let writes = store.0.load(Ordering::Relaxed) - before.0;
    println!(
        "a minute of simulated time: {writes} writes in {:.2} s",
        before.1.elapsed().as_secs_f64()
    );
    report("after a minute", started);
    fleet.shutdown().await;
    Ok(())
}

fn report(what: &str, started: Instant) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap_or(" unknown");
    println!(
        "{what}: {:.2} s, resident {}",
        started.elapsed().as_secs_f64(),
        resident.trim()
    );
}
