//! Precedence, and what is said about values that cannot be.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, Parser, Subcommand};
use kubevitals_cli::flags::{ConfigFlags, LogFlags, LoggingFormat, go_bool};
use kubevitals_cli::{CliError, Input, Shell, env_name, parse, write_completion};

#[derive(Debug, Parser)]
#[command(name = "kubevitals", version = "1.2.3")]
struct Program {
    #[command(flatten)]
    config: ConfigFlags,
    #[command(flatten)]
    logs: LogFlags,
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Serves
    #[command(mut_arg("kubelet_insecure_tls", go_bool))]
    Server(Server),
    /// Probes
    Prober(Prober),
}

#[derive(Debug, Args)]
struct Server {
    /// Resolution
    #[arg(long, default_value_t = 60)]
    metric_resolution: u32,
    #[arg(long, value_delimiter = ',')]
    address_types: Vec<String>,
    #[arg(long)]
    kubelet_insecure_tls: bool,
    #[arg(long)]
    quick: bool,
    #[arg(long, required = true)]
    kubeconfig: Option<PathBuf>,
    #[arg(last = true)]
    rest: Vec<String>,
}

#[derive(Debug, Args)]
struct Prober {
    #[arg(long, default_value = "none")]
    target: String,
}

/// A configuration file and what is tried with it.
struct Case {
    dir: tempfile::TempDir,
    input: Input,
}

impl Case {
    fn new(args: &[&str]) -> Self {
        let args = std::iter::once(&"kubevitals").chain(args);
        Self {
            dir: tempfile::tempdir().unwrap(),
            input: Input::from_args(args),
        }
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.input
            .env
            .insert(name.to_owned(), OsString::from(value));
        self
    }

