//! The baseline: Go's metrics-server behind its APIService, as `kubectl top` sees it.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubevitals_e2e::{Burner, Cluster, E2eError, MetricsApiServer, TestNamespace, is_ready};

use crate::{assert_within_a_tenth, in_time};

/// Polling interval of `kubectl top`; the API has no watch.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The flags that ours are compared with, by the tests of the program.
const RECORDED_FLAGS: &str =
    include_str!("../../../bin/kubevitals/tests/fixtures/metrics-server-flags.tsv");

/// Type, default and short name of each flag.
type Flags = BTreeMap<String, [String; 3]>;

fn recorded_flags() -> Flags {
    let lines = RECORDED_FLAGS.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut columns = line.split('\t').map(str::to_owned);
            let mut next = || columns.next().unwrap_or_default();
            (next(), [next(), next(), next()])
        })
        .collect()
}

/// Parses the usage text of a Go program. A description can have several lines, and ends with the
/// default.
fn listed_flags(help: &str) -> Flags {
    let mut flags = Flags::new();
    let mut last = String::new();
    for line in help.lines() {
        let text = line.trim();
        if text.starts_with('-') && line.starts_with("  ") {
            let (short, rest) = text.split_once("--").unwrap_or_default();
            let short = short.trim_matches(['-', ',', ' ']).to_owned();
            let (head, _) = rest.split_once("   ").unwrap_or((rest, ""));
            let (name, kind) = head.split_once(' ').unwrap_or((head, "bool"));
            name.clone_into(&mut last);
            flags.insert(last.clone(), [kind.to_owned(), String::new(), short]);
        }
        let default = text.rsplit_once("(default ");
        let default = default.and_then(|(_, rest)| rest.strip_suffix(')'));
        if let (Some(default), Some([_, known, _])) = (default, flags.get_mut(&last)) {
            default.trim_matches('"').clone_into(known);
        }
    }
    flags
}

/// A newer metrics-server can have other flags: then the record, and the table of ours, are
/// updated.
#[tokio::test]
async fn the_recorded_flags_are_those_of_the_program() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let mut command = tokio::process::Command::new(cluster.program("metrics-server")?);
    let output = command.arg("--help").output().await?;
    let help = String::from_utf8(output.stdout)?;
    assert_eq!(listed_flags(&help), recorded_flags());
    Ok(())
}

/// Returns the CPU of a container in millicores, once `kubectl top` has it.
async fn top(namespace: &TestNamespace, pod: &str) -> Option<u64> {
    let answer = namespace
        .kubectl(&["top", "pods", "--containers", "--no-headers"])
        .await;
    // POD NAME CPU(cores) MEMORY(bytes)
    let table = answer.ok()?;
    let row = table
        .lines()
        .find(|line| line.split_whitespace().next() == Some(pod))?;
    row.split_whitespace()
        .nth(2)?
        .strip_suffix('m')?
        .parse()
        .ok()
}

#[tokio::test]
async fn kubectl_top_shows_a_burner_through_metrics_server() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("top").await?;
    let burner = Burner::new("burner").cpu_millicores(200);
    namespace.apply(&burner.pod()).await?;
    namespace.wait_for::<Pod>("burner", is_ready).await?;
    let mut server = MetricsApiServer::start_metrics_server(&namespace).await?;

    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    let millicores = in_time("metrics of the burner", async {
        loop {
            ticks.tick().await;
            server.must_run()?;
            // Its first window starts with the container, which waited for its
            // image and its probe.
            if let Some(millicores) = top(&namespace, "burner").await {
                return Ok::<_, E2eError>(millicores);
            }
        }
    })
    .await?;
    assert_within_a_tenth("millicores", millicores, 200, &"kubectl top");
    server.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}
