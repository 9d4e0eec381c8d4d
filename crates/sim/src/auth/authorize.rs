//! A small authorizer: everything is forbidden that no rule allows.

use super::{AUTHENTICATED, MASTERS, UNAUTHENTICATED, User};

/// Grants permissions to users. Empty lists match nothing, `*` matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// Names of users.
    pub users: Vec<String>,
    /// Names of groups.
    pub groups: Vec<String>,
    /// For example `get`, `list`, `watch`.
    pub verbs: Vec<String>,
    /// API groups; the core group is the empty string.
    pub api_groups: Vec<String>,
    /// Resources, with subresources after a slash: `pods`, `nodes/stats`, `pods/*`.
    pub resources: Vec<String>,
    /// Namespaces of the rule; empty for all of them and for the cluster scope.
    pub namespaces: Vec<String>,
    /// Non-resource paths; a final `*` matches any suffix.
    pub non_resource_urls: Vec<String>,
}

/// The attributes of a request that authorization depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessAttributes<'a> {
    Resource {
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
    Path {
        verb: &'a str,
        path: &'a str,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Authorizer {
    rules: Vec<Rule>,
}

impl Rule {
    /// Allows a user verbs on resources in all namespaces.
    pub fn for_user<'a>(
        user: impl Into<String>,
        verbs: impl IntoIterator<Item = &'a str>,
        api_group: &str,
        resources: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        Self {
            users: vec![user.into()],
            verbs: owned(verbs),
            api_groups: vec![api_group.to_owned()],
            resources: owned(resources),
            ..Self::default()
        }
    }

    pub(crate) fn applies_to(&self, user: &User) -> bool {
        matches_any(&self.users, &user.name)
            || user.groups.iter().any(|group| self.groups.contains(group))
    }

    fn allows(&self, attributes: &AccessAttributes<'_>) -> bool {
        match *attributes {
            AccessAttributes::Resource {
                verb,
                group,
                resource,
                subresource,
                namespace,
                ..
            } => {
                let resource_matches = self.resources.iter().any(|allowed| {
                    let (allowed, sub) = allowed.split_once('/').unwrap_or((allowed, ""));
                    let whole = allowed == "*" && sub.is_empty();
                    whole
                        || (allowed == resource || allowed == "*")
                            && (sub == subresource || sub == "*" && !subresource.is_empty())
                });
                resource_matches
                    && matches_any(&self.verbs, verb)
                    && matches_any(&self.api_groups, group)
                    && (self.namespaces.is_empty() || matches_any(&self.namespaces, namespace))
            }
            AccessAttributes::Path { verb, path } => {
                matches_any(&self.verbs, verb)
                    && self.non_resource_urls.iter().any(|allowed| {
                        match allowed.strip_suffix('*') {
                            Some(start) => path.starts_with(start),
                            None => path == allowed,
                        }
                    })
            }
        }
    }
}

impl Authorizer {
    /// Adds the rules of every cluster: everybody may read health endpoints, authenticated users
    /// may read discovery and review their own permissions.
    pub(crate) fn new(rules: &[Rule]) -> Self {
        // Single checks are not among the paths of `system:public-info-viewer`.
        let health = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
        let discovery = [
            "/api",
            "/api/*",
            "/apis",
            "/apis/*",
            "/openapi",
            "/openapi/*",
        ];
        let mut all = vec![
            Rule {
                groups: owned([AUTHENTICATED, UNAUTHENTICATED]),
                verbs: owned(["get"]),
                non_resource_urls: owned(health),
                ..Rule::default()
            },
            Rule {
                groups: owned([AUTHENTICATED]),
                verbs: owned(["get"]),
                non_resource_urls: owned(discovery),
                ..Rule::default()
            },
            Rule {
                groups: owned([AUTHENTICATED]),
                verbs: owned(["create"]),
                api_groups: owned(["authorization.k8s.io", "authentication.k8s.io"]),
                resources: owned([
                    "selfsubjectaccessreviews",
                    "selfsubjectrulesreviews",
                    "selfsubjectreviews",
                ]),
                ..Rule::default()
            },
        ];
        all.extend_from_slice(rules);
        Self { rules: all }
    }

    pub(crate) fn allows(&self, user: &User, attributes: &AccessAttributes<'_>) -> bool {
        user.groups.iter().any(|group| group == MASTERS)
            || self.rules_of(user).any(|rule| rule.allows(attributes))
    }

    /// Returns the rules that apply to a user.
    pub(crate) fn rules_of(&self, user: &User) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.applies_to(user))
    }
}

