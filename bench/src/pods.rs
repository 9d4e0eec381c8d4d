//! Pods as a real cluster sends them, `managedFields` and all: copies of those in the recording with names of their own.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::{BenchError, versions};

const RECORDING: &str = include_str!("../../crates/sources/watch/tests/fixtures/pods.watch.jsonl");

/// Writes watch lines for that many pods to a file, and says how many bytes they are.
pub fn write(path: &Path, count: u32) -> Result<u64, BenchError> {
    let text = lines(usize::try_from(count).unwrap_or(usize::MAX)).concat();
    std::fs::write(path, &text).map_err(BenchError::file("write", path))?;
    Ok(u64::try_from(text.len()).unwrap_or(u64::MAX))
}

/// Reads such a file, line by line, each with its end.
pub fn read(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let text = std::fs::read(path)?;
    Ok(text
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect())
}

/// What decodes pods, by name.
pub async fn versions(bench: &Path) -> BTreeMap<String, String> {
    versions::of(bench, &["kube", "k8s-openapi"], &["k8s.io/client-go"]).await
}

/// Watch lines that each add a pod. Namespaces, nodes and label sets repeat as they do in a cluster.
///
/// # Panics
/// Never: the recording is part of this program, and tests read it.
pub fn lines(count: usize) -> Vec<Vec<u8>> {
    let recorded: Vec<Value> = RECORDING
        .lines()
        .map(|line| serde_json::from_str(line).expect("the recording is JSON"))
        .filter(is_running)
        .collect();
    (0..count)
        .zip(recorded.iter().cycle())
        .map(|(number, event)| line(number, event))
        .collect()
}

/// Only pods that run: the others are smaller, and rarer.
fn is_running(event: &Value) -> bool {
    event.pointer("/object/status/containerStatuses").is_some()
        && event.pointer("/object/status/phase") == Some(&json!("Running"))
}

fn line(number: usize, event: &Value) -> Vec<u8> {
    let mut event = event.clone();
    let mut set = |pointer: &str, value: String| {
        if let Some(place) = event.pointer_mut(pointer) {
            *place = Value::String(value);
        }
    };
    set("/type", "ADDED".to_owned());
    set(
        "/object/metadata/name",
        format!("workload-7c9fbb586d-{number:05x}"),
    );
    set(
        "/object/metadata/namespace",
        format!("team-{}", number % 40),
    );
    set(
        "/object/metadata/uid",
        format!("b37f14a9-3bf4-458b-8cfd-{number:012x}"),
    );
    set(
        "/object/metadata/resourceVersion",
        (1_000 + number).to_string(),
    );
    set("/object/spec/nodeName", format!("node-{}", number % 200));
    set(
        "/object/status/podIP",
        format!("10.{}.{}.7", number / 250, number % 250),
    );
    let mut line = event.to_string().into_bytes();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_their_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pods.jsonl");
        let bytes = write(&path, 3).unwrap();
        let read = read(&path).unwrap();
        assert_eq!(read, lines(3));
        assert_eq!(bytes, std::fs::metadata(&path).unwrap().len());
    }
}
