//! Help, completions, and what is said to those who ask for something that cannot be.

use crate::{kubevitals, output};

fn help(args: &[&str]) -> String {
    let (code, stdout, stderr) = output(&mut kubevitals(args));
    assert_eq!((code, stderr.as_str()), (0, ""));
    stdout
}

#[test]
fn help_names_only_what_exists() {
    insta::assert_snapshot!(help(&["--help"]));
}

#[test]
fn help_of_the_demo_shows_every_flag_with_its_default() {
    insta::assert_snapshot!(help(&["demo", "--help"]));
}

#[test]
fn help_of_the_simulated_cluster_lists_the_faults() {
    insta::assert_snapshot!(help(&["sim", "--help"]));
}

#[test]
fn the_version_is_the_package_version() {
    assert_eq!(
        help(&["--version"]),
        format!("kubevitals {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn completions_are_written_to_standard_output() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = help(&["completion", shell]);
        assert!(script.contains("pods-per-node"), "{shell}");
    }
}

fn refused(args: &[&str]) -> String {
    let (code, stdout, stderr) = output(&mut kubevitals(args));
    assert_eq!((code, stdout.as_str()), (64, ""), "{stderr}");
    stderr
}

#[test]
fn bad_configuration_exits_64_and_says_what_to_change() {
    insta::assert_snapshot!(refused(&["demo", "--pods-per-nod=3"]));
    insta::assert_snapshot!(refused(&["demo", "--shutdown-grace-period=15"]));
    insta::assert_snapshot!(refused(&["demo", "--shutdown-grace-period=-1s"]));
    insta::assert_snapshot!(refused(&["demo", "--log-level=loud"]));
    insta::assert_snapshot!(refused(&["demo", "--admin-bind-address=nowhere"]));
}

#[test]
fn a_bad_variable_is_named() {
    let (code, _, stderr) = output(kubevitals(&["demo"]).env("KUBEVITALS_NODES", "many"));
    assert_eq!(code, 64);
    assert!(
        stderr.contains("the environment variable KUBEVITALS_NODES"),
        "{stderr}"
    );
}

#[cfg(not(feature = "pprof"))]
#[test]
fn profiling_without_the_feature_is_refused_at_the_start() {
    let stderr = refused(&["demo", "--profiling"]);
    assert!(stderr.contains("--features pprof"), "{stderr}");
}

#[test]
fn a_port_that_is_taken_is_a_failure_and_not_bad_configuration() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("--admin-bind-address={}", taken.local_addr().unwrap());
    let (code, _, stderr) = output(&mut kubevitals(&["demo", &address]));
    assert_eq!(code, 1);
    let error = stderr.lines().find(|line| line.starts_with("error: "));
    assert!(error.unwrap_or_default().contains("in use"), "{stderr}");
}
