//! Reads the positional arguments: pods, a workload, a node, or a comparison.

use std::path::PathBuf;

use kubevitals_cli::RunError;
use kubevitals_explain::WorkloadKind;

use super::target::{
    DiffSides, NAMES, ReportWords, Selection, Target, WorkloadWords, is_name, since,
};
use super::{ExplainFlags, invalid_arguments, invalid_flag};

/// A kind of target.
#[derive(Clone, Copy)]
enum Kind {
    Pod,
    Node,
    Workload(WorkloadKind),
}

impl Kind {
    fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "pod" | "pods" | "po" => Self::Pod,
            "node" | "nodes" | "no" => Self::Node,
            word => Self::Workload(WorkloadKind::from_word(word)?),
        })
    }
}

/// Reads the positional arguments.
pub(super) fn parse(flags: &ExplainFlags) -> Result<Selection, RunError> {
    let words: Vec<&str> = flags.target.iter().map(String::as_str).collect();
    if let Some((&"diff", words)) = words.split_first() {
        reject_filters(flags, true)?;
        return diff(words, flags).map(Selection::Diff);
    }
    let usage = || {
        let advice = "write `kubevitals explain pod NAMESPACE/NAME`, `kubevitals explain \
                      deployment NAME` or `kubevitals explain --slowest`";
        invalid_arguments("no pod given", advice)
    };
    let (kind, names) = kind_and_names(&words).ok_or_else(usage)?;
    match kind {
        Kind::Pod => {
            reject_filters(flags, true)?;
            if names.is_empty() {
                return Err(usage());
            }
            let targets = names.into_iter().map(|name| Target::parse(name, flags));
            Ok(Selection::Pods(targets.collect::<Result<_, _>>()?))
        }
        Kind::Node => {
            reject_filters(flags, false)?;
            let name = one_name(&names)?;
            let node = ReportWords::Node(node_name(name, flags)?);
            Ok(Selection::Report(node, since(flags)?))
        }
        Kind::Workload(kind) => {
            reject_filters(flags, false)?;
            let target = Target::parse(one_name(&names)?, flags)?;
            let words = ReportWords::Workload(WorkloadWords { kind, target });
            Ok(Selection::Report(words, since(flags)?))
        }
    }
}

/// Splits `KIND NAME...` and `KIND/NAME ...`.
fn kind_and_names<'w>(words: &[&'w str]) -> Option<(Kind, Vec<&'w str>)> {
    let (first, rest) = words.split_first()?;
    match first.split_once('/') {
        Some((kind, name)) => {
            let rest = rest.iter().map(|word| without_pod(word));
            let names = [name].into_iter().chain(rest);
            Some((Kind::from_word(kind)?, names.collect()))
        }
        None => Some((Kind::from_word(first)?, rest.to_vec())),
    }
}

fn diff(words: &[&str], flags: &ExplainFlags) -> Result<DiffSides, RunError> {
    reject_watch(flags)?;
    let advice = "write `kubevitals explain diff deployment/NAME REVISION REVISION` or \
                  `kubevitals explain diff BEFORE.jsonl AFTER.jsonl`";
    let Some((kind, names)) = kind_and_names(words) else {
        return match words {
            [before, after] => Ok(DiffSides::Files([before, after].map(PathBuf::from))),
            _ => Err(invalid_arguments("nothing to compare", advice)),
        };
    };
    let kind = match kind {
        Kind::Workload(kind) if kind.has_revisions() => kind,
        _ => return Err(invalid_arguments("this target has no revisions", advice)),
    };
    let (name, revisions) = match *names {
        [name] => (name, None),
        [name, before, after] => (name, Some([before, after].map(ToOwned::to_owned))),
        _ => {
            return Err(invalid_arguments(
                "name a workload and two revisions",
                advice,
            ));
        }
    };
    let target = Target::parse(name, flags)?;
    Ok(DiffSides::Revisions(
        WorkloadWords { kind, target },
        revisions,
    ))
}

fn one_name<'w>(names: &[&'w str]) -> Result<&'w str, RunError> {
    match names {
        [name] => Ok(name),
        [] => Err(invalid_arguments(
            "no name given",
            "write one after the kind",
        )),
        _ => Err(invalid_arguments(
            "more than one name given",
            "give one name: its pods are explained together",
        )),
    }
}

fn node_name(name: &str, flags: &ExplainFlags) -> Result<String, RunError> {
    if let Some(namespace) = &flags.namespace {
        let problem = "nodes have no namespace";
        return Err(invalid_flag("namespace", namespace, problem, "omit it"));
    }
    if is_name(name) {
        return Ok(name.to_owned());
    }
    let problem = format!("'{name}' is not a valid name");
    Err(invalid_arguments(&problem, NAMES))
}

/// Rejects flags that filter the pods of a cluster.
fn reject_filters(flags: &ExplainFlags, rejects_since: bool) -> Result<(), RunError> {
    let filters = [
        ("all-namespaces", flags.all_namespaces),
        ("selector", flags.selector.is_some()),
        ("since", flags.since.is_some() && rejects_since),
    ];
    if let Some((flag, _)) = filters.into_iter().find(|(_, given)| *given) {
        let problem = "it filters pods for --slowest";
        return Err(invalid_flag(flag, "", problem, "add --slowest, or omit it"));
    }
    if rejects_since {
        return Ok(());
    }
    reject_watch(flags)
}

fn reject_watch(flags: &ExplainFlags) -> Result<(), RunError> {
    if !flags.watch {
        return Ok(());
    }
    let problem = "it waits for one pod";
    Err(invalid_flag(
        "watch",
        "true",
        problem,
        "name a pod to wait for",
    ))
}

fn without_pod(word: &str) -> &str {
    match word.split_once('/') {
        Some(("pod" | "pods" | "po", name)) => name,
        _ => word,
    }
}
