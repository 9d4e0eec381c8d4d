//! The same node is scraped through the kubelet and through `kubevitals node --provider host` at
//! the same time.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use kubevitals_bench::https::Client;
use kubevitals_bench::measure::{Plan, Schedule, Spread, Values};
use kubevitals_bench::proc::{CpuTicks, Memory, scheduled_time};
use kubevitals_bench::result::{ContenderResult, Metric, Report, Unit};
use kubevitals_bench::session::print_line;
use kubevitals_bench::{BenchError, versions};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::virtual_node::{Provider, VirtualNode};
use crate::{Bed, KUBELET, MAX_CPU_SHARE, idle_metrics, idle_violation, memory_values};

/// As metrics-server and Prometheus do.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(15);

const PATH: &str = "/metrics/resource";
const KUBELET_PORT: u16 = 10_250;

/// Pause after pods are ready: the kubelet is busy with them for a while.
const SETTLE_TIME: Duration = Duration::from_secs(20);

/// Interval of memory samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// One of both.
struct Side<'a> {
    pid: u32,
    client: &'a Client,
}

pub(crate) async fn run(bed: Bed<'_>) -> Result<Report, BenchError> {
    let flags = bed.flags;
    let seconds = flags.seconds.unwrap_or(flags.run.pick(60, 15));
    let pods = flags.pods.unwrap_or(flags.run.pick(30, 5));
    let plan = Plan {
        schedule: Schedule::Together,
        repeats: flags.run.repeats_or(3, 1),
    };
    print_line(&format!(
        "{pods} pods on the kubelet's node; {} times {seconds} s",
        plan.repeats
    ));
    let names: Vec<String> = (0..pods).map(|number| format!("idle-{number}")).collect();
    let cluster = bed.cluster;
    let scratch = &bed.session.scratch;
    cluster
        .create_pods(&names, cluster.node_name(), scratch)
        .await?;
    let (mut node, idle) = bed.start(Provider::Host).await?;
    sleep(SETTLE_TIME).await;
    let kubelet = cluster.client(KUBELET_PORT)?;
    let kubelet_pid = cluster.pid(KUBELET)?;
    let mut kubelet_idle = memory_values("idle", Memory::read(kubelet_pid)?);
    let sides = [
        Side::of_node(&node),
        Side {
            pid: kubelet_pid,
            client: &kubelet,
        },
    ];
    // Connections and permissions are not part of the measurement.
    for side in &sides {
        side.scrape().await?;
    }
    let duration = Duration::from_secs(seconds);
    let measured = plan.run(sides.len(), async |index, _| {
        let side = sides.get(index).expect("the plan has as many sides");
        side.measure(duration).await
    });
    let mut measured = measured.await?.into_iter();
    node.process.check()?;
    node.process.stop().await;
    cluster.delete_pods(&names).await?;
    let contender = |name: &str, idle: &mut Values, repeats: Option<Vec<_>>| {
        let mut repeats: Vec<kubevitals_bench::measure::Repeat> = repeats.unwrap_or_default();
        // It is read once.
        if let Some(first) = repeats.first_mut() {
            first.values.append(idle);
        }
        ContenderResult {
            name: name.to_owned(),
            repeats,
        }
    };
    let mut idle = idle;
    let contenders = vec![
        contender(Provider::Host.contender(), &mut idle, measured.next()),
        contender(KUBELET, &mut kubelet_idle, measured.next()),
    ];
    let [idle_rss, idle_anonymous] = idle_metrics();
    Ok(Report {
        bench: "node".to_owned(),
        started: bed.session.started.clone(),
        machine: bed.session.machine.clone(),
        versions: versions::of(&bed.session.bench, &["kube"], &[]).await,
        parameters: BTreeMap::from([
            ("pods".to_owned(), pods.to_string()),
            ("seconds".to_owned(), seconds.to_string()),
        ]),
        schedule: plan.schedule,
        baseline: KUBELET.to_owned(),
        metrics: vec![
            Metric::seconds("cpu", "CPU of the process"),
            Metric::seconds("scheduled", "  by the scheduler's clock"),
            idle_rss,
            idle_anonymous,
            Metric::bytes("rss", "RSS meanwhile, median"),
            Metric::seconds("scrape", "scrape, median"),
            Metric::count("scrapes", "scrapes"),
            Metric::count("containers", "containers in a scrape"),
            Metric::info("bytes", "size of a scrape", Unit::Bytes),
        ],
        contenders,
    })
}

