use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use clap::{CommandFactory as _, Parser};
use kubevitals_model::GoDuration;

use super::*;
use crate::generated;

/// The flags of metrics-server, as its `--help` lists them.
const PEER: &str = include_str!("../../../tests/fixtures/metrics-server-flags.tsv");

/// Flags of older releases, which manifests still set.
const OLDER: [&str; 2] = ["logtostderr", "stderrthreshold"];

struct PeerFlag {
    name: &'static str,
    kind: &'static str,
    default: &'static str,
}

fn peer() -> impl Iterator<Item = PeerFlag> {
    let lines = PEER.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let mut columns = line.split('\t');
        let mut next = || columns.next().unwrap_or_default();
        PeerFlag {
            name: next(),
            kind: next(),
            default: next(),
        }
    })
}

fn server_command() -> Command {
    let mut command = crate::args::Args::command();
    command.build();
    command.find_subcommand("server").unwrap().clone()
}

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    compat: CompatFlags,
}

fn parse(flags: &[&str]) -> CompatFlags {
    let args = ["test"].iter().chain(flags);
    Flags::try_parse_from(args).unwrap().compat
}

#[test]
fn the_table_has_every_flag_of_metrics_server_once() {
    let mut seen = BTreeMap::new();
    for group in GROUPS {
        for name in group.options {
            assert_eq!(seen.insert(*name, false), None, "{name}");
        }
        for name in group.switches {
            assert_eq!(seen.insert(*name, true), None, "{name}");
        }
    }
    for name in OLDER {
        assert!(seen.remove(name).is_some(), "{name}");
    }
    let listed: BTreeMap<_, _> = peer()
        .map(|flag| (flag.name, flag.kind == "bool"))
        .collect();
    assert_eq!(listed.len(), 103);
    assert_eq!(seen, listed);
}

/// The defaults are part of the promise: a manifest relies on those that it does not set.
#[test]
fn supported_flags_exist_with_the_defaults_of_metrics_server() {
    let command = server_command();
    let mut different = BTreeSet::new();
    for flag in peer() {
        if !matches!(disposition(flag.name), Some(Disposition::Supported(_))) {
            continue;
        }
        let mut arguments = command.get_arguments();
        let argument = arguments.find(|argument| argument.get_long() == Some(flag.name));
        let argument = argument.unwrap_or_else(|| panic!("--{} is not defined", flag.name));
        assert!(
            flag.name == "deprecated-kubelet-completely-insecure" || !argument.is_hide_set(),
            "{}",
            flag.name
        );
        let values = argument.get_default_values();
        let values: Vec<_> = values.iter().map(|value| value.to_string_lossy()).collect();
        if normalized(&values.join(","), flag.kind) != normalized(flag.default, flag.kind) {
            different.insert(flag.name);
        }
    }
    assert_eq!(
        different,
        BTreeSet::from(["kubelet-request-timeout", "profiling"])
    );
}

fn normalized(default: &str, kind: &str) -> String {
    match (kind, default.trim_matches(['[', ']'])) {
        ("bool", "") => "false".to_owned(),
        ("int" | "float", "") => "0".to_owned(),
        ("duration", text) if !text.is_empty() => text.parse::<GoDuration>().unwrap().to_string(),
        (_, text) => text.to_owned(),
    }
}

/// `--contention-profiling` once demanded a value.
#[test]
fn ignored_flags_are_accepted_in_every_form_that_go_accepts() {
    let all = GROUPS.iter().filter(|group| group.is_unsupported());
    for group in all {
        for name in group.switches {
            for form in [format!("--{name}"), format!("--{name}=false")] {
                let set = parse(&[&form]).set;
                assert_eq!(set.len(), 1, "{form}");
            }
        }
        for name in group.options {
            let set = parse(&[&format!("--{name}=1"), &format!("--{name}"), "2"]).set;
            assert_eq!(set, [(*name, "1,2".to_owned())]);
        }
    }
}

#[test]
fn a_flag_without_effect_is_named_with_the_reason() {
    let flags = parse(&["--advertise-address=10.0.0.1", "--contention-profiling"]);
    let ignored: Vec<_> = flags.ignored().collect();
    assert_eq!(
        ignored,
        [
            (
                "advertise-address",
                "the APIService refers to a Service, not to an address"
            ),
            (
                "contention-profiling",
                "there are profiles of CPU time and of the heap only"
            ),
        ]
    );
    flags.validate().unwrap();
}

#[test]
fn a_flag_that_the_server_cannot_live_up_to_is_rejected_with_the_reason() {
    let error = parse(&["--audit-log-path=/var/log/audit"]).validate();
    assert_eq!(
        error.unwrap_err().to_string(),
        "invalid value '/var/log/audit' for '--audit-log-path': there is no audit log; leave the flag out"
    );
    parse(&["--audit-log-path="]).validate().unwrap();
    let rejected = GROUPS
        .iter()
        .filter(|group| matches!(group.disposition, Disposition::Rejected(_)));
    for name in rejected.flat_map(Group::names) {
        parse(&[&format!("--{name}=x")]).validate().unwrap_err();
    }
}

#[test]
fn the_table_in_the_documentation_is_the_one_of_the_code() {
    generated::check("docs/server.md", "flags of metrics-server", &markdown());
}

#[test]
fn every_flag_in_the_documentation_exists() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/server.md");
    let text = std::fs::read_to_string(file).unwrap();
    let command = server_command();
    let known: BTreeSet<_> = command.get_arguments().filter_map(Arg::get_long).collect();
    // The commands of other programs stand in fences.
    let prose = text.split("```").step_by(2);
    let flags = prose.flat_map(|prose| prose.split("`--").skip(1));
    let mut seen = 0;
    for flag in flags {
        let end = flag.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let name = flag.get(..end.unwrap_or(flag.len())).unwrap();
        assert!(known.contains(name), "--{name}");
        seen += 1;
    }
    assert!(seen > 100, "the page lists the flags");
}

/// The groups as tables, those without a remark first.
fn markdown() -> String {
    let mut text = String::new();
    let count = |wanted: fn(&Disposition) -> bool| {
        let groups = GROUPS.iter().filter(|group| wanted(&group.disposition));
        let names = groups.flat_map(Group::names);
        names.filter(|name| !OLDER.contains(name)).count()
    };
    let supported = count(|d| matches!(d, Disposition::Supported(_)));
    let ignored = count(|d| matches!(d, Disposition::Ignored(_)));
    let rejected = count(|d| matches!(d, Disposition::Rejected(_)));
    writeln!(
        text,
        "\nOf the {} flags of metrics-server 0.9.0, {supported} work here, {ignored} are accepted \
         without effect\nand {rejected} are rejected.\n\n| flags of metrics-server | here |\n|---|---|",
        supported + ignored + rejected
    )
    .unwrap();
    for group in GROUPS {
        let mut names: Vec<_> = group.names().collect();
        names.sort_unstable();
        let names: Vec<_> = names.iter().map(|name| format!("`--{name}`")).collect();
        let here = match group.disposition {
            Disposition::Supported(None) => "as in metrics-server".to_owned(),
            Disposition::Supported(Some(difference)) => format!("works: {difference}"),
            Disposition::Ignored(reason) => format!("no effect: {reason}"),
            Disposition::Rejected(reason) => format!("rejected: {reason}"),
        };
        writeln!(text, "| {} | {here} |", names.join(", ")).unwrap();
    }
    text.push('\n');
    text
}
