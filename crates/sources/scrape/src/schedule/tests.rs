use proptest::prelude::*;

use super::*;

/// A kubelet that samples each container after a wait of its own, drawn anew each time between 10
/// and 20 seconds.
struct Kubelet {
    /// The times of the samples of each container, in milliseconds.
    containers: Vec<Vec<i64>>,
}

/// Deterministic pseudo-random numbers.
struct Rng(u64);

const START: i64 = 1_794_773_530_000;
const RESOLUTION: Duration = Duration::from_secs(15);

impl Kubelet {
    fn new(containers: usize, seed: u64) -> Self {
        let mut rng = Rng(seed);
        let containers = (0..containers).map(|_| {
            let mut at = START - 15_000 + rng.below(15_000);
            let mut samples = vec![at];
            for _ in 0..100 {
                at += 10_000 + rng.below(10_000);
                samples.push(at);
            }
            samples
        });
        Self {
            containers: containers.collect(),
        }
    }

    /// Scrapes by the schedule and returns the times of the scrapes.
    fn scrape(&self, node: &str, seconds: i64, is_warm: bool) -> Vec<i64> {
        let mut schedule = Schedule::new(RESOLUTION, node);
        let mut scrapes = Vec::new();
        let mut now = START;
        while now < START + seconds * 1_000 {
            let samples = self.containers.iter().map(|times| last_before(times, now));
            schedule.observe(samples.max().map(Timestamp::from_unix_millis));
            if is_warm {
                schedule.set_warm();
            }
            scrapes.push(now);
            let since_start = Duration::from_millis((now - START).cast_unsigned());
            let wait = schedule.next_wait(since_start).as_millis();
            now += i64::try_from(wait).unwrap();
        }
        scrapes
    }

    /// Returns the mean age of the samples that are served if they are scraped at these times.
    fn mean_age(&self, scrapes: &[i64], until: i64) -> i64 {
        let (mut sum, mut count) = (0, 0);
        // No divisor of the resolution, so that all phases of it are looked at.
        for now in (START..until).step_by(487) {
            let scraped = last_before(scrapes, now);
            for container in &self.containers {
                sum += now - last_before(container, scraped);
                count += 1;
            }
        }
        sum / count
    }
}

impl Rng {
    fn below(&mut self, limit: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 1).cast_signed() % limit
    }
}

fn last_before(times: &[i64], now: i64) -> i64 {
    let count = times.partition_point(|at| *at <= now);
    times[count.max(1) - 1]
}

fn gaps(scrapes: &[i64]) -> Vec<i64> {
    scrapes.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn nodes_are_scraped_once_in_a_resolution_after_a_quick_second_scrape() {
    for node in ["node-a", "node-b", "node-c", "node-d"] {
        let gaps = gaps(&Kubelet::new(60, 0x5eed).scrape(node, 300, false));
        // Rates need a second sample.
        assert!(gaps[0] <= 5_000, "{node}: {gaps:?}");
        let rest = &gaps[1..];
        assert!(rest.iter().all(|gap| *gap <= 15_000), "{node}: {gaps:?}");
        // At most one more in all, on the way to the node's slot.
        assert!(rest.len() <= 300 / 15 + 1, "{node}: {gaps:?}");
        assert!(
            rest[4..].iter().all(|gap| *gap == 15_000),
            "{node}: {gaps:?}"
        );
    }
}

#[test]
fn a_warm_start_needs_no_quick_second_scrape() {
    let gaps = gaps(&Kubelet::new(60, 0x5eed).scrape("node-a", 60, true));
    assert!(gaps.iter().all(|gap| *gap >= 11_250), "{gaps:?}");
}

#[test]
fn served_samples_are_no_older_than_with_one_common_timer() {
    // Compared with a server that scrapes all nodes every 15 s at the same moment: as many scrapes,
    // and the same mean age over one minute or fifteen.
    for seconds in [60, 900] {
        let (mut ours, mut theirs, mut scrapes) = (0, 0, 0);
        let nodes = 40;
        for node in 0..nodes {
            let kubelet = Kubelet::new(20, 0xfeed + node);
            let times = kubelet.scrape(&format!("node-{node}"), seconds, true);
            scrapes += times.len();
            let until = START + seconds * 1_000;
            let common: Vec<i64> = (START..until).step_by(15_000).collect();
            ours += kubelet.mean_age(&times, until);
            theirs += kubelet.mean_age(&common, until);
        }
        let nodes = i64::try_from(nodes).unwrap();
        let (ours, theirs) = (ours / nodes, theirs / nodes);
        assert!(ours <= theirs + 150, "{ours} ms against {theirs} ms");
        let expected = usize::try_from(nodes * seconds / 15).unwrap();
        let nodes = usize::try_from(nodes).unwrap();
        // At most one more per node, on the way to its slot.
        assert!(scrapes <= expected + nodes, "{scrapes} of {expected}");
    }
}

#[test]
fn nodes_spread_over_the_resolution() {
    let mut slots = [0; 5];
    for node in 0..1_000 {
        let mut schedule = Schedule::new(RESOLUTION, &format!("node-{node:05}"));
        assert!(schedule.observe(None), "no timestamps");
        let mut at = schedule.next_wait(Duration::ZERO);
        assert!((11_250..=15_000).contains(&at.as_millis()), "{at:?}");
        for _ in 0..3 {
            at += schedule.next_wait(at);
        }
        slots[usize::try_from(at.as_millis() % 15_000 / 3_000).unwrap()] += 1;
        // From then on at the same offset each time.
        assert_eq!(schedule.next_wait(at), RESOLUTION);
    }
    assert!(
        slots.iter().all(|count| (120..=280).contains(count)),
        "{slots:?}"
    );
}

#[test]
fn a_response_is_new_if_its_newest_sample_is() {
    let mut schedule = Schedule::new(RESOLUTION, "node-a");
    let mut observe = |at| schedule.observe(Some(Timestamp::from_unix_millis(at)));
    assert!(observe(5));
    assert!(!observe(5));
    assert!(observe(7));
    // The kubelet's clock was set back, or the pod with the newest sample is gone.
    assert!(!observe(6));
    assert!(observe(7));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn waits_are_bounded_whatever_a_kubelet_reports(
        resolution in 1_u64..120,
        samples in prop::collection::vec(any::<Option<i64>>(), 1..80),
    ) {
        let resolution = Duration::from_secs(resolution);
        let mut schedule = Schedule::new(resolution, "node-a");
        let mut at = Duration::ZERO;
        for newest in samples {
            schedule.observe(newest.map(Timestamp::from_unix_millis));
            let wait = schedule.next_wait(at);
            prop_assert!(wait >= MIN_WAIT && wait <= resolution, "{wait:?}");
            at += wait;
        }
    }
}
