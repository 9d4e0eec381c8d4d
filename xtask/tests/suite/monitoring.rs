//! The rules and dashboards in `deploy/monitoring` name metrics and labels that exist, and every
//! alert has tests and a section in the documents. `promtool` checks their grammar and runs the
//! tests of alerts: `cargo xtask e2e monitoring`.

#[path = "../../../e2e/tests/suite/monitoring/queries.rs"]
mod queries;

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use self::queries::{dashboards, queries, rules};
use crate::links::anchors;
use crate::promql::{self, Names};
use crate::{read, root};

/// Type and labels of a metric.
#[derive(Debug, Clone, Default)]
struct Metric {
    kind: String,
    labels: BTreeSet<String>,
}

/// Labels that Prometheus adds to every series of a target.
const TARGET_LABELS: [&str; 2] = ["instance", "job"];

/// Functions of counters.
const RATES: [&str; 3] = ["rate", "irate", "increase"];

/// Sections of the reference that no run writes: the heading, the prefix of names, and the file
/// that registers them.
const REGISTERED: [(&str, &str, &str); 1] = [(
    "## A virtual node",
    "kubevitals_node_",
    "crates/node/virtual/src/metrics.rs",
)];

/// The files that declare the metrics of the prober.
const PROBER_FILES: [&str; 7] = [
    "bin/kubevitals/src/prober/probing.rs",
    "crates/export/gcm/src/metrics.rs",
    "crates/export/sink/src/metrics.rs",
    "crates/roles/prober/src/mesh/pinger.rs",
    "crates/roles/prober/src/metrics.rs",
    "crates/roles/prober/src/prometheus.rs",
    "crates/roles/prober/src/prometheus/probes.rs",
];

/// Prefixes of registries, which the names in these files may lack; the longest first.
const PROBER_PREFIXES: [&str; 7] = [
    "kubevitals_prober_mesh_",
    "kubevitals_prober_gcm_queue_",
    "kubevitals_prober_gcm_",
    "kubevitals_prober_otlp_",
    "kubevitals_prober_lines_",
    "kubevitals_prober_",
    "kubevitals_probes_",
];

/// The link of an alert, up to the name of its section.
const RUNBOOKS: &str = "https://github.com/kubevitals/kubevitals/blob/main/docs/alerts.md#";

#[derive(Debug, Deserialize)]
struct TestFile {
    tests: Vec<TestCase>,
}

#[derive(Debug, Deserialize)]
struct TestCase {
    #[serde(default)]
    alert_rule_test: Vec<AlertTest>,
}

#[derive(Debug, Deserialize)]
struct AlertTest {
    alertname: String,
    #[serde(default)]
    exp_alerts: Vec<serde_json::Value>,
}

/// The parts of an alert that people read.
#[derive(Debug, Deserialize)]
struct AlertFile {
    groups: Vec<AlertGroup>,
}

#[derive(Debug, Deserialize)]
struct AlertGroup {
    rules: Vec<Alert>,
}

#[derive(Debug, Deserialize)]
struct Alert {
    #[serde(rename = "alert")]
    name: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// The metrics of the reference, which a test compares with the running roles.
fn own_metrics() -> BTreeMap<String, Metric> {
    let text = read("docs/reference/metrics.md");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let metrics: BTreeMap<_, _> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split(" | ").collect();
            let name = cells[0].trim_matches(['|', ' ', '`']).to_owned();
            let labels = cells[2].split('`').skip(1).step_by(2);
            let metric = Metric {
                kind: cells[1].to_owned(),
                labels: labels.map(str::to_owned).collect(),
            };
            (name, metric)
        })
        .collect();
    assert!(metrics.len() > 80, "{metrics:#?}");
    metrics
}

/// The text of a file in one line, with strings that go on in the next line joined.
fn one_line(file: &str) -> String {
    let text = read(file);
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace("\\ ", "")
}

/// The rows of a section of the reference: name without `_total`, and help.
fn section(heading: &str) -> BTreeMap<String, String> {
    let text = read("docs/reference/metrics.md");
    let (_, section) = text.split_once(heading).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let rows = rows.map(|row| {
        let cells: Vec<&str> = row.split(" | ").collect();
        let name = cells[0].trim_matches(['|', ' ', '`']);
        let name = match cells[1] {
            "counter" => name.strip_suffix("_total").unwrap(),
            _ => name,
        };
        let help = cells[3].trim_end_matches([' ', '|']);
        (name.to_owned(), help.to_owned())
    });
    rows.collect()
}

