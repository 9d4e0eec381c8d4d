//! What the fake API server sends: recorded pods with `managedFields` and all, each walked through
//! its recorded start.
//!
//! A state is kept once for all pods that pass it, as bytes with holes for what tells pods apart,
//! so that sending one costs little more than copying it.

use std::io::Write;

use kubevitals_bench::pods::with_text;
use serde_json::{Value, json};

const RECORDING: &str =
    include_str!("../../../../crates/sources/watch/tests/fixtures/pods.watch.jsonl");

/// How the places are marked that differ from pod to pod, as an escape of JSON; no recorded text
/// holds it.
const MARK: &str = "\\u0001";

/// The states that recorded pods pass, and how many pods pass them.
#[derive(Debug)]
pub(crate) struct Script {
    /// Of each recorded pod, its states in order.
    walks: Vec<Vec<Template>>,
    pods: usize,
}

/// One state of a pod with holes.
#[derive(Debug)]
struct Template {
    /// Text, and what follows it.
    parts: Vec<(Box<[u8]>, Hole)>,
    rest: Box<[u8]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hole {
    Name,
    Namespace,
    Uid,
    Version,
    Node,
}

const HOLES: [(char, Hole, &str); 5] = [
    ('a', Hole::Name, "/object/metadata/name"),
    ('b', Hole::Namespace, "/object/metadata/namespace"),
    ('c', Hole::Uid, "/object/metadata/uid"),
    ('d', Hole::Version, "/object/metadata/resourceVersion"),
    ('e', Hole::Node, "/object/spec/nodeName"),
];

impl Script {
    /// So many pods, which take turns in the recorded lives that begin in the recording.
    pub(crate) fn new(pods: usize) -> Self {
        let mut walks: Vec<(String, Vec<&str>)> = Vec::new();
        for line in RECORDING.lines() {
            let event: Value = serde_json::from_str(line).expect("the recording is JSON");
            let uid = event
                .pointer("/object/metadata/uid")
                .and_then(Value::as_str);
            let uid = uid.unwrap_or_default().to_owned();
            let known = walks.iter_mut().find(|(known, _)| *known == uid);
            match known {
                Some((_, states)) if is_wanted(&event) => states.push(line),
                None if event.get("type") == Some(&json!("ADDED")) => {
                    walks.push((uid, vec![line]));
                }
                _ => {}
            }
        }
        let walks = walks.into_iter().map(|(_, states)| {
            let numbered = (0..).zip(states);
            numbered
                .map(|(step, state)| Template::new(step, state))
                .collect()
        });
        Self {
            walks: walks.collect(),
            pods,
        }
    }

    /// How many pods there are.
    pub(crate) fn pods(&self) -> usize {
        self.pods
    }

    /// How many states are sent after the first of each pod.
    pub(crate) fn updates(&self) -> u64 {
        let of_pod = |pod: usize| self.walk(pod).len().saturating_sub(1);
        let all: usize = (0..self.pods).map(of_pod).sum();
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// The longest way.
    pub(crate) fn steps(&self) -> usize {
        self.walks.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// How many bytes all updates are, as near as a hundredth: versions and names differ in length.
    pub(crate) fn update_bytes(&self) -> u64 {
        let mut out = Vec::new();
        let mut sum = 0;
        for walk in 0..self.walks.len().min(self.pods) {
            let pods = (self.pods - walk).div_ceil(self.walks.len());
            for step in 1..self.steps() {
                out.clear();
                self.write(step, walk, 1, &mut out);
                sum += out.len() * pods;
            }
        }
        u64::try_from(sum).unwrap_or(u64::MAX)
    }

    /// Appends the line of a pod's state, unless it does not come so far. Step 0 adds the pod.
    pub(crate) fn write(&self, step: usize, pod: usize, version: u64, out: &mut Vec<u8>) -> bool {
        let Some(template) = self.walk(pod).get(step) else {
            return false;
        };
        template.write(pod, version, out);
        true
    }

    fn walk(&self, pod: usize) -> &[Template] {
        let walk = pod.checked_rem(self.walks.len()).unwrap_or_default();
        self.walks.get(walk).map_or(&[], Vec::as_slice)
    }
}

impl Template {
    fn new(step: usize, event: &str) -> Self {
        let kind = if step == 0 { "ADDED" } else { "MODIFIED" };
        let text = with_text(event, "/type", kind);
        let text = HOLES.iter().fold(text, |text, (letter, _, pointer)| {
            with_text(&text, pointer, &format!("{MARK}{letter}"))
        });
        let text = text + "\n";
        let mut pieces = text.split(MARK);
        let mut text = pieces.next().unwrap_or_default();
        let mut parts = Vec::new();
        for piece in pieces {
            let mut chars = piece.chars();
            let letter = chars.next();
            let hole = HOLES.iter().find(|(own, ..)| Some(*own) == letter);
            let (_, hole, _) = hole.expect("only marks of ours are in the text");
            parts.push((text.as_bytes().into(), *hole));
            text = chars.as_str();
        }
        Self {
            parts,
            rest: text.as_bytes().into(),
        }
    }

    fn write(&self, pod: usize, version: u64, out: &mut Vec<u8>) {
        for (text, hole) in &self.parts {
            out.extend_from_slice(text);
            let written = match hole {
                Hole::Name => write!(out, "workload-7c9fbb586d-{pod:06x}"),
                Hole::Namespace => write!(out, "team-{}", pod % 40),
                Hole::Uid => write!(out, "b37f14a9-3bf4-458b-8cfd-{pod:012x}"),
                Hole::Version => write!(out, "{version}"),
                Hole::Node => write!(out, "node-{}", pod % 200),
            };
            written.expect("memory takes all that is written");
        }
        out.extend_from_slice(&self.rest);
    }
}

/// Not those that only end it: a start is what is followed.
fn is_wanted(event: &Value) -> bool {
    event.get("type") == Some(&json!("MODIFIED"))
        && event
            .pointer("/object/metadata/deletionTimestamp")
            .is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pod_walks_through_the_states_of_a_start() {
        let script = Script::new(25);
        let mut out = Vec::new();
        let (mut updates, mut bytes) = (0, 0);
        for step in 0..script.steps() {
            for pod in 0..25 {
                let before = out.len();
                if script.write(step, pod, 1_000, &mut out) && step > 0 {
                    updates += 1;
                    bytes += out.len() - before;
                }
            }
        }
        assert_eq!(updates, script.updates());
        let told = script.update_bytes();
        assert!(
            told.abs_diff(bytes as u64) < told / 100,
            "{told} for {bytes}"
        );
        let text = String::from_utf8(out).unwrap();
        let mut names = std::collections::BTreeSet::new();
        for line in text.lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            assert!(event.pointer("/object/metadata/managedFields").is_some());
            assert_eq!(
                event.pointer("/object/metadata/resourceVersion"),
                Some(&json!("1000"))
            );
            names.insert(event.pointer("/object/metadata/name").unwrap().to_string());
        }
        assert_eq!(names.len(), 25);
        let ready = text
            .lines()
            .filter(|line| line.contains("\"MODIFIED\""))
            .count();
        assert_eq!(ready as u64, script.updates());
    }
}
