//! Parsing of faults.

use std::str::FromStr;
use std::time::Duration;

use super::{Fault, FaultSpec, Target};

/// Upper limit of the delay of a slow node: a day.
pub const MAX_SLOW: Duration = Duration::from_hours(24);

/// Upper limit of the size of a huge response: 64 GiB.
pub const MAX_HUGE_BYTES: u64 = 64 << 30;

/// Size of a huge response if none is given: 256 MiB, more than any client should read.
const DEFAULT_HUGE_BYTES: u64 = 256 << 20;
const DEFAULT_SLOW: Duration = Duration::from_secs(5);
const DEFAULT_SKEW_MILLIS: i64 = 3_600_000;
/// Limit of quoted arguments, so that error messages stay readable.
const MAX_EXCERPT: usize = 40;

/// An error of parsing a fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultParseError {
    /// The `=` is missing.
    #[error(
        "fault \"{input}\" has no target: write FAULT=SHARE%, FAULT=COUNT, FAULT=NODE or FAULT=all"
    )]
    NoTarget { input: String },
    /// The fault is unknown.
    #[error(
        "unknown fault \"{name}\": supported are slow, hang, reset, 401, 403, 404, 500, garbage, \
         truncated, huge, duplicate, skew, expired, wrong-name, malformed, unlabelled, \
         missing-sibling and zero-cpu"
    )]
    UnknownFault { name: String },
    /// The fault takes no argument.
    #[error("fault {name} takes no argument, but \"{argument}\" was given")]
    UnexpectedArgument {
        name: &'static str,
        argument: String,
    },
    /// The argument is invalid.
    #[error("argument \"{argument}\" of fault {name} is not {expected}")]
    BadArgument {
        name: &'static str,
        argument: String,
        expected: &'static str,
    },
    /// The target is neither a share, a count nor a name.
    #[error(
        "target \"{target}\" is not a share up to 100%, a count, the name of a node or \"all\""
    )]
    BadTarget { target: String },
}

impl FromStr for FaultSpec {
    type Err = FaultParseError;

    fn from_str(input: &str) -> Result<Self, Self::Err> {
        let (fault, target) = input
            .split_once('=')
            .ok_or_else(|| FaultParseError::NoTarget {
                input: excerpt(input),
            })?;
        Ok(Self {
            fault: fault.parse()?,
            target: target.parse()?,
        })
    }
}

impl FromStr for Fault {
    type Err = FaultParseError;

    fn from_str(input: &str) -> Result<Self, Self::Err> {
        let (name, argument) = match input.split_once(':') {
            Some((name, argument)) => (name, Some(argument)),
            None => (input, None),
        };
        let fault = match name {
            "slow" => return slow(argument).map(Self::Slow),
            "huge" => return huge(argument).map(Self::Huge),
            "skew" => return skew(argument).map(Self::ClockSkew),
            "hang" => Self::Hang,
            "reset" => Self::Reset,
            "401" => Self::Unauthorized,
            "403" => Self::Forbidden,
            "404" => Self::NotFound,
            "500" => Self::ServerError,
            "garbage" => Self::Garbage,
            "truncated" => Self::Truncated,
            "duplicate" => Self::Duplicate,
            "expired" => Self::ExpiredCertificate,
            "wrong-name" => Self::WrongName,
            "malformed" => Self::MalformedLine,
            "unlabelled" => Self::UnlabelledSeries,
            "missing-sibling" => Self::MissingSibling,
            "zero-cpu" => Self::ZeroCpu,
            _ => {
                return Err(FaultParseError::UnknownFault {
                    name: excerpt(name),
                });
            }
        };
        match argument {
            None => Ok(fault),
            Some(argument) => Err(FaultParseError::UnexpectedArgument {
                name: fault.name(),
                argument: excerpt(argument),
            }),
        }
    }
}

impl FromStr for Target {
    type Err = FaultParseError;

    fn from_str(input: &str) -> Result<Self, Self::Err> {
        let bad = || FaultParseError::BadTarget {
            target: excerpt(input),
        };
        if input == "all" {
            return Ok(Self::All);
        }
        if let Some(percent) = input.strip_suffix('%') {
            let share = hundredths(percent).ok_or_else(bad)?;
            return (share <= 10_000)
                .then_some(Self::Share(share))
                .ok_or_else(bad);
        }
        if !input.is_empty() && input.bytes().all(|b| b.is_ascii_digit()) {
            return input.parse().map(Self::Count).map_err(|_| bad());
        }
        let is_alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let is_inner = |b: u8| is_alphanumeric(b) || b == b'-' || b == b'.';
        if (1..=253).contains(&input.len())
            && input.bytes().next().is_some_and(is_alphanumeric)
            && input.bytes().all(is_inner)
        {
            return Ok(Self::Node(input.to_owned()));
        }
        Err(bad())
    }
}

fn slow(argument: Option<&str>) -> Result<Duration, FaultParseError> {
    let Some(argument) = argument else {
        return Ok(DEFAULT_SLOW);
    };
    duration(argument)
        .filter(|by| *by <= MAX_SLOW)
        .ok_or_else(|| {
            bad(
                "slow",
                argument,
                "a duration up to 24h, such as 5s or 300ms",
            )
        })
}

