use proptest::prelude::*;

use super::*;

/// A kubelet whose containers are all sampled at once.
struct Kubelet {
    /// When each sample was taken, by our clock.
    samples: Vec<i64>,
    skew: i64,
}

/// What happened to a kubelet that was asked for a while.
struct Run {
    /// Scrapes: when, whether new, how old the newest sample was.
    scrapes: Vec<(i64, bool, i64)>,
}

const START: i64 = 1_794_773_530_000;

impl Kubelet {
    fn with_gaps(phase: i64, skew: i64, gaps: impl IntoIterator<Item = u64>) -> Self {
        let mut at = START - 15_000 + phase;
        let mut samples = vec![at];
        for gap in gaps {
            at += i64::try_from(gap).unwrap();
            samples.push(at);
        }
        Self { samples, skew }
    }

    /// The last sample before a moment of ours.
    fn sample(&self, now: i64) -> i64 {
        let count = self.samples.partition_point(|at| *at <= now);
        self.samples[count.max(1) - 1]
    }

    fn ask(&self, resolution: Duration, seconds: i64) -> Run {
        let mut cadence = Cadence::new(resolution, "node-a");
        let mut scrapes = Vec::new();
        let mut now = START;
        while now < START + seconds * 1_000 {
            let sample = self.sample(now);
            let stamp = Timestamp::from_unix_millis(sample + self.skew);
            let mut times = SampleTimes::default();
            times.add(stamp);
            let asked = Timestamp::from_unix_millis(now);
            let is_new = cadence.scraped(asked, times);
            scrapes.push((now, is_new, now - sample));
            let next = cadence.next(asked);
            assert!(next > asked);
            now = next.unix_millis();
        }
        Run { scrapes }
    }
}

impl Run {
    fn gaps(&self) -> impl Iterator<Item = i64> {
        self.scrapes.windows(2).map(|pair| pair[1].0 - pair[0].0)
    }

