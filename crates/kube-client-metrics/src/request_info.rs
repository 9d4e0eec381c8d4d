//! Parses the resource and the verb of a request from its method and URL, by the rules of the API
//! server.
//!
//! The server's rules are positional, so in an invalid path a name could be taken for a resource
//! and become a label. Therefore each segment must also look like what it stands for.

use http::Method;

use crate::Verb;

/// A request as the API server sees it, without names and namespaces. Borrows from the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestInfo<'a> {
    pub(crate) verb: Verb,
    pub(crate) target: Target<'a>,
}

/// The target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    Resource(ResourcePath<'a>),
    Path(KnownPath),
    /// A malformed path of the API.
    Malformed,
}

/// A resource and the form of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ResourcePath<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) form: PathForm,
}

/// The names in a resource's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PathForm {
    pub(crate) prefix: Option<LegacyVerb>,
    pub(crate) namespaced: bool,
    pub(crate) named: bool,
}

/// Verbs that old clients have in the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LegacyVerb {
    Watch,
    Proxy,
}

/// Other paths of an API server than resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownPath {
    Root,
    Api,
    ApiVersion,
    Apis,
    ApisGroup,
    ApisVersion,
    Version,
    Healthz,
    Livez,
    Readyz,
    Metrics,
    OpenApi,
    WellKnown,
    /// All others, named as in client-go.
    Prefix,
}

/// The subresources of Kubernetes. Programs can add others, see
/// [`Classifier::with_subresources`](crate::Classifier::with_subresources).
pub(crate) const SUBRESOURCES: [&str; 15] = [
    "approval",
    "attach",
    "binding",
    "ephemeralcontainers",
    "eviction",
    "exec",
    "finalize",
    "log",
    "portforward",
    "proxy",
    "resize",
    "scale",
    "status",
    "token",
    "topology",
];

impl KnownPath {
    pub(crate) const ALL: [Self; 14] = [
        Self::Root,
        Self::Api,
        Self::ApiVersion,
        Self::Apis,
        Self::ApisGroup,
        Self::ApisVersion,
        Self::Version,
        Self::Healthz,
        Self::Livez,
        Self::Readyz,
        Self::Metrics,
        Self::OpenApi,
        Self::WellKnown,
        Self::Prefix,
    ];

    pub(crate) const fn template(self) -> &'static str {
        match self {
            Self::Root => "/",
            Self::Api => "/api",
            Self::ApiVersion => "/api/{version}",
            Self::Apis => "/apis",
            Self::ApisGroup => "/apis/{group}",
            Self::ApisVersion => "/apis/{group}/{version}",
            Self::Version => "/version",
            Self::Healthz => "/healthz",
            Self::Livez => "/livez",
            Self::Readyz => "/readyz",
            Self::Metrics => "/metrics",
            Self::OpenApi => "/openapi",
            Self::WellKnown => "/.well-known",
            Self::Prefix => "/{prefix}",
        }
    }

    fn of(root: &str) -> Self {
        match root {
            "version" => Self::Version,
            "healthz" => Self::Healthz,
            "livez" => Self::Livez,
            "readyz" => Self::Readyz,
            "metrics" => Self::Metrics,
            "openapi" => Self::OpenApi,
            ".well-known" => Self::WellKnown,
            _ => Self::Prefix,
        }
    }
}

impl<'a> RequestInfo<'a> {
    /// Parses the path and query of a URL, without the path of the server's URL.
    pub(crate) fn of(method: &Method, path: &'a str, query: Option<&str>) -> Self {
        let path = path.trim_matches('/');
        let mut parts = Parts(path);
        let plain = |target| Self {
            verb: verb_of_method(method),
            target,
        };
        let (group, version) = match parts.next() {
            None => return plain(Target::Path(KnownPath::Root)),
            Some("api") => match (parts.next(), parts.is_empty()) {
                (None, _) => return plain(Target::Path(KnownPath::Api)),
                (Some(_), true) => return plain(Target::Path(KnownPath::ApiVersion)),
                (Some(version), false) => ("", version),
            },
            Some("apis") => match (parts.next(), parts.next(), parts.is_empty()) {
                (None, ..) => return plain(Target::Path(KnownPath::Apis)),
                (Some(_), None, _) => return plain(Target::Path(KnownPath::ApisGroup)),
                (Some(_), Some(_), true) => return plain(Target::Path(KnownPath::ApisVersion)),
                (Some(group), Some(version), false) if !group.is_empty() => (group, version),
                _ => return plain(Target::Malformed),
            },
            Some(root) => return plain(Target::Path(KnownPath::of(root))),
        };
        // An empty segment would shift all segments after it.
        if path.contains("//") {
            return plain(Target::Malformed);
        }
        Self::of_resource(method, group, version, parts, query)
    }

