//! The pods that the flags select.

use std::path::PathBuf;
use std::time::Duration;

use kubevitals_cli::RunError;
use kubevitals_explain::{PodName, ReportTarget, SlowestQuery, WorkloadKind, WorkloadName};
use kubevitals_transitions::stats::groups::GroupBy;

use super::{ByFlag, ExplainFlags, ExplainOutput, invalid_arguments, invalid_flag, words};

/// The groups that `--by` shows without `--slowest`.
const DEFAULT_GROUPS: u32 = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Selection {
    Pods(Vec<Target>),
    Slowest(SlowestQuery),
    Groups(SlowestQuery, GroupBy),
    /// With the maximum age of pods.
    Report(ReportWords, Option<Duration>),
    Diff(DiffSides),
}

/// A workload or a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReportWords {
    Workload(WorkloadWords),
    Node(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkloadWords {
    pub(super) kind: WorkloadKind,
    pub(super) target: Target,
}

/// What is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DiffSides {
    /// Without names, the newest revision with the one before.
    Revisions(WorkloadWords, Option<[String; 2]>),
    Files([PathBuf; 2]),
}

/// One pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// `None` for that of the context.
    namespace: Option<String>,
    name: String,
}

impl Selection {
    pub(super) fn parse(flags: &ExplainFlags) -> Result<Self, RunError> {
        if let Some(namespace) = &flags.namespace {
            check_namespace(namespace)?;
        }
        let selection = match (flags.slowest, flags.by) {
            (None, None) => words::parse(flags)?,
            (limit, by) => Self::slowest(flags, limit.unwrap_or(DEFAULT_GROUPS), by)?,
        };
        selection.check_flags(flags)?;
        Ok(selection)
    }

    /// Rejects flags that do not apply.
    fn check_flags(&self, flags: &ExplainFlags) -> Result<(), RunError> {
        let is_diff = matches!(self, Self::Diff(_));
        if let Some(threshold) = flags.threshold.first().filter(|_| !is_diff) {
            let advice = "write `kubevitals explain diff ...`";
            let problem = "it is a check of `explain diff`";
            return Err(invalid_flag(
                "threshold",
                threshold.to_string(),
                problem,
                advice,
            ));
        }
        let is_of_pods = matches!(self, Self::Pods(_) | Self::Slowest(_));
        let wrong = match flags.output {
            Some(ExplainOutput::Yaml) if is_of_pods => "yaml",
            Some(ExplainOutput::Waterfall) if !is_of_pods => "waterfall",
            _ => return Ok(()),
        };
        let problem = "it is not a format for this target";
        Err(invalid_flag(
            "output",
            wrong,
            problem,
            "use table, wide or json",
        ))
    }

    pub(super) fn default_output(&self) -> ExplainOutput {
        match self {
            Self::Pods(_) => ExplainOutput::Waterfall,
            _ => ExplainOutput::Table,
        }
    }

    fn slowest(flags: &ExplainFlags, limit: u32, by: Option<ByFlag>) -> Result<Self, RunError> {
        let name = if by.is_some() { "by" } else { "slowest" };
        if let Some(word) = flags.target.first() {
            let advice = "omit one of the two; -n and -l filter pods";
            return Err(invalid_flag(
                name,
                word,
                "it cannot be combined with the name of a pod",
                advice,
            ));
        }
        if flags.watch {
            let advice = "name a pod to wait for";
            return Err(invalid_flag(
                "watch",
                "true",
                "it cannot be combined with --slowest",
                advice,
            ));
        }
        if flags.all_namespaces && flags.namespace.is_some() {
            let advice = "omit --namespace or --all-namespaces";
            let value = flags.namespace.clone().unwrap_or_default();
            return Err(invalid_flag(
                "namespace",
                value,
                "it cannot be combined with --all-namespaces",
                advice,
            ));
        }
        let since = since(flags)?;
        let query = SlowestQuery {
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            namespace: flags.namespace.clone(),
            selector: flags.selector.clone(),
            since,
        };
        Ok(match by {
            Some(by) => Self::Groups(query, by.into()),
            None => Self::Slowest(query),
        })
    }
}

/// The maximum age of pods.
pub(super) fn since(flags: &ExplainFlags) -> Result<Option<Duration>, RunError> {
    let since = flags.since.map(Duration::try_from).transpose();
    since.map_err(|_| {
        let value = flags.since.unwrap_or_default().to_string();
        invalid_flag(
            "since",
            value,
            "it must not be negative",
            "write a duration such as 1h",
        )
    })
}

impl From<ByFlag> for GroupBy {
    fn from(flag: ByFlag) -> Self {
        match flag {
            ByFlag::Image => Self::Image,
            ByFlag::Node => Self::Node,
            ByFlag::Workload => Self::Workload,
            ByFlag::Pool => Self::Pool,
        }
    }
}

