//! Impersonation (`kubectl --as`), for users whom RBAC allows to `impersonate`.
//!
//! Behind the aggregation layer these headers never arrive: the cluster's API server has resolved
//! them. They matter to clients that connect directly. Each part of the impersonated identity is
//! authorized by a review of its own.

use std::collections::BTreeMap;

use http::HeaderMap;

use super::Authorizer;
use crate::authn::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED};
use crate::reviewer::{Attributes, UserInfo};
use crate::status::ApiStatus;

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA_PREFIX: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// Maximum number of parts: each costs a review.
const MAX_PARTS: usize = 64;

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
    for name in [USER, UID, GROUP] {
        headers.remove(name);
    }
    let extras: Vec<_> = headers
        .keys()
        .filter(|name| name.as_str().starts_with(EXTRA_PREFIX))
        .cloned()
        .collect();
    for name in extras {
        headers.remove(name);
    }
    let Some((user, parts)) = requested? else {
        return Ok(None);
    };
    for part in parts {
        authorizer.authorize(requestor, part.attributes()).await?;
    }
    Ok(Some(user))
}

fn requested(headers: &HeaderMap) -> Result<Option<(UserInfo, Vec<Part>)>, ApiStatus> {
    let all = |name: &str| -> Vec<String> {
        let values = headers.get_all(name).iter();
        values
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .filter(|value| !value.is_empty())
            .collect()
    };
    let name = all(USER).into_iter().next();
    let uid = all(UID).into_iter().next().unwrap_or_default();
    let mut groups = all(GROUP);
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for header in headers.keys() {
        if let Some(key) = header.as_str().strip_prefix(EXTRA_PREFIX) {
            extra.insert(key.to_owned(), all(header.as_str()));
        }
    }
    let Some(name) = name else {
        if uid.is_empty() && groups.is_empty() && extra.is_empty() {
            return Ok(None);
        }
        return Err(ApiStatus::bad_request(
            "requested uid, groups or extra for impersonation without impersonating a user",
        ));
    };
    let core = |resource: &'static str, namespace: &str, name: &str| Part {
        group: "",
        resource,
        subresource: String::new(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let has_groups = !groups.is_empty();
    let mut parts = Vec::new();
    match name
        .strip_prefix(SERVICE_ACCOUNT)
        .and_then(|rest| rest.split_once(':'))
    {
        Some((namespace, account)) if !namespace.is_empty() && !account.is_empty() => {
            parts.push(core("serviceaccounts", namespace, account));
            if !has_groups {
                groups = vec![
                    String::from("system:serviceaccounts"),
                    format!("system:serviceaccounts:{namespace}"),
                ];
            }
        }
        _ => parts.push(core("users", "", &name)),
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

    #[test]
    fn groups_without_a_user_are_rejected() {
        assert_eq!(want(&[]).unwrap(), None);
        assert_eq!(
            want(&[("impersonate-group", "system:masters")])
                .unwrap_err()
                .code,
            400
        );
    }
}
