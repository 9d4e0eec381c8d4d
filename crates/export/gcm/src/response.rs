//! The answers of `timeSeries.create`: what became of each series.
//!
//! A call with a bad series fails as a whole, and the good ones are written nevertheless. The
//! details count points by code, without positions; these stand in the message alone, in one of
//! these forms:
//!
//! ```text
//! <reason>: timeSeries[6-10,12]; <reason>: timeSeries[4]
//! <reason>: k8s_node{…} timeSeries[3]: <metric>{…}; …
//! timeSeries[0-29] (example …): write for resource=… failed with: <reason>
//! Field timeSeries[106].points[0]… had an invalid value …: <reason>
//! ```
//!
//! Everything here comes from outside, so nothing is trusted: positions that do not exist are
//! ignored, and each series has exactly one verdict.

use serde::Deserialize;
use serde_json::Value;

use crate::metrics::Code;

/// What the positions of failed series begin with.
const POSITIONS: &str = "timeSeries[";

/// Characters of a message that are repeated.
const MAX_MESSAGE: usize = 256;

/// What became of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Sent,
    /// An earlier attempt wrote it.
    Duplicate,
    Rejected(Code),
    /// Not said: as many as are unknown failed, or an attempt before this one wrote it.
    Unknown,
    /// It may be written later.
    Retry,
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// One for each series.
    pub verdicts: Vec<Verdict>,
    /// What the backend says; empty if the call succeeded.
    pub message: String,
    /// Whether the backend takes nothing now, so that further calls wait too.
    pub is_busy: bool,
    /// Whether a person must do something: credentials, a permission, a project.
    pub is_denied: bool,
}

/// An error as the interface writes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failure {
    pub message: String,
    pub summary: Option<Summary>,
}

/// The numbers of points of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    pub total: usize,
    pub success: usize,
}

/// Series that failed for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesError {
    pub first: usize,
    /// Inclusive.
    pub last: usize,
    pub reason: Reason,
    /// Whether the request itself is invalid, so that the other series may not be written either.
    pub is_field: bool,
}

/// The reason of a failed series, by the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    OutOfOrder,
    TooFrequent,
    /// A failure of the backend.
    Internal,
    Other,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorWire,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ErrorWire {
    message: String,
    details: Vec<Value>,
}

/// Judges the answer to a call with a number of series. `was_attempted` says whether the series at
/// a position was sent before.
pub fn judge(
    status: u16,
    body: &[u8],
    series: usize,
    was_attempted: impl Fn(usize) -> bool,
) -> Judgement {
    if (200..300).contains(&status) {
        return Judgement {
            verdicts: vec![Verdict::Sent; series],
            message: String::new(),
            is_busy: false,
            is_denied: false,
        };
    }
    let failure = parse_failure(body);
    let errors = parse_series_errors(&failure.message, series);
    let (is_busy, is_denied) = match status {
        // The request or some series are at fault.
        400 | 413 => (false, false),
        // After 504 the points may be written: the next attempt finds out.
        408 | 409 | 429 | 503 | 504 => (true, false),
        500.. => (errors.is_empty(), false),
        // Credentials, permission, project; or not Cloud Monitoring at all.
        _ => (true, true),
    };
    let verdicts = if is_busy {
        vec![Verdict::Retry; series]
    } else if errors.is_empty() {
        unnamed(status, &failure, series, &was_attempted)
    } else {
        named(status, &failure, &errors, series, &was_attempted)
    };
    Judgement {
        verdicts,
        message: format!(
            "Cloud Monitoring answered {status}: {}",
            cut(&failure.message)
        ),
        is_busy,
        is_denied,
    }
}

/// The verdicts if the message names the series that failed.
fn named(
    status: u16,
    failure: &Failure,
    errors: &[SeriesError],
    series: usize,
    was_attempted: &impl Fn(usize) -> bool,
) -> Vec<Verdict> {
    let mut verdicts: Vec<Option<Verdict>> = vec![None; series];
    for error in errors {
        let positions = verdicts.iter_mut().enumerate().skip(error.first);
        for (at, verdict) in positions.take_while(|(at, _)| *at <= error.last) {
            let found = of_reason(error.reason, status, was_attempted(at));
            verdict.get_or_insert(found);
        }
    }
    let named = verdicts.iter().flatten().count();
    let is_field = errors.iter().any(|error| error.is_field);
    let (mut unknown, otherwise) = match failure.summary {
        // The request was refused as a whole, because of those that are named.
        Some(Summary { success: 0, .. }) | None if is_field => (0, Verdict::Retry),
        Some(summary) => {
            let failed = summary.total.saturating_sub(summary.success);
            (failed.saturating_sub(named), Verdict::Sent)
        }
        None => (0, Verdict::Sent),
    };
    let verdicts = verdicts.into_iter().map(|verdict| {
        verdict.unwrap_or_else(|| {
            if unknown > 0 {
                unknown -= 1;
                Verdict::Unknown
            } else {
                otherwise
            }
        })
    });
    verdicts.collect()
}

