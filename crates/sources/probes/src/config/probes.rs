//! The list `probes`, and the jobs that follow from it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::module::{CompiledModule, module, unset};
use super::reader::{Item, Section, excerpt, nearest};
use super::steps::is_label_name;
use super::tree::Value;
use super::variables::Variables;
use super::{Config, ConfiguredProbe, MAX_JOBS, MAX_PROBES, MAX_TARGETS};
use crate::builtin;
use crate::probe::{Job, LabelPairs, ProbeInfo, Threshold};
use crate::target::Target;

const DEFAULT_INTERVAL: Duration = Duration::from_secs(30);
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_INTERVAL: Duration = Duration::from_hours(24);
/// The timeout of a run, unless the probe or its module has one.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_THRESHOLD: u64 = 1_000;
const MAX_LABELS: usize = 16;
const MAX_LABEL_VALUE: usize = 128;

/// Labels that results have anyway.
const RESERVED_LABELS: [&str; 6] = ["probe", "target", "module", "reason", "phase", "le"];

const NAME_RULE: &str = "a name has 1 to 63 letters, digits, `_`, `-` and `.`; rename it";

/// Gives targets that are not in the configuration: nodes, services, pods.
pub trait TargetSource: Send + Sync {
    /// The targets of the source with this name; `None` if there is no such source.
    fn targets(&self, name: &str) -> Option<Vec<DiscoveredTarget>>;
}

/// A target that was discovered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveredTarget {
    pub target: String,
    /// Labels of its series, besides those of the probe: node, zone.
    pub labels: LabelPairs,
}

/// A source without any targets.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTargets;

impl TargetSource for NoTargets {
    fn targets(&self, _name: &str) -> Option<Vec<DiscoveredTarget>> {
        None
    }
}

impl Config {
    /// Adds a built-in probe by one of [`BUILTIN_PROBES`](crate::BUILTIN_PROBES), unless a probe with its name is configured. One that lacks a variable
    /// becomes [`unavailable`](Self::unavailable).
    pub fn add_builtin(&mut self, name: &'static str, variables: &Variables) {
        if self.probes.iter().any(|probe| *probe.info.name == *name) {
            return;
        }
        match builtin::probe(name, variables) {
            Ok(probe) => self.probes.push(probe),
            Err(variable) => self.unavailable.push(super::Unavailable {
                probe: name,
                variable,
            }),
        }
    }

    /// The jobs of all probes, at most [`MAX_JOBS`]. Targets that cannot be parsed are left out.
    pub fn jobs(&self, source: &dyn TargetSource) -> Vec<Job> {
        self.jobs_and_left_out(source).0
    }

    /// The jobs, and how many of the discovered targets are none: not valid, or too many.
    pub(crate) fn jobs_and_left_out(&self, source: &dyn TargetSource) -> (Vec<Job>, usize) {
        let mut jobs = Vec::new();
        let mut left_out = 0;
        for probe in &self.probes {
            let fixed = probe.targets.iter().cloned();
            jobs.extend(fixed.map(|target| Job {
                probe: Arc::clone(&probe.info),
                module: Arc::clone(&probe.module),
                target,
            }));
            let Some(name) = &probe.targets_from else {
                continue;
            };
            let found = source.targets(name).unwrap_or_default();
            left_out += found.len().saturating_sub(MAX_TARGETS);
            for found in found.into_iter().take(MAX_TARGETS) {
                let Ok(target) = Target::parse(&found.target, &probe.module.prober) else {
                    left_out += 1;
                    continue;
                };
                jobs.push(Job {
                    probe: with_labels(&probe.info, found.labels),
                    module: Arc::clone(&probe.module),
                    target,
                });
            }
        }
        left_out += jobs.len().saturating_sub(MAX_JOBS);
        jobs.truncate(MAX_JOBS);
        (jobs, left_out)
    }
}

