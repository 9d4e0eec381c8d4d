//! `kubevitals transitions` on a simulated cluster with many pods in which many more are created:
//! two watches are open for any number of pods, every pod has one record, and memory stays flat.
//!
//! A watch of the harness records which pods were created and deleted, so that the lines are
//! compared with a source other than the measured program.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use kubevitals_bench::contender::Contender;
use kubevitals_bench::measure::{Plan, Schedule, Spread, Values};
use kubevitals_bench::result::{ContenderResult, Metric, Report, Unit};
use kubevitals_bench::serving::free_address;
use kubevitals_bench::session::{Session, check_conditions, print_line};
use kubevitals_bench::sim::{SimProcess, SimSize, poll_until};
use kubevitals_bench::{BenchError, versions};
use kubevitals_model::PartialObjectMeta;
use kubevitals_watch::{
    KubeTransport, ObjectEvent, Resource, Subscription, Update, WatchClient, WatchSpec,
};
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::KUBEVITALS;
use crate::contenders::{http_get, value};

/// Interval of samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// A pod that was deleted this long before the end must have a record: the tracker waits for
/// events, and lines are written.
const MAX_RECORD_DELAY: Duration = Duration::from_secs(15);

/// The last third may exceed the first by a twentieth and two megabytes: an allocator varies a
/// little in any case.
const MAX_GROWTH: f64 = 1.05;
const SLACK: f64 = 2e6;

/// Watch history of the simulated cluster for each pod created per second: half a minute of
/// changes, since a list of all pods takes seconds, and its client must be able to continue from
/// where it began.
const HISTORY_PER_RATE: u64 = 300;

/// Timeout of a list of all pods while the cluster is busy with its pods.
const LIST_TIMEOUT: Duration = Duration::from_mins(5);

/// Watches of the program: pods and events.
const WATCHES: u64 = 2;

/// The simulated cluster of --sim
#[derive(Debug, Clone, Args)]
pub(crate) struct SimFlags {
    /// With --sim: size of the cluster [default: 5000x30, with --quick 50x30]
    #[arg(long, value_name = "NODESxPODS")]
    size: Option<SimSize>,

    /// With --sim: pods created per second [default: 1000, with --quick 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    created: Option<u32>,

    /// With --sim: warm-up, as pods run up to 90 s [default: 180, with --quick 100]
    #[arg(long, value_name = "SECONDS")]
    warm_up: Option<u64>,

    /// With --sim: duration of the measurement [default: 60, with --quick 30]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(30..=86_400))]
    seconds: Option<u64>,
}

/// Parameters of the run.
#[derive(Debug, Clone, Copy)]
struct SimParameters {
    size: SimSize,
    created: u32,
    warm_up: Duration,
    duration: Duration,
}

/// A pod that was created during the run, as our own watch saw it.
#[derive(Debug, Clone, Copy, Default)]
struct CreatedPod {
    deleted_at: Option<Instant>,
}

/// Namespace and name of a pod: the cluster does not reuse names.
type Name = (Box<str>, Box<str>);

/// Pods that were created during the run.
type Pods = HashMap<Name, CreatedPod>;

/// Number of startup lines of each pod.
type Startups = HashMap<Name, u32>;

pub(crate) async fn run(
    flags: &SimFlags,
    is_quick: bool,
    program: &Path,
    session: &Session,
) -> Result<(), BenchError> {
    let parameters = flags.read(is_quick);
    print_line(&format!(
        "{} pods in the cluster ({}), {} created per second: {} s of warm-up, then {} s",
        parameters.size.pods(),
        parameters.size,
        parameters.created,
        parameters.warm_up.as_secs(),
        parameters.duration.as_secs(),
    ));
    let more = [
        format!("--churn={}/s", parameters.created),
        format!(
            "--watch-history={}",
            u64::from(parameters.created) * HISTORY_PER_RATE
        ),
    ];
    let sim = SimProcess::start(program, parameters.size, &more, &session.scratch).await?;
    let plan = Plan {
        schedule: Schedule::OneAfterOther,
        repeats: 1,
    };
    let measured = plan.run(1, async |_, _| {
        measure(parameters, program, &sim, session).await
    });
    let measured = measured.await;
    sim.stop().await;
    let repeats = measured?.into_iter().next().unwrap_or_default();
    let violations = match repeats.first() {
        Some(repeat) => violations(&repeat.values, parameters),
        None => vec!["nothing was measured".to_owned()],
    };
    let report = report(parameters, session, repeats).await;
    session.show(&report);
    let path = report.write(&session.results, &session.file_name("transitions-sim"))?;
    print_line(&format!("wrote all values to {}", path.display()));
    check_conditions(
        &violations,
        "two watches, one record per pod, flat memory, pods created at the requested rate",
    )
}

