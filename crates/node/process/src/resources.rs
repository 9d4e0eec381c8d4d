//! CPU and memory of pods and containers, by the kubelet's formulas.

use std::collections::BTreeMap;
use std::str::FromStr as _;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource;
use kubevitals_model::Quantity;

/// The smallest and the largest number of shares.
const MIN_SHARES: u64 = 2;
const MAX_SHARES: u64 = 262_144;
/// The smallest quota that the kernel accepts.
const MIN_QUOTA_MICROS: u64 = 1000;

/// What a cgroup may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    pub cpu_shares: Option<u64>,
    pub cpu_quota_micros: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub max_pids: Option<u64>,
}

/// The quality of service class of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl Limits {
    /// The period of CPU quotas.
    pub const PERIOD_MICROS: u64 = 100_000;

    /// The weight in cgroup v2 of the shares, as new container runtimes convert them.
    pub fn cpu_weight(&self) -> Option<u64> {
        self.cpu_shares.map(weight_of_shares)
    }

    /// The limits of a container.
    pub(crate) fn of_container(container: &Container, max_pids: Option<u64>) -> Self {
        let request = milli_cpu(container, false).or_else(|| milli_cpu(container, true));
        Self {
            cpu_shares: Some(request.map_or(MIN_SHARES, shares_of_milli)),
            cpu_quota_micros: milli_cpu(container, true).map(quota_of_milli),
            memory_bytes: bytes(container, true).filter(|one| *one > 0),
            max_pids,
        }
    }

    /// The limits of a pod: those of its containers together, if all have some.
    pub(crate) fn of_pod(spec: &PodSpec, max_pids: Option<u64>) -> Self {
        let milli_limit = total(spec, |one| milli_cpu(one, true));
        let requests = total_known(spec, |one| {
            milli_cpu(one, false).or_else(|| milli_cpu(one, true))
        });
        Self {
            cpu_shares: Some(shares_of_milli(requests)),
            cpu_quota_micros: milli_limit.map(quota_of_milli),
            memory_bytes: total(spec, |one| bytes(one, true)),
            max_pids,
        }
    }
}

impl QosClass {
    /// The class of a pod.
    pub fn of(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else {
            return Self::BestEffort;
        };
        let mut has_any = false;
        let mut is_guaranteed = true;
        let inits = spec.init_containers.iter().flatten();
        for container in spec.containers.iter().chain(inits) {
            for read in [milli_cpu, bytes] {
                let request = read(container, false).filter(|one| *one > 0);
                let limit = read(container, true).filter(|one| *one > 0);
                has_any |= request.is_some() || limit.is_some();
                is_guaranteed &= limit.is_some() && request.is_none_or(|one| Some(one) == limit);
            }
        }
        match (has_any, is_guaranteed) {
            (false, _) => Self::BestEffort,
            (true, true) => Self::Guaranteed,
            (true, false) => Self::Burstable,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

/// The adjustment of the kernel's choice whom to kill for want of memory.
pub(crate) fn oom_score_adj(pod: &Pod, container: &Container, capacity_bytes: u64) -> i32 {
    const NODE_CRITICAL: i32 = 2_000_001_000;
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority);
    if priority.is_some_and(|one| one >= NODE_CRITICAL) {
        return -997;
    }
    match QosClass::of(pod) {
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let request = bytes(container, false)
                .or_else(|| bytes(container, true))
                .unwrap_or(0);
            let share = u128::from(request) * 1000 / u128::from(capacity_bytes.max(1));
            let adjusted = 1000 - i32::try_from(share.min(1000)).unwrap_or(1000);
            adjusted.clamp(3, 999)
        }
    }
}

/// CPU of a container in thousandths.
pub(crate) fn milli_cpu(container: &Container, limit: bool) -> Option<u64> {
    let quantity = Quantity::from_str(&value(container, "cpu", limit)?.0).ok()?;
    u64::try_from(quantity.milli_value()?).ok()
}

/// Memory of a container.
pub(crate) fn bytes(container: &Container, limit: bool) -> Option<u64> {
    let quantity = Quantity::from_str(&value(container, "memory", limit)?.0).ok()?;
    u64::try_from(quantity.value()?).ok()
}

fn value<'a>(container: &'a Container, name: &str, limit: bool) -> Option<&'a resource::Quantity> {
    let resources = container.resources.as_ref()?;
    let map: &BTreeMap<String, resource::Quantity> = if limit {
        resources.limits.as_ref()?
    } else {
        resources.requests.as_ref()?
    };
    map.get(name)
}