fn huge(argument: Option<&str>) -> Result<u64, FaultParseError> {
    let Some(argument) = argument else {
        return Ok(DEFAULT_HUGE_BYTES);
    };
    let digits = argument.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match argument.get(digits.len()..) {
        Some("") => Some(1),
        Some("Ki") => Some(1 << 10),
        Some("Mi") => Some(1 << 20),
        Some("Gi") => Some(1 << 30),
        _ => None,
    };
    number(digits)
        .zip(unit)
        .and_then(|(count, unit): (u64, u64)| count.checked_mul(unit))
        .filter(|bytes| *bytes <= MAX_HUGE_BYTES)
        .ok_or_else(|| bad("huge", argument, "a size up to 64Gi, such as 256Mi"))
}

fn skew(argument: Option<&str>) -> Result<i64, FaultParseError> {
    let Some(argument) = argument else {
        return Ok(DEFAULT_SKEW_MILLIS);
    };
    let (behind, size) = match argument.strip_prefix('-') {
        Some(size) => (true, size),
        None => (false, argument.strip_prefix('+').unwrap_or(argument)),
    };
    duration(size)
        .and_then(|by| i64::try_from(by.as_millis()).ok())
        .map(|by| if behind { -by } else { by })
        .ok_or_else(|| bad("skew", argument, "a signed duration such as 1h or -90s"))
}

/// Parses one number with a unit. The limit of ten years keeps sums of times far from overflow.
fn duration(text: &str) -> Option<Duration> {
    const TEN_YEARS: Duration = Duration::from_hours(10 * 365 * 24);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match text.get(digits.len()..)? {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let duration = Duration::from_millis(number(digits)?.checked_mul(unit)?);
    (duration <= TEN_YEARS).then_some(duration)
}

/// Parses digits only: Rust's own parser accepts a plus sign too.
fn number(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

/// Parses `1` and `0.25` as 100 and 25.
fn hundredths(percent: &str) -> Option<u32> {
    let (whole, fraction) = percent.split_once('.').unwrap_or((percent, "0"));
    let fraction = match fraction.len() {
        1 => number(fraction)?.checked_mul(10)?,
        2 => number(fraction)?,
        _ => return None,
    };
    let hundredths = number(whole)?.checked_mul(100)?.checked_add(fraction)?;
    u32::try_from(hundredths).ok()
}

fn bad(name: &'static str, argument: &str, expected: &'static str) -> FaultParseError {
    FaultParseError::BadArgument {
        name,
        argument: excerpt(argument),
        expected,
    }
}

fn excerpt(text: &str) -> String {
    text.chars()
        .take(MAX_EXCERPT)
        .flat_map(char::escape_debug)
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<FaultSpec, String> {
        text.parse()
            .map_err(|error: FaultParseError| error.to_string())
    }

    #[test]
    fn parses_the_documented_forms() {
        let spec = |fault, target| Ok(FaultSpec { fault, target });
        let node = Target::Node("node-00017".into());
        assert_eq!(parse("hang=1%"), spec(Fault::Hang, Target::Share(100)));
        assert_eq!(parse("hang=0.25%"), spec(Fault::Hang, Target::Share(25)));
        assert_eq!(parse("500=3"), spec(Fault::ServerError, Target::Count(3)));
        assert_eq!(
            parse("slow:5s=node-00017"),
            spec(Fault::Slow(Duration::from_secs(5)), node.clone())
        );
        assert_eq!(
            parse("huge:2Gi=1"),
            spec(Fault::Huge(2 << 30), Target::Count(1))
        );
        assert_eq!(
            parse("skew:-90s=all"),
            spec(Fault::ClockSkew(-90_000), Target::All)
        );
        assert_eq!(parse("wrong-name=node-00017"), spec(Fault::WrongName, node));
    }

    #[test]
    fn errors_state_the_problem_and_the_remedy() {
        assert!(parse("hang").unwrap_err().contains("write FAULT=SHARE%"));
        assert!(
            parse("hnag=1%")
                .unwrap_err()
                .contains("supported are slow, hang")
        );
        assert!(
            parse("hang:5s=1")
                .unwrap_err()
                .contains("takes no argument")
        );
        assert!(parse("slow:5=1").unwrap_err().contains("such as 5s"));
        assert!(parse("slow:25h=1").unwrap_err().contains("up to 24h"));
        assert!(parse("huge:65Gi=1").unwrap_err().contains("up to 64Gi"));
        assert!(parse("huge:+1=1").unwrap_err().contains("is not a size"));
        for target in [
            "",
            "101%",
            "-1",
            "a b",
            "1.234%",
            "%",
            "99999999999999999999999",
        ] {
            let error = parse(&format!("hang={target}")).unwrap_err();
            assert!(error.contains("is not a share"), "{target}: {error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn printing_and_parsing_round_trips(
            name in "[a-z0-9-]{1,16}|slow|huge|skew|hang|500",
            argument in "(:[-+]?[0-9]{1,12}(ms|s|m|h|Ki|Mi|Gi)?)?",
            target in "[0-9]{1,6}(\\.[0-9]{1,2})?%?|all|[a-z0-9.-]{1,12}",
        ) {
            if let Ok(spec) = format!("{name}{argument}={target}").parse::<FaultSpec>() {
                prop_assert_eq!(spec.to_string().parse::<FaultSpec>(), Ok(spec));
            }
        }

        #[test]
        fn arbitrary_text_never_panics_and_errors_stay_short(text in "\\PC{0,200}") {
            if let Err(error) = text.parse::<FaultSpec>() {
                prop_assert!(error.to_string().len() < 1_000);
            }
        }
    }
}
