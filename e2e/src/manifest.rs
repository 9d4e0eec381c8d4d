//! The manifests in `deploy/`, which users apply.
#![expect(
    clippy::indexing_slicing,
    reason = "a key that a JSON object does not have is null when it is read, and is added when it is written"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::E2eError;

/// The objects of a manifest in `deploy/`.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    objects: Vec<Value>,
}

impl Manifest {
    /// Reads a file of `deploy/`: `server.yaml`.
    pub fn read(name: &str) -> Result<Self, E2eError> {
        let path = folder().join(name);
        let unreadable = |reason: String| E2eError::ManifestFile {
            path: path.clone(),
            reason,
        };
        let text = std::fs::read_to_string(&path).map_err(|error| unreadable(error.to_string()))?;
        Self::parse(&text).map_err(|error| unreadable(error.to_string()))
    }

    /// Parses YAML documents: the output of `helm template` or of `kubectl kustomize`.
    pub fn parse(text: &str) -> Result<Self, E2eError> {
        let objects = serde_saphyr::from_multiple(text);
        let objects = objects.map_err(|error| E2eError::Yaml(error.to_string()))?;
        Ok(Self { objects })
    }

    /// Its objects, in order.
    pub fn objects(&self) -> &[Value] {
        &self.objects
    }

    /// The object of this kind and name, to change it.
    pub fn object_mut(&mut self, kind: &str, name: &str) -> Option<&mut Value> {
        let mut objects = self.objects.iter_mut();
        objects.find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
    }

    /// Sets the image of all containers, which must have been imported.
    #[must_use]
    pub fn with_image(mut self, image: &str) -> Self {
        for object in &mut self.objects {
            let containers = object.pointer_mut("/spec/template/spec/containers");
            let containers = containers.and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                container["image"] = json!(image);
                container["imagePullPolicy"] = json!("Never");
            }
        }
        self
    }

    /// Gives the rights of one service account to another.
    #[must_use]
    pub fn for_account(mut self, from: &str, to: &str) -> Self {
        for object in &mut self.objects {
            let is_account = object["kind"] == "ServiceAccount";
            if is_account && object["metadata"]["name"] == from {
                object["metadata"]["name"] = json!(to);
            }
            let subjects = object.get_mut("subjects").and_then(Value::as_array_mut);
            for subject in subjects.into_iter().flatten() {
                if subject["name"] == from {
                    subject["name"] = json!(to);
                }
            }
        }
        self
    }

    /// Returns the flags that name objects of the manifest, for objects in another namespace.
    pub(crate) fn flags_in(&self, namespace: &str) -> Vec<String> {
        let containers = self.objects.iter().filter_map(|object| {
            let containers = object.pointer("/spec/template/spec/containers");
            containers.and_then(Value::as_array)
        });
        let flags = containers
            .flatten()
            .filter_map(|container| container["args"].as_array());
        let flags = flags.flatten().filter_map(Value::as_str);
        flags
            .filter(|flag| flag.contains("=kube-system/"))
            .map(|flag| flag.replace("=kube-system/", &format!("={namespace}/")))
            .collect()
    }

    /// Returns the service accounts, roles and bindings, with the accounts and namespaced roles
    /// moved to another namespace: the rights of the manifest for a process of a test. Roles and
    /// bindings outside of the namespace get names that belong to it alone. What is in the
    /// namespace of leases stays there.
    pub(crate) fn rights_in(&self, namespace: &str) -> Vec<Value> {
        let own: BTreeSet<&str> = self
            .objects
            .iter()
            .filter(|object| is_one_of(object, &["Role", "ClusterRole"]))
            .filter_map(|object| object["metadata"]["name"].as_str())
            .collect();
        let unique = |name: &str| format!("{namespace}-{}", name.replace(':', "-"));
        let mut rights = Vec::new();
        for object in &self.objects {
            let mut object = object.clone();
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let renamed = unique(name);
            let role = object["roleRef"]["name"].as_str().unwrap_or_default();
            let (role, is_own) = (unique(role), own.contains(role));
            if object["metadata"]["namespace"] == LEASES {
                object["metadata"]["name"] = json!(renamed);
                if is_own {
                    object["roleRef"]["name"] = json!(role);
                }
                let subjects = object.get_mut("subjects").and_then(Value::as_array_mut);
                for subject in subjects.into_iter().flatten() {
                    subject["namespace"] = json!(namespace);
                }
            } else if is_one_of(&object, &["ServiceAccount", "Role"]) {
                object["metadata"]["namespace"] = json!(namespace);
            } else if is_one_of(&object, &["ClusterRole"]) {
                object["metadata"]["name"] = json!(renamed);
            } else if is_one_of(&object, &["ClusterRoleBinding", "RoleBinding"]) {
                object["metadata"]["name"] = json!(renamed);
                let is_cluster_role = object["roleRef"]["kind"] == "ClusterRole";
                if is_own && is_cluster_role {
                    object["roleRef"]["name"] = json!(role);
                } else if is_own {
                    object["metadata"]["namespace"] = json!(namespace);
                }
                let subjects = object["subjects"].as_array_mut();
                for subject in subjects.into_iter().flatten() {
                    subject["namespace"] = json!(namespace);
                }
            } else {
                continue;
            }
            rights.push(object);
        }
        rights
    }
}

