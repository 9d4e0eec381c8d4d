//! Our program in pods of the cluster, installed by Helm.

use std::path::PathBuf;

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use serde_json::{Value, json};
use tokio::sync::MutexGuard;

use crate::aggregation;
use crate::cluster::KubectlOutput;
use crate::error::E2eError;
use crate::installed::IMAGE;
use crate::manifest::{Manifest, folder};
use crate::namespace::TestNamespace;
use crate::run::{self, OWNER_LABEL, RUN_LABEL};
use crate::wait::has_condition;

/// The name of the release, and so the prefix of its names.
const NAME: &str = "kubevitals";

/// Waits until pods are ready, or gone.
const WAIT: [&str; 2] = ["--wait", "--timeout=150s"];

/// A release of the chart in the namespace of a test, with the image of `cargo xtask e2e`. Only one
/// test at a time can serve the API.
#[derive(Debug)]
pub struct Release {
    _guard: MutexGuard<'static, ()>,
}

impl Release {
    /// Prepares a namespace for a release: it rejects pods that do not satisfy the Pod Security
    /// Standard `restricted`.
    pub async fn prepare(namespace: &TestNamespace) -> Result<Self, E2eError> {
        let release = Self::prepare_privileged().await;
        let label = "pod-security.kubernetes.io/enforce=restricted";
        let arguments = ["label", "namespace", namespace.name(), label];
        namespace.kubectl(&arguments).await?;
        Ok(release)
    }

    /// Prepares a release whose pods read their host.
    pub async fn prepare_privileged() -> Self {
        Self {
            _guard: aggregation::turn().await,
        }
    }

    /// Runs `helm install` with these values.
    pub async fn install(
        &self,
        namespace: &TestNamespace,
        values: &Value,
        flags: &[&str],
    ) -> Result<KubectlOutput, E2eError> {
        let chart = chart();
        let install = [&["install", NAME, chart.as_str()], &WAIT[..], flags].concat();
        helm_with(namespace, &install, values).await
    }

    /// Runs `helm upgrade` with these values in place of those of the last revision.
    pub async fn upgrade(
        &self,
        namespace: &TestNamespace,
        values: &Value,
    ) -> Result<KubectlOutput, E2eError> {
        let chart = chart();
        let upgrade = [&["upgrade", NAME, chart.as_str()], &WAIT[..]].concat();
        helm_with(namespace, &upgrade, values).await
    }

    /// Runs `helm rollback` to a revision.
    pub async fn rollback(
        &self,
        namespace: &TestNamespace,
        revision: u32,
    ) -> Result<String, E2eError> {
        let revision = revision.to_string();
        let rollback = [&["rollback", NAME, revision.as_str()], &WAIT[..]].concat();
        helm(namespace, &rollback).await?.succeeded()
    }

    /// Runs `helm uninstall`.
    pub async fn uninstall(self, namespace: &TestNamespace) -> Result<String, E2eError> {
        let uninstall = [&["uninstall", NAME], &WAIT[..]].concat();
        helm(namespace, &uninstall).await?.succeeded()
    }

    /// Waits until both versions of the API are available.
    pub async fn available(&self, namespace: &TestNamespace) -> Result<(), E2eError> {
        for version in ["v1.metrics.k8s.io", "v1beta1.metrics.k8s.io"] {
            namespace
                .wait_for_global(version, |api: Option<&APIService>| {
                    has_condition(api, "Available")
                })
                .await?;
        }
        Ok(())
    }

    /// Returns the objects that the chart renders with these values.
    pub async fn rendered(namespace: &TestNamespace, values: &Value) -> Result<Manifest, E2eError> {
        // Without a cluster Helm assumes an old version, unless its build says otherwise.
        let cluster = namespace.cluster().client().apiserver_version().await;
        let cluster = cluster.map_err(E2eError::api("reading the version of the cluster"))?;
        let version = format!("--kube-version={}", cluster.git_version);
        let chart = chart();
        let template = ["template", NAME, chart.as_str(), version.as_str()];
        let rendered = helm_with(namespace, &template, values).await?;
        Manifest::parse(&rendered.succeeded()?)
    }
}

/// Runs `helm` with these values, the image of the tests, and labels by which a test that fails
/// deletes what remains outside of its namespace.
async fn helm_with(
    namespace: &TestNamespace,
    arguments: &[&str],
    values: &Value,
) -> Result<KubectlOutput, E2eError> {
    let (repository, tag) = IMAGE.rsplit_once(':').unwrap_or((IMAGE, ""));
    let always = json!({
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "commonLabels": {RUN_LABEL: run::name(), OWNER_LABEL: namespace.name()},
    });
    // YAML includes JSON.
    let always = namespace.write("always.yaml", &always.to_string())?;
    let given = namespace.write("values.yaml", &values.to_string())?;
    let option = |path: PathBuf| format!("--values={}", path.display());
    let (always, given) = (option(always), option(given));
    let values = [always.as_str(), given.as_str()];
    helm(namespace, &[arguments, &values].concat()).await
}

async fn helm(namespace: &TestNamespace, arguments: &[&str]) -> Result<KubectlOutput, E2eError> {
    let arguments = [arguments, &["--namespace", namespace.name()]].concat();
    namespace.cluster().helm(&arguments).await
}

fn chart() -> String {
    folder().join("chart/kubevitals").display().to_string()
}
