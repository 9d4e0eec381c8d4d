//! Pods that are created and deleted continuously, at a rate.

use std::fmt;
use std::str::FromStr;

use kubevitals_model::Timestamp;

use super::controller::Launched;
use super::lifecycle::PodStep;
use super::scenario::{Scenario, web};
use super::{OwnerId, StepContext, Transition, Workload};
use crate::clock::after;
use crate::seed::Seed;

/// Deployments that are created before the first one is rolled out again.
const FEW_DEPLOYMENTS: usize = 10;
/// Limit of Deployments; more are created while all others are rolling out.
const MAX_DEPLOYMENTS: usize = 2_000;
const MICROS_PER_HOUR: u64 = 3_600_000_000;

/// A rate: `10/s`, `1/min`, `30/h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChurnRate {
    per_hour: u64,
}

/// An error of parsing a rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{input}\" is not a rate: write COUNT/s, COUNT/min or COUNT/h, at most 10000/s")]
pub struct ChurnRateError {
    input: String,
}

/// Relative frequencies of scenarios.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioMix(Vec<(Scenario, u32)>);

/// State of the stream of arrivals.
#[derive(Debug)]
pub(super) struct Churn {
    seed: Seed,
    arrivals: u64,
    /// Microseconds past the millisecond of the next arrival: at 1,000/s a millisecond is coarse.
    rest_micros: u64,
    deployments: Vec<(OwnerId, String)>,
    rolled: usize,
}

impl ChurnRate {
    /// No churn.
    pub const NONE: Self = Self { per_hour: 0 };
    const MAX_PER_HOUR: u64 = 10_000 * 3_600;

    /// A rate per second.
    pub const fn per_second(pods: u64) -> Self {
        let per_hour = pods.saturating_mul(3_600);
        Self {
            per_hour: if per_hour > Self::MAX_PER_HOUR {
                Self::MAX_PER_HOUR
            } else {
                per_hour
            },
        }
    }

    /// Whether the rate is zero.
    pub const fn is_none(self) -> bool {
        self.per_hour == 0
    }

    /// Mean interval in microseconds.
    pub(super) fn gap_micros(self) -> Option<u64> {
        MICROS_PER_HOUR.checked_div(self.per_hour)
    }
}

impl FromStr for ChurnRate {
    type Err = ChurnRateError;

    fn from_str(input: &str) -> Result<Self, ChurnRateError> {
        let parse = || {
            let (count, unit) = input.split_once('/')?;
            if count.is_empty() || !count.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            let count: u64 = count.parse().ok()?;
            let per_hour = match unit {
                "s" => count.checked_mul(3_600)?,
                "min" | "m" => count.checked_mul(60)?,
                "h" => count,
                _ => return None,
            };
            (per_hour <= Self::MAX_PER_HOUR).then_some(Self { per_hour })
        };
        parse().ok_or_else(|| ChurnRateError {
            input: input
                .chars()
                .take(40)
                .flat_map(char::escape_debug)
                .collect(),
        })
    }
}

impl fmt::Display for ChurnRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.per_hour {
            rate if rate.is_multiple_of(3_600) => write!(f, "{}/s", rate / 3_600),
            rate if rate.is_multiple_of(60) => write!(f, "{}/min", rate / 60),
            rate => write!(f, "{rate}/h"),
        }
    }
}

impl Default for ScenarioMix {
    /// Mostly rollouts and Jobs, and a few of each failure.
    fn default() -> Self {
        let weight = |kind| match kind {
            Scenario::Rollout => 20,
            Scenario::Job => 15,
            Scenario::StatefulSet | Scenario::SlowPull => 8,
            Scenario::Gated | Scenario::ReadinessGate => 4,
            _ => 2,
        };
        Self(Scenario::ALL.map(|kind| (kind, weight(kind))).to_vec())
    }
}

impl ScenarioMix {
    /// Only these scenarios, with these weights.
    pub fn of(weights: impl IntoIterator<Item = (Scenario, u32)>) -> Self {
        Self(weights.into_iter().collect())
    }

    fn pick(&self, seed: &mut Seed) -> Option<Scenario> {
        let total: u64 = self.0.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut rest = seed.between(0, total.checked_sub(1)?);
        self.0.iter().find_map(
            |(scenario, weight)| match rest.checked_sub(u64::from(*weight)) {
                None => Some(*scenario),
                Some(left) => {
                    rest = left;
                    None
                }
            },
        )
    }
}

