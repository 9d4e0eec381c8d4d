//! This run of the suite: the label of its objects, and the deletion of earlier runs' objects.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::OnceCell;

use crate::cluster::Cluster;
use crate::error::E2eError;
use crate::report::{IN_KUBE_SYSTEM, KINDS_OUTSIDE};
use crate::static_pod;

/// The label of all objects of tests: its value is one run of the suite.
pub const RUN_LABEL: &str = "kubevitals.test/run";

/// The label of cluster-scoped objects that belong to a namespace.
pub(crate) const OWNER_LABEL: &str = "kubevitals.test/namespace";

/// The label of Nodes that `kubevitals node` registers, as virtual kubelets have it.
const VIRTUAL_NODES: &str = "--selector=type=virtual-kubelet";

/// Names the file that the times of tests are appended to; `cargo xtask e2e` sets it.
const TIMES_VARIABLE: &str = "KUBEVITALS_E2E_TIMES";

/// Distinct for each process on one machine, regardless of its clock.
static RUN: LazyLock<String> = LazyLock::new(|| {
    let millis = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() % 1_000_000_000);
    format!("{}-{millis}", std::process::id())
});

/// Done by the first test; the others wait for it.
static SWEPT: OnceCell<()> = OnceCell::const_new();

/// The value of [`RUN_LABEL`] in this run.
pub(crate) fn name() -> &'static str {
    &RUN
}

/// Appends the duration of this thread's test to the file, if there is one.
pub(crate) fn record_time(duration: Duration) {
    let (Some(file), Some(test)) = (
        std::env::var_os(TIMES_VARIABLE),
        std::thread::current().name().map(str::to_owned),
    ) else {
        return;
    };
    // In one write, so that lines of concurrent tests do not mix.
    let line = format!("{:.3} {test}\n", duration.as_secs_f64());
    let file = OpenOptions::new().create(true).append(true).open(file);
    // A time that cannot be written must not fail the test.
    drop(file.and_then(|mut file| file.write_all(line.as_bytes())));
}

/// Deletes the objects of runs that were killed. Registered APIs go first: one that nobody serves
/// blocks the deletion of namespaces.
pub(crate) async fn sweep(cluster: &Cluster) -> Result<(), E2eError> {
    let others = format!("--selector={RUN_LABEL},{RUN_LABEL}!={}", name());
    SWEPT
        .get_or_try_init(|| async {
            static_pod::remove_all(cluster)?;
            // The pods of a virtual node that is gone would keep their namespace.
            let nodes = ["delete", "nodes", VIRTUAL_NODES, "--ignore-not-found"];
            cluster.kubectl(&nodes).await?.succeeded()?;
            for kinds in KINDS_OUTSIDE.into_iter().chain(["namespaces"]) {
                let mut arguments = vec!["delete", kinds, IN_KUBE_SYSTEM, &others];
                // Their pods would take CPU from the tests: wait until they are gone.
                arguments.extend(["--ignore-not-found", "--wait=true", "--timeout=120s"]);
                cluster.kubectl(&arguments).await?.succeeded()?;
            }
            Ok(())
        })
        .await
        .copied()
}