    fn of_resource(
        method: &Method,
        group: &'a str,
        version: &'a str,
        mut parts: Parts<'a>,
        query: Option<&str>,
    ) -> Self {
        let prefix = match parts.peek() {
            Some("watch") => Some(LegacyVerb::Watch),
            Some("proxy") => Some(LegacyVerb::Proxy),
            _ => None,
        };
        if prefix.is_some() {
            parts.next();
        }
        let mut namespaced = false;
        if parts.peek() == Some("namespaces") {
            let mut beyond = parts;
            beyond.next();
            let namespace = beyond.next();
            // A third segment is a resource in the namespace, unless it is a subresource of the
            // namespace itself.
            let own = matches!(beyond.peek(), None | Some("status" | "finalize"));
            if namespace.is_some() && !own {
                namespaced = true;
                parts = beyond;
            }
        }
        let resource = parts.next().unwrap_or_default();
        let named = parts.next().is_some();
        let subresource = match prefix {
            Some(LegacyVerb::Proxy) => "",
            _ => parts.next().unwrap_or_default(),
        };
        let verb = verb_of_resource(method, prefix, group, resource, named, subresource, query);
        let well_formed = is_version(version)
            && (group.is_empty() || is_group(group))
            && is_label(resource)
            && (subresource.is_empty() || is_label(subresource));
        let target = if well_formed {
            Target::Resource(ResourcePath {
                group,
                version,
                resource,
                subresource,
                form: PathForm {
                    prefix,
                    namespaced,
                    named,
                },
            })
        } else {
            Target::Malformed
        };
        Self { verb, target }
    }
}

/// The segments of a path. Returns `None` repeatedly at the end.
#[derive(Clone, Copy)]
struct Parts<'a>(&'a str);

impl<'a> Parts<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn peek(&self) -> Option<&'a str> {
        if self.0.is_empty() {
            return None;
        }
        Some(self.0.split_once('/').map_or(self.0, |(part, _)| part))
    }

    fn next(&mut self) -> Option<&'a str> {
        let part = self.peek()?;
        self.0 = self.0.split_once('/').map_or("", |(_, rest)| rest);
        Some(part)
    }
}

/// Returns whether the query has this parameter and its first value is not false for the API
/// server.
pub(crate) fn is_set(query: Option<&str>, name: &str) -> bool {
    query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .find(|(key, _)| *key == name)
        .is_some_and(|(_, value)| value != "0" && !value.eq_ignore_ascii_case("false"))
}

fn verb_of_method(method: &Method) -> Verb {
    match *method {
        Method::GET => Verb::Get,
        Method::HEAD => Verb::Head,
        Method::POST => Verb::Post,
        Method::PUT => Verb::Put,
        Method::PATCH => Verb::Patch,
        Method::DELETE => Verb::Delete,
        Method::OPTIONS => Verb::Options,
        _ => Verb::Other,
    }
}

fn verb_of_resource(
    method: &Method,
    prefix: Option<LegacyVerb>,
    group: &str,
    resource: &str,
    named: bool,
    subresource: &str,
    query: Option<&str>,
) -> Verb {
    match prefix {
        Some(LegacyVerb::Watch) => return Verb::Watch,
        Some(LegacyVerb::Proxy) => return Verb::Connect,
        None => {}
    }
    let connects = matches!(subresource, "attach" | "exec" | "portforward" | "proxy");
    if connects && group.is_empty() && matches!(resource, "nodes" | "pods" | "services") {
        return Verb::Connect;
    }
    match *method {
        Method::GET | Method::HEAD if named => Verb::Get,
        Method::GET | Method::HEAD if is_set(query, "watch") => Verb::Watch,
        Method::GET | Method::HEAD => Verb::List,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE if named => Verb::Delete,
        Method::DELETE => Verb::DeleteCollection,
        _ => Verb::Other,
    }
}

/// Returns whether this is a version like `v1` or `v2beta3`. Kubernetes allows others for custom
/// resources, which are rare.
fn is_version(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('v') else {
        return false;
    };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let stage = rest
        .strip_prefix("alpha")
        .or_else(|| rest.strip_prefix("beta"));
    text.len() <= 20
        && text.as_bytes().get(1).is_some_and(u8::is_ascii_digit)
        && stage.map_or(rest.is_empty(), |number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
}

/// Returns whether this is a DNS label, as all resources are.
fn is_label(text: &str) -> bool {
    text.len() <= 63
        && text.as_bytes().first().is_some_and(u8::is_ascii_lowercase)
        && !text.ends_with('-')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Returns whether this is a DNS name, as all groups are.
fn is_group(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|label| {
            label.len() <= 63
                && !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        })
}
