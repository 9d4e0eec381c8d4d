//! Our server in pods of the cluster, from `deploy/server.yaml`.

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use tokio::sync::MutexGuard;

use crate::aggregation;
use crate::error::E2eError;
use crate::manifest::Manifest;
use crate::namespace::TestNamespace;
use crate::report;
use crate::wait::has_condition;

/// The image of our program, which `cargo xtask e2e` builds and imports.
pub(crate) const IMAGE: &str = "kubevitals.test/kubevitals:dev";

const NAMESPACE: &str = "--namespace=kube-system";
const DEPLOYMENT: &str = "deployment/kubevitals-server";

/// Our server, installed as a user installs it: all objects of `deploy/server.yaml`, of which only
/// the image is another. Only one test at a time can serve the API.
#[derive(Debug)]
pub struct InstalledServer {
    _guard: MutexGuard<'static, ()>,
}

impl InstalledServer {
    /// Applies the manifest, and waits until all replicas are ready and both versions of the API
    /// are available.
    pub async fn install(namespace: &TestNamespace) -> Result<Self, E2eError> {
        Self::install_changed(namespace, |_| ()).await
    }

    /// The same with a change to the manifest, which must say why.
    pub async fn install_changed(
        namespace: &TestNamespace,
        change: impl FnOnce(&mut Manifest),
    ) -> Result<Self, E2eError> {
        let guard = aggregation::turn().await;
        let mut manifest = Manifest::read("server.yaml")?.with_image(IMAGE);
        change(&mut manifest);
        for object in manifest.objects() {
            namespace.apply(object).await?;
        }
        let server = Self { _guard: guard };
        server.rolled_out(namespace).await?;
        for version in ["v1.metrics.k8s.io", "v1beta1.metrics.k8s.io"] {
            namespace
                .wait_for_global(version, |api: Option<&APIService>| {
                    has_condition(api, "Available")
                })
                .await?;
        }
        Ok(server)
    }

    /// Replaces all pods, one after the other, and waits until the new ones are ready.
    pub async fn rolling_restart(&self, namespace: &TestNamespace) -> Result<(), E2eError> {
        let restart = ["rollout", "restart", DEPLOYMENT, NAMESPACE];
        let restarted = namespace.cluster().kubectl(&restart).await?;
        restarted.succeeded()?;
        self.rolled_out(namespace).await
    }

    /// Deletes all objects of the manifest, and waits until its pods are gone.
    pub async fn remove(self, namespace: &TestNamespace) -> Result<(), E2eError> {
        let cluster = namespace.cluster();
        for arguments in report::deletions_outside(namespace.name()) {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            cluster.kubectl(&arguments).await?.succeeded()?;
        }
        let gone = ["wait", "pods", NAMESPACE, report::OUR_PODS, "--for=delete"];
        let gone = [&gone[..], &["--timeout=120s"]].concat();
        cluster.kubectl(&gone).await?.succeeded().map(drop)
    }

    async fn rolled_out(&self, namespace: &TestNamespace) -> Result<(), E2eError> {
        let status = ["rollout", "status", DEPLOYMENT, NAMESPACE, "--timeout=120s"];
        let done = namespace.cluster().kubectl(&status).await?;
        done.succeeded().map(drop)
    }
}
