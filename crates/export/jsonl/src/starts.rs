//! Reads the starts in lines that `kubevitals transitions`, `replay` and `explain` wrote.

use std::collections::HashMap;
use std::io::{self, BufRead, Read as _};
use std::sync::Arc;
use std::time::Duration;

use kubevitals_transitions::stats::{PhaseTime, Start, StartOutcome, StartStats};
use kubevitals_transitions::{BlockerKind, Phase};
use serde::Deserialize;

/// A longer line is skipped.
const MAX_LINE: u64 = 4 << 20;

/// Pods of one file; those beyond are left out.
const MAX_PODS: usize = 200_000;

/// The starts of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LineStarts {
    /// From `lifecycle` records, by the UID of the pod.
    lifecycles: HashMap<String, Start>,
    /// From `pod` records, which have no phases, by the name of the pod.
    pods: HashMap<String, Start>,
    /// Lines that are no records of pods.
    pub unreadable: usize,
    /// Records of pods beyond the limit.
    pub left_out: usize,
}

#[derive(Deserialize)]
struct LineWire {
    kube_transition_metrics: MetricsWire,
}

#[derive(Deserialize)]
struct MetricsWire {
    r#type: String,
    kube_namespace: String,
    pod_name: String,
    pod_uid: Option<String>,
    pod: Option<PodWire>,
    lifecycle: Option<LifecycleWire>,
}

#[derive(Deserialize)]
struct PodWire {
    creation_to_ready_seconds: Option<f64>,
}

#[derive(Deserialize)]
struct LifecycleWire {
    #[serde(default)]
    r#final: bool,
    complete: bool,
    total_seconds: Option<f64>,
    incomplete: Option<IncompleteWire>,
    #[serde(default)]
    cause: String,
    #[serde(default)]
    critical_path: Vec<SegmentWire>,
    #[serde(default)]
    containers: Vec<ContainerWire>,
}

#[derive(Deserialize)]
struct IncompleteWire {
    kind: String,
}

#[derive(Deserialize)]
struct SegmentWire {
    phase: String,
    container: Option<String>,
    seconds: f64,
}

#[derive(Deserialize)]
struct ContainerWire {
    name: String,
    image: Option<String>,
}

impl LineStarts {
    /// Reads lines; with `namespace`, only those of its pods.
    pub fn read(mut input: impl BufRead, namespace: Option<&str>) -> io::Result<Self> {
        let mut starts = Self::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
            if read == 0 {
                return Ok(starts);
            }
            let is_cut = read as u64 == MAX_LINE && !line.ends_with(b"\n");
            if is_cut {
                skip_line(&mut input)?;
                starts.unreadable += 1;
            } else {
                starts.add(line.trim_ascii(), namespace);
            }
        }
    }

    /// The statistics of all starts: of `lifecycle` records, or else of `pod` records.
    pub fn stats(&self) -> StartStats {
        if self.lifecycles.is_empty() {
            StartStats::of(self.pods.values())
        } else {
            StartStats::of(self.lifecycles.values())
        }
    }

    /// Whether there are only `pod` records, which have no phases.
    pub fn lacks_phases(&self) -> bool {
        self.lifecycles.is_empty()
    }

    fn add(&mut self, line: &[u8], namespace: Option<&str>) {
        if line.is_empty() {
            return;
        }
        let Ok(LineWire {
            kube_transition_metrics: metrics,
        }) = serde_json::from_slice(line)
        else {
            self.unreadable += 1;
            return;
        };
        if namespace.is_some_and(|namespace| namespace != metrics.kube_namespace) {
            return;
        }
        let name = format!("{}/{}", metrics.kube_namespace, metrics.pod_name);
        match (&*metrics.r#type, metrics.lifecycle, metrics.pod) {
            ("lifecycle", Some(found), _) => {
                let uid = metrics.pod_uid.unwrap_or_else(|| name.clone());
                self.add_lifecycle(uid, found.start(name));
            }
            ("pod", _, Some(found)) => {
                let start = found.start(&name);
                if insert(&mut self.pods, name, start) {
                    self.left_out += 1;
                }
            }
            _ => {}
        }
    }

    /// Of several records of a pod, the first whose start is decided counts: the role writes one
    /// when a pod has started, one when it is deleted, and may repeat them after a crash.
    fn add_lifecycle(&mut self, uid: String, start: Start) {
        let is_decided = |known: &Start| known.outcome != StartOutcome::Starting;
        if self.lifecycles.get(&uid).is_some_and(is_decided) {
            return;
        }
        if insert(&mut self.lifecycles, uid, start) {
            self.left_out += 1;
        }
    }
}