impl Churn {
    pub(super) fn new(seed: Seed) -> Self {
        Self {
            seed,
            arrivals: 0,
            rest_micros: 0,
            deployments: Vec::new(),
            rolled: 0,
        }
    }
}

impl Workload {
    /// Changes the churn rate from now on.
    pub fn set_churn(&mut self, rate: ChurnRate, now: Timestamp) {
        let idle = self.config.churn.gap_micros().is_none();
        self.config.churn = rate;
        if idle {
            self.plan_arrival(now, 1);
        }
    }

    /// Plans the next arrival so that the average rate holds after `pods` have been created.
    pub(super) fn plan_arrival(&mut self, now: Timestamp, pods: u32) {
        let Some(gap) = self.config.churn.gap_micros() else {
            return;
        };
        let churn = &mut self.churn;
        let mut seed = churn.seed.derive_name("gap").derive(churn.arrivals);
        let jitter = seed.between(500, 1_500);
        let wait = gap.saturating_mul(u64::from(pods)).saturating_mul(jitter) / 1_000;
        let micros = churn.rest_micros.saturating_add(wait);
        churn.rest_micros = micros % 1_000;
        self.plan(after(now, micros / 1_000), Transition::Arrival);
    }

    pub(super) fn on_arrival(&mut self, ctx: StepContext<'_>) {
        let number = self.churn.arrivals;
        self.churn.arrivals += 1;
        let mut seed = self.churn.seed.derive(number);
        let Some(scenario) = self.config.mix.pick(&mut seed) else {
            return;
        };
        if self.config.churn.gap_micros().is_none() {
            return;
        }
        self.plan_arrival(ctx.now, scenario.pods());
        let deployments = self.churn.deployments.len();
        if scenario == Scenario::Rollout
            && deployments >= FEW_DEPLOYMENTS
            && (self.start_next_rollout(number, ctx) || deployments >= MAX_DEPLOYMENTS)
        {
            return;
        }
        let namespace = self.namespace(seed.next());
        let name = format!("{}-{number}", scenario.name());
        let lifetime = seed.between(20_000, 90_000);
        let manifest = scenario.manifest(name.clone(), seed);
        match self.launch_for(namespace, manifest, Some(lifetime), ctx) {
            Launched::Owner(id) if scenario == Scenario::StatefulSet => {
                self.plan(after(ctx.now, lifetime), Transition::Expire(id));
            }
            Launched::Owner(id) if scenario == Scenario::Rollout => {
                self.churn.deployments.push((id, name));
            }
            Launched::Pod(Some(id)) if scenario == Scenario::Evicted => {
                self.plan_step(id, PodStep::Evict, ctx.now, (lifetime / 2, lifetime / 2));
            }
            Launched::Owner(_) | Launched::Pod(_) => {}
        }
    }

    /// Rolls out the next idle Deployment. Tries a few only: usually most are idle, or all are
    /// busy.
    fn start_next_rollout(&mut self, number: u64, ctx: StepContext<'_>) -> bool {
        const TRIES: usize = 8;
        for _ in 0..TRIES.min(self.churn.deployments.len()) {
            let at = self.churn.rolled % self.churn.deployments.len();
            self.churn.rolled = at + 1;
            let Some((id, name)) = self.churn.deployments.get(at).cloned() else {
                return false;
            };
            let template = web(&name).label("revision", &number.to_string());
            if self.start_rollout(id, template, ctx) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_printed() {
        for text in ["10/s", "1/min", "30/h", "1000/s", "0/s"] {
            assert_eq!(text.parse::<ChurnRate>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "10",
            "/s",
            "1/day",
            "-1/s",
            "+1/s",
            "10001/s",
            "99999999999999999999/s",
        ] {
            let error = text.parse::<ChurnRate>().unwrap_err().to_string();
            assert!(error.contains("write COUNT/s"), "{error}");
        }
    }

    #[test]
    fn a_mix_picks_by_weight() {
        let mix = ScenarioMix::of([(Scenario::Job, 3), (Scenario::Gated, 1)]);
        let mut seed = Seed::new(5);
        let jobs = (0..4_000)
            .filter(|_| mix.pick(&mut seed) == Some(Scenario::Job))
            .count();
        assert!((2_800..3_200).contains(&jobs), "{jobs}");
        assert_eq!(ScenarioMix::of([]).pick(&mut seed), None);
    }
}
