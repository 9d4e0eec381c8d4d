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

/// A kubelet that looks at each container after a wait of its own, drawn anew each time between 10
/// and 20 seconds.
struct Motley {
    containers: Vec<Kubelet>,
}

/// Numbers that look like chance and are the same each time.
struct Chance(u64);

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

impl Motley {
    fn new(containers: usize, seed: u64) -> Self {
        let mut chance = Chance(seed);
        let containers = (0..containers).map(|_| {
            let phase = i64::try_from(chance.below(15_000)).unwrap();
            let gaps: Vec<u64> = (0..100).map(|_| 10_000 + chance.below(10_000)).collect();
            Kubelet::with_gaps(phase, 0, gaps)
        });
        Self {
            containers: containers.collect(),
        }
    }

    fn ask(&self, node: &str, resolution: Duration, seconds: i64, is_warm: bool) -> Run {
        let mut cadence = Cadence::new(resolution, node);
        let mut scrapes = Vec::new();
        let mut now = START;
        while now < START + seconds * 1_000 {
            let mut times = SampleTimes::default();
            for container in &self.containers {
                times.add(Timestamp::from_unix_millis(container.sample(now)));
            }
            let asked = Timestamp::from_unix_millis(now);
            let is_new = cadence.scraped(asked, times);
            if is_warm {
                cadence.warmed();
            }
            scrapes.push((now, is_new, 0));
            now = cadence.next(asked).unix_millis();
        }
        Run { scrapes }
    }

    /// How old the samples are that somebody is served who asks twice a second, if they were
    /// scraped at these moments.
    fn mean_age(&self, scrapes: &[i64], until: i64) -> i64 {
        let (mut sum, mut count) = (0, 0);
        // No divisor of the beat, whose own moments would else be the ones looked at.
        for now in (START..until).step_by(487) {
            let last = scrapes[scrapes.partition_point(|at| *at <= now) - 1];
            for container in &self.containers {
                sum += now - container.sample(last);
                count += 1;
            }
        }
        sum / count
    }
}

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
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
fn containers_with_clocks_of_their_own_are_asked_for_once_in_a_resolution_from_the_start() {
    for node in ["node-a", "node-b", "node-c", "node-d"] {
        let run = Motley::new(60, 0x5eed).ask(node, seconds(15), 300, false);
        let gaps: Vec<i64> = run.gaps().collect();
        // The second comes soon, since usage hangs on it; from then on the resolution is kept.
        assert!(gaps[0] <= 5_000, "{node}: {gaps:?}");
        let rest = &gaps[1..];
        assert!(rest.iter().all(|gap| *gap <= 15_000), "{node}: {gaps:?}");
        // One more at most in all: the way to the node's own moment.
        assert!(rest.len() <= 300 / 15 + 1, "{node}: {gaps:?}");
        assert!(
            rest[4..].iter().all(|gap| *gap == 15_000),
            "{node}: {gaps:?}"
        );
    }
}

#[test]
fn who_knows_usage_already_does_not_hurry_to_a_second_sample() {
    let run = Motley::new(60, 0x5eed).ask("node-a", seconds(15), 60, true);
    assert!(run.gaps().all(|gap| gap >= 11_250), "{:?}", run.scrapes);
    // The same for one that samples all at once: its next sample is due ten seconds after the
    // first.
    let mut cadence = Cadence::new(seconds(15), "node-a");
    let asked = Timestamp::from_unix_millis(START);
    let mut times = SampleTimes::default();
    times.add(Timestamp::from_unix_millis(START - 1_000));
    cadence.scraped(asked, times);
    cadence.warmed();
    let wait = cadence.next(asked).since(asked);
    assert_eq!(wait, Some(Duration::from_millis(9_200)));
}

#[test]
fn samples_that_are_served_are_no_older_than_with_a_fixed_beat() {
    // As often as a server that asks all nodes on one beat of 15 s, and no less fresh in the mean
    // over one minute or fifteen.
    for seconds_long in [60, 900] {
        let (mut ours, mut theirs, mut scrapes) = (0, 0, 0);
        let nodes = 40;
        for node in 0..nodes {
            let kubelet = Motley::new(20, 0xfeed + node);
            let run = kubelet.ask(&format!("node-{node}"), seconds(15), seconds_long, true);
            scrapes += run.scrapes.len();
            let times: Vec<i64> = run.scrapes.iter().map(|scrape| scrape.0).collect();
            let until = START + seconds_long * 1_000;
            let beat: Vec<i64> = (START..until).step_by(15_000).collect();
            ours += kubelet.mean_age(&times, until);
            theirs += kubelet.mean_age(&beat, until);
        }
        let nodes = i64::try_from(nodes).unwrap();
        let (ours, theirs) = (ours / nodes, theirs / nodes);
        assert!(ours <= theirs + 150, "{ours} ms against {theirs} ms");
        let once = usize::try_from(nodes * seconds_long / 15).unwrap();
        let nodes = usize::try_from(nodes).unwrap();
        // And the way to each node's own moment.
        assert!(scrapes <= once + nodes, "{scrapes} of {once}");
    }
}

#[test]
fn a_kubelet_that_samples_by_chance_is_not_chased() {
    // One container alone, as cAdvisor looks at it: nothing in its times says when the next sample
    // comes.
    let mut chance = Chance(7);
    let gaps: Vec<u64> = (0..100).map(|_| 10_000 + chance.below(10_000)).collect();
    let run = Kubelet::with_gaps(3_000, 0, gaps).ask(seconds(15), 1_200);
    let late: Vec<i64> = run.gaps().skip(12).collect();
    let mean = late.iter().sum::<i64>() / i64::try_from(late.len()).unwrap();
    assert!((13_500..=15_000).contains(&mean), "{late:?}");
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
        assert!((11_250..=15_000).contains(&wait.as_millis()), "{wait:?}");
        let mut own = next;
        for _ in 0..3 {
            own = cadence.next(own);
        }
        slots[usize::try_from(own.unix_millis().rem_euclid(15_000) / 3_000).unwrap()] += 1;
        // From then on the same moment each time.
        assert_eq!(cadence.next(own).since(own), Some(seconds(15)));
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

    /// Whoever draws the time to its next sample is asked about once in a resolution, however it
    /// draws.
    #[test]
    fn a_kubelet_with_jitter_is_asked_once_in_a_resolution(
        gaps in prop::collection::vec(10_000_u64..20_000, 130),
        phase in 0_i64..10_000,
        skew in -60_000_i64..60_000,
        resolution in 10_u64..16,
    ) {
        let kubelet = Kubelet::with_gaps(phase, skew, gaps);
        let run = kubelet.ask(seconds(resolution), 1_200);
        let late: Vec<i64> = run.gaps().skip(10).collect();
        let mean = late.iter().sum::<i64>() / i64::try_from(late.len()).unwrap();
        let resolution = i64::try_from(resolution).unwrap() * 1_000;
        prop_assert!((resolution * 4 / 5..=resolution * 11 / 10).contains(&mean), "{mean}");
    }
}
