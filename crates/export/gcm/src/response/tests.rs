use proptest::prelude::*;
use serde_json::json;

use super::*;

const ORDER: &str = "Points must be written in order. One or more of the points specified had an \
                     older start time than the most recent point.";
const RATE: &str = "One or more points were written more frequently than the maximum sampling \
                    period configured for the metric.";
const INTERNAL: &str = "Internal error encountered. Please retry after a few seconds.";

fn body(message: &str, summary: Option<(u32, u32)>) -> Vec<u8> {
    let details = summary.map(|(total, success)| {
        json!({"@type": "type.googleapis.com/google.monitoring.v3.CreateTimeSeriesSummary",
            "totalPointCount": total, "successPointCount": success,
            "errors": [{"status": {"code": 3}, "pointCount": total - success}]})
    });
    let details: Vec<Value> = details.into_iter().collect();
    json!({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT",
        "details": details}})
    .to_string()
    .into_bytes()
}

/// One letter for each verdict.
fn letters(verdicts: &[Verdict]) -> String {
    let letter = |verdict: &Verdict| match verdict {
        Verdict::Sent => 's',
        Verdict::Duplicate => 'd',
        Verdict::Rejected(Code::OutOfOrder) => 'o',
        Verdict::Rejected(Code::TooFrequent) => 'f',
        Verdict::Rejected(Code::InvalidArgument) => 'i',
        Verdict::Rejected(_) => 'x',
        Verdict::Unknown => 'u',
        Verdict::Retry => 'r',
    };
    verdicts.iter().map(letter).collect()
}

fn verdicts(status: u16, message: &str, summary: Option<(u32, u32)>, series: usize) -> String {
    let judged = judge(status, &body(message, summary), series, |_| false);
    letters(&judged.verdicts)
}

#[test]
fn ranges_after_a_reason_are_those_that_failed() {
    let text = format!(
        "One or more TimeSeries could not be written: {ORDER}: timeSeries[1-2,5]; {RATE}: \
         timeSeries[4]; Unrecognized metric labels: [x]: timeSeries[7]"
    );
    assert_eq!(verdicts(400, &text, Some((8, 3)), 8), "soosfosi");
    // Without a summary the rest was written too.
    assert_eq!(verdicts(400, &text, None, 8), "soosfosi");
}

#[test]
fn a_resource_before_the_range_is_no_part_of_the_reason() {
    let text = format!(
        "One or more TimeSeries could not be written: {ORDER}: global{{}} timeSeries[3]: \
         workload.googleapis.com/a{{b:c}}; {INTERNAL}: global{{}} timeSeries[1]: \
         workload.googleapis.com/d{{}}"
    );
    assert_eq!(verdicts(400, &text, Some((4, 2)), 4), "srso");
}

#[test]
fn ranges_before_a_reason_are_those_that_failed() {
    let text = format!(
        "One or more TimeSeries could not be written: timeSeries[0-2] (example metric.type=\"a\", \
         metric.labels={{}}): write for resource=k8s_node{{}} failed with: {RATE}; timeSeries[4]: \
         write for resource=k8s_node{{}} failed with: {INTERNAL}"
    );
    assert_eq!(verdicts(400, &text, Some((6, 2)), 6), "fffsrs");
}

#[test]
fn a_field_that_is_invalid_may_cost_the_whole_request() {
    let text = "Field timeSeries[2].points[0].interval.start_time had an invalid value of \"x\": \
                The start time must be before the end time.";
    assert_eq!(verdicts(400, text, None, 4), "rrir");
    assert_eq!(verdicts(400, text, Some((4, 0)), 4), "rrir");
    assert_eq!(verdicts(400, text, Some((4, 3)), 4), "ssis");
    let text = "One or more TimeSeries could not be written: Field timeSeries[1] had an invalid \
                value: Duplicate TimeSeries encountered.: timeSeries[1]; Field timeSeries[3] had \
                an invalid value: Duplicate TimeSeries encountered.: timeSeries[3]";
    assert_eq!(verdicts(400, text, Some((4, 2)), 4), "sisi");
}

#[test]
fn what_is_not_named_is_unknown() {
    let text = format!("One or more TimeSeries could not be written: {ORDER}: timeSeries[3]");
    assert_eq!(verdicts(400, &text, Some((5, 1)), 5), "uuuos");
    assert_eq!(verdicts(400, "Something", Some((4, 3)), 4), "usss");
    assert_eq!(verdicts(400, "Something", None, 3), "iii");
    assert_eq!(verdicts(400, ORDER, None, 3), "uuu");
    assert_eq!(verdicts(400, ORDER, None, 1), "o");
    assert_eq!(verdicts(413, "too large: timeSeries[0]", None, 1), "x");
}