impl AccessAttributes<'_> {
    /// Returns the message of a forbidden request.
    pub(crate) fn forbidden_message(&self, user: &User) -> String {
        let user = &user.name;
        match *self {
            AccessAttributes::Path { verb, path } => {
                format!("forbidden: User {user:?} cannot {verb} path {path:?}")
            }
            AccessAttributes::Resource {
                verb,
                group,
                resource,
                subresource,
                namespace,
                name,
            } => {
                let full = if subresource.is_empty() {
                    resource.to_owned()
                } else {
                    format!("{resource}/{subresource}")
                };
                let scope = if namespace.is_empty() {
                    "at the cluster scope".to_owned()
                } else {
                    format!("in the namespace {namespace:?}")
                };
                let subject = match (group, name) {
                    ("", "") => resource.to_owned(),
                    ("", name) => format!("{resource} {name:?}"),
                    (group, "") => format!("{resource}.{group}"),
                    (group, name) => format!("{resource}.{group} {name:?}"),
                };
                format!(
                    "{subject} is forbidden: User {user:?} cannot {verb} resource {full:?} in API group {group:?} {scope}"
                )
            }
        }
    }
}

fn owned<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    texts.into_iter().map(str::to_owned).collect()
}

fn matches_any(allowed: &[String], requested: &str) -> bool {
    allowed
        .iter()
        .any(|allowed| allowed == "*" || allowed == requested)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes<'a>(
        verb: &'a str,
        resource: &'a str,
        subresource: &'a str,
        namespace: &'a str,
    ) -> AccessAttributes<'a> {
        AccessAttributes::Resource {
            verb,
            group: "",
            resource,
            subresource,
            namespace,
            name: "",
        }
    }

    #[test]
    fn only_what_a_rule_allows_is_allowed() {
        let authorizer = Authorizer::new(&[Rule::for_user(
            "ann",
            ["get", "list"],
            "",
            ["pods", "nodes/*"],
        )]);
        let ann = User::new("ann", []).authenticated();
        assert!(authorizer.allows(&ann, &attributes("list", "pods", "", "x")));
        assert!(authorizer.allows(&ann, &attributes("get", "nodes", "stats", "")));
        assert!(!authorizer.allows(&ann, &attributes("get", "nodes", "", "")));
        assert!(!authorizer.allows(&ann, &attributes("get", "pods", "log", "x")));
        assert!(!authorizer.allows(&ann, &attributes("delete", "pods", "", "x")));
        assert!(authorizer.allows(
            &ann,
            &AccessAttributes::Path {
                verb: "get",
                path: "/apis/apps"
            }
        ));
        assert!(!authorizer.allows(
            &User::anonymous(),
            &AccessAttributes::Path {
                verb: "get",
                path: "/apis"
            }
        ));
        assert!(authorizer.allows(
            &User::anonymous(),
            &AccessAttributes::Path {
                verb: "get",
                path: "/livez"
            }
        ));
        let admin = User::new("root", [MASTERS]);
        assert!(authorizer.allows(&admin, &attributes("delete", "secrets", "", "kube-system")));
    }

    #[test]
    fn rules_can_be_limited_to_a_namespace() {
        let rule = Rule {
            namespaces: vec!["x".to_owned()],
            ..Rule::for_user("ann", ["*"], "*", ["*"])
        };
        let authorizer = Authorizer::new(&[rule]);
        let ann = User::new("ann", []);
        assert!(authorizer.allows(&ann, &attributes("get", "pods", "log", "x")));
        assert!(!authorizer.allows(&ann, &attributes("get", "pods", "", "y")));
    }

    #[test]
    fn forbidden_messages_match_kube_apiserver() {
        let user = User::new("ann", []);
        assert_eq!(
            attributes("list", "pods", "", "x").forbidden_message(&user),
            "pods is forbidden: User \"ann\" cannot list resource \"pods\" in API group \"\" in the namespace \"x\""
        );
        let lease = AccessAttributes::Resource {
            verb: "get",
            group: "coordination.k8s.io",
            resource: "leases",
            subresource: "",
            namespace: "",
            name: "l",
        };
        assert_eq!(
            lease.forbidden_message(&user),
            "leases.coordination.k8s.io \"l\" is forbidden: User \"ann\" cannot get resource \"leases\" in API group \"coordination.k8s.io\" at the cluster scope"
        );
        assert_eq!(
            AccessAttributes::Path {
                verb: "get",
                path: "/metrics"
            }
            .forbidden_message(&user),
            "forbidden: User \"ann\" cannot get path \"/metrics\""
        );
    }
}
