use proptest::prelude::*;

use super::*;

/// A kubelet that samples each container after a wait of its own, drawn anew each time.
struct Kubelet {
    /// The times of the samples of each container, in milliseconds.
    containers: Vec<Vec<i64>>,
}

/// Deterministic pseudo-random numbers.
struct Rng(u64);

const START: i64 = 1_794_773_530_000;
const RESOLUTION: Duration = Duration::from_secs(15);
const HOUR: i64 = 3_600_000;

impl Kubelet {
    /// A kubelet whose waits are between 10 seconds and `longest`.
    fn new(containers: usize, seed: u64, longest: i64) -> Self {
        let mut rng = Rng(seed);
        let containers = (0..containers).map(|_| {
            let mut at = START - 15_000 + rng.below(15_000);
            let mut samples = vec![at];
            for _ in 0..100 {
                at += 10_000 + rng.below(longest - 10_000);
                samples.push(at);
            }
            samples
        });
        Self {
            containers: containers.collect(),
        }
    }

    /// Scrapes by the schedule and returns the times of the scrapes.
    fn scrape(&self, node: &str, start: i64, seconds: i64, is_warm: bool) -> Vec<i64> {
        let mut schedule = Schedule::new(RESOLUTION, node);
        let mut scrapes = Vec::new();
        let mut now = start;
        while now < start + seconds * 1_000 {
            let samples = self.containers.iter().map(|times| last_before(times, now));
            schedule.observe(samples.max().map(Timestamp::from_unix_millis));
            scrapes.push(now);
            let awaiting = self.containers.len() - self.with_two_samples(&scrapes);
            let coverage = if is_warm || awaiting == 0 {
                Coverage::Complete
            } else {
                Coverage::AwaitsSamples
            };
            now += millis(schedule.next_wait(wall(now), coverage));
        }
        scrapes
    }

    /// Returns the number of containers of which these scrapes saw two samples.
    fn with_two_samples(&self, scrapes: &[i64]) -> usize {
        let has_two = |times: &&Vec<i64>| {
            let (first, last) = (scrapes.first(), scrapes.last());
            let (Some(first), Some(last)) = (first, last) else {
                return false;
            };
            last_before(times, *first) < last_before(times, *last)
        };
        self.containers.iter().filter(has_two).count()
    }