/// The verdicts if the message names no series.
fn unnamed(
    status: u16,
    failure: &Failure,
    series: usize,
    was_attempted: &impl Fn(usize) -> bool,
) -> Vec<Verdict> {
    let reason = reason_of(&failure.message);
    let rejected = |at| match of_reason(reason, status, was_attempted(at)) {
        // What is wrong is not said: an attempt before this one may have written it.
        Verdict::Rejected(_) if was_attempted(at) => Verdict::Unknown,
        verdict => verdict,
    };
    let failed = match failure.summary {
        Some(summary) => summary.total.saturating_sub(summary.success).min(series),
        // These are about some series; others are about the request.
        None if matches!(reason, Reason::OutOfOrder | Reason::TooFrequent) && series > 1 => {
            return vec![Verdict::Unknown; series];
        }
        None => series,
    };
    if failed == series {
        return (0..series).map(rejected).collect();
    }
    (0..series)
        .map(|at| {
            if at < failed {
                Verdict::Unknown
            } else {
                Verdict::Sent
            }
        })
        .collect()
}

fn of_reason(reason: Reason, status: u16, was_attempted: bool) -> Verdict {
    match reason {
        Reason::OutOfOrder | Reason::TooFrequent if was_attempted => Verdict::Duplicate,
        Reason::OutOfOrder => Verdict::Rejected(Code::OutOfOrder),
        Reason::TooFrequent => Verdict::Rejected(Code::TooFrequent),
        Reason::Internal => Verdict::Retry,
        Reason::Other if status >= 500 => Verdict::Retry,
        Reason::Other if status == 400 => Verdict::Rejected(Code::InvalidArgument),
        Reason::Other => Verdict::Rejected(Code::Other),
    }
}

/// Reads an error; what is none has its text as the message.
pub fn parse_failure(body: &[u8]) -> Failure {
    let Ok(ErrorBody { error }) = serde_json::from_slice(body) else {
        return Failure {
            message: String::from_utf8_lossy(body).into_owned(),
            summary: None,
        };
    };
    let summary = error.details.iter().find_map(|detail| {
        let kind = detail.get("@type")?.as_str()?;
        let number = |name: &str| {
            // A count of zero is left out.
            let value = detail.get(name).cloned().unwrap_or_default();
            let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
            usize::try_from(number.unwrap_or_default()).unwrap_or(usize::MAX)
        };
        kind.ends_with("CreateTimeSeriesSummary").then(|| Summary {
            total: number("totalPointCount"),
            success: number("successPointCount"),
        })
    });
    Failure {
        message: error.message,
        summary,
    }
}

/// Returns the series that a message names, of a call with a number of series.
pub fn parse_series_errors(message: &str, series: usize) -> Vec<SeriesError> {
    let mut errors = Vec::new();
    let mut before = "";
    let mut rest = message;
    let mut is_first = true;
    while let Some((text, after)) = rest.split_once(POSITIONS) {
        if is_first {
            before = text;
            is_first = false;
        }
        let Some((positions, after)) = after.split_once(']') else {
            break;
        };
        let next = after.split(POSITIONS).next().unwrap_or_default();
        let is_field = before.ends_with("Field ");
        let reason = if let Some((_, reason)) = next.split_once("failed with: ") {
            reason_of(reason)
        } else if is_field {
            reason_of(next)
        } else {
            reason_of(before.rsplit("; ").next().unwrap_or_default())
        };
        for range in positions.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let range = first.trim().parse().ok().zip(last.trim().parse().ok());
            let valid = range.filter(|(first, last)| first <= last && *first < series);
            errors.extend(valid.map(|(first, last): (usize, usize)| SeriesError {
                first,
                last: last.min(series.saturating_sub(1)),
                reason,
                is_field,
            }));
        }
        before = next;
        rest = after;
    }
    errors
}

fn reason_of(text: &str) -> Reason {
    let has = |part| text.contains(part);
    if has("must be written in order") || has("older end time") || has("older start time") {
        Reason::OutOfOrder
    } else if has("more frequently than") || has("sampling period") {
        Reason::TooFrequent
    } else if has("nternal error") {
        Reason::Internal
    } else {
        Reason::Other
    }
}

/// One line without control characters.
pub(crate) fn cut(text: &str) -> String {
    let text = text.trim().chars().take(MAX_MESSAGE);
    text.map(|char| if char.is_control() { ' ' } else { char })
        .collect()
}

#[cfg(test)]
mod tests;