/// The sum, if all main containers have a value; an init container that needs more counts instead.
fn total(spec: &PodSpec, read: impl Fn(&Container) -> Option<u64>) -> Option<u64> {
    let mut sum = 0_u64;
    for container in &spec.containers {
        sum = sum.checked_add(read(container).filter(|one| *one > 0)?)?;
    }
    for container in spec.init_containers.iter().flatten() {
        let need = read(container).filter(|one| *one > 0)?;
        if container.restart_policy.as_deref() == Some("Always") {
            sum = sum.checked_add(need)?;
        } else {
            sum = sum.max(need);
        }
    }
    Some(sum)
}

fn total_known(spec: &PodSpec, read: impl Fn(&Container) -> Option<u64>) -> u64 {
    let main = spec.containers.iter().filter_map(&read);
    main.fold(0, u64::saturating_add)
}

/// `MilliCPUToShares`.
fn shares_of_milli(milli: u64) -> u64 {
    (milli.saturating_mul(1024) / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// `MilliCPUToQuota`.
fn quota_of_milli(milli: u64) -> u64 {
    (milli.saturating_mul(Limits::PERIOD_MICROS) / 1000).max(MIN_QUOTA_MICROS)
}

/// ceil(10^((l² + 125 l) / 612 - 7/34)) with l = log2(shares).
fn weight_of_shares(shares: u64) -> u64 {
    if shares <= MIN_SHARES {
        return 1;
    }
    if shares >= MAX_SHARES {
        return 10_000;
    }
    #[expect(clippy::cast_precision_loss, reason = "at most 262144")]
    let log = (shares as f64).log2();
    let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and 10000 by the range of shares"
    )]
    let weight = 10_f64.powf(exponent).ceil() as u64;
    weight.clamp(1, 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_weights_and_quotas_are_the_kubelets() {
        for (milli, shares) in [(0, 2), (1, 2), (100, 102), (1000, 1024), (300_000, 262_144)] {
            assert_eq!(shares_of_milli(milli), shares, "{milli} mCPU");
        }
        for (shares, weight) in [(2, 1), (1024, 100), (262_144, 10_000)] {
            assert_eq!(weight_of_shares(shares), weight, "{shares} shares");
        }
        for (milli, quota) in [(1, 1000), (10, 1000), (100, 10_000), (2500, 250_000)] {
            assert_eq!(quota_of_milli(milli), quota, "{milli} mCPU");
        }
    }

    fn pod(json: serde_json::Value) -> Pod {
        serde_json::from_value(json).expect("a pod")
    }

    #[test]
    fn classes_and_oom_scores_are_the_kubelets() {
        let one = |resources: serde_json::Value| {
            pod(
                serde_json::json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}),
            )
        };
        let score = |pod: &Pod| {
            let container = &pod.spec.as_ref().expect("a spec").containers[0];
            oom_score_adj(pod, container, 1 << 30)
        };
        let best = one(serde_json::json!({}));
        assert_eq!(
            (QosClass::of(&best), score(&best)),
            (QosClass::BestEffort, 1000)
        );
        let both = serde_json::json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        let guaranteed = one(both);
        assert_eq!(
            (QosClass::of(&guaranteed), score(&guaranteed)),
            (QosClass::Guaranteed, -997)
        );
        let burstable = one(serde_json::json!({"requests": {"memory": "256Mi"}}));
        assert_eq!(
            (QosClass::of(&burstable), score(&burstable)),
            (QosClass::Burstable, 750)
        );
        let all = one(serde_json::json!({"requests": {"memory": "2Gi"}}));
        assert_eq!(score(&all), 3);
    }
}