#[expect(clippy::too_many_lines, reason = "one sequence of events, in order")]
async fn measure(
    parameters: SimParameters,
    program: &Path,
    sim: &SimProcess,
    session: &Session,
) -> Result<Values, BenchError> {
    let sim_admin = admin_address(&session.scratch.join("sim.log"))?;
    let (own, mut updates) = watch_pods(sim).await?;
    let address = free_address().await?;
    let log = session.scratch.join("transitions.log");
    let contender = Contender {
        name: KUBEVITALS.to_owned(),
        program: program.to_owned(),
        arguments: vec![
            "transitions".to_owned(),
            format!("--kubeconfig={}", sim.kubeconfig().display()),
            format!("--admin-bind-address={address}"),
        ],
        environment: Vec::new(),
        log: log.clone(),
    };
    let mut running = contender.start()?;
    poll_until(
        "the list of all pods",
        SAMPLE_INTERVAL,
        LIST_TIMEOUT,
        async || {
            running.check()?;
            Ok(http_get(address, "/readyz").await.ok())
        },
    )
    .await?;
    // A pod that is created from here on is new to the program too.
    let mut pods = Pods::new();
    drain(&mut updates, &mut Pods::new()).await;
    let started = Instant::now() + parameters.warm_up;
    let mut ticks = interval_at(Instant::now(), SAMPLE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut memory, mut watches) = (Vec::new(), Vec::new());
    let mut at_start = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            Some(update) = updates.next() => {
                record(update, &mut pods);
                continue;
            }
        }
        running.check()?;
        if Instant::now() < started {
            continue;
        }
        at_start.get_or_insert((running.cpu()?, sim.cpu()?, pods.len(), Instant::now()));
        memory.push(running.memory()?.resident);
        let text = http_get(sim_admin, "/metrics").await?;
        watches.push(value(&text, "kubevitals_sim_watches").unwrap_or(0));
        if started.elapsed() >= parameters.duration {
            break;
        }
    }
    let ended = Instant::now();
    let text = http_get(address, "/metrics").await?;
    let exposed = text.len();
    let (cpu, sim_cpu) = (running.cpu()?, sim.cpu()?);
    let (cpu_before, sim_before, created_before, since) =
        at_start.expect("the loop takes at least one sample");
    let created = pods.len() - created_before;
    running.stop().await;
    drop(own);
    let startups = startups(&log)?;
    let mut values = compare(&pods, &startups, ended);
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts and sizes are far below 2^53"
    )]
    let number = |count: u64| count as f64;
    let mut set = |key: &str, value: f64| values.insert(key.to_owned(), value);
    let seconds = (ended - since).as_secs_f64();
    let created = number(u64::try_from(created).unwrap_or(u64::MAX));
    let cpu = cpu.saturating_sub(cpu_before).as_secs_f64();
    set("created.rate", created / seconds);
    set("cpu", cpu / seconds);
    set(
        "exposed",
        number(u64::try_from(exposed).unwrap_or(u64::MAX)),
    );
    set("cpu.pod", cpu / created.max(1.0));
    set(
        "sim.cpu",
        sim_cpu.saturating_sub(sim_before).as_secs_f64() / seconds,
    );
    let open = watches.iter().map(|open| number(*open) - 1.0);
    if let Some(spread) = Spread::of(open) {
        set("watches.min", spread.min);
        set("watches.max", spread.max);
    }
    let third = memory.len() / 3;
    let median = |part: &[u64]| Spread::of(part.iter().map(|bytes| number(*bytes)));
    if let Some(first) = memory.get(..third).and_then(median) {
        set("rss.first", first.median);
    }
    if let Some(last) = memory.get(memory.len() - third..).and_then(median) {
        set("rss.last", last.median);
    }
    for (key, series) in [
        ("tracked", "pod_statistics_tracked"),
        (
            "modified",
            "pod_watch_events_total{event_type=\"MODIFIED\"}",
        ),
    ] {
        if let Some(found) = value(&text, series) {
            set(key, number(found));
        }
    }
    Ok(values)
}

/// Our own watch of names, which is one of the open watches.
async fn watch_pods(
    sim: &SimProcess,
) -> Result<
    (
        kubevitals_watch::Reflector<PartialObjectMeta>,
        Subscription<PartialObjectMeta>,
    ),
    BenchError,