/// The probe with labels of a target. Those of the probe win.
fn with_labels(info: &Arc<ProbeInfo>, labels: LabelPairs) -> Arc<ProbeInfo> {
    if labels.is_empty() {
        return Arc::clone(info);
    }
    let mut merged: BTreeMap<_, _> = labels.into_iter().collect();
    merged.extend(info.labels.iter().cloned());
    Arc::new(ProbeInfo {
        labels: merged.into_iter().collect(),
        ..(**info).clone()
    })
}

/// Reads `probes` and `builtin_probes` of a file.
pub(super) fn read(root: &Section<'_>, variables: &Variables, config: &mut Config) {
    let before: HashSet<Arc<str>> = config.probes().map(|info| Arc::clone(&info.name)).collect();
    let mut names = before;
    for item in root.items("probes") {
        if config.probes.len() >= MAX_PROBES {
            item.report(format!("there are more than {MAX_PROBES} probes"));
            break;
        }
        let Some(section) = item.section() else {
            continue;
        };
        let probe = probe(&section, variables, config);
        if let Some(probe) = probe {
            if !names.insert(Arc::clone(&probe.info.name)) {
                section.report_at("name", "another probe has this name; rename one of them");
            }
            config.probes.push(probe);
            let fixed: usize = config.probes.iter().map(|probe| probe.targets.len()).sum();
            if fixed > MAX_JOBS {
                section.report_at(
                    "targets",
                    format!("there are more than {MAX_JOBS} targets in all probes together"),
                );
                break;
            }
        }
        section.finish();
    }
    config.chooses_builtins |= root.item("builtin_probes").is_some();
    for item in root.items("builtin_probes") {
        let Some(name) = item.text() else { continue };
        match builtin::PROBES.iter().find(|known| **known == name) {
            Some(known) => config.add_builtin(known, variables),
            None => item.report(format!(
                "`{}` is not built in; use some of: {}",
                excerpt(&name),
                builtin::PROBES.join(", ")
            )),
        }
    }
}

fn probe(section: &Section<'_>, variables: &Variables, config: &Config) -> Option<ConfiguredProbe> {
    let name = section.text("name").unwrap_or_default();
    let is_valid = is_name(&name);
    if name.is_empty() {
        section.report("has no `name`");
    } else if !is_valid {
        section.report_at("name", NAME_RULE);
    }
    let module = section.item("module");
    if module.is_none() {
        section.report("has no `module`; name one, or write one here");
    }
    let module = module.and_then(|item| find_module(&item, &name, variables, config));
    let (interval, jitter) = ticks(section);
    let own_timeout = section.duration("timeout");
    if own_timeout.is_some_and(|timeout| timeout.is_zero() || timeout > interval) {
        section.report_at(
            "timeout",
            "must be longer than 0s, and not longer than `interval`",
        );
    }
    let threshold = threshold(section);
    let labels = labels(section);
    let targets = section.item("targets");
    let targets_from = section.text("targets_from");
    if targets.is_none() && targets_from.is_none() {
        section.report("has no `targets`");
    }
    let (module_name, compiled) = module?;
    // As in blackbox_exporter the timeout of the module is a limit.
    let timeout = match (own_timeout, compiled.timeout) {
        (Some(own), Some(module)) => own.min(module),
        (own, module) => own.or(module).unwrap_or(DEFAULT_TIMEOUT),
    };
    let info = ProbeInfo {
        kind: compiled.module.prober.name(),
        name: name.into(),
        module: module_name,
        labels,
        interval,
        jitter,
        timeout: timeout.min(interval),
        threshold,
    };
    let targets = targets.map(|item| read_targets(&item, &compiled, variables));
    is_valid.then_some(ConfiguredProbe {
        info: Arc::new(info),
        module: compiled.module,
        targets: targets.unwrap_or_default(),
        targets_from: targets_from.map(Into::into),
    })
}

