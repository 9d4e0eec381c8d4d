use super::*;
use crate::outcome::PhaseTime;

fn outcome(second: i64, reason: Option<Reason>) -> Outcome {
    Outcome {
        started: Timestamp::from_unix_millis(second * 1_000),
        duration: Duration::from_millis(3),
        failure: reason.map(|reason| Failure {
            reason,
            phase: Some(Phase::Connect),
            message: "no".to_owned(),
        }),
        phases: vec![PhaseTime {
            phase: Phase::Connect,
            duration: Duration::from_millis(2),
        }],
        facts: Facts::default(),
    }
}

const THRESHOLD: Threshold = Threshold {
    failures: 3,
    successes: 2,
};

/// One letter for each verdict after each result: `+` is a success, `-` a failure.
fn verdicts(results: &str) -> String {
    let mut statistics = Statistics::default();
    let after = results.chars().zip(0..).map(|(result, second)| {
        let reason = (result == '-').then_some(Reason::ConnectRefused);
        statistics.record(&outcome(second, reason), THRESHOLD);
        match statistics.verdict {
            Verdict::Unknown => '?',
            Verdict::Up => 'U',
            Verdict::Down => 'D',
        }
    });
    after.collect()
}

#[test]
fn as_many_consecutive_results_as_the_threshold_change_the_verdict() {
    assert_eq!(verdicts("++--+---++"), "?UUUUUUDDU");
    assert_eq!(verdicts("--+--+---"), "????????D");
    assert_eq!(verdicts("+-+-+-"), "??????");
}

#[test]
fn a_change_of_the_verdict_is_reported_once_with_its_time() {
    let mut statistics = Statistics::default();
    let threshold = Threshold {
        failures: 1,
        successes: 1,
    };
    let mut record = |second, reason| {
        let previous = statistics.record(&outcome(second, reason), threshold);
        (
            previous,
            statistics.since.map(Timestamp::unix_seconds),
            statistics.transitions,
        )
    };
    assert_eq!(record(1, None), (Some(Verdict::Unknown), Some(1), 0));
    assert_eq!(record(2, None), (None, Some(1), 0));
    let refused = Some(Reason::ConnectRefused);
    assert_eq!(record(3, refused), (Some(Verdict::Up), Some(3), 1));
    assert_eq!(record(4, None), (Some(Verdict::Down), Some(4), 2));
}

#[test]
fn every_run_is_counted_by_its_result() {
    let mut statistics = Statistics::default();
    for (second, reason) in [
        None,
        Some(Reason::ConnectTimeout),
        Some(Reason::ConnectTimeout),
        Some(Reason::HttpStatus),
    ]
    .into_iter()
    .enumerate()
    {
        statistics.record(&outcome(i64::try_from(second).unwrap(), reason), THRESHOLD);
    }
    assert_eq!(
        (statistics.total, statistics.success, statistics.timeout),
        (4, 1, 2)
    );
    assert_eq!(
        statistics.failures_by_reason().collect::<Vec<_>>(),
        [(Reason::ConnectTimeout, 2), (Reason::HttpStatus, 1)]
    );
    assert_eq!(statistics.failures(Reason::Rcode), 0);
    assert_eq!(statistics.consecutive_failures, 3);
    assert_eq!(
        statistics.last_success,
        Some(Timestamp::from_unix_millis(0))
    );
    assert_eq!(statistics.duration.count(), 4);
    let phases: Vec<_> = statistics
        .phases()
        .map(|(phase, h)| (phase, h.count()))
        .collect();
    assert_eq!(phases, [(Phase::Connect, 4)]);
}

#[test]
fn every_reason_and_phase_has_a_place_of_its_own() {
    for (index, reason) in Reason::ALL.into_iter().enumerate() {
        assert_eq!(reason.index(), index);
    }
    for (index, phase) in Phase::ALL.into_iter().enumerate() {
        assert_eq!(phase.index(), index);
    }
}
