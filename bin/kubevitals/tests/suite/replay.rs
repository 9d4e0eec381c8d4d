//! `kubevitals replay` over what a real cluster sent.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use kubevitals::{Input, run};
use serde_json::Value;

use crate::schema::Schema;
use crate::{kubevitals, output};

fn fixture(name: &str) -> String {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    let folder = PathBuf::from(manifest).join("../../crates/sources/watch/tests/fixtures");
    folder.join(name).display().to_string()
}

fn files() -> [String; 2] {
    ["pods.watch.jsonl", "events.watch.jsonl"].map(fixture)
}

/// Runs in this process what a user would write.
fn replay(flags: &[&str], files: &[String]) -> String {
    let words = ["kubevitals", "replay"]
        .iter()
        .chain(flags)
        .map(OsString::from);
    let input = Input {
        args: words.chain(files.iter().map(OsString::from)).collect(),
        ..Input::from_process()
    };
    let mut out = Vec::new();
    run(&input, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The lines, each checked against the schema.
fn lines(text: &str) -> Vec<Value> {
    let schema = Schema::new(kubevitals_jsonl::SCHEMA);
    text.lines()
        .map(|line| {
            let value: Value = serde_json::from_str(line).unwrap();
            assert_eq!(schema.violation(&value), None, "{line}");
            value
        })
        .collect()
}

fn metrics<'l>(lines: &'l [Value], kind: &str, pod: &str) -> Vec<&'l Value> {
    lines
        .iter()
        .map(|line| &line["kube_transition_metrics"])
        .filter(|found| found["type"] == kind && found["pod_name"] == pod)
        .collect()
}

fn kinds(lines: &[Value]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for line in lines {
        let kind = line.pointer("/kube_transition_metrics/type").unwrap();
        let kind = kind.as_str().unwrap();
        *counts.entry(kind).or_default() += 1;
    }
    counts
}

#[test]
fn a_waterfall_of_every_pod() {
    insta::assert_snapshot!(replay(&[], &files()));
}

#[test]
fn json_lines_are_those_of_the_schema() {
    let lines = lines(&replay(&["-o", "json"], &files()));
    // Fifteen pods; six with three containers, one with two, eight with one. Of the three from
    // before the recording there are no events of pulls any more.
    let expected = [("container", 28), ("image_pull", 18), ("pod", 15)];
    assert_eq!(kinds(&lines), expected.into());

    let pod = metrics(&lines, "pod", "web-fbb586dc9-x888m")[0];
    insta::assert_snapshot!(serde_json::to_string_pretty(pod).unwrap());
    let containers = metrics(&lines, "container", "web-fbb586dc9-x888m");
    let texts: Vec<String> = containers.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(texts.join("\n"));
    let failed = metrics(&lines, "image_pull", "no-image")[0];
    assert_eq!(failed["partial"], true);
    assert_eq!(failed["image_name"], "registry.invalid:5000/team/app");
    assert_eq!(
        (&failed["short_image"], &failed["image_tag"]),
        (&"app".into(), &"v1".into())
    );
    let set = metrics(&lines, "pod", "db-0")[0];
    assert_eq!(set["kube_statefulset"], "db");
    assert_eq!(set.get("kube_stateful_set"), None);
}

