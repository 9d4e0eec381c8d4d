//! The verb and the target of a request, by the rules of the Kubernetes API server, for which RBAC
//! rules are written.

use http::{Method, Uri};
use kubevitals_http::query::{Query, percent_decode};
use kubevitals_model::{LabelOperator, LabelSelector, parse_field_selector};

use crate::query::is_watch;
use crate::reviewer::{Attributes, SelectorOperator, SelectorRequirement};

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
    /// The selectors of a list, a watch or a `deletecollection`, to authorize.
    pub field_selector: Vec<SelectorRequirement>,
    pub label_selector: Vec<SelectorRequirement>,
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
            let query = Query::new(uri.query());
            verb = match verb {
                "get" => {
                    target.name = selected_name(query);
                    if is_watch(query) { "watch" } else { "list" }
                }
                "delete" => "deletecollection",
                other => other,
            };
            if matches!(verb, "list" | "watch" | "deletecollection") {
                target.field_selector = field_requirements(query);
                target.label_selector = label_requirements(query);
            }
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
                field_selector: target.field_selector.clone(),
                label_selector: target.label_selector.clone(),
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
        ..ResourceTarget::default()
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

/// Returns the requirements of `fieldSelector`, from the parameter that the list obeys. One that
/// cannot be parsed restricts nothing here, and is rejected after authorization.
fn field_requirements(query: Query<'_>) -> Vec<SelectorRequirement> {
    let selector = query.first("fieldSelector").unwrap_or_default();
    parse_field_selector(&selector)
        .unwrap_or_default()
        .into_iter()
        .map(|term| SelectorRequirement {
            key: term.field,
            operator: if term.negated {
                SelectorOperator::NotIn
            } else {
                SelectorOperator::In
            },
            values: vec![term.value],
        })
        .collect()
}

/// Returns the requirements of `labelSelector`. Those that the API does not know are left out, as
/// in Go: a selector only narrows, so that the review is about more than what is read.
fn label_requirements(query: Query<'_>) -> Vec<SelectorRequirement> {
    let selector = query.first("labelSelector").unwrap_or_default();
    let selector = LabelSelector::parse(&selector).unwrap_or_default();
    let requirement = |requirement: &kubevitals_model::LabelRequirement| {
        let (operator, values) = match &requirement.operator {
            LabelOperator::In(values) => (SelectorOperator::In, values.clone()),
            LabelOperator::NotIn(values) => (SelectorOperator::NotIn, values.clone()),
            LabelOperator::Exists => (SelectorOperator::Exists, Vec::new()),
            LabelOperator::DoesNotExist => (SelectorOperator::DoesNotExist, Vec::new()),
            LabelOperator::GreaterThan(_) | LabelOperator::LessThan(_) => return None,
        };
        Some(SelectorRequirement {
            key: requirement.key.clone(),
            operator,
            values,
        })
    };
    selector
        .requirements()
        .iter()
        .filter_map(requirement)
        .collect()
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

    /// Authorizers that allow `spec.nodeName=x` alone used to see a list of everything.
    #[test]
    fn selectors_are_authorized() {
        let selectors = |uri: &str| {
            let Attributes::Resource {
                field_selector,
                label_selector,
                ..
            } = read(&Method::GET, uri).attributes()
            else {
                panic!("no resource")
            };
            let brief = |selector: Vec<SelectorRequirement>| {
                let texts = selector
                    .iter()
                    .map(|one| format!("{} {} {:?}", one.key, one.operator.name(), one.values));
                texts.collect::<Vec<_>>()
            };
            (brief(field_selector), brief(label_selector))
        };
        let list = "/apis/g/v1/pods?fieldSelector=spec.nodeName%3Dx%2Ca!%3Db\
                    &labelSelector=k%20in%20(a%2Cb)%2C!gone%2Cthere%2Cz!%3D1%2Cn%3E5\
                    &fieldSelector=spec.nodeName%3Dother";
        let expected = (
            vec![
                String::from(r#"spec.nodeName In ["x"]"#),
                String::from(r#"a NotIn ["b"]"#),
            ],
            vec![
                String::from(r#"k In ["a", "b"]"#),
                String::from("gone DoesNotExist []"),
                String::from("there Exists []"),
                String::from(r#"z NotIn ["1"]"#),
            ],
        );
        assert_eq!(selectors(list), expected);
        assert_eq!(selectors(&format!("{list}&watch=1")), expected);
        let none = (Vec::new(), Vec::new());
        assert_eq!(selectors("/apis/g/v1/pods"), none);
        assert_eq!(
            selectors("/apis/g/v1/pods?labelSelector=a%3D%3D%3D&fieldSelector=x"),
            none
        );
        assert_eq!(
            selectors("/apis/g/v1/namespaces/n/pods/p?fieldSelector=spec.nodeName%3Dx"),
            none
        );
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
