//! A cluster with many pods in which many more are created, followed for a while: two watches are
//! open whatever the number of pods, every pod is told of once, and memory stays what it is.
//!
//! Who was created and who is gone is seen by a watch of the harness itself, so that the lines are
//! held against something that the program under measure did not say.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use kubevitals_bench::contender::Contender;
use kubevitals_bench::measure::{Plan, Schedule, Spread, Values};
use kubevitals_bench::result::{Better, Measured, Metric, Report, Unit};
use kubevitals_bench::serving::free_address;
use kubevitals_bench::session::{Session, held, say};
use kubevitals_bench::sim::{SimProcess, SimSize, until};
use kubevitals_bench::{BenchError, versions};
use kubevitals_model::PartialObjectMeta;
use kubevitals_watch::{
    KubeTransport, ObjectEvent, Resource, Subscription, Update, WatchClient, WatchSpec,
};
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::KUBEVITALS;
use crate::contenders::{ask, value};

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(1);

/// A pod that went this long before the end must have been told of by then: events are waited for,
/// and lines are written.
const LATEST: Duration = Duration::from_secs(15);

/// The last third may be a twentieth above the first, and two megabytes: an allocator moves by some
/// whatever is done.
const FLAT: f64 = 1.05;
const SLACK: f64 = 2e6;

/// Changes that watches can go back for each pod that is created a second: half a minute of them,
/// since a list of all pods takes seconds, and who is sent it must be able to go on from where it
/// began.
const HISTORY: u64 = 300;

/// How long a list of all pods may take, as long as the cluster is busy with its pods.
const LIST: Duration = Duration::from_mins(5);

/// The watches that the program has: pods, and events.
const WATCHES: u64 = 2;

/// The simulated cluster of --sim
#[derive(Debug, Clone, Args)]
pub(crate) struct CrowdFlags {
    /// With --sim: the cluster [default: 5000x30, with --quick 50x30]
    #[arg(long, value_name = "NODESxPODS")]
    size: Option<SimSize>,

    /// With --sim: pods that are created a second [default: 1000, with --quick 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    created: Option<u32>,

    /// With --sim: how long before it counts: pods live up to 90 s [default: 180, with --quick 100]
    #[arg(long, value_name = "SECONDS")]
    warm_up: Option<u64>,

    /// With --sim: how long it is looked at [default: 60, with --quick 30]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(30..=86_400))]
    seconds: Option<u64>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
struct Crowd {
    size: SimSize,
    created: u32,
    warm_up: Duration,
    lasts: Duration,
}

/// What a watch of our own saw of a pod that was created while it was looked.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// When it was removed.
    gone: Option<Instant>,
}

/// Namespace and name of a pod: the cluster gives no name twice.
type Name = (Box<str>, Box<str>);

/// Pods that were created while it was looked.
type Pods = HashMap<Name, Seen>;

/// How often each pod was told to have started.
type Startups = HashMap<Name, u32>;

pub(crate) async fn run(
    flags: &CrowdFlags,
    is_quick: bool,
    program: &Path,
    session: &Session,
) -> Result<(), BenchError> {
    let crowd = flags.read(is_quick);
    say(&format!(
        "{} pods in the cluster ({}), {} created a second: {} s of warm-up, then {} s",
        crowd.size.pods(),
        crowd.size,
        crowd.created,
        crowd.warm_up.as_secs(),
        crowd.lasts.as_secs(),
    ));
    let more = [
        format!("--churn={}/s", crowd.created),
        format!("--watch-history={}", u64::from(crowd.created) * HISTORY),
    ];
    let sim = SimProcess::start(program, crowd.size, &more, &session.scratch).await?;
    let plan = Plan {
        schedule: Schedule::OneAfterOther,
        repeats: 1,
    };
    let measured = plan.run(1, async |_, _| follow(crowd, program, &sim, session).await);
    let measured = measured.await;
    sim.stop().await;
    let repeats = measured?.into_iter().next().unwrap_or_default();
    let missed = match repeats.first() {
        Some(repeat) => missed(&repeat.values, crowd),
        None => vec!["nothing was measured".to_owned()],
    };
    let report = report(crowd, session, repeats).await;
    session.show(&report);
    let path = report.write(&session.results, &session.file_name("transitions-sim"))?;
    say(&format!("every number is in {}", path.display()));
    held(
        &missed,
        "two watches, every pod told of once, flat memory, as many pods created as asked for",
    )
}

