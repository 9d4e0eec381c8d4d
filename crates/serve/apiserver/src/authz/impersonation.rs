//! Impersonation (`kubectl --as`), for users whom RBAC allows to `impersonate`.
//!
//! Behind the aggregation layer these headers never arrive: the cluster's API server has resolved
//! them. They matter to clients that connect directly. Each part of the impersonated identity is
//! authorized by a review of its own.
//!
//! Headers are read as in Go, empty values included: what is not asked for is not assumed. The
//! modes of constrained impersonation (verbs `impersonate:MODE`, Kubernetes 1.35) are not
//! supported. They allow less than `impersonate`, so that a user who has only these is refused, and
//! the message says why.

use std::collections::BTreeMap;

use http::HeaderMap;

use super::Authorizer;
use crate::authn::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, unescaped};
use crate::reviewer::{Attributes, UserInfo};
use crate::status::ApiStatus;

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA_PREFIX: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// Maximum number of parts: each costs a review.
const MAX_PARTS: usize = 64;
const NOT_CONSTRAINED: &str = "this server does not support constrained impersonation";

/// One part of an impersonated identity.
struct Part {
    group: &'static str,
    resource: &'static str,
    subresource: String,
    namespace: String,
    name: String,
}

/// Returns the impersonated user after authorizing it; `None` without impersonation.
pub(crate) async fn impersonate(
    authorizer: &Authorizer,
    requestor: &UserInfo,
    headers: &mut HeaderMap,
) -> Result<Option<UserInfo>, ApiStatus> {
    let requested = requested(headers);
    let present: Vec<_> = headers
        .keys()
        .filter(|name| is_impersonation(name.as_str()))
        .cloned()
        .collect();
    for name in present {
        headers.remove(name);
    }
    let Some((user, parts)) = requested? else {
        return Ok(None);
    };
    for part in parts {
        authorizer
            .authorize_explained(requestor, part.attributes(), NOT_CONSTRAINED)
            .await?;
    }
    Ok(Some(user))
}

/// Whether a request has headers of impersonation.
pub(crate) fn is_requested(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| is_impersonation(name.as_str()))
}

fn is_impersonation(header: &str) -> bool {
    [USER, UID, GROUP].contains(&header) || header.starts_with(EXTRA_PREFIX)
}

