//! The pods that the flags select.

use std::time::Duration;

use kubevitals_cli::RunError;
use kubevitals_explain::{PodName, SlowestQuery};

use super::{ExplainFlags, ExplainOutput, invalid_arguments, invalid_flag};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Selection {
    Pods(Vec<Target>),
    Slowest(SlowestQuery),
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
        match flags.slowest {
            Some(limit) => Self::slowest(flags, limit),
            None => Self::pods(flags),
        }
    }

    pub(super) fn default_output(&self) -> ExplainOutput {
        match self {
            Self::Pods(_) => ExplainOutput::Waterfall,
            Self::Slowest(_) => ExplainOutput::Table,
        }
    }

    fn slowest(flags: &ExplainFlags, limit: u32) -> Result<Self, RunError> {
        if let Some(word) = flags.target.first() {
            let advice = "omit one of the two; -n and -l filter pods";
            return Err(invalid_flag(
                "slowest",
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
        let since = flags.since.map(Duration::try_from).transpose();
        let since = since.map_err(|_| {
            let value = flags.since.unwrap_or_default().to_string();
            invalid_flag(
                "since",
                value,
                "it must not be negative",
                "write a duration such as 1h",
            )
        })?;
        Ok(Self::Slowest(SlowestQuery {
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            namespace: flags.namespace.clone(),
            selector: flags.selector.clone(),
            since,
        }))
    }

    fn pods(flags: &ExplainFlags) -> Result<Self, RunError> {
        let slowest_only = [
            ("all-namespaces", flags.all_namespaces),
            ("selector", flags.selector.is_some()),
            ("since", flags.since.is_some()),
        ];
        if let Some((flag, _)) = slowest_only.into_iter().find(|(_, given)| *given) {
            let problem = "it filters pods for --slowest";
            return Err(invalid_flag(flag, "", problem, "add --slowest, or omit it"));
        }
        let usage = || {
            let advice =
                "write `kubevitals explain pod NAMESPACE/NAME` or `kubevitals explain --slowest`";
            invalid_arguments("no pod given", advice)
        };
        let (first, rest) = flags.target.split_first().ok_or_else(usage)?;
        let names: Vec<&str> = match first.split_once('/') {
            Some((kind, name)) if is_pod(kind) => {
                let rest = rest.iter().map(|word| without_kind(word));
                [name].into_iter().chain(rest).collect()
            }
            None if is_pod(first) => rest.iter().map(String::as_str).collect(),
            _ => return Err(usage()),
        };
        if names.is_empty() {
            return Err(usage());
        }
        let targets = names.into_iter().map(|name| Target::parse(name, flags));
        Ok(Self::Pods(targets.collect::<Result<_, _>>()?))
    }
}

impl Target {
    fn parse(text: &str, flags: &ExplainFlags) -> Result<Self, RunError> {
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
                "the name of the pod has another namespace",
                advice,
            ));
        }
        let namespace = namespace.or(flags.namespace.as_deref());
        if let Some(namespace) = namespace {
            check_namespace(namespace)?;
        }
        if !is_name(name) {
            return Err(invalid_arguments(
                &format!("'{name}' is not a valid pod name"),
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

fn is_pod(kind: &str) -> bool {
    matches!(kind, "pod" | "pods" | "po")
}

fn without_kind(word: &str) -> &str {
    match word.split_once('/') {
        Some((kind, name)) if is_pod(kind) => name,
        _ => word,
    }
}

/// Names become part of a path, so only valid ones are sent.
fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.bytes()
        .all(|byte| is_allowed(byte) || matches!(byte, b'-' | b'.'))
        && name.bytes().next().is_some_and(is_allowed)
        && name.len() <= 253
}

const NAMES: &str = "use lower-case letters, digits, dashes and dots";

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
            (&["deployment/web"], "no pod given"),
            (&["pod", "../secrets"], "it is not a valid name"),
            (&["pod", "a/Web"], "'Web' is not a valid pod name"),
            (&["pod", "a/b/c"], "'b/c' is not a valid pod name"),
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