#[expect(
    clippy::too_many_lines,
    reason = "one course of events, told in its order"
)]
async fn follow(
    crowd: Crowd,
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
    until("the list of all pods", EVERY, LIST, async || {
        running.check()?;
        Ok(ask(address, "/readyz").await.ok())
    })
    .await?;
    // Whoever is created from here on is new to the program too.
    let mut pods = Pods::new();
    drain(&mut updates, &mut Pods::new()).await;
    let begun = Instant::now() + crowd.warm_up;
    let mut ticks = interval_at(Instant::now(), EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut memory, mut watches) = (Vec::new(), Vec::new());
    let mut at_start = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            Some(update) = updates.next() => {
                note(update, &mut pods);
                continue;
            }
        }
        running.check()?;
        if Instant::now() < begun {
            continue;
        }
        at_start.get_or_insert((running.cpu()?, sim.cpu()?, pods.len(), Instant::now()));
        memory.push(running.memory()?.resident);
        let told = ask(sim_admin, "/metrics").await?;
        watches.push(value(&told, "kubevitals_sim_watches").unwrap_or(0));
        if begun.elapsed() >= crowd.lasts {
            break;
        }
    }
    let ended = Instant::now();
    let told = ask(address, "/metrics").await?;
    let exposed = told.len();
    let (cpu, sim_cpu) = (running.cpu()?, sim.cpu()?);
    let (cpu_before, sim_before, created_before, since) =
        at_start.expect("it was looked at least once");
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
    let lasted = (ended - since).as_secs_f64();
    let created = number(u64::try_from(created).unwrap_or(u64::MAX));
    let cpu = cpu.saturating_sub(cpu_before).as_secs_f64();
    set("created.rate", created / lasted);
    set("cpu", cpu / lasted);
    set(
        "exposed",
        number(u64::try_from(exposed).unwrap_or(u64::MAX)),
    );
    set("cpu.pod", cpu / created.max(1.0));
    set(
        "sim.cpu",
        sim_cpu.saturating_sub(sim_before).as_secs_f64() / lasted,
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
        if let Some(found) = value(&told, series) {
            set(key, number(found));
        }
    }
    Ok(values)
}

/// Our own watch of names, which counts as one of those that are open.
async fn watch_pods(
    sim: &SimProcess,
) -> Result<
    (
        kubevitals_watch::Reflector<PartialObjectMeta>,
        Subscription<PartialObjectMeta>,
    ),
    BenchError,
> {
    let refused = |problem: String| BenchError::Kubeconfig {
        path: sim.kubeconfig().to_owned(),
        problem,
    };
    let read = kube::config::Kubeconfig::read_from(sim.kubeconfig());
    let read = read.map_err(|error| refused(error.to_string()))?;
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(read, &options).await;
    let config = config.map_err(|error| refused(error.to_string()))?;
    let transport = KubeTransport::new(config).map_err(|error| refused(error.to_string()))?;
    let mut spec = WatchSpec::metadata("pods", Resource::new("", "v1", "pods"));
    spec.options.queue = 1_000_000;
    let stream = WatchClient::new(transport).reflector(spec);
    let updates = stream.subscribe();
    Ok((stream, updates))
}

/// Takes what has come so far.
async fn drain(updates: &mut Subscription<PartialObjectMeta>, pods: &mut Pods) {
    while let Ok(Some(update)) =
        tokio::time::timeout(Duration::from_millis(50), updates.next()).await
    {
        note(update, pods);
        if pods.len() > 10_000 {
            return;
        }
    }
}

fn note(update: Update<PartialObjectMeta>, pods: &mut Pods) {
    // What is listed was there before.
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
                seen.gone.get_or_insert(Instant::now());
            }
        }
        ObjectEvent::Modified { .. } => {}
    }
}

/// How often each pod was told to have started.
fn startups(lines: &Path) -> Result<Startups, BenchError> {
    let file = std::fs::File::open(lines).map_err(BenchError::file("open", lines))?;
    let mut told = HashMap::new();
    for line in BufReader::new(file).lines() {
        let line = line.map_err(BenchError::file("read", lines))?;
        // Logs are among the lines, and records of containers are most of them.
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
        *told.entry(key).or_default() += 1;
    }
    Ok(told)
}

/// Holds the lines against what was seen.
fn compare(pods: &Pods, startups: &Startups, ended: Instant) -> Values {
    let (mut gone, mut missing, mut twice) = (0_u32, 0_u32, 0_u32);
    for (pod, seen) in pods {
        let is_settled = seen.gone.is_some_and(|gone| ended - gone >= LATEST);
        gone += u32::from(is_settled);
        missing += u32::from(is_settled && !startups.contains_key(pod));
    }
    for times in startups.values() {
        twice += u32::from(*times > 1);
    }
    let told = u32::try_from(startups.len()).unwrap_or(u32::MAX);
    let pairs = [
        ("gone", gone),
        ("told", told),
        ("missing", missing),
        ("twice", twice),
    ];
    let pairs = pairs.into_iter();
    pairs
        .map(|(key, count)| (key.to_owned(), f64::from(count)))
        .collect()
}

