//! Whatever a server does, once it is quiet every view equals its state.

use kubevitals_model::{PodSummary, Timestamp};
use kubevitals_watch::{Change, Mirror, ObjectEvent, Reflector, Subscription};
use proptest::prelude::*;

use crate::fake::{Fake, Fault, Streaming, pass, view};

#[derive(Debug, Clone)]
enum Step {
    Put(u8),
    Delete(u8),
    Bookmark,
    DropWatches,
    BreakWatches,
    Compact,
    Garbage,
    /// The next request fails.
    Fault(Fault),
    /// The server forgets or learns streaming lists.
    Streaming(Streaming),
    /// A subscriber that is always slow looks.
    SlowLooks,
    /// Another subscriber comes.
    LateComes,
    Pass(u64),
}

/// A subscriber, what it made of its updates, and whether each change made sense when it came.
struct Follower {
    subscription: Subscription<PodSummary>,
    mirror: Mirror<PodSummary>,
    names: std::collections::BTreeMap<String, String>,
}

impl Follower {
    fn new(pods: &Reflector<PodSummary>, queue: usize) -> Self {
        Self {
            subscription: pods.subscribe_with(queue),
            mirror: Mirror::new(),
            names: std::collections::BTreeMap::new(),
        }
    }

    fn look(&mut self) {
        if let Some(update) = self.subscription.try_next() {
            for change in self.mirror.apply(update, Timestamp::from_unix_millis(0)) {
                self.check(&change);
            }
        }
    }

    /// A change must fit the changes before: nothing is added twice, and nothing unknown changes
    /// or goes.
    fn check(&mut self, change: &Change<PodSummary>) {
        let key = |pod: &PodSummary| pod.identity.name.to_string();
        let state =
            |pod: &PodSummary| format!("{} {}", pod.identity.uid, pod.identity.resource_version);
        match &change.event {
            ObjectEvent::Added(pod) => {
                assert_eq!(self.names.insert(key(pod), state(pod)), None, "{change:?}");
            }
            ObjectEvent::Modified { before, now } => {
                assert_eq!(before.identity.uid, now.identity.uid);
                assert_ne!(
                    before.identity.resource_version,
                    now.identity.resource_version
                );
                assert_eq!(self.names.insert(key(now), state(now)), Some(state(before)));
            }
            ObjectEvent::Deleted(pod) => {
                assert!(self.names.remove(&key(pod)).is_some(), "{change:?}");
            }
        }
    }

    fn look_until_done(&mut self) {
        for _ in 0..1_000 {
            self.look();
        }
    }
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        prop::sample::select(vec![401, 403, 404, 410, 429, 500, 503])
            .prop_map(|code| Fault::Status(code, Some("3"))),
        Just(Fault::Unreachable),
        Just(Fault::Hang),
        Just(Fault::Body(String::new())),
        Just(Fault::Body("<html>\n".repeat(20))),
        Just(Fault::Body(
            r#"{"type":"ERROR","object":{"code":410}}"#.to_owned()
        )),
        Just(Fault::Body(
            r#"{"type":"ERROR","object":{"code":500}}"#.to_owned()
        )),
        Just(Fault::Silent(r#"{"type":"ADDED","object":{"#.to_owned())),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u8..8).prop_map(Step::Put),
        4 => (0_u8..8).prop_map(Step::Delete),
        2 => Just(Step::Bookmark),
        2 => Just(Step::DropWatches),
        2 => Just(Step::BreakWatches),
        2 => Just(Step::Compact),
        1 => Just(Step::Garbage),
        2 => fault().prop_map(Step::Fault),
        1 => prop::sample::select(vec![Streaming::Known, Streaming::Refused(422), Streaming::Ignored])
            .prop_map(Step::Streaming),
        2 => Just(Step::SlowLooks),
        1 => Just(Step::LateComes),
        3 => (0_u64..40).prop_map(Step::Pass),
    ]
}

async fn play(steps: Vec<Step>, chunk: usize, expires_by_event: bool, seed: u64) {
    let fake = Fake::new();
    fake.lock().chunk = chunk;
    fake.lock().expires_by_event = expires_by_event;
    let pods = fake.pods_with(|options| {
        options.seed = Some(seed);
        options.page_size = 3;
    });
    let mut fast = Follower::new(&pods, 1_000);
    let mut slow = Follower::new(&pods, 2);
    let mut late = Vec::new();
    for step in steps {
        match step {
            Step::Put(number) => fake.put(&format!("pod-{number}")),
            Step::Delete(number) => fake.delete(&format!("pod-{number}")),
            Step::Bookmark => fake.bookmark(),
            Step::DropWatches => fake.drop_watches(),
            Step::BreakWatches => fake.break_watches(),
            Step::Compact => fake.compact(),
            Step::Garbage => fake.send_all("{garbage"),
            Step::Fault(fault) => fake.lock().faults.push_back(fault),
            Step::Streaming(streaming) => fake.lock().streaming = streaming,
            Step::SlowLooks => slow.look(),
            Step::LateComes => late.push(Follower::new(&pods, 4)),
            Step::Pass(seconds) => pass(seconds).await,
        }
        tokio::task::yield_now().await;
        fast.look();
    }
    fake.lock().faults.clear();
    pass(1_800).await;

    let truth = fake.objects();
    assert_eq!(view(&pods.objects()), truth);
    assert_eq!(pods.state().objects, truth.len());
    for follower in late.iter_mut().chain([&mut fast, &mut slow]) {
        follower.look_until_done();
        assert_eq!(view(&follower.mirror.objects()), truth);
        assert_eq!(follower.names.len(), truth.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn every_view_comes_to_equal_the_server(
        steps in prop::collection::vec(step(), 0..60),
        chunk in prop::sample::select(vec![0_usize, 1, 7, 64]),
        expires_by_event: bool,
        seed: u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(play(steps, chunk, expires_by_event, seed));
    }
}