    /// Those after so many.
    fn late(&self, after: usize) -> &[(i64, bool, i64)] {
        &self.scrapes[after..]
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn it_locks_on_to_a_steady_kubelet_whatever_its_phase_and_clock() {
    for phase in [0, 300, 4_000, 9_900] {
        for skew in [0, -90_000, 45_000] {
            for period in [10_000, 12_345, 15_000] {
                let kubelet = Kubelet::with_gaps(phase, skew, [period; 200]);
                let run = kubelet.ask(seconds(15), 1_200);
                let late = run.late(12);
                let repeats = late.iter().filter(|(_, is_new, _)| !is_new).count();
                assert!(
                    repeats * 10 <= late.len(),
                    "{phase} {skew} {period}: {repeats} of {}",
                    late.len()
                );
                let ages: i64 = late.iter().map(|(_, _, age)| age).sum();
                let mean = ages / i64::try_from(late.len()).unwrap();
                assert!(
                    mean < 1_500,
                    "{phase} {skew} {period}: {mean} ms old on average"
                );
                assert!(
                    run.gaps().skip(12).all(|gap| gap <= 22_500),
                    "{phase} {skew} {period}"
                );
            }
        }
    }
}

#[test]
fn the_second_scrape_comes_as_soon_as_a_second_sample_can_exist() {
    // Sampled nine seconds ago: the next sample is due in one.
    let kubelet = Kubelet::with_gaps(6_000, 0, [10_000; 10]);
    let run = kubelet.ask(seconds(60), 60);
    let second = run.scrapes.iter().filter(|(_, is_new, _)| *is_new).nth(1);
    let waited = second.unwrap().0 - START;
    assert!(waited <= 2_500, "{waited}");
}

#[test]
fn a_kubelet_that_samples_when_asked_is_asked_once_in_a_resolution() {
    let mut cadence = Cadence::new(seconds(15), "node-a");
    let mut now = Timestamp::from_unix_millis(START);
    let mut gaps = Vec::new();
    for _ in 0..40 {
        let mut times = SampleTimes::default();
        times.add(now);
        assert!(cadence.scraped(now, times));
        let next = cadence.next(now);
        gaps.push(next.since(now).unwrap());
        now = next;
    }
    assert!(
        gaps[5..]
            .iter()
            .all(|gap| (seconds(8)..=seconds(23)).contains(gap)),
        "{gaps:?}"
    );
}

#[test]
fn containers_with_times_of_their_own_stretched_the_resolution() {
    // Sixty containers, each sampled every 10 to 15 s in its own phase.
    let sample_times = |now: i64| {
        let mut times = SampleTimes::default();
        for container in 0..60 {
            let period = 10_000 + container * 83;
            let phase = container * 7_919 % period;
            let at = now - (now - phase).rem_euclid(period);
            times.add(Timestamp::from_unix_millis(at));
        }
        times
    };
    for node in ["node-a", "node-b", "node-c"] {
        let mut cadence = Cadence::new(seconds(15), node);
        let mut now = Timestamp::from_unix_millis(START);
        let mut gaps = Vec::new();
        for _ in 0..60 {
            cadence.scraped(now, sample_times(now.unix_millis()));
            let next = cadence.next(now);
            gaps.push(next.since(now).unwrap().as_millis());
            now = next;
        }
        let late = &gaps[12..];
        let mean = late.iter().sum::<u128>() / 48;
        assert!((14_000..=15_500).contains(&mean), "{node}: {gaps:?}");
        assert!(late.iter().all(|gap| *gap <= 22_500), "{node}: {gaps:?}");
    }
}

#[test]
fn without_times_nodes_spread_over_the_resolution() {
    let mut slots = [0; 5];
    for node in 0..1_000 {
        let mut cadence = Cadence::new(seconds(15), &format!("node-{node:05}"));
        let asked = Timestamp::from_unix_millis(START);
        assert!(cadence.scraped(asked, SampleTimes::default()));
        let next = cadence.next(asked);
        let wait = next.since(asked).unwrap();
        assert!((7_500..=22_500).contains(&wait.as_millis()), "{wait:?}");
        slots[usize::try_from(next.unix_millis().rem_euclid(15_000) / 3_000).unwrap()] += 1;
        // From then on the same moment each time.
        assert_eq!(cadence.next(next).since(next), Some(seconds(15)));
    }
    assert!(
        slots.iter().all(|count| (120..=280).contains(count)),
        "{slots:?}"
    );
}

#[test]
fn a_kubelet_that_stopped_sampling_is_asked_at_the_resolution() {
    let kubelet = Kubelet::with_gaps(0, 0, [10_000; 20]);
    let run = kubelet.ask(seconds(15), 900);
    let tail: Vec<i64> = run.gaps().collect();
    let tail = &tail[tail.len() - 10..];
    assert!(tail.iter().all(|gap| *gap == 15_000), "{tail:?}");
}

#[test]
fn half_of_the_truth_does_not_confirm_itself() {
    // A short gap first, then long ones, each of which could be two short ones.
    let gaps = [6_000].into_iter().chain([13_000; 100]);
    let run = Kubelet::with_gaps(6_500, 0, gaps).ask(seconds(10), 1_000);
    let late = run.late(20);
    let repeats = late.iter().filter(|(_, is_new, _)| !is_new).count();
    assert!(repeats * 10 <= late.len(), "{repeats} of {}", late.len());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// Nothing that a kubelet says starves it or makes us ask without end.
    #[test]
    fn intervals_stay_within_bounds_whatever_is_said(
        resolution in 1_u64..120,
        stamps in prop::collection::vec((any::<i64>(), any::<i64>()), 1..80),
    ) {
        let mut cadence = Cadence::new(seconds(resolution), "node-a");
        let mut now = Timestamp::from_unix_millis(START);
        for (one, other) in stamps {
            let mut times = SampleTimes::default();
            times.add(Timestamp::from_unix_millis(one));
            times.add(Timestamp::from_unix_millis(other));
            cadence.scraped(now, times);
            let next = cadence.next(now);
            let gap = next.since(now).unwrap();
            prop_assert!(gap >= seconds(1).min(seconds(resolution)), "{gap:?}");
            prop_assert!(gap <= seconds(2 * resolution), "{gap:?}");
            now = next;
        }
    }

    /// With the jitter of a real kubelet most scrapes bring a new sample, soon after it was taken.
    #[test]
    fn it_follows_a_kubelet_with_jitter(
        gaps in prop::collection::vec(10_000_u64..15_000, 130),
        phase in 0_i64..10_000,
        skew in -60_000_i64..60_000,
        resolution in 10_u64..16,
    ) {
        let kubelet = Kubelet::with_gaps(phase, skew, gaps);
        let run = kubelet.ask(seconds(resolution), 1_200);
        let late = run.late(10);
        let repeats = late.iter().filter(|(_, is_new, _)| !is_new).count();
        prop_assert!(repeats * 2 <= late.len(), "{repeats} of {}", late.len());
        let fresh: Vec<i64> = late.iter().filter(|s| s.1).map(|s| s.2).collect();
        let mean = fresh.iter().sum::<i64>() / i64::try_from(fresh.len()).unwrap();
        prop_assert!(mean < 4_500, "{mean} ms old on average, where chance would give 6,250");
        let mean_gap = run.gaps().sum::<i64>() / i64::try_from(run.scrapes.len()).unwrap();
        let resolution = i64::try_from(resolution).unwrap() * 1_000;
        prop_assert!((resolution / 4..=resolution * 3 / 2).contains(&mean_gap), "{mean_gap}");
    }
}
