//! The rules and dashboards in `deploy/monitoring`, with the real promtool. The test `chart` runs
//! their queries on a Prometheus that scrapes a release.

mod queries;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use kubevitals_e2e::{Cluster, Prometheus};
use serde_json::Value;

use self::queries::Query;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files of rules.
pub(crate) fn rule_files() -> Vec<PathBuf> {
    let rules = queries::rules(&root());
    rules.into_iter().map(|(file, _)| file).collect()
}

#[tokio::test]
async fn promtool_accepts_the_rules_and_their_tests_pass() -> anyhow::Result<()> {
    let promtool = Cluster::from_env().await?.program("promtool")?;
    let rules = rule_files();
    let tests = rules.iter().map(|file| {
        let folder = file.parent().unwrap().join("tests");
        folder.join(file.file_name().unwrap())
    });
    for (command, files) in [("check", rules.clone()), ("test", tests.collect())] {
        let mut promtool = Command::new(&promtool);
        let output = promtool.args([command, "rules"]).args(files).output()?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        println!("{stdout}{stderr}");
        ensure!(
            output.status.success(),
            "promtool {command} rules: {stdout}{stderr}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn promtool_accepts_every_query_of_rules_and_dashboards() -> anyhow::Result<()> {
    let promtool = Cluster::from_env().await?.program("promtool")?;
    let mut queries = queries::queries(&root());
    ensure!(
        queries.iter().any(|query| query.is_alert),
        "there are alerts"
    );
    let published = root().join("crates/kube-client-metrics/dashboards");
    for dashboard in queries::dashboards_in(&published) {
        queries.extend(dashboard.queries());
    }
    for query in queries {
        let mut promtool = Command::new(&promtool);
        let format = ["--experimental", "promql", "format", &query.expr];
        let output = promtool.args(format).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{query:?}: {stderr}");
    }
    Ok(())
}

/// Panels that show nothing while all is well, or that need what a small cluster does not do: the
/// beginning of the place of a query, and the reason.
const MAY_BE_EMPTY: &[(&str, &str)] = &[
    ("itself.json: Failed scrapes by reason", "no scrape fails"),
    (
        "itself.json: Ignored values by reason",
        "no value is ignored",
    ),
    (
        "itself.json: Ended connections by reason",
        "watches last for minutes",
    ),
    (
        "itself.json: Limits that took effect",
        "no review is limited",
    ),
    ("itself.json: Lines", "no line is dropped"),
    (
        "itself.json: Spans of traces",
        "no receiver of traces is configured",
    ),
    (
        "itself.json: Virtual nodes",
        "the release runs no virtual node",
    ),
    (
        "itself.json: Duration of reviews, p99",
        "open paths need no review",
    ),
    (
        "itself.json: Responses that are no success",
        "all requests succeed",
    ),
    (
        "pod-starts.json: Starts within 5 s",
        "no start may count for the objective",
    ),
    (
        "pod-starts.json: Burn rate, last hour",
        "no start may count for the objective",
    ),
    (
        "pod-starts.json: Starts that miss the objective",
        "no start may count for the objective",
    ),
    (
        "transitions.yaml: kubevitals:pod_start_sli_misses",
        "no start may count for the objective",
    ),
    (
        "pod-starts.json: Pulls by result",
        "images are imported, not pulled",
    ),
    (
        "pod-starts.json: What keeps pods from becoming ready",
        "all pods become ready",
    ),
    ("pod-starts.json: Pods that hang", "all pods become ready"),
    ("pod-starts.json: Starting pods", "all pods become ready"),
    (
        "pod-starts.json: Duration of image pulls",
        "images are imported, not pulled",
    ),
    (
        "pod-starts.json: Wait for other pulls",
        "images are imported, not pulled",
    ),
    (
        "pod-starts.json: Bytes from registries",
        "images are imported, not pulled",
    ),
    (
        "pod-starts.json: Failed pulls by reason",
        "images are imported, not pulled",
    ),
    (
        "pod-starts.json: Back-offs",
        "images are imported, not pulled",
    ),
    (
        "pod-starts.json: Container restarts by reason",
        "no container restarts",
    ),
    (
        "pod-starts.json: Time down between runs",
        "no container restarts",
    ),
    ("pod-starts.json: Time to end", "no pod is deleted"),
    ("prober.json: ", "the release runs no prober"),
    ("prober.yaml: kubevitals:", "the release runs no prober"),
];

/// Alerts whose expressions may hold for a moment after an installation, each of which waits ten
/// minutes before it fires, or that a role is missing.
const MAY_HOLD: [&str; 3] = [
    "prober.yaml: KubevitalsProberAbsent",
    "server.yaml: KubevitalsMetricsApiErrors",
    "server.yaml: KubevitalsPodsWithoutUsage",
];

/// Runs every query of the rules and dashboards: panels and recording rules find something, alerts
/// find nothing.
pub(crate) async fn assert_queries(prometheus: &mut Prometheus) -> anyhow::Result<()> {
    for query in queries::queries(&root()) {
        let Query { place, expr, .. } = &query;
        let may_be_empty = MAY_BE_EMPTY
            .iter()
            .any(|(prefix, _)| place.starts_with(prefix));
        let series = if may_be_empty || MAY_HOLD.contains(&place.as_str()) {
            prometheus.query(expr).await
        } else if query.is_alert {
            prometheus.until(expr, <[Value]>::is_empty).await
        } else {
            prometheus.until(expr, |series| !series.is_empty()).await
        };
        let series = series.with_context(|| format!("{place}: {expr}"))?;
        // A table for the documents.
        let first = series.first();
        let value = first.and_then(|series| series["value"][1].as_str());
        let labels = first.map(|series| series["metric"].to_string());
        println!(
            "| {place} | {} | {} | {} |",
            series.len(),
            labels.unwrap_or_default(),
            value.unwrap_or_default()
        );
    }
    Ok(())
}
