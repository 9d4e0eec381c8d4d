//! Restarts of the containers of addons, as counters.
//!
//! The counter of a container starts at zero when its pod starts, and its value is the kubelet's
//! `restartCount`. So restarts that happened while this program was down count too, and a pod that
//! goes takes its series along: no sum ever falls.
//!
//! The kubelet says why a container ended the last time only. Restarts are booked on the reason
//! that is known when they are first seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{ContainerState, ContainerStatus, Pod, PodKey, Termination, Timestamp, Uid};

use crate::addon::{Addon, AddonRules};
use crate::node::UNKNOWN;

/// Reasons of one container beyond this number are booked as [`OTHER`]: they are free text.
const MAX_REASONS: usize = 16;

const OTHER: &str = "Other";

/// Restarts of a container for a reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestartCount {
    pub addon: Addon,
    pub pod: PodKey,
    pub container: Arc<str>,
    /// The reason of the last end, such as `OOMKilled`.
    pub reason: Arc<str>,
    /// `None` if it is not known.
    pub exit_code: Option<i32>,
    /// When the count was zero.
    pub start: Timestamp,
    pub total: u64,
}

/// Counts restarts of the pods of addons on a node.
#[derive(Debug, Default)]
pub struct Restarts {
    pods: BTreeMap<Uid, PodRestarts>,
}

#[derive(Debug)]
struct PodRestarts {
    key: PodKey,
    addon: Addon,
    start: Timestamp,
    containers: BTreeMap<Arc<str>, ContainerRestarts>,
    /// Whether no container restarted between the last two observations.
    is_stable: bool,
}

#[derive(Debug)]
struct ContainerRestarts {
    /// The kubelet's count at the last observation.
    seen: u64,
    /// When the counts were zero.
    start: Timestamp,
    by_reason: BTreeMap<(Arc<str>, Option<i32>), u64>,
}

impl Restarts {
    /// Observes all pods of the node. Pods that are missing are forgotten. A pod that is seen for
    /// the first time is unstable if a container ended within `recent`.
    pub fn observe<'p>(
        &mut self,
        rules: &AddonRules,
        pods: impl IntoIterator<Item = &'p Pod>,
        now: Timestamp,
        recent: Duration,
    ) {
        let mut known = std::mem::take(&mut self.pods);
        for pod in pods {
            let Some(addon) = rules.of_pod(pod) else {
                continue;
            };
            let identity = &pod.summary.identity;
            let is_new = !known.contains_key(&identity.uid);
            let start = pod.started.or(pod.meta.created).unwrap_or(now);
            let mut state = known.remove(&identity.uid).unwrap_or_else(|| PodRestarts {
                key: PodKey::new(Arc::clone(&identity.namespace), Arc::clone(&identity.name)),
                addon: addon.clone(),
                start,
                containers: BTreeMap::new(),
                is_stable: true,
            });
            state.addon = addon;
            let before = state.seen();
            for status in all_statuses(pod) {
                state.observe(status, now);
            }
            let ended_recently = || {
                let ends = all_statuses(pod).filter_map(|status| last_end(status)?.finished_at);
                let mut ages = ends.map(|end| now.since(end));
                ages.any(|age| age.is_none_or(|age| age <= recent))
            };
            state.is_stable = if is_new {
                !ended_recently()
            } else {
                state.seen() == before
            };
            self.pods.insert(identity.uid.clone(), state);
        }
    }

    /// Whether no container of a pod restarted between the last two observations.
    pub fn is_stable(&self, pod: &Uid) -> bool {
        self.pods.get(pod).is_none_or(|state| state.is_stable)
    }

    /// The counters of all containers that have restarted.
    pub fn counts(&self) -> Vec<RestartCount> {
        let mut counts = Vec::new();
        for pod in self.pods.values() {
            for (container, state) in &pod.containers {
                for ((reason, exit_code), total) in &state.by_reason {
                    counts.push(RestartCount {
                        addon: pod.addon.clone(),
                        pod: pod.key.clone(),
                        container: Arc::clone(container),
                        reason: Arc::clone(reason),
                        exit_code: *exit_code,
                        start: state.start,
                        total: *total,
                    });
                }
            }
        }
        counts
    }
}

impl PodRestarts {
    fn seen(&self) -> u64 {
        self.containers.values().map(|one| one.seen).sum()
    }

    fn observe(&mut self, status: &ContainerStatus, now: Timestamp) {
        let count = u64::try_from(status.restart_count).unwrap_or(0);
        let start = self.start;
        let name = Arc::clone(&status.name);
        let state = self.containers.entry(name).or_insert(ContainerRestarts {
            seen: 0,
            start,
            by_reason: BTreeMap::new(),
        });
        if count < state.seen {
            // The kubelet lost its count with the containers that it was read from. A counter
            // starts again.
            state.by_reason.clear();
            state.start = now;
            state.seen = count;
            return;
        }
        let more = count - state.seen;
        state.seen = count;
        if more == 0 {
            return;
        }
        let end = last_end(status);
        let reason = end.and_then(|end| end.reason.clone());
        let mut key = (
            reason.unwrap_or_else(|| UNKNOWN.into()),
            end.map(|end| end.exit_code),
        );
        if !state.by_reason.contains_key(&key) && state.by_reason.len() >= MAX_REASONS {
            key = (OTHER.into(), None);
        }
        *state.by_reason.entry(key).or_insert(0) += more;
    }
}

/// Sidecars are init containers that restart; ephemeral containers do not.
fn all_statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let init = pod.init_container_statuses.iter();
    pod.container_statuses.iter().chain(init)
}

