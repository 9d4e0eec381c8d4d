//! Resource usage of containers: closed forms, so that the value at every instant is known.
//!
//! CPU: a container's rate is a base plus two square waves, all derived from its seed. The counter
//! is the exact integral, in whole nanoseconds, so it never decreases, and
//! [`ContainerUsage::cpu_rate`] is what a correct reader computes between two instants.
//!
//! Memory: a triangle wave between two bounds, in whole pages.
//!
//! Samples: a kubelet does not measure a container on each request, but every 10 to 15 seconds.
//! [`last_sample`] returns the instant of the last sample; values are those of that instant.

use kubevitals_model::Timestamp;

use crate::clock::millis_between;
use crate::node_set::NodeView;
use crate::seed::Seed;
use crate::workload::pod::{Container, ContainerState, Termination};
use crate::workload::{ContainerTemplate, Pod};

/// The shortest time between two samples.
pub const MIN_SAMPLE_GAP_MILLIS: u64 = 10_000;
/// The longest time between two samples.
pub const MAX_SAMPLE_GAP_MILLIS: u64 = 15_000;

const MEAN_GAP: u64 = 12_500;
const PAGE: u64 = 4_096;
/// CPU cost of starting a process: a running container has always used some CPU.
const START_NANOS: u64 = 12_000_000;

/// Usage of one run of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerUsage {
    started: Timestamp,
    /// Nanoseconds of CPU per second.
    base: u64,
    waves: [Wave; 2],
    memory_low: u64,
    memory_high: u64,
    memory_period: u64,
}

/// A rate that applies in the first half of each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wave {
    rate: u64,
    period: u64,
    phase: u64,
}

impl ContainerUsage {
    /// A run that started at `started`, with a CPU limit in thousandths of a core (0: no limit) and
    /// an upper bound of memory in bytes.
    pub fn new(mut seed: Seed, started: Timestamp, cpu_limit: u32, memory_ceiling: u64) -> Self {
        const NANOS_PER_MILLICORE: u64 = 1_000_000;
        // Most containers idle: the squared draw makes small rates frequent.
        let ceiling = match cpu_limit {
            0 => 400,
            limit => u64::from(limit),
        } * NANOS_PER_MILLICORE;
        let draw = seed.between(1, 1_000);
        let top = (ceiling / 1_000_000 * draw * draw).max(NANOS_PER_MILLICORE / 2);
        let base = top / 2;
        let mut wave = |share: u64, low: u64, high: u64| {
            let period = seed.between(low, high) * 1_000;
            Wave {
                rate: top / share,
                period,
                phase: seed.between(0, period),
            }
        };
        let waves = [wave(4, 40, 600), wave(4, 600, 7_200)];
        let memory_high = (memory_ceiling * seed.between(30, 90) / 100).max(2 * PAGE);
        let memory_low = memory_high * seed.between(50, 95) / 100;
        Self {
            started,
            base,
            waves,
            memory_low: (memory_low / PAGE * PAGE).max(PAGE),
            memory_high: memory_high / PAGE * PAGE,
            memory_period: seed.between(60, 1_800) * 1_000,
        }
    }

    /// The current or last run of a container.
    pub(crate) fn of(pod: &Pod, index: usize, started: Timestamp, run: u32) -> Self {
        let template = pod.template().at(index);
        Self::new(
            pod.container_seed(index).derive(u64::from(run)),
            started,
            template.map_or(0, |t| t.resources.cpu_limit),
            template.map_or(64 << 20, ContainerTemplate::memory_ceiling),
        )
    }

    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// Nanoseconds of CPU used until `at`; 0 before the start.
    pub fn cpu_nanos(&self, at: Timestamp) -> u64 {
        if at < self.started {
            return 0;
        }
        let age = millis_between(self.started, at);
        let waves: u64 = self.waves.iter().map(|wave| wave.nanos(age)).sum();
        START_NANOS + self.base / 1_000 * age + waves
    }

    /// The mean rate between two instants, in nanoseconds of CPU per second (nanocores).
    /// `None` unless `from` is before `to`.
    #[expect(clippy::cast_precision_loss, reason = "a rate in f64 is exact enough")]
    pub fn cpu_rate(&self, from: Timestamp, to: Timestamp) -> Option<f64> {
        let millis = millis_between(from, to);
        let nanos = self.cpu_nanos(to).saturating_sub(self.cpu_nanos(from));
        (millis > 0).then(|| nanos as f64 * 1_000.0 / millis as f64)
    }

    /// The lowest and the highest possible rate over any interval, in nanocores.
    pub fn cpu_rate_bounds(&self) -> (u64, u64) {
        let waves: u64 = self.waves.iter().map(|wave| wave.rate).sum();
        (self.base / 1_000 * 1_000, self.base + waves)
    }

    /// Bytes of working set at `at`.
    pub fn memory_bytes(&self, at: Timestamp) -> u64 {
        let half = self.memory_period / 2;
        let phase = millis_between(self.started, at) % self.memory_period;
        let up = if phase < half {
            phase
        } else {
            self.memory_period - phase
        };
        let span = self.memory_high - self.memory_low;
        let bytes = u128::from(self.memory_low)
            + u128::from(span) * u128::from(up.min(half)) / u128::from(half.max(1));
        let bytes = u64::try_from(bytes).unwrap_or(self.memory_high);
        (bytes / PAGE * PAGE).clamp(self.memory_low, self.memory_high)
    }

    /// The bounds of [`ContainerUsage::memory_bytes`].
    pub fn memory_bounds(&self) -> (u64, u64) {
        (self.memory_low, self.memory_high)
    }
}