#[test]
fn durations_always_have_a_decimal_point() {
    fn check(value: &Value, text: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                for (key, value) in object {
                    if key.ends_with("seconds") {
                        text.push(value.to_string());
                    }
                    check(value, text);
                }
            }
            Value::Array(list) => list.iter().for_each(|value| check(value, text)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    for line in lines(&replay(&["-o", "json", "--lifecycle"], &files())) {
        check(&line, &mut found);
    }
    assert!(
        found.len() > 200 && found.iter().all(|text| text.contains('.')),
        "{found:?}"
    );
}

#[test]
fn compat_writes_the_durations_of_the_peer() {
    let wanted = |flags: &[&str]| {
        let lines = lines(&replay(flags, &files()));
        let app = metrics(&lines, "container", "web-fbb586dc9-x888m")[2]["container"].clone();
        let set = metrics(&lines, "pod", "db-0")[0];
        (
            app["initialized_to_running_seconds"].as_f64(),
            set.get("kube_stateful_set").is_some(),
        )
    };
    // Initialized at 14 and running at 14, but scheduled at 10.
    assert_eq!(wanted(&["-o", "json"]), (Some(0.0), false));
    assert_eq!(wanted(&["-o", "json", "--compat"]), (Some(4.0), true));
}

#[test]
fn partial_records_come_before_the_last_ones() {
    let lines = lines(&replay(&["-o", "json", "--emit-partial"], &files()));
    let pods = metrics(&lines, "pod", "db-1");
    let partial: Vec<bool> = pods
        .iter()
        .map(|pod| pod["partial"].as_bool().unwrap())
        .collect();
    // Four states before it was ready, an event among them; then the whole once.
    assert_eq!(partial.iter().filter(|partial| !**partial).count(), 1);
    assert!(partial.len() > 4 && !partial[partial.len() - 1]);
}

#[test]
fn each_pod_has_one_lifecycle_with_its_end() {
    let lines = lines(&replay(&["-o", "json", "--lifecycle"], &files()));
    assert_eq!(kinds(&lines)["lifecycle"], 15);
    let outcome = |pod: &str| {
        let found = metrics(&lines, "lifecycle", pod);
        assert_eq!(found.len(), 1);
        let lifecycle = &found[0]["lifecycle"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (
            text(&lifecycle["end"]),
            lifecycle["complete"].as_bool().unwrap(),
            text(&lifecycle["incomplete"]["kind"]),
        )
    };
    let expect = |end: &str, complete, kind: &str| (end.to_owned(), complete, kind.to_owned());
    assert_eq!(outcome("quick-97wrd"), expect("deleted", true, ""));
    assert_eq!(outcome("web-fbb586dc9-x888m"), expect("open", true, ""));
    assert_eq!(
        outcome("web-fbb586dc9-2phdx"),
        expect("deleted", false, "unseen")
    );
    assert_eq!(outcome("crashy"), expect("deleted", true, ""));
    assert_eq!(
        outcome("never-ready"),
        expect("deleted", false, "readiness_probe")
    );
    assert_eq!(
        outcome("no-image"),
        expect("deleted", false, "image_pull_failed")
    );
    assert_eq!(
        outcome("unschedulable"),
        expect("deleted", false, "unschedulable")
    );
    let crashy = metrics(&lines, "lifecycle", "crashy")[0];
    insta::assert_snapshot!(serde_json::to_string_pretty(crashy).unwrap());
}

#[test]
fn the_order_of_files_and_the_layout_of_objects_do_not_matter() {
    let [pods, events] = files();
    let expected = replay(
        &["-o", "json", "--lifecycle"],
        &[pods.clone(), events.clone()],
    );
    assert_eq!(
        replay(
            &["-o", "json", "--lifecycle"],
            &[events.clone(), pods.clone()]
        ),
        expected
    );
    let folder = tempfile::tempdir().unwrap();
    let mixed = folder.path().join("mixed.json");
    let printed: String = [events, pods]
        .iter()
        .flat_map(|file| {
            let text = std::fs::read_to_string(file).unwrap();
            let values: Vec<Value> = text
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            values
        })
        .map(|value| serde_json::to_string_pretty(&value).unwrap() + "\n")
        .collect();
    std::fs::write(&mixed, printed).unwrap();
    assert_eq!(
        replay(
            &["-o", "json", "--lifecycle"],
            &[mixed.display().to_string()]
        ),
        expected
    );
}

#[test]
fn undecodable_objects_are_reported_with_their_offset() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pods.json");
    let text = std::fs::read_to_string(fixture("pods.watch.jsonl")).unwrap();
    std::fs::write(&file, format!("error: lost\n{text}{{\"type\":\"ADDED\",\n")).unwrap();
    let path = file.display().to_string();
    let (code, stdout, stderr) = output(&mut kubevitals(&["replay", &path]));
    assert_eq!(code, 0);
    assert!(stdout.contains("15 pods, 9 of them ready"), "{stdout}");
    assert!(
        stderr.contains(&format!("{path}: byte 0: 11 bytes are not a JSON object")),
        "{stderr}"
    );
    let end = 12 + text.len();
    assert!(
        stderr.contains(&format!("{path}: byte {end}: object is truncated")),
        "{stderr}"
    );
}

#[test]
fn a_recording_without_pods_is_an_error() {
    let (code, _, stderr) = output(&mut kubevitals(&["replay", "/nonexistent/pods.json"]));
    assert_eq!(code, 1);
    assert!(
        stderr.contains("cannot open /nonexistent/pods.json"),
        "{stderr}"
    );
    let (code, _, stderr) = output(&mut kubevitals(&["replay", &fixture("events.watch.jsonl")]));
    assert_eq!(code, 1);
    assert!(
        stderr.contains("no pods found; record with `kubectl get pods"),
        "{stderr}"
    );
}

#[test]
fn help_of_the_replay_shows_how_to_record() {
    let (code, stdout, _) = output(&mut kubevitals(&["replay", "--help"]));
    assert_eq!(code, 0);
    insta::assert_snapshot!(stdout);
}