fn requested(headers: &HeaderMap) -> Result<Option<(UserInfo, Vec<Part>)>, ApiStatus> {
    let all = |name: &str| -> Vec<String> {
        let values = headers.get_all(name).iter();
        values
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect()
    };
    let first = |name| all(name).into_iter().next().unwrap_or_default();
    let (name, uid) = (first(USER), first(UID));
    let mut groups = all(GROUP);
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for header in headers.keys() {
        if let Some(key) = header.as_str().strip_prefix(EXTRA_PREFIX) {
            let values = extra.entry(unescaped(key)).or_default();
            values.extend(all(header.as_str()));
        }
    }
    if name.is_empty() {
        if uid.is_empty() && groups.is_empty() && extra.is_empty() {
            return Ok(None);
        }
        return Err(ApiStatus::bad_request(
            "requested uid, groups or extra for impersonation without impersonating a user",
        ));
    }
    let core = |resource: &'static str, namespace: &str, name: &str| Part {
        group: "",
        resource,
        subresource: String::new(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let has_groups = !groups.is_empty();
    let mut parts = Vec::new();
    match service_account(&name) {
        Some((namespace, account)) => {
            parts.push(core("serviceaccounts", namespace, account));
            if !has_groups {
                groups = vec![
                    String::from("system:serviceaccounts"),
                    format!("system:serviceaccounts:{namespace}"),
                ];
            }
        }
        None => parts.push(core("users", "", &name)),
    }
    if has_groups {
        parts.extend(groups.iter().map(|group| core("groups", "", group)));
    }
    let authentication = |resource, subresource: &str, name: &str| Part {
        group: "authentication.k8s.io",
        resource,
        subresource: subresource.to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
    };
    for (key, values) in &extra {
        parts.extend(
            values
                .iter()
                .map(|value| authentication("userextras", key, value)),
        );
    }
    if !uid.is_empty() {
        parts.push(authentication("uids", "", &uid));
    }
    if parts.len() > MAX_PARTS {
        return Err(ApiStatus::bad_request(format!(
            "more than {MAX_PARTS} impersonation headers"
        )));
    }
    let has_group = |group: &str| groups.iter().any(|one| one == group);
    if name == ANONYMOUS {
        if !has_group(UNAUTHENTICATED) {
            groups.push(UNAUTHENTICATED.to_owned());
        }
    } else if !has_group(AUTHENTICATED) && !has_group(UNAUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    Ok(Some((
        UserInfo {
            name,
            uid,
            groups,
            extra,
        },
        parts,
    )))
}

/// Returns namespace and name of a service account. A user name that merely begins like one, such
/// as `system:serviceaccount:ns:a:b`, is that of a user.
fn service_account(name: &str) -> Option<(&str, &str)> {
    let (namespace, account) = name.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let is_valid =
        is_label(namespace) && account.len() <= 253 && account.split('.').all(is_subdomain_part);
    is_valid.then_some((namespace, account))
}

/// A DNS label, the form of the names of namespaces.
fn is_label(name: &str) -> bool {
    name.len() <= 63 && is_subdomain_part(name)
}

/// A part of a DNS subdomain between dots.
fn is_subdomain_part(part: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !part.is_empty() && part.bytes().all(is_inner) && !part.starts_with('-') && !part.ends_with('-')
}

impl Part {
    fn attributes(self) -> Attributes {
        Attributes::Resource {
            verb: String::from("impersonate"),
            group: self.group.to_owned(),
            version: if self.group.is_empty() {
                String::new()
            } else {
                String::from("v1")
            },
            resource: self.resource.to_owned(),
            subresource: self.subresource,
            namespace: self.namespace,
            name: self.name,
            field_selector: Vec::new(),
            label_selector: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::HeaderName;

    use super::*;

    fn want(
        list: &[(&'static str, &'static str)],
    ) -> Result<Option<(UserInfo, Vec<String>)>, ApiStatus> {
        let headers = list
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect();
        let brief = |part: &Part| {
            format!(
                "{}/{}/{} {}/{}",
                part.group, part.resource, part.subresource, part.namespace, part.name
            )
        };
        Ok(requested(&headers)?.map(|(user, parts)| (user, parts.iter().map(brief).collect())))
    }

    #[test]
    fn every_part_is_authorized() {
        let (user, parts) = want(&[
            ("impersonate-user", "bob"),
            ("impersonate-group", "dev"),
            ("impersonate-extra-scopes", "view"),
            ("impersonate-uid", "7"),
        ])
        .unwrap()
        .unwrap();
        assert_eq!(
            parts,
            [
                "/users/ /bob",
                "/groups/ /dev",
                "authentication.k8s.io/userextras/scopes /view",
                "authentication.k8s.io/uids/ /7",
            ]
        );
        assert_eq!(user.groups, ["dev", AUTHENTICATED]);
        let (user, parts) = want(&[("impersonate-user", "system:serviceaccount:ns:sa")])
            .unwrap()
            .unwrap();
        assert_eq!(parts, ["/serviceaccounts/ ns/sa"]);
        assert_eq!(
            user.groups,
            [
                "system:serviceaccounts",
                "system:serviceaccounts:ns",
                AUTHENTICATED
            ]
        );
        let (user, _) = want(&[("impersonate-user", ANONYMOUS)]).unwrap().unwrap();
        assert_eq!(user.groups, [UNAUTHENTICATED]);
    }

    /// Keys used to be asked for and passed on as they were written, and an extra without a value
    /// was added without a review.
    #[test]
    fn odd_forms_are_read_as_in_go() {
        let (user, parts) = want(&[
            ("impersonate-user", "bob"),
            ("impersonate-user", "eve"),
            ("impersonate-extra-acme.com%2fproject", "x"),
            ("impersonate-extra-%61cme.com%2fproject", "y"),
            ("impersonate-extra-empty", ""),
            ("impersonate-extra-bad%zz", "z"),
            ("impersonate-group", ""),
            ("impersonate-uid", ""),
        ])
        .unwrap()
        .unwrap();
        assert_eq!(
            parts,
            [
                "/users/ /bob",
                "/groups/ /",
                "authentication.k8s.io/userextras/acme.com/project /x",
                "authentication.k8s.io/userextras/acme.com/project /y",
                "authentication.k8s.io/userextras/bad%zz /z",
                "authentication.k8s.io/userextras/empty /",
            ]
        );
        assert_eq!(user.extra["acme.com/project"], ["x", "y"]);
        assert_eq!(user.extra["empty"], [""]);
        assert_eq!(user.groups, ["", AUTHENTICATED]);
        assert_eq!(user.uid, "");
        let invalid = HeaderValue::from_bytes(b"b\xffb").unwrap();
        let headers = [(HeaderName::from_static(USER), invalid)]
            .into_iter()
            .collect();
        let (user, parts) = requested(&headers).unwrap().unwrap();
        assert_eq!(user.name, "b\u{fffd}b");
        assert_eq!(parts.first().unwrap().name, user.name, "asked as assumed");
    }

    /// `system:serviceaccount:ns:a:b` used to be authorized as the service account `a:b`.
    #[test]
    fn only_valid_names_are_service_accounts() {
        let longest = format!("system:serviceaccount:{}:a", "n".repeat(63));
        for (name, is_account) in [
            ("system:serviceaccount:ns:a", true),
            ("system:serviceaccount:ns:a.b-c", true),
            (longest.as_str(), true),
            (&format!("{}n:a", longest.trim_end_matches(":a")), false),
            ("system:serviceaccount:ns:a:b", false),
            ("system:serviceaccount:ns:", false),
            ("system:serviceaccount::a", false),
            ("system:serviceaccount:NS:a", false),
            ("system:serviceaccount:n.s:a", false),
            ("system:serviceaccount:ns:-a", false),
            ("system:serviceaccount:ns:a..b", false),
            ("System:serviceaccount:ns:a", false),
        ] {
            assert_eq!(service_account(name).is_some(), is_account, "{name}");
        }
        let (user, parts) = want(&[("impersonate-user", "system:serviceaccount:ns:a:b")])
            .unwrap()
            .unwrap();
        assert_eq!(parts, ["/users/ /system:serviceaccount:ns:a:b"]);
        assert_eq!(user.groups, [AUTHENTICATED], "no group of service accounts");
    }

    #[test]
    fn too_many_parts_are_rejected() {
        let mut headers: HeaderMap =
            [(HeaderName::from_static(USER), HeaderValue::from_static("b"))]
                .into_iter()
                .collect();
        for _ in 1..MAX_PARTS {
            headers.append(GROUP, HeaderValue::from_static("g"));
        }
        assert_eq!(requested(&headers).unwrap().unwrap().1.len(), MAX_PARTS);
        headers.append(GROUP, HeaderValue::from_static("g"));
        assert_eq!(requested(&headers).map(drop).unwrap_err().code, 400);
    }

    #[test]
    fn groups_without_a_user_are_rejected() {
        assert_eq!(want(&[]).unwrap(), None);
        assert_eq!(want(&[("impersonate-user", "")]).unwrap(), None);
        for part in [
            "impersonate-uid",
            "impersonate-extra-a",
            "impersonate-extra-",
        ] {
            assert_eq!(want(&[(part, "x")]).unwrap_err().code, 400, "{part}");
        }
        assert_eq!(
            want(&[("impersonate-group", "system:masters")])
                .unwrap_err()
                .code,
            400
        );
    }
}