/// How the container ended the last time: before the present run, or now.
fn last_end(status: &ContainerStatus) -> Option<&Termination> {
    if status.restart_count == 0 {
        return None;
    }
    match (&status.last_state, &status.state) {
        (ContainerState::Terminated(end), _) | (_, ContainerState::Terminated(end)) => Some(end),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, container, pod, terminated};

    const AGENT: &[(&str, &str)] = &[("k8s-app", "agent")];
    const RECENT: Duration = Duration::from_mins(1);

    fn with(restarts: i32) -> Pod {
        let mut pod = pod("agent-1", AGENT);
        pod.container_statuses = [container(restarts)].into();
        pod
    }

    fn observe(restarts: &mut Restarts, pods: &[Pod], now: i64) {
        restarts.observe(&AddonRules::default(), pods, at(now), RECENT);
    }

    fn rows(restarts: &Restarts) -> Vec<(String, Option<i32>, i64, u64)> {
        let counts = restarts.counts();
        let rows = counts.iter().map(|count| {
            let start = count.start.unix_seconds();
            (
                count.reason.to_string(),
                count.exit_code,
                start,
                count.total,
            )
        });
        rows.collect()
    }

    /// gke-prober writes 1 for each update, however many restarts it stands for, and misses those
    /// before its own start.
    #[test]
    fn all_restarts_count_since_the_start_of_the_pod() {
        let mut restarts = Restarts::default();
        observe(&mut restarts, &[with(5)], 1_000);
        let error = |total| vec![("Error".to_owned(), Some(1), 100, total)];
        assert_eq!(rows(&restarts), error(5));
        observe(&mut restarts, &[with(8)], 1_060);
        assert_eq!(rows(&restarts), error(8));
        // Another process says the same.
        let mut other = Restarts::default();
        observe(&mut other, &[with(8)], 1_070);
        assert_eq!(rows(&other), error(8));
    }

    #[test]
    fn a_restart_is_booked_on_the_reason_at_that_time() {
        let mut restarts = Restarts::default();
        observe(&mut restarts, &[with(1)], 1_000);
        let mut killed = with(3);
        killed.container_statuses[0].last_state = terminated("OOMKilled", 137);
        observe(&mut restarts, &[killed], 1_060);
        assert_eq!(
            rows(&restarts),
            [
                ("Error".to_owned(), Some(1), 100, 1),
                ("OOMKilled".to_owned(), Some(137), 100, 2)
            ]
        );
    }

    #[test]
    fn a_pod_is_unstable_for_the_tick_that_saw_a_restart() {
        let uid = with(0).summary.identity.uid;
        let mut restarts = Restarts::default();
        assert!(restarts.is_stable(&uid));
        observe(&mut restarts, &[with(0)], 1_000);
        assert!(restarts.is_stable(&uid));
        observe(&mut restarts, &[with(2)], 1_060);
        assert!(!restarts.is_stable(&uid));
        observe(&mut restarts, &[with(2)], 1_120);
        assert!(restarts.is_stable(&uid));
        // The container of the fixture ended at second 150.
        let mut first = Restarts::default();
        observe(&mut first, &[with(1)], 200);
        assert!(!first.is_stable(&uid));
        let mut late = Restarts::default();
        observe(&mut late, &[with(1)], 300);
        assert!(late.is_stable(&uid));
    }

    #[test]
    fn a_count_that_falls_starts_again() {
        let mut restarts = Restarts::default();
        observe(&mut restarts, &[with(5)], 1_000);
        observe(&mut restarts, &[with(1)], 1_060);
        assert_eq!(rows(&restarts), []);
        observe(&mut restarts, &[with(3)], 1_120);
        assert_eq!(rows(&restarts), [("Error".to_owned(), Some(1), 1_060, 2)]);
    }

    #[test]
    fn pods_that_are_gone_are_forgotten() {
        let mut restarts = Restarts::default();
        observe(&mut restarts, &[with(5), pod("other", &[])], 1_000);
        assert_eq!(restarts.pods.len(), 1);
        observe(&mut restarts, &[], 1_060);
        assert!(restarts.counts().is_empty());
    }

    #[test]
    fn reasons_are_bounded() {
        let mut restarts = Restarts::default();
        for turn in 1..100 {
            let mut pod = with(turn);
            pod.container_statuses[0].last_state = terminated(&format!("R{turn}"), turn);
            observe(&mut restarts, &[pod], i64::from(turn));
        }
        let counts = restarts.counts();
        assert_eq!(counts.len(), MAX_REASONS + 1);
        assert_eq!(counts.iter().map(|count| count.total).sum::<u64>(), 99);
    }

    mod properties {
        use proptest::prelude::*;

        use super::*;

        proptest! {
            #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

            #[test]
            fn a_counter_falls_only_with_a_new_start(turns in prop::collection::vec((0..20_i32, 0..3_i32), 1..40)) {
                let mut restarts = Restarts::default();
                let mut last: BTreeMap<_, (Timestamp, u64)> = BTreeMap::new();
                for (turn, (count, code)) in turns.into_iter().enumerate() {
                    let mut pod = with(count);
                    pod.container_statuses[0].last_state = terminated("Error", code);
                    observe(&mut restarts, &[pod], 1_000 + i64::try_from(turn).unwrap());
                    for count in restarts.counts() {
                        let key = (count.reason, count.exit_code);
                        if let Some((start, total)) = last.insert(key, (count.start, count.total)) {
                            prop_assert!(count.start > start || (count.start == start && count.total >= total));
                        }
                    }
                }
            }
        }
    }
}