#[test]
fn points_that_are_sent_again_and_found_are_duplicates() {
    let text = format!("{ORDER}: timeSeries[0-1]; {RATE}: timeSeries[2-3]");
    let judged = judge(400, &body(&text, Some((5, 1))), 5, |at| at % 2 == 1);
    assert_eq!(letters(&judged.verdicts), "odfds");
    // Not found, and not said to be absent either.
    let judged = judge(413, b"too large", 2, |at| at == 1);
    assert_eq!(letters(&judged.verdicts), "xu");
}

#[test]
fn failures_of_the_backend_are_retried_for_the_series_they_name() {
    let text = format!("{INTERNAL}: timeSeries[1]");
    assert_eq!(verdicts(500, &text, Some((3, 2)), 3), "srs");
    assert_eq!(verdicts(500, "what: timeSeries[0]", None, 2), "rs");
    for status in [302, 401, 403, 404, 407, 408, 409, 429, 500, 502, 503, 504] {
        let judged = judge(status, b"<html>", 2, |_| true);
        assert_eq!(letters(&judged.verdicts), "rr", "{status}");
        assert!(judged.is_busy);
        assert_eq!(
            judged.is_denied,
            matches!(status, 302 | 401 | 403 | 404 | 407)
        );
    }
    let fine = judge(200, b"{}", 2, |_| true);
    assert_eq!(
        (letters(&fine.verdicts).as_str(), fine.is_busy),
        ("ss", false)
    );
}

#[test]
fn a_message_is_one_short_line() {
    let judged = judge(400, &body(&"a\nb".repeat(1_000), None), 1, |_| false);
    assert!(judged.message.chars().count() < 300 && !judged.message.contains('\n'));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is said, each series has one verdict, and the numbers are those of the summary.
    #[test]
    fn every_series_has_one_verdict(
        status in 200_u16..600,
        parts in proptest::collection::vec(prop_oneof![
            Just(ORDER.to_owned()), Just(RATE.to_owned()), Just(INTERNAL.to_owned()),
            Just(": ".to_owned()), Just("; ".to_owned()), Just("Field ".to_owned()),
            Just("failed with: ".to_owned()), Just("timeSeries[".to_owned()), Just("]".to_owned()),
            (0_u64..400, 0_u64..400).prop_map(|(a, b)| format!("timeSeries[{a}-{b}]")),
            (0_u64..300).prop_map(|a| format!("timeSeries[{a},7]")),
            Just("18446744073709551615-18446744073709551616,".to_owned()), ".{0,5}",
        ], 0..20),
        summary in proptest::option::of((0_u32..500, 0_u32..500)),
        series in 0_usize..250,
        attempted in any::<u64>(),
    ) {
        let message = parts.concat();
        let summary = summary.map(|(a, b)| (a.max(b), a.min(b)));
        let judged = judge(status, &body(&message, summary), series, |at| attempted >> (at % 64) & 1 == 1);
        prop_assert_eq!(judged.verdicts.len(), series);
        for error in parse_series_errors(&message, series) {
            prop_assert!(error.first <= error.last && error.last < series);
        }
        for (at, verdict) in judged.verdicts.iter().enumerate() {
            if *verdict == Verdict::Duplicate {
                prop_assert!(attempted >> (at % 64) & 1 == 1);
            }
        }
    }

    /// What the backend can write, in its usual form, is read back exactly.
    #[test]
    fn written_ranges_are_read_back(failed in proptest::collection::vec(0_usize..6, 1..200)) {
        let reasons = [None, Some(ORDER), Some(RATE), Some(INTERNAL), Some("Unknown metric"), None];
        let mut segments = Vec::new();
        for (kind, reason) in reasons.iter().enumerate() {
            let positions: Vec<String> = failed.iter().enumerate()
                .filter(|(_, found)| **found == kind).map(|(at, _)| at.to_string()).collect();
            if let (Some(reason), false) = (reason, positions.is_empty()) {
                segments.push(format!("{reason}: timeSeries[{}]", positions.join(",")));
            }
        }
        let series = failed.len();
        let bad = failed.iter().filter(|kind| reasons[**kind].is_some()).count();
        prop_assume!(bad > 0);
        let total = u32::try_from(series).unwrap();
        let success = u32::try_from(series - bad).unwrap();
        let message = format!("One or more TimeSeries could not be written: {}", segments.join("; "));
        let expected: String = failed.iter().map(|kind| "sofris".as_bytes()[*kind] as char).collect();
        prop_assert_eq!(verdicts(400, &message, Some((total, success)), series), expected);
    }

    #[test]
    fn no_body_panics(status in any::<u16>(), bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(judge(status, &bytes, 3, |_| true).verdicts.len(), 3);
    }
}
