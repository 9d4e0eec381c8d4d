//! The pods that took longest, of any number: only those are kept.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use kube::api::ListParams;
use kubevitals_cli::RunError;
use kubevitals_model::Timestamp;
use kubevitals_watch::Pod;
use tokio::time::Instant;

use super::api::{Api, ApiError, Question};
use super::target::Slowest;
use super::{Explained, look, note, record_of};

/// Pods in one page: so many are held at once.
const PODS_AT_ONCE: u32 = 500;

/// A list that expires under the reader is begun again so often.
const ATTEMPTS: u32 = 3;

/// Pods whose events are read at the same time.
const AT_ONCE: usize = 8;

/// Whoever waits for longer than this wants to know for what.
const QUIET_FOR: Duration = Duration::from_secs(1);

/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// How many pods there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    pods: usize,
    ready: usize,
    unreadable: usize,
    shown: usize,
}

/// The slowest so far.
struct Top {
    most: usize,
    /// The fastest of them on top, to go first.
    heap: BinaryHeap<Reverse<Entry>>,
}

struct Entry {
    took: Duration,
    pod: Arc<Pod>,
}

/// Says how far it is where somebody looks.
struct Progress {
    began: Instant,
    told: Option<Instant>,
    is_looked_at: bool,
}

/// The slowest pods in order, explained, and how many there were.
pub(super) async fn find(
    api: &Api,
    which: &Slowest,
    now: Timestamp,
) -> Result<(Vec<Explained>, Counts), RunError> {
    let mut progress = Progress::begin();
    let found = rank(api, which, now, &mut progress).await;
    progress.end();
    let (top, mut counts) = found.map_err(|error| {
        error.about(Question {
            verb: "list",
            resource: "pods",
            namespace: which.namespace.as_deref(),
        })
    })?;
    if counts.unreadable > 0 {
        note(&format!("{} pods could not be read", counts.unreadable));
    }
    if counts.pods == 0 {
        return Err(RunError::runtime("no pod was found that is meant"));
    }
    let explained = explain(api, top.into_order(), now, &mut progress).await;
    progress.end();
    counts.shown = explained.len();
    Ok((explained, counts))
}

async fn rank(
    api: &Api,
    which: &Slowest,
    now: Timestamp,
    progress: &mut Progress,
) -> Result<(Top, Counts), ApiError> {
    let mut attempt = 1;
    loop {
        match rank_once(api, which, now, progress).await {
            // The server forgot the list between two pages; what was ranked may be gone or changed.
            Err(ApiError::Expired) if attempt < ATTEMPTS => attempt += 1,
            other => return other,
        }
    }
}

async fn rank_once(
    api: &Api,
    which: &Slowest,
    now: Timestamp,
    progress: &mut Progress,
) -> Result<(Top, Counts), ApiError> {
    let mut top = Top::new(which.most);
    let mut counts = Counts::default();
    let mut params = ListParams::default().limit(PODS_AT_ONCE);
    params.label_selector.clone_from(&which.selector);
    let oldest = which.since.and_then(|since| now.checked_sub(since));
    loop {
        let page = api.page::<Pod>(which.namespace.as_deref(), &params).await?;
        counts.unreadable += page.unreadable.len();
        for pod in page.objects {
            if pod.details.created < oldest {
                continue;
            }
            let pod = Arc::new(pod);
            let record = record_of(&pod, [], now);
            counts.pods += 1;
            counts.ready += usize::from(record.is_complete() || record.was_ready_before);
            top.take(Entry {
                took: record.total().unwrap_or_default(),
                pod,
            });
        }
        progress.tell(|| format!("{} pods read", counts.pods));
        if page.next.is_empty() {
            return Ok((top, counts));
        }
        params.continue_token = Some(page.next);
    }
}

