//! Help, completions, and errors of bad configuration.

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
fn help_of_the_server_shows_every_flag_with_its_default() {
    insta::assert_snapshot!(help(&["server", "--help"]));
}

#[test]
fn help_of_the_node_shows_every_flag_with_its_default() {
    insta::assert_snapshot!(help(&["node", "--help"]));
}

#[test]
fn help_of_run_has_the_flags_of_all_roles() {
    let help = help(&["run", "--help"]);
    for flag in [
        "--roles",
        "--metric-resolution",
        "--lifecycle",
        "--kubeconfig-path",
    ] {
        assert!(help.contains(flag), "{flag}: {help}");
    }
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

fn rejected(args: &[&str]) -> String {
    let (code, stdout, stderr) = output(&mut kubevitals(args));
    assert_eq!((code, stdout.as_str()), (64, ""), "{stderr}");
    stderr
}

#[test]
fn bad_configuration_exits_64_and_says_what_to_change() {
    insta::assert_snapshot!(rejected(&["demo", "--pods-per-nod=3"]));
    insta::assert_snapshot!(rejected(&["demo", "--shutdown-grace-period=15"]));
    insta::assert_snapshot!(rejected(&["demo", "--shutdown-grace-period=-1s"]));
    insta::assert_snapshot!(rejected(&["demo", "--log-level=loud"]));
    insta::assert_snapshot!(rejected(&["demo", "--admin-bind-address=nowhere"]));
}

#[test]
fn an_invalid_environment_variable_is_named() {
    let (code, _, stderr) = output(kubevitals(&["demo"]).env("KUBEVITALS_NODES", "many"));
    assert_eq!(code, 64);
    assert!(
        stderr.contains("the environment variable KUBEVITALS_NODES"),
        "{stderr}"
    );
}

#[cfg(not(feature = "pprof"))]
#[test]
fn profiling_without_the_feature_is_rejected_at_startup() {
    let stderr = rejected(&["demo", "--profiling"]);
    assert!(stderr.contains("feature `pprof`"), "{stderr}");
}

#[test]
fn a_port_in_use_is_a_runtime_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("--admin-bind-address={}", taken.local_addr().unwrap());
    let (code, _, stderr) = output(&mut kubevitals(&["demo", &address]));
    assert_eq!(code, 1);
    let error = stderr.lines().find(|line| line.starts_with("error: "));
    assert!(error.unwrap_or_default().contains("in use"), "{stderr}");
}
