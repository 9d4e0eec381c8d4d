//! This run of the suite: its name on all that it makes, and what earlier runs left behind.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::OnceCell;

use crate::cluster::Cluster;
use crate::error::E2eError;

/// The label on all that tests make: its value is one run of the suite.
pub const RUN_LABEL: &str = "kubevitals.test/run";

/// The label on what has no namespace but belongs to one.
pub(crate) const OWNER_LABEL: &str = "kubevitals.test/namespace";

/// Names the file that the times of tests are appended to; `cargo xtask e2e` sets it.
const TIMES_VARIABLE: &str = "KUBEVITALS_E2E_TIMES";

/// Distinct for each process on one machine, whatever clocks do.
static RUN: LazyLock<String> = LazyLock::new(|| {
    let millis = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() % 1_000_000_000);
    format!("{}-{millis}", std::process::id())
});

/// Done by the first test that asks; the others wait for it.
static SWEPT: OnceCell<()> = OnceCell::const_new();

/// The value of [`RUN_LABEL`] in this run.
pub(crate) fn name() -> &'static str {
    &RUN
}

/// Notes how long the test of this thread took, if somebody wants to know.
pub(crate) fn note_time(took: Duration) {
    let (Some(file), Some(test)) = (
        std::env::var_os(TIMES_VARIABLE),
        std::thread::current().name().map(str::to_owned),
    ) else {
        return;
    };
    // In one write, so that tests do not write into each other's lines.
    let line = format!("{:.3} {test}\n", took.as_secs_f64());
    let file = OpenOptions::new().create(true).append(true).open(file);
    // Who fails to note a time has not failed as a test.
    drop(file.and_then(|mut file| file.write_all(line.as_bytes())));
}

/// Deletes what runs that were killed left behind. Registered APIs go first: one that nobody serves
/// keeps namespaces from being deleted.
pub(crate) async fn sweep(cluster: &Cluster) -> Result<(), E2eError> {
    let others = format!("--selector={RUN_LABEL},{RUN_LABEL}!={}", name());
    SWEPT
        .get_or_try_init(|| async {
            for kinds in [
                "apiservices.apiregistration.k8s.io",
                "clusterroles,clusterrolebindings",
                "namespaces",
            ] {
                let mut arguments = vec!["delete", kinds, &others, "--ignore-not-found"];
                // Pods of theirs would take CPU from the tests to come: wait until they are gone.
                arguments.extend(["--wait=true", "--timeout=120s"]);
                cluster.kubectl(&arguments).await?.succeeded()?;
            }
            let arguments = ["delete", "rolebindings", "--namespace=kube-system"];
            let arguments = [&arguments[..], &[&others, "--ignore-not-found"]].concat();
            cluster.kubectl(&arguments).await?.succeeded()?;
            Ok(())
        })
        .await
        .copied()
}