impl ReportWords {
    pub(super) fn in_namespace(self, default: &str) -> ReportTarget {
        match self {
            Self::Workload(words) => ReportTarget::Workload(words.in_namespace(default)),
            Self::Node(name) => ReportTarget::Node(name),
        }
    }
}

impl WorkloadWords {
    pub(super) fn in_namespace(self, default: &str) -> WorkloadName {
        let PodName { namespace, name } = self.target.in_namespace(default);
        WorkloadName {
            kind: self.kind,
            namespace,
            name,
        }
    }
}

impl Target {
    pub(super) fn parse(text: &str, flags: &ExplainFlags) -> Result<Self, RunError> {
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, text),
        };
        if let Some((stated, flag)) = namespace.zip(flags.namespace.as_deref())
            && stated != flag
        {
            let advice = "give the namespace once";
            return Err(invalid_flag(
                "namespace",
                flag,
                "the name has another namespace",
                advice,
            ));
        }
        let namespace = namespace.or(flags.namespace.as_deref());
        if let Some(namespace) = namespace {
            check_namespace(namespace)?;
        }
        if !is_name(name) {
            return Err(invalid_arguments(
                &format!("'{name}' is not a valid name"),
                NAMES,
            ));
        }
        Ok(Self {
            namespace: namespace.map(ToOwned::to_owned),
            name: name.to_owned(),
        })
    }

    pub(super) fn in_namespace(self, default: &str) -> PodName {
        PodName {
            namespace: self.namespace.unwrap_or_else(|| default.to_owned()),
            name: self.name,
        }
    }
}

/// Names become part of a path, so only valid ones are sent.
pub(super) fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.bytes()
        .all(|byte| is_allowed(byte) || matches!(byte, b'-' | b'.'))
        && name.bytes().next().is_some_and(is_allowed)
        && name.len() <= 253
}

pub(super) const NAMES: &str = "use lower-case letters, digits, dashes and dots";