impl LifecycleWire {
    fn start(self, pod: String) -> Start {
        let blocker = self.incomplete.as_ref();
        let blocker = blocker.and_then(|found| BlockerKind::from_name(&found.kind));
        let outcome = if self.complete {
            StartOutcome::Ready
        } else {
            StartOutcome::of_unready(blocker, self.r#final)
        };
        let phases = self.critical_path.into_iter().filter_map(|segment| {
            Some(PhaseTime {
                // Later versions may have further phases.
                phase: Phase::from_name(&segment.phase).unwrap_or(Phase::Unknown),
                container: segment.container.map(Into::into),
                took: seconds(segment.seconds)?,
            })
        });
        let containers = self.containers.into_iter();
        let images = containers.filter_map(|one| {
            let image: Arc<str> = one.image?.into();
            Some((one.name.into(), image))
        });
        Start {
            pod: pod.into(),
            outcome,
            took: self.total_seconds.and_then(seconds),
            phases: phases.collect(),
            blocker,
            cause: self.cause,
            images: images.collect(),
        }
    }
}

impl PodWire {
    fn start(&self, pod: &str) -> Start {
        let took = self.creation_to_ready_seconds.and_then(seconds);
        Start {
            pod: pod.into(),
            // Whether it failed or is still starting is not in the record.
            outcome: took.map_or(StartOutcome::Unknown, |_| StartOutcome::Ready),
            took,
            phases: Vec::new(),
            blocker: None,
            cause: String::new(),
            images: Vec::new(),
        }
    }
}

/// Inserts a start unless there are too many, and returns whether there were.
fn insert(starts: &mut HashMap<String, Start>, key: String, start: Start) -> bool {
    let is_full = starts.len() >= MAX_PODS && !starts.contains_key(&key);
    if !is_full {
        starts.insert(key, start);
    }
    is_full
}

fn seconds(value: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(value).ok()
}

/// Reads up to the end of a line.
fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffer.len(), |end| end + 1);
        input.consume(used);
        if end.is_some() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use kubevitals_transitions::stats::Statistic;

    use super::*;

    fn lifecycle(uid: &str, complete: bool, seconds: f64) -> String {
        serde_json::json!({"time": "2026-11-15T20:12:10Z", "kube_transition_metrics": {
            "type": "lifecycle", "kube_namespace": "a", "pod_name": format!("pod-{uid}"), "pod_uid": uid,
            "lifecycle": {"final": false, "complete": complete, "total_seconds": seconds, "cause": "because",
                "incomplete": {"kind": "image_pull"},
                "critical_path": [{"phase": "image_pull", "container": "app", "seconds": seconds},
                    {"phase": "invented", "seconds": 1.0}],
                "containers": [{"name": "app", "image": "web:1"}]}}})
        .to_string()
    }

    fn pod(name: &str, seconds: f64) -> String {
        serde_json::json!({"time": "", "kube_transition_metrics": {"type": "pod", "kube_namespace": "a",
            "pod_name": name, "pod": {"creation_to_ready_seconds": seconds}}})
        .to_string()
    }

    fn read(text: &str) -> LineStarts {
        LineStarts::read(text.as_bytes(), None).unwrap()
    }

    #[test]
    fn a_pod_counts_once_by_its_decided_start() {
        let lines = [
            lifecycle("1", false, 5.0),
            lifecycle("1", true, 9.0),
            lifecycle("1", true, 70.0),
            lifecycle("2", true, 11.0),
            pod("pod-1", 9.0),
        ];
        let starts = read(&lines.join("\n"));
        let stats = starts.stats();
        assert_eq!((stats.pods, stats.ready, starts.unreadable), (2, 2, 0));
        assert_eq!(
            stats.statistic(Statistic::P50),
            Some(Duration::from_secs(9))
        );
        assert_eq!(stats.images(), [("app", "web:1")]);
        let phases: Vec<Phase> = stats.phases().iter().map(|phase| phase.phase).collect();
        assert_eq!(phases, [Phase::ImagePull, Phase::Unknown]);
    }

    #[test]
    fn records_without_lifecycles_have_durations() {
        let starts = read(&format!("{}\n\n{}\n", pod("a", 3.0), pod("b", 5.0)));
        assert!(starts.lacks_phases());
        assert_eq!(
            starts.stats().statistic(Statistic::Max),
            Some(Duration::from_secs(5))
        );
    }

    #[test]
    fn lines_of_other_namespaces_are_left_out() {
        let text = pod("a", 3.0);
        let of = |namespace| LineStarts::read(text.as_bytes(), Some(namespace)).unwrap();
        assert_eq!((of("a").stats().pods, of("b").stats().pods), (1, 0));
    }

    #[test]
    fn what_is_no_record_is_counted() {
        let long = "x".repeat(usize::try_from(MAX_LINE).unwrap() + 10);
        let text = format!("{{}}\n{long}\n[1]\n{}\nno", lifecycle("1", true, -4.0));
        let starts = read(&text);
        assert_eq!((starts.unreadable, starts.stats().pods), (4, 1));
        // A negative duration is no duration.
        assert_eq!(starts.stats().statistic(Statistic::P50), None);
    }
}
