//! Validated [`TransitionsFlags`].

use std::path::PathBuf;
use std::time::Duration;

use kubevitals_cli::InvalidSetting;
use kubevitals_jsonl::{LifecycleLines, TransitionLines};
use kubevitals_model::{Event, LabelSelector, Pod, parse_field_selector};
use kubevitals_transition_metrics::FamilyConfig;
use kubevitals_transitions::{Facts, Shard, TrackerConfig};
use kubevitals_transitions_role::TransitionsConfig;
use kubevitals_watch::{WatchOptions, WatchSpec};

use super::flags::{FamilyFlags, LineFlags, PodFlags, StandbyFlags, TransitionsFlags};
use super::traces;
use crate::election::{LeaseFlags, LeaseSettings};

/// The lines of one pod with a hundred containers.
const MIN_BUFFER: usize = 64 << 10;

/// Series are removed after several scrapes, and not between two pods of one workload.
const MIN_IDLE_TIMEOUT: Duration = Duration::from_mins(10);

/// Longest wait for late events, in seconds.
const MAX_LINGER: f64 = 3_600.0;

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) pods: WatchSpec<Pod>,
    /// `None` if events are not watched.
    pub(super) events: Option<WatchSpec<Event>>,
    /// `None` without leader election.
    pub(super) lease: Option<LeaseSettings>,
    /// `None` if no traces are sent.
    pub(super) traces: Option<kubevitals_otlp::Settings>,
    pub(super) role: TransitionsConfig,
}

impl Settings {
    pub(super) fn new(flags: &TransitionsFlags) -> Result<Self, InvalidSetting> {
        let watches = &flags.watches;
        let queue = watches.statistic_event_queue_length as usize;
        let options = WatchOptions {
            watch_timeout: Duration::from_secs(watches.kube_watch_timeout.into()),
            page_size: watches.kube_watch_max_events,
            queue,
            ..WatchOptions::default()
        };
        let events = flags.pods.image_pull_events.then(|| {
            events(&flags.pods).options(WatchOptions {
                // A streaming list cannot be stopped half-way.
                streaming_lists: false,
                max_listed: Some(watches.event_list_limit as usize),
                ..options.clone()
            })
        });
        let lines = &flags.lines;
        Ok(Self {
            kubeconfig: watches.kubeconfig.clone(),
            pods: pods(&flags.pods)?.options(options),
            events,
            lease: lease(&flags.standby, flags.pods.shard)?,
            traces: traces::settings(&flags.traces, |name| std::env::var(name).ok())?,
            role: TransitionsConfig {
                queue,
                shard: flags.pods.shard,
                tracker: TrackerConfig {
                    linger: Some(linger(lines)?),
                    progress: lines.emit_partial,
                    has_selector: has_selector(&flags.pods),
                    ..TrackerConfig::default()
                },
                lines: TransitionLines {
                    compat: lines.compat,
                    lifecycle: if lines.lifecycle {
                        LifecycleLines::AtStartAndEnd
                    } else {
                        LifecycleLines::Never
                    },
                    label_keys: flags.families.label_keys.clone(),
                },
                buffer: lines.output_lines.then(|| buffer(lines)).transpose()?,
                families: FamilyConfig {
                    labels: flags.families.metric_labels,
                    label_keys: flags.families.label_keys.clone(),
                    idle_timeout: idle_timeout(&flags.families)?,
                    series_limit: flags.families.metric_series_limit as usize,
                    native_histograms: flags.families.native_histograms,
                    ..FamilyConfig::default()
                },
                grace: Duration::try_from(flags.process.shutdown_grace_period).unwrap_or_default(),
            },
        })
    }
}