/// Reads the events of those that are left, and where they run.
async fn explain(
    api: &Api,
    pods: Vec<Arc<Pod>>,
    now: Timestamp,
    progress: &mut Progress,
) -> Vec<Explained> {
    let all = pods.len();
    let asked = pods.into_iter().map(|pod| async move {
        let identity = &pod.brief.identity;
        let events = look::events(api, &identity.namespace, &identity.uid).await;
        (pod, events)
    });
    let mut answers = stream::iter(asked).buffered(AT_ONCE);
    let mut pools = Pools::default();
    let mut explained = Vec::with_capacity(all);
    let mut first_failure = None;
    while let Some((pod, events)) = answers.next().await {
        let events = events.unwrap_or_else(|error| {
            let namespace = &pod.brief.identity.namespace;
            first_failure.get_or_insert_with(|| look::without_events(error, namespace));
            Vec::new()
        });
        explained.push(Explained {
            record: record_of(&pod, &events, now),
            pool: pools.of(api, pod.brief.node.as_ref()).await,
        });
        progress.tell(|| format!("{} of {all} pods explained", explained.len()));
    }
    progress.end();
    if let Some(words) = first_failure {
        note(&words);
    }
    explained
}

/// The pools of the nodes that were asked for.
#[derive(Default)]
struct Pools {
    known: HashMap<Arc<str>, Option<Arc<str>>>,
    is_forbidden: bool,
}

impl Pools {
    async fn of(&mut self, api: &Api, node: Option<&Arc<str>>) -> Option<Arc<str>> {
        let node = node?;
        if let Some(known) = self.known.get(node) {
            return known.clone();
        }
        if self.is_forbidden {
            return None;
        }
        let found = look::pool(api, Some(node)).await;
        self.is_forbidden = matches!(found, Err(ApiError::Forbidden(_)));
        let pool = found.ok().flatten();
        self.known.insert(Arc::clone(node), pool.clone());
        pool
    }
}

impl Top {
    fn new(most: usize) -> Self {
        Self {
            most,
            heap: BinaryHeap::new(),
        }
    }

    fn take(&mut self, entry: Entry) {
        let is_full = self.heap.len() >= self.most;
        let is_faster = || self.heap.peek().is_some_and(|fastest| entry < fastest.0);
        if is_full && is_faster() {
            return;
        }
        self.heap.push(Reverse(entry));
        if is_full {
            self.heap.pop();
        }
    }

    fn into_order(self) -> Vec<Arc<Pod>> {
        let entries = self.heap.into_sorted_vec();
        entries
            .into_iter()
            .map(|Reverse(entry)| entry.pod)
            .collect()
    }
}

impl Entry {
    /// Of two that took as long, the one whose name comes first is the greater: it is shown first.
    fn order(&self) -> (Duration, Reverse<(&str, &str)>) {
        let identity = &self.pod.brief.identity;
        (self.took, Reverse((&identity.namespace, &identity.name)))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pods, ready, shown, ..
        } = self;
        write!(
            f,
            "slowest {shown} of {pods} pods, {ready} of them ready at some time"
        )
    }
}

impl Progress {
    fn begin() -> Self {
        Self {
            began: Instant::now(),
            told: None,
            is_looked_at: io::stderr().is_terminal(),
        }
    }

    fn tell(&mut self, words: impl FnOnce() -> String) {
        let now = Instant::now();
        let is_due = self.told.is_none_or(|told| now - told >= TELL_EVERY);
        if self.is_looked_at && now - self.began >= QUIET_FOR && is_due {
            self.told = Some(now);
            // Nobody is left to tell when it is closed.
            let _ = write!(io::stderr(), "\r\u{1b}[K{}", words());
        }
    }

    /// Leaves the line as it was.
    fn end(&mut self) {
        if self.told.take().is_some() {
            let _ = write!(io::stderr(), "\r\u{1b}[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use kubevitals_watch::{Decoder, decode_object};

    use super::*;

    fn entry(name: &str, seconds: u64) -> Entry {
        let pod = format!("{{\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"a\"}}}}");
        Entry {
            took: Duration::from_secs(seconds),
            pod: Arc::new(decode_object(pod.as_bytes(), &Decoder::default()).unwrap()),
        }
    }

    #[test]
    fn only_the_slowest_are_kept_in_order() {
        let mut top = Top::new(3);
        for (name, seconds) in [("e", 5), ("a", 1), ("d", 9), ("b", 5), ("c", 5), ("f", 2)] {
            top.take(entry(name, seconds));
            assert!(top.heap.len() <= 3);
        }
        let names: Vec<String> = top
            .into_order()
            .iter()
            .map(|pod| pod.brief.identity.name.to_string())
            .collect();
        assert_eq!(names, ["d", "b", "c"]);
    }
}