/// The names and help texts that a file registers: `registry.gauge("name", "help")`.
fn registered(file: &str) -> BTreeMap<String, String> {
    let text = one_line(file);
    let calls = text.split("registry.").skip(1);
    let names = calls.filter_map(|call| {
        let (_, arguments) = call.split_once('(')?;
        let mut strings = arguments.trim_start().strip_prefix('"')?.split('"');
        let (name, comma, help) = (strings.next()?, strings.next()?, strings.next()?);
        (comma.trim() == ",").then(|| (name.to_owned(), help.to_owned()))
    });
    names.collect()
}

/// The metrics of a kubelet, as one was recorded.
fn kubelet_metrics() -> BTreeMap<String, Metric> {
    let text = read("crates/sim/tests/fixtures/kubernetes-1.37/metrics-resource.txt");
    let mut metrics = BTreeMap::<String, Metric>::new();
    for line in text.lines() {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, kind) = described.split_once(' ').unwrap();
            let metric = metrics.entry(name.to_owned()).or_default();
            kind.clone_into(&mut metric.kind);
        } else if !line.starts_with('#') {
            let Names {
                metrics: found,
                labels,
            } = promql::names(line);
            let (name, _) = found.into_iter().next().unwrap();
            metrics.entry(name).or_default().labels.extend(labels);
        }
    }
    metrics
}

/// All metrics that a query may name. A recorded series has the labels of its expression.
fn known_metrics() -> BTreeMap<String, Metric> {
    let mut known = own_metrics();
    known.extend(kubelet_metrics());
    for (_, rules) in rules(&root()) {
        for rule in rules.into_iter().filter(|rule| rule.record.is_some()) {
            let metric = Metric {
                kind: "gauge".to_owned(),
                labels: promql::names(&rule.expr).labels,
            };
            known.insert(rule.name().to_owned(), metric);
        }
    }
    known
}

/// The family of a series: a histogram has several.
fn family<'m>(
    known: &'m BTreeMap<String, Metric>,
    name: &str,
) -> Option<(&'m Metric, Option<&'static str>)> {
    let plain = known.get(name).map(|metric| (metric, None));
    let of_histogram = || {
        ["_bucket", "_sum", "_count"]
            .into_iter()
            .find_map(|suffix| {
                let metric = known.get(name.strip_suffix(suffix)?)?;
                (metric.kind == "histogram").then_some((metric, Some(suffix)))
            })
    };
    plain.or_else(of_histogram)
}

/// Checks texts, severity and runbook of an alert.
fn check_alert(name: &str, alert: &Alert, sections: &BTreeSet<String>) {
    for annotation in ["summary", "description"] {
        assert!(
            alert.annotations.contains_key(annotation),
            "{name} has no {annotation}"
        );
    }
    let severity = alert.labels.get("severity").map(String::as_str);
    assert!(
        matches!(severity, Some("critical" | "warning")),
        "{name}: {severity:?}"
    );
    let link = alert.annotations.get("runbook_url").unwrap();
    let section = link
        .strip_prefix(RUNBOOKS)
        .unwrap_or_else(|| panic!("{name}: {link}"));
    assert_eq!(section, name.to_lowercase());
    assert!(
        sections.contains(section),
        "docs/alerts.md has no section {name}"
    );
}

