//! Pods as a real cluster sends them, including `managedFields`: copies of recorded ones with
//! unique names.

use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::BenchError;
use crate::worker_bench::Input;

const RECORDING: &str = include_str!("../../crates/sources/watch/tests/fixtures/pods.watch.jsonl");

/// Crates and Go modules that decode pods.
pub const VERSIONS: (&[&str], &[&str]) = (&["kube", "k8s-openapi"], &["k8s.io/client-go"]);

/// Baseline of benchmarks that decode pods.
pub const BASELINE: &str = "kube + k8s-openapi";

/// Writes the input of workers that decode `count` pods.
pub fn input(folder: &Path, count: u32) -> Result<Input, BenchError> {
    let path = folder.join("pods.watch.jsonl");
    let bytes = write(&path, count)?;
    Ok(Input {
        path,
        units: f64::from(count),
        parameters: vec![("pods", u64::from(count)), ("bytes", bytes)],
    })
}

/// Writes watch lines for `count` pods to a file, and returns their size in bytes.
pub fn write(path: &Path, count: u32) -> Result<u64, BenchError> {
    let text = lines(usize::try_from(count).unwrap_or(usize::MAX)).concat();
    std::fs::write(path, &text).map_err(BenchError::file("write", path))?;
    Ok(u64::try_from(text.len()).unwrap_or(u64::MAX))
}

/// Reads such a file as lines, each with its line end.
pub fn read(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let text = std::fs::read(path)?;
    Ok(text
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect())
}

/// Watch lines that each add a pod. Namespaces, nodes and label sets repeat as they do in a
/// cluster.
///
/// # Panics
/// Never: the recording is part of this program, and tests read it.
pub fn lines(count: usize) -> Vec<Vec<u8>> {
    let recorded: Vec<&str> = RECORDING.lines().filter(|line| is_running(line)).collect();
    (0..count)
        .zip(recorded.iter().cycle())
        .map(|(number, event)| line(number, event))
        .collect()
}

/// Replaces the string at `pointer` in a watch line and nothing else: the order in which a server
/// writes members matters to decoders. A line without that member is unchanged.
///
/// # Panics
/// If the line is no JSON.
pub fn with_text(line: &str, pointer: &str, text: &str) -> String {
    let event: Value = serde_json::from_str(line).expect("a line of a recording is JSON");
    let member = pointer.rsplit('/').next().unwrap_or_default();
    let Some(old) = event.pointer(pointer) else {
        return line.to_owned();
    };
    // The first occurrence is the object's own: owners and references follow.
    line.replacen(
        &format!("\"{member}\":{old}"),
        &format!("\"{member}\":\"{text}\""),
        1,
    )
}

/// Running pods only: the others are smaller, and rarer.
fn is_running(line: &str) -> bool {
    let event: Value = serde_json::from_str(line).expect("the recording is JSON");
    event.pointer("/object/status/containerStatuses").is_some()
        && event.pointer("/object/status/phase") == Some(&json!("Running"))
}

fn line(number: usize, event: &str) -> Vec<u8> {
    let texts = [
        ("/type", "ADDED".to_owned()),
        (
            "/object/metadata/name",
            format!("workload-7c9fbb586d-{number:05x}"),
        ),
        (
            "/object/metadata/namespace",
            format!("team-{}", number % 40),
        ),
        (
            "/object/metadata/uid",
            format!("b37f14a9-3bf4-458b-8cfd-{number:012x}"),
        ),
        (
            "/object/metadata/resourceVersion",
            (1_000 + number).to_string(),
        ),
        ("/object/spec/nodeName", format!("node-{}", number % 200)),
        (
            "/object/status/podIP",
            format!("10.{}.{}.7", number / 250, number % 250),
        ),
    ];
    let texts = texts.into_iter();
    let line = texts.fold(event.to_owned(), |line, (pointer, text)| {
        with_text(&line, pointer, &text)
    });
    (line + "\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_at_the_pointer_changes() {
        for line in RECORDING.lines() {
            for pointer in [
                "/type",
                "/object/metadata/name",
                "/object/metadata/namespace",
                "/object/metadata/uid",
                "/object/metadata/resourceVersion",
                "/object/spec/nodeName",
                "/object/status/podIP",
            ] {
                let mut expected: Value = serde_json::from_str(line).unwrap();
                if let Some(place) = expected.pointer_mut(pointer) {
                    *place = json!("new");
                }
                let set = with_text(line, pointer, "new");
                assert_eq!(
                    serde_json::from_str::<Value>(&set).unwrap(),
                    expected,
                    "{pointer} in {line}"
                );
            }
        }
    }

    #[test]
    fn members_come_in_the_order_of_a_real_server() {
        for line in lines(20) {
            assert!(line.starts_with(b"{\"type\":\"ADDED\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":"));
        }
    }

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