    /// Returns after how many milliseconds each container has two samples.
    fn first_rates(&self, scrapes: &[i64]) -> Vec<i64> {
        let start = scrapes[0];
        let first = |times: &Vec<i64>| {
            let known = last_before(times, start);
            let second = scrapes.iter().find(|now| last_before(times, **now) > known);
            second.map_or(i64::MAX, |at| at - start)
        };
        self.containers.iter().map(first).collect()
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

fn wall(millis: i64) -> Duration {
    Duration::from_millis(millis.unsigned_abs())
}

fn millis(wait: Duration) -> i64 {
    i64::try_from(wait.as_millis()).unwrap()
}

#[test]
fn nodes_are_scraped_once_in_a_resolution_after_early_scrapes() {
    for node in ["node-a", "node-b", "node-c", "node-d"] {
        let scrapes = Kubelet::new(60, 0x5eed, 20_000).scrape(node, START, 300, false);
        let gaps = gaps(&scrapes);
        assert!(gaps.iter().all(|gap| *gap <= 16_000), "{node}: {gaps:?}");
        // The first one, four early ones, and slots in between.
        let early = scrapes.iter().filter(|at| **at < START + 21_000).count();
        assert!((2..=7).contains(&early), "{node}: {gaps:?}");
        assert!(
            gaps[early..].iter().all(|gap| *gap == 15_000),
            "{node}: {gaps:?}"
        );
    }
}

#[test]
fn a_warm_start_needs_no_early_scrape() {
    let scrapes = Kubelet::new(60, 0x5eed, 20_000).scrape("node-a", START, 60, true);
    let gaps = gaps(&scrapes);
    assert!(gaps[0] <= 16_000, "{gaps:?}");
    assert!(gaps[1..].iter().all(|gap| *gap == 15_000), "{gaps:?}");
}

#[test]
fn early_scrapes_are_bounded_and_return_after_a_failure() {
    let mut schedule = Schedule::new(Duration::from_mins(10), "node-a");
    let mut now = START;
    let mut waits = |schedule: &mut Schedule, coverage| {
        let waits: Vec<i64> = (0..6)
            .map(|_| {
                let wait = millis(schedule.next_wait(wall(now), coverage));
                now += wait;
                wait
            })
            .collect();
        waits.iter().filter(|wait| **wait < 6_000).count()
    };
    assert!(waits(&mut schedule, Coverage::AwaitsSamples) <= 5);
    assert_eq!(waits(&mut schedule, Coverage::AwaitsSamples), 0);
    schedule.on_failure();
    assert_eq!(waits(&mut schedule, Coverage::UnknownNode), 4);
    schedule.on_failure();
    assert_eq!(waits(&mut schedule, Coverage::Complete), 0);
    assert_eq!(waits(&mut schedule, Coverage::AwaitsSamples), 0);
}

/// Where kubelets refuse `/stats/summary`, usage needs a second sample. There was once one early
/// scrape, which came before most containers had one, and the next a whole resolution later.
#[test]
fn first_rates_come_no_later_than_with_one_common_timer() {
    for (longest, bound) in [(15_000, 15_600), (20_000, 20_800)] {
        let (mut ours, mut theirs, mut scrapes) = (Vec::new(), Vec::new(), 0);
        for node in 0..100 {
            let kubelet = Kubelet::new(60, 0xfeed + node, longest);
            let times = kubelet.scrape(&format!("node-{node}"), START, 30, false);
            scrapes += times.iter().filter(|at| **at < START + 15_000).count();
            ours.extend(kubelet.first_rates(&times));
            let common: Vec<i64> = (START..START + 60_000).step_by(15_000).collect();
            theirs.extend(kubelet.first_rates(&common));
        }
        ours.sort_unstable();
        theirs.sort_unstable();
        let at = |times: &[i64], part: usize| times[times.len() * part / 100 - 1];
        let figures: Vec<_> = [50, 90, 99, 100]
            .map(|part| (part, at(&ours, part), at(&theirs, part)))
            .into();
        println!("waits up to {longest} ms: percent, ours, common timer: {figures:?}");
        println!("scrapes of 100 nodes in the first 15 s: {scrapes}");
        assert!(at(&ours, 50) <= 10_300, "{figures:?}");
        assert!(at(&ours, 90) <= bound, "{figures:?}");
        assert!(at(&ours, 90) <= at(&theirs, 90) + 800, "{figures:?}");
        assert!(at(&ours, 100) <= at(&theirs, 100) + 1_000, "{figures:?}");
        assert!(scrapes <= 400, "{scrapes}");
    }
}

#[test]
fn served_samples_are_no_older_than_with_one_common_timer() {
    // Compared with a server that scrapes all nodes every 15 s at the same moment: as many scrapes,
    // and the same mean age over one minute or fifteen.
    for seconds in [60, 900] {
        let (mut ours, mut theirs, mut scrapes) = (0, 0, 0);
        let nodes = 40;
        for node in 0..nodes {
            let kubelet = Kubelet::new(20, 0xfeed + node, 20_000);
            let times = kubelet.scrape(&format!("node-{node}"), START, seconds, true);
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
        let mut wait = || schedule.next_wait(wall(START), Coverage::Complete);
        let first = START + millis(wait());
        slots[usize::try_from(first % 15_000 / 3_000).unwrap()] += 1;
        assert_eq!(first % 100, 0, "one wake-up serves many nodes");
        // From then on at the same offset each time.
        let next = schedule.next_wait(wall(first), Coverage::Complete);
        assert_eq!(next, RESOLUTION);
    }
    assert!(
        slots.iter().all(|count| (120..=280).contains(count)),
        "{slots:?}"
    );
}

#[test]
fn schedules_that_start_at_different_times_have_the_same_due_moments() {
    for node in 0..200 {
        let node = format!("node-{node:05}");
        let dues = |start: i64| {
            let mut schedule = Schedule::new(RESOLUTION, &node);
            let mut now = start;
            let mut dues = Vec::new();
            while now < START + 120_000 {
                now += millis(schedule.next_wait(wall(now), Coverage::Complete));
                dues.push(now);
            }
            dues
        };
        let (first, second) = (dues(START), dues(START + 44_444));
        let common = first.iter().filter(|due| **due >= second[0]).count();
        assert!(common >= 4, "{first:?} {second:?}");
        assert_eq!(first[first.len() - common..], second[..common]);
    }
}

#[test]
fn a_step_of_the_wall_clock_costs_no_scrape_and_keeps_the_slot() {
    for step in [-HOUR, -7_000, -1, 1, 7_000, HOUR, 10_000 * HOUR] {
        let mut schedule = Schedule::new(RESOLUTION, "node-a");
        let mut now = START;
        for scrape in 0..8 {
            if scrape == 4 {
                now += step;
            }
            let wait = schedule.next_wait(wall(now), Coverage::Complete);
            assert!(wait <= RESOLUTION + MIN_WAIT, "{step}: {wait:?}");
            now += millis(wait);
        }
        let next = schedule.next_wait(wall(now), Coverage::Complete);
        assert_eq!(next, RESOLUTION, "{step}");
    }
}

/// What is served changes at slots alone: each is taken by one scrape, which may begin a little
/// before it.
#[test]
fn a_slot_is_taken_by_the_first_scrape_since() {
    let mut schedule = Schedule::new(RESOLUTION, "node-a");
    let slot = START + millis(schedule.wait_for_slot(wall(START)));
    assert!(schedule.is_slot_due(wall(slot)));
    schedule.scraped_slot(wall(slot));
    for later in [1, 5_000, 13_900] {
        assert!(!schedule.is_slot_due(wall(slot + later)), "{later}");
    }
    for next in [14_100, 15_000, 20_000, HOUR, -HOUR] {
        assert!(schedule.is_slot_due(wall(slot + next)), "{next}");
    }
}

#[test]
fn no_early_scrape_takes_the_place_of_a_slot() {
    for before in (0..RESOLUTION.as_millis()).step_by(10) {
        let mut schedule = Schedule::new(RESOLUTION, "node-a");
        let slot = START + millis(schedule.wait_for_slot(wall(START)));
        let now = slot - i64::try_from(before).unwrap();
        schedule.scraped_slot(wall(now));
        let next = now + millis(schedule.next_wait(wall(now), Coverage::AwaitsSamples));
        let is_at_slot = (next - slot) % millis(RESOLUTION) == 0;
        assert_eq!(schedule.is_slot_due(wall(next)), is_at_slot, "{before}");
    }
}

/// A client that alternates between two replicas, whose scrapes of a slot complete up to 30 ms
/// after each other: samples go back only if the kubelet has sampled in between, or the client
/// reads in between. They go back by one interval of the kubelet, for one resolution.
#[test]
fn alternate_reads_of_two_replicas_go_back_only_while_a_slot_is_scraped() {
    let delay = 30;
    let (mut reads, mut back) = (0_u32, 0_u32);
    for node in 0..20 {
        let kubelet = Kubelet::new(20, 0xbeef + node, 15_000);
        let name = format!("node-{node}");
        let one = kubelet.scrape(&name, START, 300, true);
        let two: Vec<i64> = kubelet
            .scrape(&name, START + 21_000, 300, true)
            .into_iter()
            .map(|at| at + delay)
            .collect();
        for container in &kubelet.containers {
            let mut newest = 0;
            // The second replica is new at 21 s, and at its slot within a resolution.
            for (index, now) in (START + 40_000..START + 250_000).step_by(487).enumerate() {
                let scrapes = if index % 2 == 0 { &one } else { &two };
                let served = last_before(container, last_before(scrapes, now));
                reads += 1;
                let slot = last_before(&one, now);
                if served < newest {
                    back += 1;
                    let is_between = now < slot + delay;
                    let sampled = container
                        .iter()
                        .any(|at| (slot + 1..=slot + delay).contains(at));
                    assert!(is_between || sampled, "{now}");
                    let interval = 15_000;
                    let previous_slot = if is_between { millis(RESOLUTION) } else { 0 };
                    assert!(newest - served <= interval + previous_slot, "{now}");
                }
                newest = newest.max(served);
            }
        }
    }
    println!("{back} of {reads} reads went back");
    assert!(back * 200 <= reads, "{back} of {reads}");
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
    fn waits_are_bounded_whatever_the_clock_shows(
        resolution in 1_u64..120,
        scrapes in prop::collection::vec((any::<u64>(), 0_u8..3), 1..80),
    ) {
        let resolution = Duration::from_secs(resolution);
        let mut schedule = Schedule::new(resolution, "node-a");
        let min = MIN_WAIT.min(resolution / 4);
        for (nanos, coverage) in scrapes {
            let coverage = match coverage {
                0 => Coverage::Complete,
                1 => Coverage::AwaitsSamples,
                _ => Coverage::UnknownNode,
            };
            let wait = schedule.next_wait(Duration::from_nanos(nanos), coverage);
            prop_assert!(wait >= min && wait < resolution + min, "{wait:?}");
        }
    }
}
