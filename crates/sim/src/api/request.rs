//! Parsing of request paths and parameters, as kube-apiserver does it.

use http::Method;

use super::status::ApiError;

/// A request for a resource or for another path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; or the
    /// method in lower case for other paths.
    pub(crate) verb: &'static str,
    pub(crate) path: String,
    pub(crate) target: Option<Target>,
}

/// The resource that a path names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: String,
    pub(crate) resource: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
}

/// Decoded query parameters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl RequestInfo {
    pub(crate) fn parse(method: &Method, path: &str, parameters: &Parameters) -> Self {
        let target = target(path);
        let verb = match &target {
            None => method_verb(method),
            Some(target) => resource_verb(method, target, parameters),
        };
        Self {
            verb,
            path: path.to_owned(),
            target,
        }
    }
}

impl Parameters {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let pairs = query
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (decode(name, true), decode(value, true)));
        Self(pairs.collect())
    }

    /// The first value of a parameter; empty if it is not given.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0
            .iter()
            .find(|(found, _)| found == name)
            .map_or("", |(_, value)| value.as_str())
    }

    /// A boolean: absent is `None`, and anything but 0 or false is true.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.0
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| !matches!(value.to_lowercase().as_str(), "0" | "false"))
    }

    /// A whole number that is not negative; absent is `None`.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        match self.get(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                ApiError::bad_request(format!(
                    "strconv.ParseInt: parsing {text:?}: invalid syntax"
                ))
            }),
        }
    }
}

/// Decodes percent escapes, and in queries also `+`. Invalid UTF-8 becomes replacement characters,
/// which no name contains.
pub(crate) fn decode(text: &str, plus_is_space: bool) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let mut ahead = rest.clone();
                let digit = |byte: Option<u8>| {
                    byte.and_then(|byte| char::from(byte).to_digit(16))
                        .and_then(|digit| u8::try_from(digit).ok())
                };
                match (digit(ahead.next()), digit(ahead.next())) {
                    (Some(high), Some(low)) => {
                        bytes.push(high * 16 + low);
                        rest = ahead;
                    }
                    _ => bytes.push(byte),
                }
            }
            b'+' if plus_is_space => bytes.push(b' '),
            byte => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn target(path: &str) -> Option<Target> {
    let parts: Vec<String> = path
        .trim_matches('/')
        .split('/')
        .map(|part| decode(part, false))
        .collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        // `namespaces/x/status` and `namespaces/x/finalize` refer to the namespace itself.
        ["namespaces", namespace, resource, rest @ ..]
            if !matches!(*resource, "status" | "finalize") || !rest.is_empty() =>
        {
            (*namespace, [&[*resource], rest].concat())
        }
        // As in kube-apiserver, a namespace is in itself.
        ["namespaces", namespace, ..] => (*namespace, rest.to_vec()),
        rest => ("", rest.to_vec()),
    };
    let mut rest = rest.into_iter();
    let resource = rest.next()?;
    if resource.is_empty() {
        return None;
    }
    let (name, subresource) = (rest.next().unwrap_or(""), rest.next().unwrap_or(""));
    // Deeper paths belong to proxy subresources, which are not simulated.
    if rest.next().is_some() {
        return None;
    }
    Some(Target {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        subresource: subresource.to_owned(),
    })
}

fn resource_verb(method: &Method, target: &Target, parameters: &Parameters) -> &'static str {
    let named = !target.name.is_empty();
    match *method {
        Method::GET | Method::HEAD => {
            let watches = parameters.flag("watch") == Some(true);
            match (named, watches) {
                (true, _) => "get",
                (false, true) => "watch",
                (false, false) => "list",
            }
        }
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if named => "delete",
        Method::DELETE => "deletecollection",
        _ => "",
    }
}

fn method_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: &Method, uri: &str) -> RequestInfo {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        RequestInfo::parse(method, path, &Parameters::parse(Some(query)))
    }

    #[test]
    fn paths_become_targets() {
        let cases = [
            ("/api/v1/nodes", "list", "", "nodes", "", ""),
            ("/api/v1/nodes?watch=true", "watch", "", "nodes", "", ""),
            ("/api/v1/nodes?watch=0", "list", "", "nodes", "", ""),
            (
                "/api/v1/nodes/n1/status",
                "get",
                "",
                "nodes",
                "n1",
                "status",
            ),
            ("/api/v1/namespaces", "list", "", "namespaces", "", ""),
            ("/api/v1/namespaces/x", "get", "x", "namespaces", "x", ""),
            (
                "/api/v1/namespaces/x/status",
                "get",
                "x",
                "namespaces",
                "x",
                "status",
            ),
            ("/api/v1/namespaces/x/pods", "list", "x", "pods", "", ""),
            (
                "/apis/apps/v1/namespaces/x/deployments/d",
                "get",
                "x",
                "deployments",
                "d",
                "",
            ),
        ];
        for (uri, verb, namespace, resource, name, subresource) in cases {
            let info = info(&Method::GET, uri);
            let target = info.target.unwrap();
            assert_eq!(
                (
                    info.verb,
                    &*target.namespace,
                    &*target.resource,
                    &*target.name,
                    &*target.subresource
                ),
                (verb, namespace, resource, name, subresource),
                "{uri}"
            );
        }
        for uri in [
            "/",
            "/api",
            "/api/v1",
            "/apis/apps/v1",
            "/apis/apps",
            "/version",
            "/api/v1/nodes/n/proxy/x",
        ] {
            assert_eq!(info(&Method::GET, uri).target, None, "{uri}");
        }
    }

    #[test]
    fn parameters_are_decoded() {
        let parameters = Parameters::parse(Some(
            "labelSelector=a%20in+%28b%29&limit=5&x&watch=False&bad=%zz",
        ));
        assert_eq!(parameters.get("labelSelector"), "a in (b)");
        assert_eq!(parameters.number("limit"), Ok(Some(5)));
        assert_eq!(parameters.flag("x"), Some(true));
        assert_eq!(parameters.flag("watch"), Some(false));
        assert_eq!(parameters.flag("y"), None);
        assert_eq!(parameters.get("bad"), "%zz");
        assert!(parameters.number("bad").is_err());
    }
}