> {
    let invalid = |problem: String| BenchError::Kubeconfig {
        path: sim.kubeconfig().to_owned(),
        problem,
    };
    let read = kube::config::Kubeconfig::read_from(sim.kubeconfig());
    let read = read.map_err(|error| invalid(error.to_string()))?;
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(read, &options).await;
    let config = config.map_err(|error| invalid(error.to_string()))?;
    let transport = KubeTransport::new(config).map_err(|error| invalid(error.to_string()))?;
    let mut spec = WatchSpec::metadata("pods", Resource::new("", "v1", "pods"));
    spec.options.queue = 1_000_000;
    let stream = WatchClient::new(transport).reflector(spec);
    let updates = stream.subscribe();
    Ok((stream, updates))
}

/// Receives the pending updates.
async fn drain(updates: &mut Subscription<PartialObjectMeta>, pods: &mut Pods) {
    while let Ok(Some(update)) =
        tokio::time::timeout(Duration::from_millis(50), updates.next()).await
    {
        record(update, pods);
        if pods.len() > 10_000 {
            return;
        }
    }
}

fn record(update: Update<PartialObjectMeta>, pods: &mut Pods) {
    // Listed pods existed before.
    let Update::Change(change) = update else {
        return;
    };
    let key = |pod: &PartialObjectMeta| {
        let identity = &pod.identity;
        (Box::from(&*identity.namespace), Box::from(&*identity.name))
    };
    match change.event {
        ObjectEvent::Added(pod) => {
            pods.entry(key(&pod)).or_default();
        }
        ObjectEvent::Deleted(pod) => {
            if let Some(seen) = pods.get_mut(&key(&pod)) {
                seen.deleted_at.get_or_insert(Instant::now());
            }
        }
        ObjectEvent::Modified { .. } => {}
    }
}

/// Counts the startup lines of each pod.
fn startups(lines: &Path) -> Result<Startups, BenchError> {
    let file = std::fs::File::open(lines).map_err(BenchError::file("open", lines))?;
    let mut counts = HashMap::new();
    for line in BufReader::new(file).lines() {
        let line = line.map_err(BenchError::file("read", lines))?;
        // Log messages are among the lines, and most lines are records of containers.
        if !line.contains("\"type\":\"pod\"") {
            continue;
        }
        let value: Value = serde_json::from_str(&line)?;
        let text = |pointer: &str| {
            let text = value.pointer(pointer).and_then(Value::as_str);
            Box::from(text.unwrap_or_default())
        };
        let key = (
            text("/kube_transition_metrics/kube_namespace"),
            text("/kube_transition_metrics/pod_name"),
        );
        *counts.entry(key).or_default() += 1;
    }
    Ok(counts)
}

/// Compares the lines with the pods of our own watch.
fn compare(pods: &Pods, startups: &Startups, ended: Instant) -> Values {
    let (mut gone, mut missing, mut twice) = (0_u32, 0_u32, 0_u32);
    for (pod, seen) in pods {
        let is_settled = seen
            .deleted_at
            .is_some_and(|at| ended - at >= MAX_RECORD_DELAY);
        gone += u32::from(is_settled);
        missing += u32::from(is_settled && !startups.contains_key(pod));
    }
    for times in startups.values() {
        twice += u32::from(*times > 1);
    }
    let with_line = u32::try_from(startups.len()).unwrap_or(u32::MAX);
    let pairs = [
        ("gone", gone),
        ("told", with_line),
        ("missing", missing),
        ("twice", twice),
    ];
    let pairs = pairs.into_iter();
    pairs
        .map(|(key, count)| (key.to_owned(), f64::from(count)))
        .collect()
}

/// Returns the conditions that are not met, as clauses.
fn violations(values: &Values, parameters: SimParameters) -> Vec<String> {
    let get = |key: &str| values.get(key).copied().unwrap_or(f64::NAN);
    let mut violations = Vec::new();
    let mut require = |holds: bool, reason: String| {
        if !holds {
            violations.push(reason);
        }
    };
    let (missing, twice) = (get("missing"), get("twice"));
    require(missing <= 0.0, format!("{missing} pods have no record"));
    require(
        twice <= 0.0,
        format!("{twice} pods have more than one record"),
    );
    require(get("gone") > 0.0, "no pod was deleted".to_owned());
    let (min, max) = (get("watches.min"), get("watches.max"));
    let wanted = f64::from(u32::try_from(WATCHES).unwrap_or_default());
    require(
        min >= wanted && max <= wanted,
        format!("between {min} and {max} watches were open"),
    );
    let (first, last) = (get("rss.first"), get("rss.last"));
    require(
        last <= first * MAX_GROWTH + SLACK,
        format!("memory changed from {first:.0} to {last:.0} bytes"),
    );
    let rate = get("created.rate");
    require(
        rate >= 0.9 * f64::from(parameters.created),
        format!("only {rate:.0} pods per second were created"),
    );
    violations
}