fn check_namespace(name: &str) -> Result<(), RunError> {
    if is_name(name) {
        return Ok(());
    }
    Err(invalid_flag(
        "namespace",
        name,
        "it is not a valid name",
        NAMES,
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        flags: ExplainFlags,
    }

    fn read(words: &[&str]) -> Result<Selection, String> {
        let line = Line::try_parse_from(["explain"].iter().chain(words));
        let line = line.map_err(|error| error.to_string())?;
        Selection::parse(&line.flags).map_err(|error| error.to_string())
    }

    fn pod(namespace: Option<&str>, name: &str) -> Target {
        Target {
            namespace: namespace.map(ToOwned::to_owned),
            name: name.to_owned(),
        }
    }

    #[test]
    fn pods_are_named_as_in_kubectl() {
        for (words, expected) in [
            (&["pod", "shop/web"][..], pod(Some("shop"), "web")),
            (&["pods", "web", "-n", "shop"], pod(Some("shop"), "web")),
            (&["pod/web"], pod(None, "web")),
            (&["po", "web"], pod(None, "web")),
            (&["pod", "pod"], pod(None, "pod")),
        ] {
            assert_eq!(
                read(words),
                Ok(Selection::Pods(vec![expected])),
                "{words:?}"
            );
        }
        let both = vec![pod(None, "a"), pod(None, "b")];
        assert_eq!(read(&["pod/a", "pod/b"]), Ok(Selection::Pods(both.clone())));
        assert_eq!(read(&["pod", "a", "b"]), Ok(Selection::Pods(both)));
    }

    #[test]
    fn workloads_and_nodes_are_named_as_in_kubectl() {
        use WorkloadKind::{DaemonSet, Deployment, Job, StatefulSet};

        let workload = |kind, namespace, name| {
            let target = pod(namespace, name);
            Ok(Selection::Report(
                ReportWords::Workload(WorkloadWords { kind, target }),
                None,
            ))
        };
        for (words, expected) in [
            (&["deployment/web"][..], workload(Deployment, None, "web")),
            (
                &["deploy", "web", "-n", "shop"],
                workload(Deployment, Some("shop"), "web"),
            ),
            (
                &["sts", "shop/db"],
                workload(StatefulSet, Some("shop"), "db"),
            ),
            (
                &["daemonset/shop/agent"],
                workload(DaemonSet, Some("shop"), "agent"),
            ),
            (&["job", "job"], workload(Job, None, "job")),
        ] {
            assert_eq!(read(words), expected, "{words:?}");
        }
        let node = ReportWords::Node("n1".to_owned());
        let hour = Some(Duration::from_hours(1));
        let expected = Ok(Selection::Report(node, hour));
        assert_eq!(read(&["node/n1", "--since=1h"]), expected);
        assert_eq!(read(&["no", "n1", "--since=1h"]), expected);
    }

    #[test]
    fn revisions_and_files_are_compared() {
        let web = || WorkloadWords {
            kind: WorkloadKind::Deployment,
            target: pod(None, "web"),
        };
        let names = Some(["3".to_owned(), "7d4b".to_owned()]);
        let revisions = |names| Ok(Selection::Diff(DiffSides::Revisions(web(), names)));
        for words in [
            &["diff", "deployment/web", "3", "7d4b"][..],
            &["diff", "deployment", "web", "3", "7d4b"],
        ] {
            assert_eq!(read(words), revisions(names.clone()), "{words:?}");
        }
        assert_eq!(read(&["diff", "deploy/web"]), revisions(None));
        assert_eq!(read(&["diff", "deploy", "web"]), revisions(None));
        let files = ["a.jsonl", "out/b.jsonl"].map(PathBuf::from);
        let expected = Ok(Selection::Diff(DiffSides::Files(files)));
        assert_eq!(
            read(&["diff", "a.jsonl", "out/b.jsonl", "--threshold=p95=+20%"]),
            expected
        );
    }

    #[test]
    fn groups_are_of_all_namespaces_unless_one_is_named() {
        let expected = |limit, namespace: Option<&str>, by| {
            let query = SlowestQuery {
                limit,
                namespace: namespace.map(ToOwned::to_owned),
                selector: None,
                since: None,
            };
            Ok(Selection::Groups(query, by))
        };
        assert_eq!(read(&["--by", "image"]), expected(20, None, GroupBy::Image));
        assert_eq!(
            read(&["--by=pool", "--slowest=3", "-n", "shop"]),
            expected(3, Some("shop"), GroupBy::Pool)
        );
    }

    #[test]
    fn the_slowest_are_of_all_namespaces_unless_one_is_named() {
        let expected = |limit, namespace: Option<&str>| {
            Ok(Selection::Slowest(SlowestQuery {
                limit,
                namespace: namespace.map(ToOwned::to_owned),
                selector: None,
                since: None,
            }))
        };
        assert_eq!(read(&["--slowest", "7"]), expected(7, None));
        assert_eq!(read(&["--slowest", "-A"]), expected(20, None));
        assert_eq!(
            read(&["--slowest=3", "-n", "shop"]),
            expected(3, Some("shop"))
        );
    }

    #[test]
    fn contradictory_arguments_are_rejected() {
        for (words, expected) in [
            (&[][..], "no pod given"),
            (&["pod"], "no pod given"),
            (&["pods/web", "extra", "--by=node"], "cannot be combined"),
            (&["web"], "no pod given"),
            (&["rollout/web"], "no pod given"),
            (&["deployment"], "no name given"),
            (&["deployment", "web", "api"], "one name"),
            (&["deployment/web", "-l", "app=web"], "--slowest"),
            (&["deployment", "web", "--watch"], "name a pod"),
            (&["node", "n1", "-n", "shop"], "nodes have no namespace"),
            (&["node", "shop/n1"], "'shop/n1' is not a valid name"),
            (&["diff"], "nothing to compare"),
            (&["diff", "a.jsonl"], "nothing to compare"),
            (
                &["diff", "a.jsonl", "b.jsonl", "c.jsonl"],
                "nothing to compare",
            ),
            (&["diff", "deployment/web", "3"], "two revisions"),
            (&["diff", "job/web", "3", "4"], "has no revisions"),
            (&["diff", "node/n1", "3", "4"], "has no revisions"),
            (&["diff", "a", "b", "--threshold=p95=soon"], "p95=30s"),
            (&["diff", "a", "b", "--threshold=p42=1s"], "p95=30s"),
            (&["deployment/web", "--threshold=p95=30s"], "explain diff"),
            (&["deployment/web", "-o", "waterfall"], "not a format"),
            (&["pod/web", "-o", "yaml"], "not a format"),
            (&["pod", "../secrets"], "it is not a valid name"),
            (&["pod", "a/Web"], "'Web' is not a valid name"),
            (&["pod", "a/b/c"], "'b/c' is not a valid name"),
            (&["pod", "a/b", "-n", "c"], "another namespace"),
            (&["pod", "web", "--since=1h"], "--slowest"),
            (
                &["pod", "web", "--slowest=3"],
                "it cannot be combined with the name of a pod",
            ),
            (
                &["--slowest=3", "-A", "-n", "a"],
                "it cannot be combined with --all-namespaces",
            ),
            (&["--slowest=3", "--since=-1h"], "it must not be negative"),
            (&["--slowest=0"], "0 is not in"),
        ] {
            let error = read(words).unwrap_err();
            assert!(error.contains(expected), "{words:?}: {error}");
        }
    }
}