impl Wave {
    /// The integral over the first `age` milliseconds.
    fn nanos(&self, age: u64) -> u64 {
        let on = |until: u64| {
            let half = self.period / 2;
            until / self.period * half + (until % self.period).min(half)
        };
        let on_for = on(age.saturating_add(self.phase)) - on(self.phase);
        self.rate / 1_000 * on_for
    }
}

/// Returns the instant of the last sample at or before `now`.
///
/// Samples are [`MIN_SAMPLE_GAP_MILLIS`] to [`MAX_SAMPLE_GAP_MILLIS`] apart: one in each slot of
/// 12.5 s, at most 1.25 s off its middle.
pub fn last_sample(seed: Seed, now: Timestamp) -> Timestamp {
    let seed = seed.derive_name("samples");
    let phase = seed.derive(0).next() % MEAN_GAP;
    let look = |slot: i64| {
        let jitter = seed.derive(slot.cast_unsigned()).next() % (MEAN_GAP / 5 + 1);
        let at = slot
            .saturating_mul(MEAN_GAP.cast_signed())
            .saturating_add_unsigned(phase + jitter);
        Timestamp::from_unix_millis(at)
    };
    let slot = now
        .unix_millis()
        .saturating_sub_unsigned(phase)
        .div_euclid(MEAN_GAP.cast_signed());
    let latest = look(slot);
    if latest <= now {
        latest
    } else {
        look(slot - 1)
    }
}

/// The last sample of a running container, or `None` before its first one.
pub(crate) fn container_sample(pod: &Pod, index: usize, now: Timestamp) -> Option<Timestamp> {
    let ContainerState::Running { since } = pod.containers.get(index)?.state else {
        return None;
    };
    let at = last_sample(pod.container_seed(index), now);
    (at > since).then_some(at)
}

/// The current run of a running container.
pub(crate) fn running(pod: &Pod, index: usize) -> Option<ContainerUsage> {
    let container = pod.containers.get(index)?;
    match container.state {
        ContainerState::Running { since } => {
            Some(ContainerUsage::of(pod, index, since, container.restarts))
        }
        _ => None,
    }
}

/// Total CPU time of a container until `at`, including earlier runs.
fn container_cpu(pod: &Pod, index: usize, container: &Container, at: Timestamp) -> u64 {
    let ended = |run: &Termination| {
        ContainerUsage::of(pod, index, run.started, run.run).cpu_nanos(at.min(run.finished))
    };
    let present = match &container.state {
        ContainerState::Running { since } => {
            ContainerUsage::of(pod, index, *since, container.restarts).cpu_nanos(at)
        }
        // A pod that ended during back-off shows its last run once more.
        ContainerState::Terminated(run) if container.last != Some(*run) => ended(run),
        ContainerState::Terminated(_) | ContainerState::Waiting { .. } | ContainerState::Lost => 0,
    };
    container
        .recent
        .iter()
        .map(ended)
        .fold(container.earlier_cpu, u64::saturating_add)
        .saturating_add(present)
}

/// CPU time of a pod until `at`: its containers and the sandbox.
pub(crate) fn pod_cpu(pod: &Pod, at: Timestamp) -> u64 {
    const SANDBOX_NANOS: u64 = 30_000_000;
    let Some(start) = pod.start.filter(|start| *start <= at) else {
        return 0;
    };
    // The sandbox idles: a microsecond of CPU per second.
    let sandbox = SANDBOX_NANOS + millis_between(start, at);
    pod.containers
        .iter()
        .enumerate()
        .map(|(index, container)| container_cpu(pod, index, container, at))
        .fold(sandbox, u64::saturating_add)
}

/// Working set of a pod at `at`.
pub(crate) fn pod_memory(pod: &Pod, at: Timestamp) -> u64 {
    const SANDBOX_BYTES: u64 = 64 * PAGE;
    let containers: u64 = (0..pod.containers.len())
        .filter_map(|index| running(pod, index))
        .filter(|usage| usage.started() <= at)
        .map(|usage| usage.memory_bytes(at))
        .sum();
    SANDBOX_BYTES + containers
}

/// CPU time of a node until `at`: all current and former pods, and the system.
pub(crate) fn node_cpu(view: &NodeView, seed: Seed, booted: Timestamp, at: Timestamp) -> u64 {
    let pods = view.present.iter().map(|pod| pod_cpu(pod, at));
    let departed = view
        .departed
        .iter()
        .map(|(left, pod)| pod_cpu(pod, at.min(*left)));
    pods.chain(departed).fold(
        view.retired_cpu
            .saturating_add(system(seed, booted).cpu_nanos(at)),
        u64::saturating_add,
    )
}

/// Working set of a node at `at`.
pub(crate) fn node_memory(view: &NodeView, seed: Seed, booted: Timestamp, at: Timestamp) -> u64 {
    view.present
        .iter()
        .map(|pod| pod_memory(pod, at))
        .fold(system(seed, booted).memory_bytes(at), u64::saturating_add)
}

/// Usage of the system outside of pods.
fn system(seed: Seed, booted: Timestamp) -> ContainerUsage {
    ContainerUsage::new(seed.derive_name("system"), booted, 300, 1 << 30)
}

/// The last sample of a pod, or `None` before its first one.
pub(crate) fn pod_sample(pod: &Pod, now: Timestamp) -> Option<Timestamp> {
    let at = last_sample(pod.seed, now);
    (at > pod.start?).then_some(at)
}

#[cfg(test)]
mod tests;