#[test]
fn every_metric_and_label_of_a_query_exists() {
    let known = known_metrics();
    let mut problems = Vec::new();
    let queries = queries(&root());
    let alerts = queries.iter().filter(|query| query.is_alert).count();
    assert!(
        queries.len() > 100 && alerts > 15,
        "{alerts} of {}",
        queries.len()
    );
    for query in queries {
        let names = promql::names(&query.expr);
        let mut labels: BTreeSet<String> = TARGET_LABELS.map(str::to_owned).into();
        for (name, function) in &names.metrics {
            let Some((metric, part)) = family(&known, name) else {
                problems.push(format!("{}: no metric {name}", query.place));
                continue;
            };
            labels.extend(metric.labels.iter().cloned());
            if part == Some("_bucket") {
                labels.insert("le".to_owned());
            }
            let is_rated = function
                .as_deref()
                .is_some_and(|name| RATES.contains(&name));
            let grows = metric.kind == "counter" || part.is_some();
            if grows != is_rated {
                let problem = if grows { "no rate of" } else { "a rate of" };
                let kind = &metric.kind;
                problems.push(format!("{}: {problem} {kind} {name}", query.place));
            }
        }
        for label in names.labels.difference(&labels) {
            problems.push(format!("{}: no label {label}", query.place));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn sections_of_the_reference_have_what_the_code_registers() {
    for (heading, prefix, file) in REGISTERED {
        let documented: BTreeMap<String, String> = section(heading)
            .into_iter()
            .map(|(name, help)| (name.strip_prefix(prefix).unwrap().to_owned(), help))
            .collect();
        assert_eq!(documented, registered(file), "{heading}");
    }
}

#[test]
fn the_reference_of_the_prober_has_the_names_and_texts_of_the_code() {
    let documented = section("## The prober");
    let code: String = PROBER_FILES.map(one_line).concat();
    let has = |text: &str| code.contains(&format!("\"{text}\""));
    for (name, help) in &documented {
        let short = PROBER_PREFIXES
            .iter()
            .find_map(|prefix| name.strip_prefix(prefix));
        assert!(
            has(name) || short.is_some_and(has),
            "no file declares {name}"
        );
        assert!(has(help), "{name}: {help}");
    }
    // Families that are written with their whole names.
    let words = code.split('"').skip(1).step_by(2);
    let is_family = |word: &&str| word.starts_with("kubevitals_probe") && !word.contains('{');
    for family in words.filter(is_family) {
        let is_prefix = documented
            .keys()
            .any(|name| name.starts_with(&format!("{family}_")));
        assert!(
            documented.contains_key(family) || is_prefix,
            "docs/reference/metrics.md lacks {family}"
        );
    }
}

#[test]
fn every_alert_has_a_firing_and_a_quiet_test() {
    for (file, rules) in rules(&root()) {
        let name = file.file_name().unwrap().to_str().unwrap();
        let text = read(&format!("deploy/monitoring/rules/tests/{name}"));
        let tests: TestFile = serde_saphyr::from_str(&text).unwrap();
        let tests: Vec<AlertTest> = tests
            .tests
            .into_iter()
            .flat_map(|case| case.alert_rule_test)
            .collect();
        for alert in rules.iter().filter_map(|rule| rule.alert.as_ref()) {
            let of_alert = || tests.iter().filter(|test| test.alertname == *alert);
            assert!(
                of_alert().any(|test| !test.exp_alerts.is_empty()),
                "{alert} never fires in {name}"
            );
            assert!(
                of_alert().any(|test| test.exp_alerts.is_empty()),
                "{alert} is never quiet in {name}"
            );
        }
    }
}

#[test]
fn every_alert_says_what_is_wrong_and_has_a_section_in_the_documents() {
    let sections = anchors(&read("docs/alerts.md"));
    let mut names = BTreeSet::new();
    for (file, _) in rules(&root()) {
        let text = std::fs::read_to_string(file).unwrap();
        let parsed: AlertFile = serde_saphyr::from_str(&text).unwrap();
        for alert in parsed.groups.iter().flat_map(|group| &group.rules) {
            let Some(name) = &alert.name else { continue };
            assert!(
                names.insert(name.to_lowercase()),
                "there are two alerts named {name}"
            );
            check_alert(name, alert, &sections);
        }
    }
    // Headings of groups have several words, or begin like no alert.
    let is_alert = |section: &&String| {
        let beginnings = ["addon", "kubevitals", "node", "pod", "probe"];
        let begins_like_one = beginnings.iter().any(|one| section.starts_with(one));
        begins_like_one && !section.contains('-')
    };
    let extra: Vec<&String> = sections
        .iter()
        .filter(is_alert)
        .filter(|section| !names.contains(*section))
        .collect();
    assert!(
        extra.is_empty(),
        "docs/alerts.md has sections of no alert: {extra:?}"
    );
}

#[test]
fn every_panel_has_a_title_a_description_and_a_unit() {
    let mut uids = BTreeSet::new();
    for dashboard in dashboards(&root()) {
        let file = &dashboard.file;
        let uid = dashboard.json["uid"].as_str().unwrap();
        assert!(
            uid.len() <= 40 && uids.insert(uid.to_owned()),
            "{file}: {uid}"
        );
        let mut ids = BTreeSet::new();
        for panel in dashboard.panels() {
            let title = panel["title"].as_str().unwrap();
            assert!(
                ids.insert(panel["id"].as_u64().unwrap()),
                "{file}: two panels {}",
                panel["id"]
            );
            assert!(
                !panel["description"].as_str().unwrap().is_empty(),
                "{file}: {title}"
            );
            assert!(
                panel["fieldConfig"]["defaults"]["unit"].is_string(),
                "{file}: {title}"
            );
            // Whatever data source is selected, not the one of whoever saved the file.
            assert_eq!(
                panel["datasource"]["uid"], "${datasource}",
                "{file}: {title}"
            );
        }
    }
}
