//! Which pods are meant.

use std::time::Duration;

use kubevitals_cli::RunError;

use super::{ExplainFlags, ExplainOutput, misused, refused};

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    Pods(Vec<Target>),
    Slowest(Slowest),
}

/// One pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// None for that of the context.
    pub(super) namespace: Option<String>,
    pub(super) name: String,
}

/// The slowest of some pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slowest {
    pub(super) most: usize,
    /// None for all.
    pub(super) namespace: Option<String>,
    pub(super) selector: Option<String>,
    pub(super) since: Option<Duration>,
}

impl Wanted {
    pub(super) fn read(flags: &ExplainFlags) -> Result<Self, RunError> {
        if let Some(namespace) = &flags.namespace {
            check_namespace(namespace)?;
        }
        match flags.slowest {
            Some(most) => Self::slowest(flags, most),
            None => Self::pods(flags),
        }
    }

    pub(super) fn usual_output(&self) -> ExplainOutput {
        match self {
            Self::Pods(_) => ExplainOutput::Waterfall,
            Self::Slowest(_) => ExplainOutput::Table,
        }
    }

    fn slowest(flags: &ExplainFlags, most: u32) -> Result<Self, RunError> {
        if let Some(word) = flags.target.first() {
            let advice = "leave one of the two out; -n and -l choose among pods";
            return Err(refused("slowest", word, "a pod is named as well", advice));
        }
        if flags.watch {
            let advice = "name a pod to wait for";
            return Err(refused("watch", "true", "--slowest looks once", advice));
        }
        if flags.all_namespaces && flags.namespace.is_some() {
            let advice = "leave out --namespace or --all-namespaces";
            let value = flags.namespace.clone().unwrap_or_default();
            return Err(refused("namespace", value, "all are asked for too", advice));
        }
        let since = flags.since.map(Duration::try_from).transpose();
        let since = since.map_err(|_| {
            let value = flags.since.unwrap_or_default().to_string();
            refused(
                "since",
                value,
                "it lies ahead",
                "write a duration such as 1h",
            )
        })?;
        Ok(Self::Slowest(Slowest {
            most: usize::try_from(most).unwrap_or(usize::MAX),
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
            let problem = "it chooses among pods for --slowest";
            return Err(refused(flag, "", problem, "add --slowest, or leave it out"));
        }
        let usage = || {
            let advice =
                "write `kubevitals explain pod NAMESPACE/NAME` or `kubevitals explain --slowest`";
            misused("no pod is named", advice)
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
        let targets = names.into_iter().map(|name| Target::read(name, flags));
        Ok(Self::Pods(targets.collect::<Result<_, _>>()?))
    }
}

impl Target {
    fn read(text: &str, flags: &ExplainFlags) -> Result<Self, RunError> {
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, text),
        };
        if let Some((stated, flag)) = namespace.zip(flags.namespace.as_deref())
            && stated != flag
        {
            let advice = "write the namespace once";
            return Err(refused(
                "namespace",
                flag,
                "the pod is said to be in another",
                advice,
            ));
        }
        let namespace = namespace.or(flags.namespace.as_deref());
        if let Some(namespace) = namespace {
            check_namespace(namespace)?;
        }
        if !is_name(name) {
            return Err(misused(&format!("'{name}' is no name of a pod"), NAMES));
        }
        Ok(Self {
            namespace: namespace.map(ToOwned::to_owned),
            name: name.to_owned(),
        })
    }

    /// The namespace, once one is chosen.
    pub(super) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace(), self.name)
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

/// Names become part of a path: what no name can be is not sent.
fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.bytes()
        .all(|byte| is_allowed(byte) || matches!(byte, b'-' | b'.'))
        && name.bytes().next().is_some_and(is_allowed)
        && name.len() <= 253
}

const NAMES: &str = "names have lower-case letters, digits, dashes and dots";

fn check_namespace(name: &str) -> Result<(), RunError> {
    if is_name(name) {
        return Ok(());
    }
    Err(refused("namespace", name, "that is no name", NAMES))
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

    fn read(words: &[&str]) -> Result<Wanted, String> {
        let line = Line::try_parse_from(["explain"].iter().chain(words));
        let line = line.map_err(|error| error.to_string())?;
        Wanted::read(&line.flags).map_err(|error| error.to_string())
    }

    fn pod(namespace: Option<&str>, name: &str) -> Target {
        Target {
            namespace: namespace.map(ToOwned::to_owned),
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_pod_is_named_as_kubectl_users_do() {
        for (words, expected) in [
            (&["pod", "shop/web"][..], pod(Some("shop"), "web")),
            (&["pods", "web", "-n", "shop"], pod(Some("shop"), "web")),
            (&["pod/web"], pod(None, "web")),
            (&["po", "web"], pod(None, "web")),
            (&["pod", "pod"], pod(None, "pod")),
        ] {
            assert_eq!(read(words), Ok(Wanted::Pods(vec![expected])), "{words:?}");
        }
        let both = vec![pod(None, "a"), pod(None, "b")];
        assert_eq!(read(&["pod/a", "pod/b"]), Ok(Wanted::Pods(both.clone())));
        assert_eq!(read(&["pod", "a", "b"]), Ok(Wanted::Pods(both)));
    }

    #[test]
    fn the_slowest_are_of_all_namespaces_unless_one_is_named() {
        let expected = |most, namespace: Option<&str>| {
            Ok(Wanted::Slowest(Slowest {
                most,
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
    fn what_cannot_be_meant_is_refused() {
        for (words, said) in [
            (&[][..], "no pod is named"),
            (&["pod"], "no pod is named"),
            (&["deployment/web"], "no pod is named"),
            (&["pod", "../secrets"], "that is no name"),
            (&["pod", "a/Web"], "'Web' is no name of a pod"),
            (&["pod", "a/b/c"], "'b/c' is no name of a pod"),
            (&["pod", "a/b", "-n", "c"], "in another"),
            (&["pod", "web", "--since=1h"], "--slowest"),
            (&["pod", "web", "--slowest=3"], "a pod is named as well"),
            (&["--slowest=3", "-A", "-n", "a"], "all are asked for too"),
            (&["--slowest=3", "--since=-1h"], "it lies ahead"),
            (&["--slowest=0"], "0 is not in"),
        ] {
            let told = read(words).unwrap_err();
            assert!(told.contains(said), "{words:?}: {told}");
        }
    }
}
