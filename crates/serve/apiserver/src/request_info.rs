//! The verb and the target of a request, by the rules of the Kubernetes API server, for which RBAC
//! rules are written.

use http::{Method, Uri};
use kubevitals_http::query::{Query, percent_decode};
use kubevitals_model::parse_field_selector;

use crate::query::is_watch;
use crate::reviewer::Attributes;

/// The verb and the target of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestInfo {
    /// `get`, `list`, `watch`, … for resources; the method in lower case for other paths.
    pub verb: String,
    /// The path, decoded.
    pub path: String,
    pub target: Target,
}

/// The target of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Path,
    Resource(ResourceTarget),
}

/// The resource of a path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourceTarget {
    pub group: String,
    pub version: String,
    /// Empty for cluster-scoped paths.
    pub namespace: String,
    /// The plural.
    pub resource: String,
    /// Often empty.
    pub subresource: String,
    /// Empty for lists; for lists and watches that select one name, that name.
    pub name: String,
    /// Number of path segments after the namespace: two for an object, one for a list.
    pub parts: usize,
}

/// A path that cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the path is not valid percent-encoded UTF-8")]
pub struct InvalidPath;

impl RequestInfo {
    /// Parses a request. Nothing in it is trusted.
    pub fn parse(method: &Method, uri: &Uri) -> Result<Self, InvalidPath> {
        let path = percent_decode(uri.path()).ok_or(InvalidPath)?.into_owned();
        let Some(mut target) = resource_target(&path) else {
            return Ok(Self {
                verb: method.as_str().to_ascii_lowercase(),
                path,
                target: Target::Path,
            });
        };
        let mut verb = match *method {
            Method::POST => "create",
            Method::GET | Method::HEAD => "get",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "",
        };
        if target.name.is_empty() {
            verb = match verb {
                "get" => {
                    let query = Query::new(uri.query());
                    target.name = selected_name(query);
                    if is_watch(query) { "watch" } else { "list" }
                }
                "delete" => "deletecollection",
                other => other,
            };
        }
        Ok(Self {
            verb: verb.to_owned(),
            path,
            target: Target::Resource(target),
        })
    }

    /// Returns the attributes to authorize.
    pub fn attributes(&self) -> Attributes {
        match &self.target {
            Target::Path => Attributes::Path {
                verb: self.verb.clone(),
                path: self.path.clone(),
            },
            Target::Resource(target) => Attributes::Resource {
                verb: self.verb.clone(),
                group: target.group.clone(),
                version: target.version.clone(),
                resource: target.resource.clone(),
                subresource: target.subresource.clone(),
                namespace: target.namespace.clone(),
                name: target.name.clone(),
            },
        }
    }
}

/// `/apis/GROUP/VERSION/…` with at least one more segment.
fn resource_target(path: &str) -> Option<ResourceTarget> {
    let mut parts = path.trim_matches('/').split('/');
    if parts.next() != Some("apis") {
        return None;
    }
    let (group, version) = (parts.next()?, parts.next()?);
    let mut rest: Vec<&str> = parts.collect();
    rest.first()?;
    let mut namespace = "";
    if rest.first() == Some(&"namespaces")
        && let Some(name) = rest.get(1)
    {
        namespace = name;
        // Further parts belong to something in the namespace; `status` and `finalize` to the
        // namespace itself.
        if rest
            .get(2)
            .is_some_and(|part| !matches!(*part, "status" | "finalize"))
        {
            rest.drain(..2);
        }
    }
    let part = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
    Some(ResourceTarget {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.to_owned(),
        resource: part(0),
        name: part(1),
        subresource: part(2),
        parts: rest.len(),
    })
}

