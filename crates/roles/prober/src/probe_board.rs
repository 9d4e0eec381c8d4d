//! The results of all probes of this process, for the ticks and for the judgement of addons.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubevitals_inventory::{Addon, Healthy};
use kubevitals_model::Pod;
use kubevitals_probes::{Completed, OutcomeSink, ProbeInfo, Reason, Statistics, Verdict};
use parking_lot::Mutex;

use crate::fan_out::{FanOut, Providers};
use crate::provider::{ProbeRecorder, ProbeTarget};

/// The label of a probe that names the addon whose pods it judges, where its own name does not.
const ADDON_LABEL: &str = "addon";

/// Targets beyond this number are not exported.
const MAX_TARGETS: usize = 10_000;

/// Receives the results of a scheduler, passes them to all providers, and keeps the statistics of
/// each target.
pub struct ProbeBoard {
    recorders: FanOut<dyn ProbeRecorder>,
    targets: Mutex<BTreeMap<Key, ProbeTarget>>,
}

/// A probe and a target, by their names.
type Key = (Arc<str>, Arc<str>);

impl ProbeBoard {
    pub fn new(providers: &Providers) -> Self {
        Self {
            recorders: providers.probes(),
            targets: Mutex::default(),
        }
    }

    /// The statistics of all targets, sorted by probe and target.
    pub fn targets(&self) -> Vec<ProbeTarget> {
        self.targets.lock().values().cloned().collect()
    }

    /// Reports the statistics of all targets to the providers.
    pub(crate) fn report(&self, at: kubevitals_model::Timestamp) {
        self.recorders.targets(at, &self.targets());
    }

    /// The verdict about a pod of an addon, of the probe that has the name of the addon or names it
    /// in a label. A target with an address of the pod counts before others.
    pub fn health(&self, addon: &Addon, pod: &Pod) -> Healthy {
        let targets = self.targets.lock();
        let addresses = [pod.pod_ip.as_deref(), pod.host_ip.as_deref()];
        let is_own = |target: &str| {
            let hosts = addresses.iter().flatten();
            hosts.into_iter().any(|address| has_host(target, address))
        };
        let of_addon = || targets.values().filter(|one| is_about(&one.probe, addon));
        let has_own = of_addon().any(|one| is_own(&one.target));
        let counted = of_addon().filter(|one| !has_own || is_own(&one.target));
        // The worst counts.
        counted
            .map(|one| verdict(&one.statistics))
            .max_by_key(|healthy| match healthy {
                Healthy::Unknown => 0,
                Healthy::True => 1,
                Healthy::Error => 2,
                Healthy::False => 3,
            })
            .unwrap_or_default()
    }
}

impl OutcomeSink for ProbeBoard {
    fn completed(&self, completed: &Completed) {
        let key = (
            Arc::clone(&completed.probe.name),
            Arc::clone(&completed.target),
        );
        let mut targets = self.targets.lock();
        let has_room = targets.len() < MAX_TARGETS;
        match targets.get_mut(&key) {
            Some(target) => target.record(completed),
            None if has_room => {
                let mut target = ProbeTarget {
                    probe: Arc::clone(&completed.probe),
                    target: Arc::clone(&completed.target),
                    start: completed.scheduled,
                    statistics: Statistics::default(),
                };
                target.record(completed);
                targets.insert(key, target);
            }
            None => return,
        }
        drop(targets);
        self.recorders.completed(completed);
    }

    fn removed(&self, probe: &ProbeInfo, target: &str) {
        let key = (Arc::clone(&probe.name), target.into());
        self.targets.lock().remove(&key);
        self.recorders.removed(probe, target);
    }
}

impl ProbeTarget {
    fn record(&mut self, completed: &Completed) {
        self.probe = Arc::clone(&completed.probe);
        self.statistics
            .record(&completed.outcome, completed.probe.threshold);
    }
}

fn is_about(probe: &ProbeInfo, addon: &Addon) -> bool {
    let label = probe.labels.iter().find(|(name, _)| &**name == ADDON_LABEL);
    let named = label.map_or(&probe.name, |(_, value)| value);
    *named == addon.name
}

/// Whether an address is the host of a target such as `10.0.0.1:53` or `http://10.0.0.1:2020/`.
fn has_host(target: &str, address: &str) -> bool {
    let rest = target.split_once("://").map_or(target, |(_, rest)| rest);
    let rest = rest.strip_prefix('[').unwrap_or(rest);
    let Some(rest) = rest.strip_prefix(address) else {
        return false;
    };
    rest.is_empty() || rest.starts_with([':', '/', ']', '?'])
}

/// A target that answers wrongly is unhealthy; of one that does not answer the probe cannot say.
fn verdict(statistics: &Statistics) -> Healthy {
    match statistics.verdict {
        Verdict::Unknown => Healthy::Unknown,
        Verdict::Up => Healthy::True,
        Verdict::Down => match statistics.last_failure.as_ref().map(|one| one.reason) {
            Some(
                Reason::HttpStatus
                | Reason::HttpVersion
                | Reason::HeaderMismatch
                | Reason::BodyMismatch
                | Reason::ExpectMismatch
                | Reason::Rcode
                | Reason::AnswerMismatch
                | Reason::GrpcStatus
                | Reason::GrpcNotServing
                | Reason::ExecExit,
            ) => Healthy::False,
            _ => Healthy::Error,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_compared_as_a_whole() {
        for (target, address, is_host) in [
            ("10.0.0.1:53", "10.0.0.1", true),
            ("10.0.0.11:53", "10.0.0.1", false),
            ("http://10.0.0.1:2020/api", "10.0.0.1", true),
            ("http://10.0.0.1", "10.0.0.1", true),
            ("[fd00::1]:53", "fd00::1", true),
            ("fd00::11", "fd00::1", false),
            ("example.com", "10.0.0.1", false),
        ] {
            assert_eq!(has_host(target, address), is_host, "{target}");
        }
    }
}
