//! A namespace for one test.

use std::fmt::Debug;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, TypeMeta,
};
use kube::core::GroupVersionKind;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::access::{Access, Rule};
use crate::cluster::Cluster;
use crate::error::{E2eError, head};
use crate::report;
use crate::run::{self, OWNER_LABEL, RUN_LABEL};
use crate::wait::{self, DEADLINE};

/// The field manager of server-side apply.
const FIELD_MANAGER: &str = "kubevitals-e2e";

/// Bytes of a manifest that are shown in an error.
const MAX_MANIFEST: usize = 512;

/// The namespace of one test, and all objects of the test.
///
/// Call [`finish`](Self::finish) last. A namespace that is dropped without it belongs to a test
/// that failed: it prints a report, then deletes what it can.
#[derive(Debug)]
pub struct TestNamespace {
    cluster: Cluster,
    name: String,
    folder: TempDir,
    since: Instant,
    is_finished: bool,
}

impl TestNamespace {
    pub(crate) async fn create(cluster: &Cluster, name: &str) -> Result<Self, E2eError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("e2e-{name}-{}-{count}", run::name());
        let manifest = Namespace {
            metadata: serde_json::from_value(json!({
                "name": name,
                "labels": {RUN_LABEL: run::name()},
            }))
            .expect("a literal"),
            ..Namespace::default()
        };
        let folder = tempfile::tempdir().map_err(|source| E2eError::Write {
            path: std::env::temp_dir(),
            source,
        })?;
        // Before the request: if the response is lost, the namespace is still deleted.
        let namespace = Self {
            cluster: cluster.clone(),
            name,
            folder,
            since: Instant::now(),
            is_finished: false,
        };
        Api::<Namespace>::all(cluster.client())
            .create(&PostParams::default(), &manifest)
            .await
            .map_err(E2eError::api(format!(
                "creating the namespace {}",
                namespace.name
            )))?;
        // Pods are rejected until a controller has created it, which takes a while after a restart.
        namespace
            .wait_for("default", |account: Option<&ServiceAccount>| {
                account.is_some()
            })
            .await?;
        Ok(namespace)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A folder for files of the test, deleted with the namespace. Files in it that end in `.log`
    /// are part of the report of a test that fails.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file of the test, readable by its owner only.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, E2eError> {
        let path = self.folder().join(name);
        let mut open = OpenOptions::new();
        open.write(true).create(true).truncate(true).mode(0o600);
        let written = open
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()));
        match written {
            Ok(()) => Ok(path),
            Err(source) => Err(E2eError::Write { path, source }),
        }
    }

    /// The cluster that it is in.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The objects of a kind in this namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.client(), &self.name)
    }

    /// Applies a manifest. A namespaced object goes into this namespace unless it
    /// names another; a cluster-scoped one is deleted together with this namespace.
    pub async fn apply(&self, manifest: &Value) -> Result<(), E2eError> {
        let mut manifest = manifest.clone();
        let text = |pointer: &'static str| {
            manifest
                .pointer(pointer)
                .and_then(Value::as_str)
                .ok_or_else(|| E2eError::Manifest {
                    missing: pointer,
                    manifest: head(&manifest.to_string(), MAX_MANIFEST),
                })
        };
        let types = TypeMeta {
            api_version: text("/apiVersion")?.to_owned(),
            kind: text("/kind")?.to_owned(),
        };
        let name = text("/metadata/name")?.to_owned();
        let elsewhere = text("/metadata/namespace").ok().map(str::to_owned);
        if let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut) {
            let labels = metadata.entry("labels").or_insert_with(|| json!({}));
            if let Some(labels) = labels.as_object_mut() {
                labels.insert(RUN_LABEL.to_owned(), json!(run::name()));
                labels.insert(OWNER_LABEL.to_owned(), json!(self.name));
            }
        }

        let doing = format!("applying the {} {name}", types.kind);
        let kind = GroupVersionKind::try_from(types).map_err(|_| E2eError::Manifest {
            missing: "usable apiVersion",
            manifest: head(&manifest.to_string(), MAX_MANIFEST),
        })?;
        let resource = ApiResource::from_gvk(&kind);
        let client = self.cluster.client();
        let api: Api<DynamicObject> = if is_cluster_scoped(&kind.kind) {
            Api::all_with(client, &resource)
        } else {
            Api::namespaced_with(client, elsewhere.as_ref().unwrap_or(&self.name), &resource)
        };
        let how = PatchParams::apply(FIELD_MANAGER).force();
        api.patch(&name, &how, &Patch::Apply(&manifest))
            .await
            .map_err(E2eError::api(doing))?;
        Ok(())
    }

    /// Deletes an object and waits until it is gone.
    pub async fn delete<K>(&self, name: &str) -> Result<(), E2eError>
    where
        K: Clone + Debug + DeserializeOwned + Send + Serialize + 'static,
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        self.api::<K>()
            .delete(name, &DeleteParams::default())
            .await
            .map_err(E2eError::api(format!("deleting {name}")))?;
        self.wait_for(name, |object: Option<&K>| object.is_none())
            .await
            .map(drop)
    }

    /// Watches an object of this namespace until the predicate holds; the error has the last
    /// observed state. `None` is an object that does not exist.
    pub async fn wait_for<K>(
        &self,
        name: &str,
        is_wanted: impl Fn(Option<&K>) -> bool,
    ) -> Result<Option<K>, E2eError>
    where
        K: Clone + Debug + DeserializeOwned + Send + Serialize + 'static,
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        wait::wait_for(self.api(), name, DEADLINE, is_wanted).await
    }

    /// The same for a cluster-scoped object.
    pub async fn wait_for_global<K>(
        &self,
        name: &str,
        is_wanted: impl Fn(Option<&K>) -> bool,
    ) -> Result<Option<K>, E2eError>
    where
        K: Clone + Debug + DeserializeOwned + Send + Serialize + 'static,
        K: Resource<DynamicType = (), Scope = ClusterResourceScope>,
    {
        let api = Api::all(self.cluster.client());
        wait::wait_for(api, name, DEADLINE, is_wanted).await
    }

    /// Creates a service account with these rights in the whole cluster, and no others.
    pub async fn access(&self, name: &str, rules: &[Rule]) -> Result<Access, E2eError> {
        Access::grant(self, name, rules).await
    }

    /// Runs `kubectl` as an administrator in this namespace.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String, E2eError> {
        let arguments = [&["--namespace", self.name.as_str()], arguments].concat();
        self.cluster.kubectl(&arguments).await?.succeeded()
    }

    /// Runs a script for bash as an administrator; `kubectl` in it uses this namespace.
    pub async fn shell(&self, script: &str) -> Result<String, E2eError> {
        self.cluster.shell(&self.name, script).await?.succeeded()
    }

    /// Ends a test that passed: deletes all its objects, and does not wait for the namespace to be
    /// gone.
    pub async fn finish(mut self) -> Result<(), E2eError> {
        for arguments in report::deletions(&self.name) {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            self.cluster.kubectl(&arguments).await?.succeeded()?;
        }
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for TestNamespace {
    fn drop(&mut self) {
        run::record_time(self.since.elapsed());
        if !self.is_finished {
            report::print(&self.cluster, &self.name, self.folder.path());
            report::delete(&self.cluster, &self.name);
        }
    }
}

/// Returns whether a kind that tests use is cluster-scoped.
fn is_cluster_scoped(kind: &str) -> bool {
    matches!(
        kind,
        "APIService"
            | "ClusterRole"
            | "ClusterRoleBinding"
            | "CustomResourceDefinition"
            | "Namespace"
            | "Node"
            | "PriorityClass"
    )
}
