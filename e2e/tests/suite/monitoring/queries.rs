//! The rules and dashboards in `deploy/monitoring`, and their queries. The tests of `xtask` include
//! this file too.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

/// A rule of Prometheus: a recording rule or an alert.
#[derive(Debug, Deserialize)]
pub(crate) struct Rule {
    pub(crate) record: Option<String>,
    pub(crate) alert: Option<String>,
    pub(crate) expr: String,
}

#[derive(Debug, Deserialize)]
struct RuleFile {
    groups: Vec<RuleGroup>,
}

#[derive(Debug, Deserialize)]
struct RuleGroup {
    rules: Vec<Rule>,
}

/// A dashboard as Grafana imports it.
#[derive(Debug)]
pub(crate) struct Dashboard {
    pub(crate) file: String,
    pub(crate) json: Value,
}

/// An expression and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Query {
    /// `itself.json: CPU`, `server.yaml: KubevitalsServerAbsent`.
    pub(crate) place: String,
    /// With the variables of Grafana replaced.
    pub(crate) expr: String,
    /// Whether it is an alert, which finds nothing while all is well.
    pub(crate) is_alert: bool,
}

impl Rule {
    /// The name of the series that it records, or of the alert.
    pub(crate) fn name(&self) -> &str {
        self.record.as_ref().or(self.alert.as_ref()).unwrap()
    }
}

impl Dashboard {
    /// The panels, without the headings of rows.
    pub(crate) fn panels(&self) -> impl Iterator<Item = &Value> {
        let panels = self.json["panels"].as_array().unwrap();
        panels.iter().filter(|panel| panel["type"] != "row")
    }

    /// The queries of the panels.
    pub(crate) fn queries(&self) -> impl Iterator<Item = Query> {
        self.panels().flat_map(|panel| {
            let targets = panel["targets"].as_array().unwrap();
            targets.iter().map(|target| Query {
                place: format!("{}: {}", self.file, panel["title"].as_str().unwrap()),
                expr: without_variables(target["expr"].as_str().unwrap()),
                is_alert: false,
            })
        })
    }
}

/// Returns the files of rules with their rules, sorted by name.
pub(crate) fn rules(root: &Path) -> Vec<(PathBuf, Vec<Rule>)> {
    let files = files(&root.join("deploy/monitoring/rules"), "yaml");
    let rules = files.into_iter().map(|file| {
        let text = std::fs::read_to_string(&file).unwrap();
        let parsed: RuleFile = serde_saphyr::from_str(&text).unwrap();
        let rules = parsed.groups.into_iter().flat_map(|group| group.rules);
        (file, rules.collect())
    });
    rules.collect()
}

/// Returns the dashboards, sorted by the names of their files.
pub(crate) fn dashboards(root: &Path) -> Vec<Dashboard> {
    dashboards_in(&root.join("deploy/monitoring/dashboards"))
}

/// Returns the dashboards in a folder.
pub(crate) fn dashboards_in(folder: &Path) -> Vec<Dashboard> {
    let files = files(folder, "json");
    let dashboards = files.into_iter().map(|file| Dashboard {
        json: serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap(),
        file: name(&file),
    });
    dashboards.collect()
}

/// Returns the queries of all rules and panels.
pub(crate) fn queries(root: &Path) -> Vec<Query> {
    let rules = rules(root);
    let of_rules = rules.iter().flat_map(|(file, rules)| {
        rules.iter().map(|rule| Query {
            place: format!("{}: {}", name(file), rule.name()),
            expr: rule.expr.clone(),
            is_alert: rule.alert.is_some(),
        })
    });
    let dashboards = dashboards(root);
    let of_panels = dashboards.iter().flat_map(Dashboard::queries);
    of_rules.chain(of_panels).collect()
}

/// Replaces the variables of Grafana by what they stand for when nothing is selected.
fn without_variables(expr: &str) -> String {
    let mut expr = expr.replace("$__rate_interval", "1m");
    for variable in ["node", "namespace", "workload", "job", "nodepool", "probe"] {
        expr = expr.replace(&format!("\"${variable}\""), "\".*\"");
    }
    assert!(!expr.contains('$'), "an unknown variable: {expr}");
    expr
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|found| found == extension));
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files
}

fn name(file: &Path) -> String {
    file.file_name().unwrap().to_str().unwrap().to_owned()
}