/// Returns the conditions that are not met, as clauses.
pub(crate) fn violations(report: &Report) -> Vec<String> {
    let own = Provider::Host.contender();
    let mut violations: Vec<String> = idle_violation(report, own).into_iter().collect();
    let [Some(ours), Some(theirs)] =
        [own, KUBELET].map(|name| report.contenders.iter().find(|one| one.name == name))
    else {
        return violations;
    };
    let median = |one: &ContenderResult, key: &str| one.spread(key).map(|spread| spread.median);
    // Ticks of 10 ms are too coarse for what is a few of them.
    let cpu = report
        .metrics
        .iter()
        .find(|metric| metric.key == "scheduled");
    let times = cpu.and_then(|metric| report.ratio(ours, metric));
    if let Some(times) = times
        && times.median < 1.0 / MAX_CPU_SHARE
    {
        let share = 1.0 / times.median;
        violations.push(format!(
            "{own} takes {share:.2} of the kubelet's processor time, more than {MAX_CPU_SHARE}"
        ));
    }
    let [ours, theirs] = [ours, theirs].map(|one| median(one, "containers"));
    if ours != theirs {
        violations.push(format!(
            "{own} reports {ours:?} containers where the kubelet reports {theirs:?}"
        ));
    }
    violations
}

impl<'a> Side<'a> {
    fn of_node(node: &'a VirtualNode) -> Self {
        Self {
            pid: node.process.pid(),
            client: &node.client,
        }
    }

    async fn scrape(&self) -> Result<(Duration, String), BenchError> {
        let started = Instant::now();
        let (status, text) = self.client.text(PATH).await?;
        if status == StatusCode::OK {
            return Ok((started.elapsed(), text));
        }
        Err(BenchError::Request {
            path: PATH.to_owned(),
            problem: format!("{status} {text}"),
        })
    }

    /// Scrapes for some time.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts and sizes are far below 2^53"
    )]
    async fn measure(&self, duration: Duration) -> Result<Values, BenchError> {
        let cpu_before = CpuTicks::read(self.pid)?;
        let scheduled_before = scheduled_time(self.pid)?;
        let end = Instant::now() + duration;
        let mut scrapes = interval(SCRAPE_INTERVAL);
        let mut samples = interval(SAMPLE_INTERVAL);
        for ticks in [&mut scrapes, &mut samples] {
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        let (mut times, mut memory, mut last) = (Vec::new(), Vec::new(), String::new());
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(end) => break,
                _ = scrapes.tick() => {
                    let (time, text) = self.scrape().await?;
                    times.push(time.as_secs_f64());
                    last = text;
                }
                _ = samples.tick() => {
                    memory.push(Memory::read(self.pid)?.resident as f64);
                }
            }
        }
        let scheduled = scheduled_time(self.pid)?.saturating_sub(scheduled_before);
        let cpu = CpuTicks::read(self.pid)?.time();
        let cpu = cpu.saturating_sub(cpu_before.time());
        let count = times.len() as f64;
        let mut values = Values::from([
            ("cpu".to_owned(), cpu.as_secs_f64()),
            ("scheduled".to_owned(), scheduled.as_secs_f64()),
            ("scrapes".to_owned(), count),
            ("containers".to_owned(), containers(&last) as f64),
            ("bytes".to_owned(), last.len() as f64),
        ]);
        for (key, samples) in [("scrape", times), ("rss", memory)] {
            if let Some(spread) = Spread::of(samples) {
                values.insert(key.to_owned(), spread.median);
            }
        }
        Ok(values)
    }
}

/// Counts the containers of a scrape.
fn containers(text: &str) -> usize {
    let series = "container_cpu_usage_seconds_total{";
    text.lines().filter(|line| line.starts_with(series)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_series_of_containers_are_counted() {
        let text = "# TYPE container_cpu_usage_seconds_total counter\n\
                    container_cpu_usage_seconds_total{container=\"a\"} 1 2\n\
                    container_cpu_usage_seconds_total{container=\"b\"} 1 2\n\
                    container_memory_working_set_bytes{container=\"a\"} 1 2\n";
        assert_eq!(containers(text), 2);
    }
}