/// What is not as it must be, each in a clause.
fn missed(values: &Values, crowd: Crowd) -> Vec<String> {
    let get = |key: &str| values.get(key).copied().unwrap_or(f64::NAN);
    let mut missed = Vec::new();
    let mut must = |holds: bool, words: String| {
        if !holds {
            missed.push(words);
        }
    };
    let (missing, twice) = (get("missing"), get("twice"));
    must(missing <= 0.0, format!("{missing} pods were not told of"));
    must(
        twice <= 0.0,
        format!("{twice} pods were told of more than once"),
    );
    must(get("gone") > 0.0, "no pod came and went".to_owned());
    let (least, most) = (get("watches.min"), get("watches.max"));
    let wanted = f64::from(u32::try_from(WATCHES).unwrap_or_default());
    must(
        least >= wanted && most <= wanted,
        format!("{least} to {most} watches were open"),
    );
    let (first, last) = (get("rss.first"), get("rss.last"));
    must(
        last <= first * FLAT + SLACK,
        format!("memory went from {first:.0} to {last:.0} bytes"),
    );
    let rate = get("created.rate");
    must(
        rate >= 0.9 * f64::from(crowd.created),
        format!("only {rate:.0} pods a second were created"),
    );
    missed
}

async fn report(
    crowd: Crowd,
    session: &Session,
    repeats: Vec<kubevitals_bench::measure::Repeat>,
) -> Report {
    let told = |key, label, unit| Metric::new(key, label, unit, Better::Neither);
    Report {
        bench: "transitions-sim".to_owned(),
        started: session.started.clone(),
        machine: session.machine.clone(),
        versions: versions::of(&session.bench, &["kube"], &[]).await,
        parameters: BTreeMap::from([
            ("size".to_owned(), crowd.size.to_string()),
            ("created-per-second".to_owned(), crowd.created.to_string()),
            (
                "warm-up-seconds".to_owned(),
                crowd.warm_up.as_secs().to_string(),
            ),
            ("seconds".to_owned(), crowd.lasts.as_secs().to_string()),
        ]),
        schedule: Schedule::OneAfterOther,
        baseline: KUBEVITALS.to_owned(),
        metrics: vec![
            told("created.rate", "pods created a second", Unit::Count),
            told("watches.min", "watches open, fewest", Unit::Count),
            told("watches.max", "  most", Unit::Count),
            told("gone", "pods that came and went", Unit::Count),
            told("missing", "  without a startup line", Unit::Count),
            told("told", "pods with a startup line", Unit::Count),
            told("twice", "  with more than one", Unit::Count),
            told("rss.first", "RSS, first third", Unit::Bytes),
            told("rss.last", "  last third", Unit::Bytes),
            told("tracked", "pods followed at the end", Unit::Count),
            told(
                "modified",
                "changes of pods taken in, all of it",
                Unit::Count,
            ),
            told("exposed", "its own metrics as text", Unit::Bytes),
            told("cpu", "cores in use", Unit::Count),
            told(
                "cpu.pod",
                "CPU of a created pod, all its changes and events",
                Unit::Seconds,
            ),
            told("sim.cpu", "cores in use by the cluster", Unit::Count),
        ],
        contenders: vec![Measured {
            name: KUBEVITALS.to_owned(),
            repeats,
        }],
    }
}

/// Where the simulated cluster says that its metrics are.
fn admin_address(log: &Path) -> Result<SocketAddr, BenchError> {
    let text = std::fs::read_to_string(log).map_err(BenchError::file("read", log))?;
    let address = text.split("curl http://").nth(1);
    let address = address.and_then(|rest| rest.split('/').next()?.parse().ok());
    address.ok_or_else(|| BenchError::Protocol {
        name: "kubevitals sim".to_owned(),
        answer: text,
        expected: "where its metrics are",
    })
}

impl CrowdFlags {
    fn read(&self, is_quick: bool) -> Crowd {
        let pick = |full, quick| if is_quick { quick } else { full };
        let size = if is_quick {
            SimSize::new(50, 30)
        } else {
            SimSize::new(5_000, 30)
        };
        Crowd {
            size: self.size.unwrap_or(size),
            created: self.created.unwrap_or(if is_quick { 50 } else { 1_000 }),
            warm_up: Duration::from_secs(self.warm_up.unwrap_or(pick(180, 100))),
            lasts: Duration::from_secs(self.seconds.unwrap_or(pick(60, 30))),
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
    fn a_pod_that_is_missing_or_told_of_twice_is_found() {
        let ended = Instant::now() + Duration::from_mins(1);
        let gone = Seen {
            gone: Some(ended - LATEST),
        };
        let late = Seen { gone: Some(ended) };
        let pods = Pods::from([
            (pod("told"), gone),
            (pod("missing"), gone),
            (pod("late"), late),
            (pod("there"), Seen::default()),
        ]);
        let startups = HashMap::from([(pod("told"), 1), (pod("there"), 2)]);
        let values = compare(&pods, &startups, ended);
        let get = |key: &str| values.get(key).copied();
        assert_eq!(get("gone"), Some(2.0));
        assert_eq!(get("missing"), Some(1.0));
        assert_eq!(get("twice"), Some(1.0));
    }
}
