//! Service accounts with given rights, and their tokens.

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::error::E2eError;
use crate::manifest::Manifest;
use crate::namespace::TestNamespace;

/// Verbs that are allowed on some resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The resources: `nodes/metrics`.
    pub resources: &'static [&'static str],
    /// The verbs: `get`.
    pub verbs: &'static [&'static str],
}

/// A service account with a token.
#[derive(Clone)]
pub struct Access {
    name: String,
    token: String,
}

impl Access {
    pub(crate) async fn grant(
        namespace: &TestNamespace,
        name: &str,
        rules: &[Rule],
    ) -> Result<Self, E2eError> {
        let account = json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name},
        });
        namespace.apply(&account).await?;
        // Names of cluster-scoped objects must not collide with those of another test.
        let role = format!("{}-{name}", namespace.name());
        let rules: Vec<Value> = rules.iter().map(Rule::manifest).collect();
        let manifest = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": role},
            "rules": rules,
        });
        namespace.apply(&manifest).await?;
        let access = Self {
            name: name.to_owned(),
            token: token(namespace, name).await?,
        };
        access.bind_everywhere(namespace, &role).await?;
        Ok(access)
    }

    /// An account of a manifest, with the rights that the manifest gives it.
    pub(crate) async fn of_manifest(
        namespace: &TestNamespace,
        manifest: &Manifest,
        account: &str,
    ) -> Result<Self, E2eError> {
        for object in manifest.rights_in(namespace.name()) {
            namespace.apply(&object).await?;
        }
        Ok(Self {
            name: account.to_owned(),
            token: token(namespace, account).await?,
        })
    }

    /// Also binds it to a `ClusterRole` in all namespaces.
    pub async fn bind_everywhere(
        &self,
        namespace: &TestNamespace,
        role: &str,
    ) -> Result<(), E2eError> {
        let manifest = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": binding_name(namespace, &self.name, role)},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [self.subject(namespace)],
        });
        namespace.apply(&manifest).await
    }

    /// Also binds it to a `Role` of `kube-system`.
    pub async fn bind_in_kube_system(
        &self,
        namespace: &TestNamespace,
        role: &str,
    ) -> Result<(), E2eError> {
        let manifest = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": binding_name(namespace, &self.name, role), "namespace": "kube-system"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            "subjects": [self.subject(namespace)],
        });
        namespace.apply(&manifest).await
    }

    /// The bearer token, valid for an hour.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Writes a kubeconfig for programs into the folder of the test.
    pub fn kubeconfig(&self, namespace: &TestNamespace) -> Result<PathBuf, E2eError> {
        kubeconfig_of(namespace, &self.name, &json!({"token": self.token}))
    }

    fn subject(&self, namespace: &TestNamespace) -> Value {
        json!({"kind": "ServiceAccount", "name": self.name, "namespace": namespace.name()})
    }
}

/// Writes a kubeconfig with the credentials of a user.
pub(crate) fn kubeconfig_of(
    namespace: &TestNamespace,
    user: &str,
    credentials: &Value,
) -> Result<PathBuf, E2eError> {
    let config = namespace.cluster().config();
    let authorities = config
        .root_cert
        .iter()
        .flatten()
        .map(|der| pem("CERTIFICATE", der));
    let authorities: String = authorities.collect();
    // JSON is YAML.
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": {
            "server": config.cluster_url.to_string(),
            "certificate-authority-data": STANDARD.encode(authorities),
        }}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user}}],
        "current-context": "e2e",
    });
    namespace.write(&format!("{user}.kubeconfig"), &text.to_string())
}

/// Without the token, which failing tests must not print.
impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Rule {
    /// `get` on these resources of the core group.
    pub const fn get(resources: &'static [&'static str]) -> Self {
        Self {
            group: "",
            resources,
            verbs: &["get"],
        }
    }

    /// `get`, `list` and `watch` on these resources of the core group.
    pub const fn watch(resources: &'static [&'static str]) -> Self {
        Self {
            group: "",
            resources,
            verbs: &["get", "list", "watch"],
        }
    }

    fn manifest(&self) -> Value {
        json!({"apiGroups": [self.group], "resources": self.resources, "verbs": self.verbs})
    }
}

/// Encodes DER as PEM.
fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect();
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.join("\n")
    )
}

/// Returns the name of a binding, without the colons that names of roles have.
fn binding_name(namespace: &TestNamespace, account: &str, role: &str) -> String {
    format!("{}-{account}-{}", namespace.name(), role.replace(':', "-"))
}

async fn token(namespace: &TestNamespace, account: &str) -> Result<String, E2eError> {
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: Some(3_600),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let answer = namespace
        .api::<ServiceAccount>()
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .map_err(E2eError::api(format!("requesting a token of {account}")))?;
    let token = answer.status.and_then(|status| status.token);
    token.ok_or_else(|| E2eError::Manifest {
        missing: "token in the response",
        manifest: account.to_owned(),
    })
}