/// A list that selects one name is authorized for that name: RBAC can allow it by `resourceNames`.
fn selected_name(query: Query<'_>) -> String {
    let selector = query.first("fieldSelector").unwrap_or_default();
    let Ok(terms) = parse_field_selector(&selector) else {
        return String::new();
    };
    terms
        .into_iter()
        .find(|term| term.field == "metadata.name" && !term.negated)
        .map(|term| term.value)
        .filter(|name| !matches!(name.as_str(), "." | "..") && !name.contains(['/', '%']))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(method: &Method, uri: &str) -> RequestInfo {
        RequestInfo::parse(method, &uri.parse().unwrap()).unwrap()
    }

    /// `verb group/version namespace resource/name/subresource`, or `verb path`.
    fn brief(method: &Method, uri: &str) -> String {
        let info = read(method, uri);
        match info.target {
            Target::Path => format!("{} {}", info.verb, info.path),
            Target::Resource(t) => format!(
                "{} {}/{} [{}] {}/{}/{} {}",
                info.verb,
                t.group,
                t.version,
                t.namespace,
                t.resource,
                t.name,
                t.subresource,
                t.parts
            ),
        }
    }

    #[test]
    fn requests_are_parsed_as_the_api_server_does() {
        let cases = [
            (Method::GET, "/", "get /"),
            (Method::GET, "/apis", "get /apis"),
            (Method::PUT, "/apis/g/v1", "put /apis/g/v1"),
            (Method::GET, "/apis/g/v1/", "get /apis/g/v1/"),
            (Method::GET, "/api/v1/pods", "get /api/v1/pods"),
            (Method::GET, "/apis/g/v1/pods", "list g/v1 [] pods// 1"),
            (Method::GET, "/apis/g/v1/pods/", "list g/v1 [] pods// 1"),
            (Method::HEAD, "/apis/g/v1/pods/a", "get g/v1 [] pods/a/ 2"),
            (
                Method::GET,
                "/apis/g/v1/pods?watch",
                "watch g/v1 [] pods// 1",
            ),
            (
                Method::GET,
                "/apis/g/v1/pods?watch=0",
                "list g/v1 [] pods// 1",
            ),
            (
                Method::GET,
                "/apis/g/v1/pods?watch=false&watch=1",
                "list g/v1 [] pods// 1",
            ),
            (
                Method::GET,
                "/apis/g/v1/namespaces/n/pods",
                "list g/v1 [n] pods// 1",
            ),
            (
                Method::GET,
                "/apis/g/v1/namespaces/n/pods/a",
                "get g/v1 [n] pods/a/ 2",
            ),
            (
                Method::GET,
                "/apis/g/v1/namespaces/n/pods/a/log/x",
                "get g/v1 [n] pods/a/log 4",
            ),
            (
                Method::GET,
                "/apis/g/v1/namespaces/n",
                "get g/v1 [n] namespaces/n/ 2",
            ),
            (
                Method::GET,
                "/apis/g/v1/namespaces/n/status",
                "get g/v1 [n] namespaces/n/status 3",
            ),
            (Method::POST, "/apis/g/v1/pods", "create g/v1 [] pods// 1"),
            (
                Method::DELETE,
                "/apis/g/v1/pods",
                "deletecollection g/v1 [] pods// 1",
            ),
            (
                Method::DELETE,
                "/apis/g/v1/pods/a",
                "delete g/v1 [] pods/a/ 2",
            ),
            (Method::OPTIONS, "/apis/g/v1/pods", " g/v1 [] pods// 1"),
            (
                Method::GET,
                "/apis/g/v1/pods?fieldSelector=metadata.name%3Da",
                "list g/v1 [] pods/a/ 1",
            ),
            (
                Method::GET,
                "/apis/g/v1/pods?fieldSelector=metadata.name!%3Da",
                "list g/v1 [] pods// 1",
            ),
            (
                Method::GET,
                "/apis/g/v1/pods?fieldSelector=metadata.name%3Da%252Fb",
                "list g/v1 [] pods// 1",
            ),
            (Method::GET, "/apis/g/v1/n%2Fpods", "get g/v1 [] n/pods/ 2"),
            (Method::GET, "//livez", "get //livez"),
        ];
        for (method, uri, expected) in cases {
            assert_eq!(brief(&method, uri), expected, "{method} {uri}");
        }
        for bad in ["/a%", "/a%4", "/a%zz", "/%ff"] {
            assert!(RequestInfo::parse(&Method::GET, &bad.parse().unwrap()).is_err());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

        #[test]
        fn whatever_is_asked_is_read_or_refused(path in "/[a-z/%0-9.]{0,30}(\\?[a-z=&%0-9]{0,20})?") {
            if let Ok(uri) = path.parse::<Uri>()
                && let Ok(info) = RequestInfo::parse(&Method::GET, &uri)
                && let Target::Resource(target) = info.target
            {
                prop_assert!(target.parts >= 1);
                prop_assert!(!target.resource.contains('/') && !target.name.contains('/'));
                prop_assert_eq!(info.verb == "get", target.parts > 1 && !target.name.is_empty());
            }
        }

        #[test]
        fn a_name_in_the_path_is_the_name(namespace in "[a-z0-9.-]{1,9}", name in "[a-z0-9.:-]{1,9}") {
            let info = read(&Method::GET, &format!("/apis/g/v1/namespaces/{namespace}/pods/{name}"));
            let Target::Resource(target) = info.target else { panic!("no resource") };
            prop_assert_eq!((target.namespace, target.name), (namespace, name));
        }
    }
}
