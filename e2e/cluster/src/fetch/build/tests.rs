use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn entry(cache: &Path, key: &str) -> Entry {
    Entry {
        name: "kubelet".to_owned(),
        version: "v1.37.1".to_owned(),
        folder: cache.join(format!("kubelet-v1.37.1-{key}")),
        goal: Goal::Command,
        arguments: Vec::new(),
    }
}

/// A build that writes the program with this text.
fn writing(text: &str) -> impl FnMut(&Entry, &Path) -> Result<()> {
    move |entry, folder| Ok(std::fs::write(folder.join(&entry.name), text)?)
}

fn must_not_build(_: &Entry, _: &Path) -> Result<()> {
    bail!("it was there already")
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != ".locks")
        .collect();
    names.sort();
    names
}

#[test]
fn an_existing_program_is_not_built_again() {
    let cache = tempfile::tempdir().unwrap();
    let entry = entry(cache.path(), "1");
    let first = ensure(&entry, &mut writing("program")).unwrap();
    assert_eq!(std::fs::read_to_string(&first).unwrap(), "program");
    let second = ensure(&entry, &mut must_not_build).unwrap();
    assert_eq!(first, second);
}

#[test]
fn another_key_is_another_program_and_the_old_one_is_kept() {
    let cache = tempfile::tempdir().unwrap();
    let old = ensure(&entry(cache.path(), "1"), &mut writing("old")).unwrap();
    let new = ensure(&entry(cache.path(), "2"), &mut writing("new")).unwrap();
    assert_eq!(std::fs::read_to_string(old).unwrap(), "old");
    assert_eq!(std::fs::read_to_string(new).unwrap(), "new");
}

#[test]
fn a_failed_build_leaves_nothing_and_returns_the_reason() {
    let cache = tempfile::tempdir().unwrap();
    let entry = entry(cache.path(), "1");
    let error = ensure(&entry, &mut |entry, folder| {
        std::fs::write(folder.join(&entry.name), "half")?;
        bail!("no space left")
    })
    .unwrap_err();
    assert_eq!(error.to_string(), "no space left");
    assert!(names(cache.path()).is_empty());
    ensure(&entry, &mut writing("program")).unwrap();
}

#[test]
fn a_build_without_a_program_is_an_error() {
    let cache = tempfile::tempdir().unwrap();
    let error = ensure(&entry(cache.path(), "1"), &mut |_, _| Ok(())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the build of kubelet v1.37.1 produced no program"
    );
    assert!(names(cache.path()).is_empty());
}

#[test]
fn the_remains_of_a_killed_run_are_removed_and_no_others() {
    let cache = tempfile::tempdir().unwrap();
    for part in [".part-kubelet-v1.37.1-1-99", ".part-kubelet-v1.37.1-2-99"] {
        make(&cache.path().join(part)).unwrap();
        std::fs::write(cache.path().join(part).join("kubelet"), "half").unwrap();
    }
    ensure(&entry(cache.path(), "1"), &mut writing("program")).unwrap();
    assert_eq!(
        names(cache.path()),
        [".part-kubelet-v1.37.1-2-99", "kubelet-v1.37.1-1"]
    );
}

#[test]
fn a_folder_without_its_program_is_replaced() {
    let cache = tempfile::tempdir().unwrap();
    let entry = entry(cache.path(), "1");
    make(&entry.folder).unwrap();
    std::fs::write(entry.folder.join("other"), "").unwrap();
    ensure(&entry, &mut writing("program")).unwrap();
    assert_eq!(names(&entry.folder), ["kubelet"]);
}

#[test]
fn of_two_runs_at_once_one_builds() {
    let cache = tempfile::tempdir().unwrap();
    let entry = entry(cache.path(), "1");
    let builds = AtomicUsize::new(0);
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                let program = ensure(&entry, &mut |entry, folder| {
                    builds.fetch_add(1, Ordering::SeqCst);
                    writing("program")(entry, folder)
                });
                assert!(program.unwrap().is_file());
            });
        }
    });
    assert_eq!(builds.load(Ordering::SeqCst), 1);
}

#[test]
fn a_failed_command_returns_the_end_of_its_output() {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "i=0; while [ $i -lt 100 ]; do echo line $i >&2; i=$((i+1)); done; exit 3",
    ]);
    let mut lines = 0;
    let output = run_with_progress(&mut command, &mut |output| lines = output.lines);
    let output = output.unwrap().unwrap();
    assert_eq!(lines, 100);
    assert!(!output.contains("line 59\n"), "{output}");
    assert!(output.starts_with("line 60\n"), "{output}");
    assert!(output.ends_with("line 99\n(exit status: 3)"), "{output}");
}

#[test]
fn a_successful_command_returns_no_output() {
    let mut command = Command::new("sh");
    command.args(["-c", "echo k8s.io/api >&2"]);
    let mut last = String::new();
    let output = run_with_progress(&mut command, &mut |output| {
        last = activity("compiling", output);
    });
    assert_eq!(output.unwrap(), None);
    assert_eq!(last, "compiling, 1: k8s.io/api");
}