async fn report(
    parameters: SimParameters,
    session: &Session,
    repeats: Vec<kubevitals_bench::measure::Repeat>,
) -> Report {
    Report {
        bench: "transitions-sim".to_owned(),
        started: session.started.clone(),
        machine: session.machine.clone(),
        versions: versions::of(&session.bench, &["kube"], &[]).await,
        parameters: BTreeMap::from([
            ("size".to_owned(), parameters.size.to_string()),
            (
                "created-per-second".to_owned(),
                parameters.created.to_string(),
            ),
            (
                "warm-up-seconds".to_owned(),
                parameters.warm_up.as_secs().to_string(),
            ),
            (
                "seconds".to_owned(),
                parameters.duration.as_secs().to_string(),
            ),
        ]),
        schedule: Schedule::OneAfterOther,
        baseline: KUBEVITALS.to_owned(),
        metrics: vec![
            Metric::info("created.rate", "pods created per second", Unit::Count),
            Metric::info("watches.min", "open watches, minimum", Unit::Count),
            Metric::info("watches.max", "  maximum", Unit::Count),
            Metric::info("gone", "pods created and deleted", Unit::Count),
            Metric::info("missing", "  without a startup line", Unit::Count),
            Metric::info("told", "pods with a startup line", Unit::Count),
            Metric::info("twice", "  with more than one", Unit::Count),
            Metric::info("rss.first", "RSS, first third", Unit::Bytes),
            Metric::info("rss.last", "  last third", Unit::Bytes),
            Metric::info("tracked", "pods tracked at the end", Unit::Count),
            Metric::info("modified", "pod changes received in total", Unit::Count),
            Metric::info("exposed", "size of its own metrics", Unit::Bytes),
            Metric::info("cpu", "cores used", Unit::Count),
            Metric::info(
                "cpu.pod",
                "CPU per created pod, all its changes and events",
                Unit::Seconds,
            ),
            Metric::info("sim.cpu", "cores used by the cluster", Unit::Count),
        ],
        contenders: vec![ContenderResult {
            name: KUBEVITALS.to_owned(),
            repeats,
        }],
    }
}

/// Returns the admin address from the log of the simulated cluster.
fn admin_address(log: &Path) -> Result<SocketAddr, BenchError> {
    let text = std::fs::read_to_string(log).map_err(BenchError::file("read", log))?;
    let address = text.split("curl http://").nth(1);
    let address = address.and_then(|rest| rest.split('/').next()?.parse().ok());
    address.ok_or_else(|| BenchError::Protocol {
        name: "kubevitals sim".to_owned(),
        output: text,
        expected: "the address of its metrics",
    })
}

impl SimFlags {
    fn read(&self, is_quick: bool) -> SimParameters {
        let pick = |full, quick| if is_quick { quick } else { full };
        let size = if is_quick {
            SimSize::new(50, 30)
        } else {
            SimSize::new(5_000, 30)
        };
        SimParameters {
            size: self.size.unwrap_or(size),
            created: self.created.unwrap_or(if is_quick { 50 } else { 1_000 }),
            warm_up: Duration::from_secs(self.warm_up.unwrap_or(pick(180, 100))),
            duration: Duration::from_secs(self.seconds.unwrap_or(pick(60, 30))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> Name {
        (Box::from("a"), Box::from(name))
    }

    #[test]
    fn missing_and_duplicate_records_are_counted() {
        let ended = Instant::now() + Duration::from_mins(1);
        let gone = CreatedPod {
            deleted_at: Some(ended - MAX_RECORD_DELAY),
        };
        let late = CreatedPod {
            deleted_at: Some(ended),
        };
        let pods = Pods::from([
            (pod("recorded"), gone),
            (pod("missing"), gone),
            (pod("late"), late),
            (pod("there"), CreatedPod::default()),
        ]);
        let startups = HashMap::from([(pod("recorded"), 1), (pod("there"), 2)]);
        let values = compare(&pods, &startups, ended);
        let get = |key: &str| values.get(key).copied();
        assert_eq!(get("gone"), Some(2.0));
        assert_eq!(get("missing"), Some(1.0));
        assert_eq!(get("twice"), Some(1.0));
    }
}
