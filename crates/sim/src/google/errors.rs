//! Errors as the interface writes them.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::monitoring::MessageStyle;
use super::serve::{self, Answer};

/// A series that is refused: its position, the code of gRPC, and the reason.
pub(super) type Refused = (usize, u32, String);

/// The detail of an error: the numbers of points, and no positions.
pub(super) fn summary(total: usize, success: usize, refused: &[Refused]) -> Json {
    let mut codes = BTreeMap::new();
    for (_, code, _) in refused {
        *codes.entry(*code).or_insert(0) += 1;
    }
    let errors: Vec<Json> = codes
        .iter()
        .map(|(code, points)| json!({"status": {"code": code}, "pointCount": points}))
        .collect();
    let mut summary = json!({
        "@type": "type.googleapis.com/google.monitoring.v3.CreateTimeSeriesSummary",
        "totalPointCount": total,
        "errors": errors,
    });
    // Zero is left out, as in protobuf.
    if let Some(fields) = summary.as_object_mut().filter(|_| success > 0) {
        fields.insert("successPointCount".to_owned(), json!(success));
    }
    summary
}

/// The message for series that are refused, with those of one reason together.
pub(super) fn message(style: MessageStyle, refused: &[Refused]) -> String {
    let mut by_reason: Vec<(&str, Vec<usize>)> = Vec::new();
    for (at, _, reason) in refused {
        match by_reason.iter_mut().find(|(known, _)| known == reason) {
            Some((_, positions)) => positions.push(*at),
            None => by_reason.push((reason, vec![*at])),
        }
    }
    let part = |(reason, positions): &(&str, Vec<usize>)| match style {
        MessageStyle::Ranges => format!("{reason}: timeSeries[{}]", ranges(positions)),
        MessageStyle::Resource => {
            let each = positions.iter();
            let each =
                each.map(|at| format!("{reason}: k8s_node{{}} timeSeries[{at}]: a/b{{c:d}}"));
            each.collect::<Vec<_>>().join("; ")
        }
        MessageStyle::Example => format!(
            "timeSeries[{}] (example metric.type=\"a/b\", metric.labels={{}}): write for \
             resource=k8s_node{{}} failed with: {reason}",
            ranges(positions)
        ),
    };
    let parts: Vec<String> = by_reason.iter().map(part).collect();
    let parts = parts.join("; ");
    format!("One or more TimeSeries could not be written: {parts}")
}

/// Positions as `1-3,5`.
fn ranges(positions: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for at in positions {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *at => *last = *at,
            _ => ranges.push((*at, *at)),
        }
    }
    let text = |(first, last): &(usize, usize)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

pub(super) fn error(status: u16, message: &str, detail: Option<Json>) -> Answer {
    let name = match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        409 => "ALREADY_EXISTS",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    };
    let mut body = json!({"error": {"code": status, "message": message, "status": name}});
    let fields = body.get_mut("error").and_then(Json::as_object_mut);
    if let (Some(fields), Some(detail)) = (fields, detail) {
        fields.insert("details".to_owned(), json!([detail]));
    }
    serve::json(status, &body)
}