/// A module by its name, or one that is written in the probe.
fn find_module(
    item: &Item<'_>,
    probe: &str,
    variables: &Variables,
    config: &Config,
) -> Option<(Arc<str>, CompiledModule)> {
    if matches!(item.node.value, Value::Map(_)) {
        return module(item, variables).map(|compiled| (probe.into(), compiled));
    }
    let name = item.text()?;
    if let Some(compiled) = config.compiled(&name) {
        return Some((name.into(), compiled.clone()));
    }
    let hint = nearest(&name, config.module_names()).map_or_else(
        || "add it to `modules`".to_owned(),
        |nearest| format!("did you mean `{nearest}`?"),
    );
    item.report(format!("there is no module `{}`; {hint}", excerpt(&name)));
    None
}

fn ticks(section: &Section<'_>) -> (Duration, Duration) {
    let interval = section.duration("interval").unwrap_or(DEFAULT_INTERVAL);
    if interval < MIN_INTERVAL || interval > MAX_INTERVAL {
        section.report_at("interval", "must be from 1s to 24h");
    }
    let jitter = section.duration("jitter").unwrap_or(interval / 10);
    if jitter > interval {
        section.report_at("jitter", "must not be longer than `interval`");
    }
    (interval, jitter)
}

fn threshold(section: &Section<'_>) -> Threshold {
    let mut threshold = Threshold::default();
    let Some(item) = section.item("threshold") else {
        return threshold;
    };
    let count = |item: &Item<'_>| {
        let count = item.unsigned(MAX_THRESHOLD)?;
        if count == 0 {
            item.report("must be at least 1");
        }
        u32::try_from(count).ok()
    };
    if matches!(item.node.value, Value::Integer(_)) {
        threshold.failures = count(&item).unwrap_or(threshold.failures);
        return threshold;
    }
    if let Some(section) = item.section() {
        if let Some(failures) = section.item("failures") {
            threshold.failures = count(&failures).unwrap_or(threshold.failures);
        }
        if let Some(successes) = section.item("successes") {
            threshold.successes = count(&successes).unwrap_or(threshold.successes);
        }
        section.finish();
    }
    threshold
}

fn labels(section: &Section<'_>) -> LabelPairs {
    let Some(item) = section.item("labels") else {
        return Vec::new();
    };
    let entries = item.entries();
    if entries.len() > MAX_LABELS {
        item.report(format!("has more than {MAX_LABELS} labels"));
        return Vec::new();
    }
    let mut labels = BTreeMap::new();
    for (name, item) in entries {
        if !is_label_name(name) || name.starts_with("__") {
            item.report("is not a label name: letters, digits and `_`, not first a digit or `__`");
        } else if RESERVED_LABELS.contains(&name) {
            item.report("results have a label of this name already; rename it");
        } else if let Some(value) = item.text() {
            if value.len() > MAX_LABEL_VALUE {
                item.report(format!("is longer than {MAX_LABEL_VALUE} bytes"));
            }
            labels.insert(name.into(), value.into());
        }
    }
    labels.into_iter().collect()
}

fn read_targets(item: &Item<'_>, module: &CompiledModule, variables: &Variables) -> Vec<Target> {
    let items = item.items();
    if items.len() > MAX_TARGETS {
        item.report(format!("has more than {MAX_TARGETS} targets"));
        return Vec::new();
    }
    let mut seen = HashSet::new();
    let targets = items.iter().filter_map(|item| {
        let text = item.text()?;
        let text = match variables.expand(&text) {
            Ok(text) => text,
            Err(name) => {
                item.report(unset(&name));
                return None;
            }
        };
        let target = Target::parse(&text, &module.module.prober);
        let target = target
            .map_err(|error| item.report(error.to_string()))
            .ok()?;
        if !seen.insert(text) {
            item.report("is in the list already; remove one of them");
        }
        Some(target)
    });
    targets.collect()
}

/// Whether a text can be the name of a probe.
fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=63).contains(&name.len()) && name.bytes().all(allowed)
}
