//! Thresholds for the starts of pods, for CI.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use kubevitals_model::GoDuration;

use super::{StartStats, Statistic, human};

/// A limit of a statistic: `p95=30s`, `p95=+5s`, `p95=+20%`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threshold {
    pub statistic: Statistic,
    pub limit: Limit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Not longer than this.
    Absolute(Duration),
    /// Not longer than before by more than this.
    Increase(Duration),
    /// The same, in tenths of a percent.
    Permille(u32),
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub threshold: Threshold,
    pub outcome: Outcome,
    /// The statistic before; `None` if unknown, or forever.
    pub before: Option<Duration>,
    /// The statistic after; `None` if unknown, or forever.
    pub after: Option<Duration>,
    /// The longest that is allowed.
    pub allowed: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    Within,
    Beyond,
    /// There are too few pods for a verdict.
    TooFew,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThresholdError;

impl Threshold {
    /// Checks the starts after a change; a relative limit needs those before. Pods that are not
    /// ready count with their time so far, and those that never will be as beyond any limit.
    pub fn check(self, before: &StartStats, after: &StartStats, min_pods: usize) -> Verdict {
        let [was, is] = [before, after].map(|stats| stats.statistic_of_all(self.statistic));
        let allowed = match self.limit {
            Limit::Absolute(limit) => Some(limit),
            Limit::Increase(increase) => was.map(|was| was.saturating_add(increase)),
            Limit::Permille(permille) => was.map(|was| {
                let more = was.as_millis().saturating_mul(permille.into()) / 1_000;
                was.saturating_add(Duration::from_millis(
                    u64::try_from(more).unwrap_or(u64::MAX),
                ))
            }),
        };
        let needs_before = !matches!(self.limit, Limit::Absolute(_));
        let is_few = |stats: &StartStats| stats.known() < min_pods.max(1);
        let outcome = if is_few(after) || needs_before && is_few(before) {
            Outcome::TooFew
        } else {
            match (is, allowed) {
                (Some(is), Some(allowed)) if is <= allowed => Outcome::Within,
                // Before the change, pods did not become ready either.
                (_, None) => Outcome::Within,
                _ => Outcome::Beyond,
            }
        };
        Verdict {
            threshold: self,
            outcome,
            before: was,
            after: is,
            allowed,
        }
    }
}

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let (name, limit) = text.split_once('=').ok_or(ThresholdError)?;
        let statistic = Statistic::ALL
            .into_iter()
            .find(|statistic| statistic.as_str() == name)
            .ok_or(ThresholdError)?;
        let limit = match limit.strip_prefix('+') {
            None => Limit::Absolute(duration(limit)?),
            Some(more) => match more.strip_suffix('%') {
                None => Limit::Increase(duration(more)?),
                Some(percent) => Limit::Permille(permille(percent)?),
            },
        };
        Ok(Self { statistic, limit })
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=", self.statistic.as_str())?;
        match self.limit {
            Limit::Absolute(limit) => write!(f, "{}", go(limit)),
            Limit::Increase(more) => write!(f, "+{}", go(more)),
            Limit::Permille(permille) if permille % 10 == 0 => write!(f, "+{}%", permille / 10),
            Limit::Permille(permille) => write!(f, "+{}.{}%", permille / 10, permille % 10),
        }
    }
}

impl fmt::Display for ThresholdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "write p50, p90, p95, p99 or max and a limit, as in p95=30s, p95=+5s or p95=+20%",
        )
    }
}

impl std::error::Error for ThresholdError {}

impl Verdict {
    /// One sentence.
    pub fn text(&self, min_pods: usize) -> String {
        let Self {
            threshold,
            before,
            after,
            allowed,
            ..
        } = self;
        let statistic = threshold.statistic.as_str();
        let before = match threshold.limit {
            Limit::Absolute(_) => String::new(),
            _ => format!(", before {}", human(*before)),
        };
        match self.outcome {
            Outcome::TooFew => {
                format!("{threshold}: no verdict, fewer than {min_pods} pods on a side")
            }
            Outcome::Within => format!(
                "{threshold}: within, {statistic} is {}{before}",
                human(*after)
            ),
            Outcome::Beyond => {
                let after = match after {
                    Some(_) => human(*after),
                    None => "of pods that never became ready".to_owned(),
                };
                let allowed = human(*allowed);
                format!("{threshold}: beyond, {statistic} is {after}, allowed {allowed}{before}")
            }
        }
    }
}

impl Outcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Within => "within",
            Self::Beyond => "beyond",
            Self::TooFew => "too_few",
        }
    }
}

fn duration(text: &str) -> Result<Duration, ThresholdError> {
    if text.starts_with('+') {
        return Err(ThresholdError);
    }
    let read: GoDuration = text.parse().map_err(|_| ThresholdError)?;
    Duration::try_from(read).map_err(|_| ThresholdError)
}

/// A percentage with at most one decimal, in tenths.
fn permille(text: &str) -> Result<u32, ThresholdError> {
    let (whole, tenth) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(tenth) || tenth.len() > 1 {
        return Err(ThresholdError);
    }
    let whole: u32 = whole.parse().map_err(|_| ThresholdError)?;
    let tenth: u32 = tenth.parse().map_err(|_| ThresholdError)?;
    whole
        .checked_mul(10)
        .and_then(|whole| whole.checked_add(tenth))
        .ok_or(ThresholdError)
}

fn go(duration: Duration) -> GoDuration {
    GoDuration::saturating_from(duration)
}
