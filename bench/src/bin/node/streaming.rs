//! Bytes that `kubectl exec` reads from a pod on the kubelet and from one on `kubevitals node
//! --provider process`, in turns.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use kubevitals_bench::measure::{Plan, Schedule, Values};
use kubevitals_bench::proc::CpuTicks;
use kubevitals_bench::result::{Better, ContenderResult, Metric, Report, Unit};
use kubevitals_bench::session::print_line;
use kubevitals_bench::{BenchError, versions};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout};

use crate::virtual_node::Provider;
use crate::{Bed, KUBELET, idle_metrics, idle_violation};

/// Bytes that the command in the pod writes at once: what a pipe holds.
const BLOCK_BYTES: u64 = 65_536;

/// Maximum time of one stream.
const STREAM_TIMEOUT: Duration = Duration::from_mins(10);

/// A pod to read from, and the processes of its node that the bytes pass through.
struct Source {
    contender: &'static str,
    pod: String,
    pids: Vec<u32>,
}

pub(crate) async fn run(bed: Bed<'_>) -> Result<Report, BenchError> {
    let flags = bed.flags;
    let megabytes = flags.megabytes.unwrap_or(flags.run.pick(1_000, 100));
    let plan = Plan {
        schedule: Schedule::OneAfterOther,
        repeats: flags.run.repeats_or(5, 2),
    };
    print_line(&format!(
        "{megabytes} MB from a pod through `kubectl exec`, {} turns",
        plan.repeats
    ));
    let cluster = bed.cluster;
    let (mut node, mut idle) = bed.start(Provider::Process).await?;
    let sources = [
        Source {
            contender: Provider::Process.contender(),
            pod: "stream-process".to_owned(),
            pids: vec![node.process.pid()],
        },
        Source {
            contender: KUBELET,
            pod: "stream-kubelet".to_owned(),
            pids: vec![cluster.pid(KUBELET)?, cluster.pid("containerd")?],
        },
    ];
    let nodes = [
        Provider::Process.node_name(cluster),
        cluster.node_name().to_owned(),
    ];
    for (source, name) in sources.iter().zip(&nodes) {
        let pods = std::slice::from_ref(&source.pod);
        let scratch = &bed.session.scratch;
        cluster.create_pods(pods, name, scratch).await?;
    }
    let blocks = u64::from(megabytes) * 1_000_000 / BLOCK_BYTES;
    // The first stream of each is not counted.
    for source in &sources {
        source.read(bed, blocks.div_ceil(10)).await?;
    }
    let measured = plan.run(sources.len(), async |index, _| {
        let source = sources.get(index).expect("the plan has as many sources");
        source.read(bed, blocks).await
    });
    let measured = measured.await?;
    node.process.check()?;
    let names: Vec<String> = sources.iter().map(|source| source.pod.clone()).collect();
    cluster.delete_pods(&names).await?;
    node.process.stop().await;
    let name = Provider::Process.node_name(cluster);
    cluster.kubectl(&["delete", "node", &name]).await?;
    let contenders = sources.iter().zip(measured).map(|(source, mut repeats)| {
        // Memory is read once, before the first stream.
        if let Some(first) = repeats.first_mut()
            && source.contender != KUBELET
        {
            first.values.append(&mut idle);
        }
        ContenderResult {
            name: source.contender.to_owned(),
            repeats,
        }
    });
    let contenders = contenders.collect();
    let [idle_rss, idle_anonymous] = idle_metrics();
    Ok(Report {
        bench: "node-exec".to_owned(),
        started: bed.session.started.clone(),
        machine: bed.session.machine.clone(),
        versions: versions::of(&bed.session.bench, &["kube"], &[]).await,
        parameters: BTreeMap::from([("megabytes".to_owned(), megabytes.to_string())]),
        schedule: plan.schedule,
        baseline: KUBELET.to_owned(),
        metrics: vec![
            Metric::new(
                "rate",
                "exec, from start to end",
                Unit::BytesPerSecond,
                Better::Higher,
            ),
            Metric::seconds("cpu", "CPU of the node's processes"),
            idle_rss,
            idle_anonymous,
            Metric::info("bytes", "bytes", Unit::Bytes),
        ],
        contenders,
    })
}

/// Returns the conditions that are not met, as clauses.
pub(crate) fn violations(report: &Report) -> Vec<String> {
    let own = Provider::Process.contender();
    let mut violations: Vec<String> = idle_violation(report, own).into_iter().collect();
    let ours = report.contenders.iter().find(|one| one.name == own);
    let rate = report.metrics.iter().find(|metric| metric.key == "rate");
    let times = ours
        .zip(rate)
        .and_then(|(ours, rate)| report.ratio(ours, rate));
    if let Some(times) = times
        && times.median < 1.0
    {
        violations.push(format!(
            "{own} streams at {:.2} of the kubelet's throughput",
            times.median
        ));
    }
    violations
}

impl Source {
    /// Reads zeros from the pod. `busybox head -c` takes them one by one and would be the slowest
    /// part.
    #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
    async fn read(&self, bed: Bed<'_>, blocks: u64) -> Result<Values, BenchError> {
        let expected = blocks * BLOCK_BYTES;
        let block = format!("bs={BLOCK_BYTES}");
        let count = format!("count={blocks}");
        let words = [
            "exec",
            &self.pod,
            "--",
            "busybox",
            "dd",
            "if=/dev/zero",
            &block,
            &count,
        ];
        let mut command = bed.cluster.kubectl_command(&words)?;
        let cpu_before = self.cpu()?;
        let started = Instant::now();
        let failed = |problem: String| BenchError::Command {
            command: format!("kubectl exec {}", self.pod),
            problem,
        };
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        let mut child = child.map_err(|error| failed(error.to_string()))?;
        let mut stdout = child.stdout.take().expect("stdout is piped");
        let reading = async {
            let mut buffer = vec![0; 1 << 20];
            let mut received = 0_u64;
            loop {
                match stdout.read(&mut buffer).await? {
                    0 => break,
                    count => received += u64::try_from(count).unwrap_or(0),
                }
            }
            Ok::<_, std::io::Error>((received, child.wait().await?))
        };
        let (received, status) = timeout(STREAM_TIMEOUT, reading)
            .await
            .map_err(|_| failed(format!("not complete within {STREAM_TIMEOUT:?}")))?
            .map_err(|error| failed(error.to_string()))?;
        let took = started.elapsed();
        if !status.success() {
            return Err(failed(status.to_string()));
        }
        if received != expected {
            return Err(BenchError::DifferentWork {
                name: self.contender.to_owned(),
                found: received,
                reference: "the command in the pod".to_owned(),
                expected,
            });
        }
        let cpu = self.cpu()?.saturating_sub(cpu_before);
        Ok(Values::from([
            ("rate".to_owned(), expected as f64 / took.as_secs_f64()),
            ("cpu".to_owned(), cpu.as_secs_f64()),
            ("bytes".to_owned(), received as f64),
        ]))
    }

    fn cpu(&self) -> Result<Duration, BenchError> {
        let mut total = Duration::ZERO;
        for pid in &self.pids {
            // Not that of children: commands in pods are theirs.
            let ticks = CpuTicks {
                children: 0,
                ..CpuTicks::read(*pid)?
            };
            total = total.saturating_add(ticks.time());
        }
        Ok(total)
    }
}