/// The election of this role; every shard elects its own leader.
fn lease(flags: &StandbyFlags, shard: Shard) -> Result<Option<LeaseSettings>, InvalidSetting> {
    if !flags.leader_elect {
        return Ok(None);
    }
    let name = &flags.leader_elect_resource_name;
    let name = if shard == Shard::ALL {
        name.clone()
    } else {
        format!("{name}-{}-of-{}", shard.index(), shard.count())
    };
    let durations = LeaseFlags {
        lease_duration: flags.leader_elect_lease_duration,
        renew_deadline: flags.leader_elect_renew_deadline,
        retry_period: flags.leader_elect_retry_period,
    };
    let namespace = flags.leader_elect_resource_namespace.clone();
    LeaseSettings::new(name, namespace, durations).map(Some)
}

fn pods(flags: &PodFlags) -> Result<WatchSpec<Pod>, InvalidSetting> {
    let mut spec = WatchSpec::<Pod>::new("pods");
    if let Some(namespace) = &flags.namespace {
        spec = spec.namespace(namespace);
    }
    let labels = LabelSelector::parse(&flags.selector).map_err(|error| InvalidSetting {
        flag: "selector",
        value: flags.selector.clone(),
        problem: error.to_string(),
        advice: "use a label selector as in kubectl get -l, such as app=web,tier!=cache".to_owned(),
    })?;
    if !labels.is_empty() {
        spec = spec.labels(&flags.selector);
    }
    let fields = parse_field_selector(&flags.field_selector).map_err(|error| InvalidSetting {
        flag: "field-selector",
        value: flags.field_selector.clone(),
        problem: error.to_string(),
        advice: "use a field selector as in kubectl get --field-selector, such as spec.nodeName=a"
            .to_owned(),
    })?;
    if !fields.is_empty() {
        spec = spec.fields(&flags.field_selector);
    }
    Ok(spec)
}

/// Excludes irrelevant events: a cluster writes far more events than pods.
fn events(flags: &PodFlags) -> WatchSpec<Event> {
    let spec = WatchSpec::<Event>::new("events").fields(Facts::field_selector());
    match &flags.namespace {
        Some(namespace) => spec.namespace(namespace),
        None => spec,
    }
}

/// Whether a pod may leave the watch without being deleted.
fn has_selector(flags: &PodFlags) -> bool {
    !flags.selector.trim().is_empty() || !flags.field_selector.trim().is_empty()
}

fn idle_timeout(flags: &FamilyFlags) -> Result<Option<Duration>, InvalidSetting> {
    let given = flags.metric_idle_timeout;
    let timeout = Duration::try_from(given).ok();
    let is_good = |timeout: &Duration| timeout.is_zero() || *timeout >= MIN_IDLE_TIMEOUT;
    let timeout = timeout.filter(is_good).ok_or_else(|| InvalidSetting {
        flag: "metric-idle-timeout",
        value: given.to_string(),
        problem: "a scrape might miss series that are removed so soon".to_owned(),
        advice: "use at least 10m, such as 24h, or 0 to keep all series".to_owned(),
    })?;
    Ok((!timeout.is_zero()).then_some(timeout))
}

fn linger(flags: &LineFlags) -> Result<Duration, InvalidSetting> {
    let seconds = flags.image_pull_cancel_delay;
    let is_good = (0.0..=MAX_LINGER).contains(&seconds);
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|_| is_good)
        .ok_or_else(|| InvalidSetting {
            flag: "image-pull-cancel-delay",
            value: seconds.to_string(),
            problem: "it is out of range".to_owned(),
            advice: "use seconds from 0 to 3600, such as 3 or 0.5".to_owned(),
        })
}

fn buffer(flags: &LineFlags) -> Result<usize, InvalidSetting> {
    let bytes = flags.stdout_buffer.value();
    bytes
        .and_then(|bytes| usize::try_from(bytes).ok())
        .filter(|bytes| *bytes >= MIN_BUFFER)
        .ok_or_else(|| InvalidSetting {
            flag: "stdout-buffer",
            value: flags.stdout_buffer.to_string(),
            problem: "it is too small for the lines of one pod".to_owned(),
            advice: "use at least 64Ki, such as 32Mi".to_owned(),
        })
}
