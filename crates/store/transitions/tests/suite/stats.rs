//! Statistics, comparisons and thresholds of starts.

use std::time::Duration;

use kubevitals_transitions::stats::compare::{image_changes, phase_changes};
use kubevitals_transitions::stats::threshold::{Limit, Outcome, Threshold};
use kubevitals_transitions::stats::{PhaseTime, Start, StartOutcome, StartStats, Statistic};
use kubevitals_transitions::{BlockerKind, Phase};
use proptest::prelude::*;

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// A start with the image of its only container and these phases.
fn start(number: u64, outcome: StartOutcome, image: &str, phases: &[(Phase, u64)]) -> Start {
    let phases = phases.iter().map(|(phase, took)| PhaseTime {
        phase: *phase,
        container: Some("app".into()),
        took: seconds(*took),
    });
    let phases: Vec<PhaseTime> = phases.collect();
    let blocker = (outcome == StartOutcome::Starting).then_some(BlockerKind::Volumes);
    Start {
        pod: format!("shop/web-{number}").into(),
        outcome,
        took: Some(phases.iter().map(|phase| phase.took).sum()),
        phases,
        blocker,
        cause: format!("cause of {number}"),
        images: vec![("app".into(), image.into())],
    }
}

fn ready(number: u64, pull: u64) -> Start {
    let phases = [
        (Phase::ContainerStart, 1),
        (Phase::ImagePull, pull),
        (Phase::ContainerStart, 1),
    ];
    start(number, StartOutcome::Ready, "web:2", &phases)
}

fn of_durations(durations: &[u64]) -> StartStats {
    let mut stats = StartStats::default();
    for took in durations {
        stats.count(StartOutcome::Ready, Some(seconds(*took)), &"a/b".into());
    }
    stats
}

/// An unknown duration counted as none.
#[test]
fn of_starts_with_one_cause_the_example_has_a_known_duration() {
    let unknown = |number| Start {
        took: None,
        ..ready(number, 5)
    };
    let mut stats = StartStats::of(&[unknown(1), ready(2, 5), unknown(3)]);
    let example = |stats: &StartStats| {
        let causes = stats.causes();
        let [cause] = causes[..] else {
            panic!("{causes:?}");
        };
        (cause.pods, cause.example.to_string(), cause.example_took)
    };
    let known = (3, "shop/web-2".to_owned(), Some(seconds(7)));
    assert_eq!(example(&stats), known);
    // One that took no time at all is known too.
    let none = Start {
        took: Some(Duration::ZERO),
        ..ready(4, 5)
    };
    stats.add(&none);
    assert_eq!(example(&stats).1, "shop/web-2");
    let stats = StartStats::of(&[unknown(1), none]);
    assert_eq!(example(&stats).2, Some(Duration::ZERO));
    assert_eq!(example(&StartStats::of(&[unknown(1)])).2, None);
}

#[test]
fn percentiles_are_of_the_nearest_rank() {
    let stats = of_durations(&(1..=100).rev().collect::<Vec<_>>());
    let of = |statistic| stats.statistic(statistic).unwrap().as_secs();
    assert_eq!(Statistic::ALL.map(of), [50, 90, 95, 99, 100]);
    let few = of_durations(&[7, 3]);
    assert_eq!(few.statistic(Statistic::P50), Some(seconds(3)));
    assert_eq!(few.statistic(Statistic::P95), Some(seconds(7)));
    assert_eq!(StartStats::default().statistic(Statistic::P50), None);
}

#[test]
fn phases_and_causes_are_ranked() {
    let mut starts: Vec<Start> = (0..3)
        .map(|number| ready(number, 10 * (number + 1)))
        .collect();
    let stuck = [(Phase::Volumes, 9_000)];
    starts.push(start(9, StartOutcome::Starting, "web:2", &stuck));
    let stats = StartStats::of(&starts);
    assert_eq!((stats.pods, stats.ready, stats.starting), (4, 3, 1));
    // A pod that is stuck does not hide where the time of the others goes.
    let phases: Vec<_> = stats
        .phases()
        .iter()
        .map(|phase| (phase.phase, phase.pods, phase.total.as_secs()))
        .collect();
    assert_eq!(
        phases,
        [(Phase::ImagePull, 3, 60), (Phase::ContainerStart, 3, 6)]
    );
    let causes: Vec<_> = stats
        .causes()
        .iter()
        .map(|cause| (cause.phase, cause.blocker, cause.pods, &*cause.example))
        .collect();
    assert_eq!(
        causes,
        [
            (Some(Phase::ImagePull), None, 3, "shop/web-2"),
            (
                Some(Phase::Volumes),
                Some(BlockerKind::Volumes),
                1,
                "shop/web-9"
            ),
        ]
    );
    assert_eq!(stats.longest_wait(), Some(seconds(9_000)));
    assert_eq!(stats.statistic(Statistic::Max), Some(seconds(32)));
}