    fn file(self, text: &str) -> Self {
        let path = self.path();
        std::fs::write(&path, text).unwrap();
        self.env("KUBEVITALS_CONFIG", path.to_str().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("kubevitals.yaml")
    }

    fn program(&self) -> Result<Program, CliError> {
        parse(&self.input)
    }

    fn server(&self) -> Server {
        match self.program().unwrap().role {
            Role::Server(server) => server,
            Role::Prober(_) => panic!("not the server"),
        }
    }

    /// The message, without the folder that differs from run to run.
    fn refusal(&self) -> String {
        let error = self.program().unwrap_err();
        assert_eq!(error.exit_code(), 64, "{error}");
        error
            .to_string()
            .replace(self.dir.path().to_str().unwrap(), "DIR")
    }
}

fn server(args: &[&str]) -> Case {
    let base = ["server", "--kubeconfig=k"];
    Case::new(&base.iter().chain(args).copied().collect::<Vec<_>>())
}

#[test]
fn the_default_holds_when_nothing_is_set() {
    assert_eq!(server(&[]).server().metric_resolution, 60);
}

#[test]
fn the_file_wins_over_the_default() {
    assert_eq!(
        server(&[])
            .file("metric-resolution: 45\n")
            .server()
            .metric_resolution,
        45
    );
}

#[test]
fn the_section_of_a_role_wins_over_the_top_of_the_file() {
    let case = server(&[]).file("metric-resolution: 45\nserver:\n  metric-resolution: 40\n");
    assert_eq!(case.server().metric_resolution, 40);
}

#[test]
fn the_environment_wins_over_the_file() {
    let case = server(&[])
        .file("server: {metric-resolution: 45}\n")
        .env("KUBEVITALS_METRIC_RESOLUTION", "30");
    assert_eq!(case.server().metric_resolution, 30);
}

#[test]
fn the_flag_wins_over_all() {
    let case = server(&["--metric-resolution=15"])
        .file("metric-resolution: 45\n")
        .env("KUBEVITALS_METRIC_RESOLUTION", "30");
    assert_eq!(case.server().metric_resolution, 15);
}

#[test]
fn a_flag_before_the_subcommand_wins_too() {
    let case = Case::new(&["--logging-format=json", "server", "--kubeconfig=k"])
        .env("KUBEVITALS_LOGGING_FORMAT", "text");
    assert_eq!(
        case.program().unwrap().logs.logging_format,
        LoggingFormat::Json
    );
}

#[test]
fn any_layer_satisfies_a_required_flag() {
    let case = Case::new(&["server"]).env("KUBEVITALS_KUBECONFIG", "/etc/k");
    assert_eq!(
        case.server().kubeconfig.as_deref(),
        Some(Path::new("/etc/k"))
    );
    assert!(Case::new(&["server"]).refusal().contains("--kubeconfig"));
}

#[test]
fn lists_may_be_written_as_lists_or_with_commas() {
    let wanted = ["InternalIP", "Hostname"];
    let file = server(&[]).file("address-types: [InternalIP, Hostname]\n");
    assert_eq!(file.server().address_types, wanted);
    let env = server(&[]).env("KUBEVITALS_ADDRESS_TYPES", "InternalIP,Hostname");
    assert_eq!(env.server().address_types, wanted);
}

#[test]
fn booleans_are_read_as_go_reads_them() {
    assert!(
        server(&["--kubelet-insecure-tls"])
            .server()
            .kubelet_insecure_tls
    );
    assert!(
        server(&["--kubelet-insecure-tls=T"])
            .server()
            .kubelet_insecure_tls
    );
    assert!(
        !server(&["--kubelet-insecure-tls=false"])
            .server()
            .kubelet_insecure_tls
    );
    assert!(
        server(&[])
            .file("kubelet-insecure-tls: true\n")
            .server()
            .kubelet_insecure_tls
    );
    assert!(
        !server(&[])
            .file("kubelet-insecure-tls: false\n")
            .server()
            .kubelet_insecure_tls
    );
    assert!(server(&[]).file("quick: true\n").server().quick);
    assert!(!server(&[]).file("quick: false\n").server().quick);
}

#[test]
fn a_flag_can_undo_what_the_file_sets() {
    let case = server(&["--kubelet-insecure-tls=false"]).file("kubelet-insecure-tls: true\n");
    assert!(!case.server().kubelet_insecure_tls);
}

#[test]
fn settings_of_another_role_are_ignored() {
    let case = server(&[]).file("target: pod\nprober: {target: node}\n");
    assert_eq!(case.server().metric_resolution, 60);
}

#[test]
fn empty_variables_and_empty_keys_set_nothing() {
    let case = server(&[])
        .file("metric-resolution:\n")
        .env("KUBEVITALS_METRIC_RESOLUTION", "");
    assert_eq!(case.server().metric_resolution, 60);
}

#[test]
fn service_link_variables_are_ignored() {
    let case = server(&[])
        .env("KUBEVITALS_PORT", "tcp://10.0.0.1:443")
        .env("KUBEVITALS_SERVICE_HOST", "10.0.0.1");
    assert_eq!(case.server().metric_resolution, 60);
}

#[test]
fn arguments_after_two_dashes_are_not_flags() {
    let case = server(&["--", "--metric-resolution=1"]).env("KUBEVITALS_METRIC_RESOLUTION", "30");
    assert_eq!(case.server().metric_resolution, 30);
    assert_eq!(case.server().rest, ["--metric-resolution=1"]);
}

#[test]
fn a_bad_value_names_its_variable() {
    insta::assert_snapshot!(server(&[]).env("KUBEVITALS_METRIC_RESOLUTION", "soon").refusal(), @r"
    invalid value 'soon' for '--metric-resolution <METRIC_RESOLUTION>': invalid digit found in string
      the value comes from the environment variable KUBEVITALS_METRIC_RESOLUTION
    ");
}

#[test]
fn a_bad_value_names_its_file_and_line() {
    insta::assert_snapshot!(server(&[]).file("# why\nserver:\n  metric-resolution: soon\n").refusal(), @r"
    invalid value 'soon' for '--metric-resolution <METRIC_RESOLUTION>': invalid digit found in string
      the value comes from DIR/kubevitals.yaml:3
    ");
    insta::assert_snapshot!(server(&[]).file("quick: maybe\n").refusal(), @r"
    invalid value for '--quick': write true or false
      the value comes from DIR/kubevitals.yaml:1
    ");
    insta::assert_snapshot!(server(&[]).file("metric-resolution: [1, 2]\n").refusal(), @r"
    '--metric-resolution' takes one value, not a list
      the value comes from DIR/kubevitals.yaml:1
    ");
    insta::assert_snapshot!(server(&[]).file("metric-resolution: {a: 1}\n").refusal(), @r"
    `metric-resolution` takes a value, not a section of settings
      the value comes from DIR/kubevitals.yaml:1
    ");
    insta::assert_snapshot!(server(&[]).file("kubelet-insecure-tls: maybe\n").refusal(), @r"
    invalid value 'maybe' for '--kubelet-insecure-tls[=<BOOL>]': write true or false
      the value comes from DIR/kubevitals.yaml:1
    ");
}

#[test]
fn an_unknown_key_suggests_the_nearest() {
    insta::assert_snapshot!(
        server(&[]).file("metrics-resolution: 15\n").refusal(),
        @"DIR/kubevitals.yaml:1: unknown setting `metrics-resolution`; did you mean `metric-resolution`?"
    );
    insta::assert_snapshot!(
        server(&[]).file("server:\n  target: x\n").refusal(),
        @"DIR/kubevitals.yaml:2: unknown setting `target`"
    );
    insta::assert_snapshot!(
        server(&[]).file("sever:\n  target: x\n").refusal(),
        @"DIR/kubevitals.yaml:2: unknown setting `sever`; did you mean `server`?"
    );
}

#[test]
fn an_unknown_flag_suggests_the_nearest() {
    let refusal = server(&["--metrics-resolution=15"]).refusal();
    assert!(refusal.contains("--metric-resolution"), "{refusal}");
}

#[test]
fn a_missing_file_is_named() {
    let refusal = server(&["--config=/nowhere/k.yaml"]).refusal();
    assert!(
        refusal.starts_with("failed to read the configuration file /nowhere/k.yaml: "),
        "{refusal}"
    );
}

#[test]
fn a_huge_file_is_rejected() {
    let refusal = server(&[]).file(&"# padding\n".repeat(200_000)).refusal();
    insta::assert_snapshot!(refusal, @"the configuration file DIR/kubevitals.yaml is larger than 1048576 bytes; is it the right file?");
}

#[test]
fn invalid_yaml_is_reported_with_its_line() {
    let refusal = server(&[]).file("a: b: c\n").refusal();
    assert!(
        refusal.contains("failed to parse the configuration file DIR/kubevitals.yaml"),
        "{refusal}"
    );
    assert!(refusal.contains("line 1"), "{refusal}");
}

#[test]
fn help_and_version_are_no_failures() {
    for flag in ["--help", "--version"] {
        let error = Case::new(&[flag])
            .env("KUBEVITALS_CONFIG", "/nowhere")
            .program()
            .unwrap_err();
        assert_eq!(error.exit_code(), 0);
    }
    assert_eq!(Case::new(&[]).program().unwrap_err().exit_code(), 64);
}

#[test]
fn variables_are_named_after_flags() {
    assert_eq!(
        env_name("metric-resolution"),
        "KUBEVITALS_METRIC_RESOLUTION"
    );
}

#[test]
fn completions_know_every_flag() {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let mut script = Vec::new();
        write_completion(shell, Program::command(), &mut script).unwrap();
        let script = String::from_utf8(script).unwrap();
        assert!(script.contains("metric-resolution"), "{shell}");
    }
}

#[test]
fn the_definition_is_sound() {
    Program::command().debug_assert();
}