/// The namespace of the leases of nodes.
pub(crate) const LEASES: &str = "kube-node-lease";

fn is_one_of(object: &Value, kinds: &[&str]) -> bool {
    kinds.iter().any(|kind| object["kind"] == *kind)
}

/// The folder `deploy/` of the source tree that the tests were built from.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(manifest: &str) -> Vec<Value> {
        Manifest::read(manifest).unwrap().rights_in("e2e-x")
    }

    #[test]
    fn rights_are_those_of_the_manifest() {
        let manifest = Manifest::read("server.yaml").unwrap();
        let rules = |objects: &[Value]| -> Vec<Value> {
            let roles = objects
                .iter()
                .filter(|object| is_one_of(object, &["Role", "ClusterRole"]));
            roles.map(|role| role["rules"].clone()).collect()
        };
        let moved = manifest.rights_in("e2e-x");
        assert_eq!(rules(&moved), rules(manifest.objects()));
        assert!(rules(&moved).len() >= 3);
    }

    #[test]
    fn every_subject_is_an_account_of_the_namespace() {
        for manifest in ["server.yaml", "transitions.yaml"] {
            let moved = rights(manifest);
            let accounts: Vec<&Value> = moved
                .iter()
                .filter(|object| is_one_of(object, &["ServiceAccount"]))
                .map(|account| &account["metadata"]["name"])
                .collect();
            let subjects = moved
                .iter()
                .filter_map(|object| object["subjects"].as_array())
                .flatten();
            for subject in subjects {
                assert_eq!(subject["namespace"], "e2e-x");
                assert!(accounts.contains(&&subject["name"]), "{subject}");
            }
        }
    }

    #[test]
    fn roles_of_kubernetes_keep_their_name_and_namespace() {
        let moved = rights("server.yaml");
        let reader = moved
            .iter()
            .find(|object| {
                object["kind"] == "RoleBinding" && object["metadata"]["namespace"] == "kube-system"
            })
            .unwrap();
        assert_eq!(
            reader["roleRef"]["name"],
            "extension-apiserver-authentication-reader"
        );
        let names = moved.iter().map(|object| object["roleRef"]["name"].clone());
        assert!(
            names
                .into_iter()
                .any(|name| name == "system:auth-delegator")
        );
    }

    #[test]
    fn flags_name_the_objects_in_the_namespace() {
        let flags = Manifest::read("server.yaml").unwrap().flags_in("e2e-x");
        let backend = "--apiservice-backend=e2e-x/kubevitals-server".to_owned();
        assert!(flags.contains(&backend), "{flags:?}");
    }

    #[test]
    fn an_account_can_take_the_rights_of_another() {
        let manifest = Manifest::read("transitions.yaml").unwrap();
        let manifest = manifest.for_account("kubevitals-transitions", "other");
        let moved = manifest.rights_in("e2e-x");
        let subjects = moved
            .iter()
            .filter_map(|object| object["subjects"].as_array());
        assert!(subjects.flatten().all(|subject| subject["name"] == "other"));
    }

    #[test]
    fn a_missing_manifest_is_named_in_the_error() {
        let error = Manifest::read("nothing.yaml").unwrap_err().to_string();
        assert!(error.contains("deploy/nothing.yaml"), "{error}");
    }
}