#[test]
fn names_of_a_group_are_bounded() {
    let mut stats = StartStats::default();
    for number in 0..1_000 {
        let mut one = ready(number, 10);
        for phase in &mut one.phases {
            phase.container = Some(format!("app-{number}").into());
        }
        one.images = vec![(format!("app-{number}").into(), "web:2".into())];
        stats.add(&one);
    }
    assert_eq!((stats.pods, stats.ready), (1_000, 1_000));
    assert!(stats.phases().len() <= 64 && stats.causes().len() <= 64);
    assert!(stats.images().len() <= 64);
}

#[test]
fn what_differs_is_named() {
    let before: Vec<Start> = (0..4)
        .map(|number| {
            let phases = [(Phase::ContainerStart, 2), (Phase::Init, 3)];
            start(number, StartOutcome::Ready, "web:1", &phases)
        })
        .collect();
    let after: Vec<Start> = (0..4).map(|number| ready(number, 30)).collect();
    let (before, after) = (StartStats::of(&before), StartStats::of(&after));
    let changes: Vec<_> = phase_changes(&before, &after)
        .into_iter()
        .map(|change| {
            (
                change.phase,
                change.before.as_secs(),
                change.after.as_secs(),
            )
        })
        .collect();
    assert_eq!(changes, [(Phase::ImagePull, 0, 30), (Phase::Init, 3, 0)]);
    let images = image_changes(&before, &after);
    assert_eq!(images.len(), 1);
    assert_eq!(images[0].before.as_deref(), Some("web:1"));
    assert_eq!(images[0].after.as_deref(), Some("web:2"));
    assert!(phase_changes(&StartStats::default(), &after).is_empty());
}

#[test]
fn thresholds_are_checked_with_enough_pods() {
    let before = of_durations(&[10; 20]);
    let check = |text: &str, after: &StartStats, min| {
        let threshold: Threshold = text.parse().unwrap();
        threshold.check(&before, after, min).outcome
    };
    let after = of_durations(&[12; 20]);
    for (text, outcome) in [
        ("p95=12s", Outcome::Within),
        ("p95=11999ms", Outcome::Beyond),
        ("p95=+2s", Outcome::Within),
        ("p95=+1s", Outcome::Beyond),
        ("p95=+20%", Outcome::Within),
        ("p95=+19.9%", Outcome::Beyond),
    ] {
        assert_eq!(check(text, &after, 20), outcome, "{text}");
        assert_eq!(check(text, &after, 21), Outcome::TooFew, "{text}");
    }
    assert_eq!(check("p95=1h", &StartStats::default(), 0), Outcome::TooFew);
}

#[test]
fn pods_that_are_not_ready_do_not_pass() {
    let before = of_durations(&[10; 20]);
    let mut after = of_durations(&[10; 18]);
    for _ in 0..2 {
        after.count(StartOutcome::Starting, Some(seconds(600)), &"a/b".into());
    }
    let check = |text: &str, after: &StartStats| {
        let threshold: Threshold = text.parse().unwrap();
        threshold.check(&before, after, 10)
    };
    assert_eq!(check("p95=30s", &after).outcome, Outcome::Beyond);
    assert_eq!(check("p95=30s", &after).after, Some(seconds(600)));
    assert_eq!(check("p90=30s", &after).outcome, Outcome::Within);
    let mut failed = of_durations(&[10; 18]);
    for _ in 0..2 {
        failed.count(StartOutcome::Failed, Some(seconds(1)), &"a/b".into());
    }
    let verdict = check("p95=+500%", &failed);
    assert_eq!((verdict.outcome, verdict.after), (Outcome::Beyond, None));
    assert_eq!(check("p50=+5%", &failed).outcome, Outcome::Within);
}

#[test]
fn malformed_thresholds_are_rejected() {
    for text in [
        "",
        "p95",
        "p95=",
        "=30s",
        "p42=30s",
        "P95=30s",
        "p95=30",
        "p95=-30s",
        "p95=++3s",
        "p95=20%",
        "p95=+%",
        "p95=+1.25%",
        "p95=+-1%",
        "p95=+99999999999%",
    ] {
        assert!(text.parse::<Threshold>().is_err(), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_threshold_survives_a_round_trip(
        statistic in prop::sample::select(Statistic::ALL.to_vec()),
        millis in 0_u64..1_000_000_000,
        permille: u16,
        form in 0_u8..3,
    ) {
        let limit = match form {
            0 => Limit::Absolute(Duration::from_millis(millis)),
            1 => Limit::Increase(Duration::from_millis(millis)),
            _ => Limit::Permille(permille.into()),
        };
        let threshold = Threshold { statistic, limit };
        prop_assert_eq!(threshold.to_string().parse::<Threshold>(), Ok(threshold));
    }

    #[test]
    fn no_text_makes_a_threshold_panic(text in "[p+=0-9.%smh]{0,12}") {
        if let Ok(threshold) = text.parse::<Threshold>() {
            prop_assert_eq!(threshold.to_string().parse::<Threshold>(), Ok(threshold));
        }
    }
}
