//! The watch events of the fake API server: recorded pods including `managedFields`, each passing
//! through its recorded start.
//!
//! A state is stored once for all pods that pass through it, as bytes with placeholders for the
//! fields that differ, so that sending one costs little more than copying it.

use std::io::Write;

use kubevitals_bench::pods::with_text;
use serde_json::{Value, json};

const RECORDING: &str =
    include_str!("../../../../crates/sources/watch/tests/fixtures/pods.watch.jsonl");

/// Marker of a placeholder, as an escape of JSON; no recorded text contains it.
const MARKER: &str = "\\u0001";

/// The states of recorded pods, and the number of pods that pass through them.
#[derive(Debug)]
pub(crate) struct Script {
    /// States of each recorded pod, in order.
    starts: Vec<Vec<Template>>,
    pods: usize,
}

/// A state of a pod with placeholders.
#[derive(Debug)]
struct Template {
    /// Text, and the placeholder after it.
    parts: Vec<(Box<[u8]>, Placeholder)>,
    rest: Box<[u8]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placeholder {
    Name,
    Namespace,
    Uid,
    Version,
    Node,
}

const PLACEHOLDERS: [(char, Placeholder, &str); 5] = [
    ('a', Placeholder::Name, "/object/metadata/name"),
    ('b', Placeholder::Namespace, "/object/metadata/namespace"),
    ('c', Placeholder::Uid, "/object/metadata/uid"),
    (
        'd',
        Placeholder::Version,
        "/object/metadata/resourceVersion",
    ),
    ('e', Placeholder::Node, "/object/spec/nodeName"),
];

impl Script {
    /// A script for `pods` pods, which take turns in the recorded starts.
    pub(crate) fn new(pods: usize) -> Self {
        let mut starts: Vec<(String, Vec<&str>)> = Vec::new();
        for line in RECORDING.lines() {
            let event: Value = serde_json::from_str(line).expect("the recording is JSON");
            let uid = event
                .pointer("/object/metadata/uid")
                .and_then(Value::as_str);
            let uid = uid.unwrap_or_default().to_owned();
            let known = starts.iter_mut().find(|(known, _)| *known == uid);
            match known {
                Some((_, states)) if is_wanted(&event) => states.push(line),
                None if event.get("type") == Some(&json!("ADDED")) => {
                    starts.push((uid, vec![line]));
                }
                _ => {}
            }
        }
        let starts = starts.into_iter().map(|(_, states)| {
            let numbered = (0..).zip(states);
            numbered
                .map(|(step, state)| Template::new(step, state))
                .collect()
        });
        Self {
            starts: starts.collect(),
            pods,
        }
    }

    pub(crate) fn pods(&self) -> usize {
        self.pods
    }

    /// Number of states after the first of each pod.
    pub(crate) fn updates(&self) -> u64 {
        let of_pod = |pod: usize| self.start(pod).len().saturating_sub(1);
        let all: usize = (0..self.pods).map(of_pod).sum();
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// Maximum number of states of a pod.
    pub(crate) fn steps(&self) -> usize {
        self.starts.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Size of all updates in bytes, to about 1 %: versions and names differ in length.
    pub(crate) fn update_bytes(&self) -> u64 {
        let mut out = Vec::new();
        let mut sum = 0;
        for start in 0..self.starts.len().min(self.pods) {
            let pods = (self.pods - start).div_ceil(self.starts.len());
            for step in 1..self.steps() {
                out.clear();
                self.write(step, start, 1, &mut out);
                sum += out.len() * pods;
            }
        }
        u64::try_from(sum).unwrap_or(u64::MAX)
    }

    /// Appends the line of a pod's state, if it has one at this step. Step 0 adds the pod.
    pub(crate) fn write(&self, step: usize, pod: usize, version: u64, out: &mut Vec<u8>) -> bool {
        let Some(template) = self.start(pod).get(step) else {
            return false;
        };
        template.write(pod, version, out);
        true
    }

    fn start(&self, pod: usize) -> &[Template] {
        let start = pod.checked_rem(self.starts.len()).unwrap_or_default();
        self.starts.get(start).map_or(&[], Vec::as_slice)
    }
}

impl Template {
    fn new(step: usize, event: &str) -> Self {
        let kind = if step == 0 { "ADDED" } else { "MODIFIED" };
        let text = with_text(event, "/type", kind);
        let text = PLACEHOLDERS
            .iter()
            .fold(text, |text, (letter, _, pointer)| {
                with_text(&text, pointer, &format!("{MARKER}{letter}"))
            });
        let text = text + "\n";
        let mut pieces = text.split(MARKER);
        let mut text = pieces.next().unwrap_or_default();
        let mut parts = Vec::new();
        for piece in pieces {
            let mut chars = piece.chars();
            let letter = chars.next();
            let placeholder = PLACEHOLDERS.iter().find(|(own, ..)| Some(*own) == letter);
            let (_, placeholder, _) = placeholder.expect("the text contains only our own markers");
            parts.push((text.as_bytes().into(), *placeholder));
            text = chars.as_str();
        }
        Self {
            parts,
            rest: text.as_bytes().into(),
        }
    }

    fn write(&self, pod: usize, version: u64, out: &mut Vec<u8>) {
        for (text, placeholder) in &self.parts {
            out.extend_from_slice(text);
            let written = match placeholder {
                Placeholder::Name => write!(out, "workload-7c9fbb586d-{pod:06x}"),
                Placeholder::Namespace => write!(out, "team-{}", pod % 40),
                Placeholder::Uid => write!(out, "b37f14a9-3bf4-458b-8cfd-{pod:012x}"),
                Placeholder::Version => write!(out, "{version}"),
                Placeholder::Node => write!(out, "node-{}", pod % 200),
            };
            written.expect("writing to memory does not fail");
        }
        out.extend_from_slice(&self.rest);
    }
}

/// Skips states of a deletion: only starts are replayed.
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
    fn every_pod_passes_through_the_states_of_a_start() {
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
        let estimate = script.update_bytes();
        assert!(
            estimate.abs_diff(bytes as u64) < estimate / 100,
            "{estimate} for {bytes}"
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
