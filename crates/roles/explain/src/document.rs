//! Reports as JSON: `docs/schemas/explain.schema.json` describes them.

use std::time::Duration;

use kubevitals_transitions::stats::compare::{image_changes, phase_changes};
use kubevitals_transitions::stats::threshold::Verdict;
use kubevitals_transitions::stats::{StartStats, Statistic};
use serde_json::{Value, json};

use crate::{DiffReport, DiffSide, ExplainedPod, GroupReport, Revision, StartReport};

/// The version of all documents: fields are added, but not changed or removed.
const API_VERSION: &str = "explain.kubevitals.io/v1alpha1";

/// The JSON schema of all documents.
pub const SCHEMA: &str = include_str!("../../../../docs/schemas/explain.schema.json");

/// The document of a report.
pub trait Document {
    fn document(&self) -> Value;
}

impl Document for StartReport {
    fn document(&self) -> Value {
        let (kind, namespace, name) = self.target.parts();
        let slowest = self.slowest.iter().map(slowest_pod).collect();
        let outliers = self.outliers.iter();
        let outliers = outliers
            .map(|(name, stats)| group(name, stats, None))
            .collect();
        let previous = self.previous.as_ref().map(|(before, stats)| {
            object([
                ("revision", Some(revision(before))),
                ("starts", Some(starts(stats))),
                ("phase_changes", Some(phases_changed(stats, &self.stats))),
                ("image_changes", Some(images_changed(stats, &self.stats))),
            ])
        });
        object([
            ("apiVersion", Some(API_VERSION.into())),
            ("kind", Some("StartReport".into())),
            (
                "target",
                Some(object([
                    ("kind", Some(kind.into())),
                    ("namespace", namespace.map(Into::into)),
                    ("name", Some(name.into())),
                ])),
            ),
            ("revision", self.revision.as_ref().map(revision)),
            ("starts", Some(starts(&self.stats))),
            ("outliers_by", Some(self.outliers_by.as_str().into())),
            ("outliers", Some(Value::Array(outliers))),
            ("slowest", Some(Value::Array(slowest))),
            ("previous", previous),
        ])
    }
}

impl Document for GroupReport {
    fn document(&self) -> Value {
        let groups = self.groups.iter();
        let groups = groups
            .map(|found| group(&found.name, &found.stats, found.slowest.as_ref()))
            .collect();
        object([
            ("apiVersion", Some(API_VERSION.into())),
            ("kind", Some("StartGroups".into())),
            ("by", Some(self.by.as_str().into())),
            ("pods", Some(self.pods.into())),
            ("total_groups", Some(self.total.into())),
            ("groups", Some(Value::Array(groups))),
        ])
    }
}

impl Document for DiffReport {
    fn document(&self) -> Value {
        let side = |side: &DiffSide| {
            object([
                ("label", Some((*side.label).into())),
                ("starts", Some(starts(&side.stats))),
            ])
        };
        let (before, after) = (&self.before.stats, &self.after.stats);
        let checks = self.verdicts.iter().map(check).collect();
        object([
            ("apiVersion", Some(API_VERSION.into())),
            ("kind", Some("StartDiff".into())),
            ("before", Some(side(&self.before))),
            ("after", Some(side(&self.after))),
            ("phase_changes", Some(phases_changed(before, after))),
            ("image_changes", Some(images_changed(before, after))),
            ("min_pods", Some(self.min_pods.into())),
            ("has_enough_pods", Some(self.has_enough_pods().into())),
            ("checks", Some(Value::Array(checks))),
        ])
    }
}

fn starts(stats: &StartStats) -> Value {
    let known = |statistic| stats.statistic(statistic).map(seconds);
    let total = stats.total().as_secs_f64();
    let phases = stats.phases().into_iter().map(|phase| {
        let share = if total > 0.0 {
            phase.total.as_secs_f64() / total
        } else {
            0.0
        };
        object([
            ("phase", Some(phase.phase.as_str().into())),
            ("container", phase.container.as_deref().map(Into::into)),
            ("pods", Some(phase.pods.into())),
            ("mean_seconds", Some(seconds(stats.mean(phase)))),
            ("share", Some(rounded(share))),
        ])
    });
    let causes = stats.causes().into_iter().map(|cause| {
        object([
            ("phase", cause.phase.map(|phase| phase.as_str().into())),
            ("container", cause.container.as_deref().map(Into::into)),
            ("blocker", cause.blocker.map(|kind| kind.as_str().into())),
            ("pods", Some(cause.pods.into())),
            ("example_pod", Some((*cause.example).into())),
            ("example_seconds", cause.example_took.map(seconds)),
            ("example", Some((*cause.example_cause).into())),
        ])
    });
    object([
        ("pods", Some(stats.pods.into())),
        ("ready", Some(stats.ready.into())),
        ("starting", Some(stats.starting.into())),
        ("failed", Some(stats.failed.into())),
        ("completed", Some(stats.completed.into())),
        ("unknown", Some(stats.unknown.into())),
        ("explained", Some(stats.explained.into())),
        ("p50_seconds", known(Statistic::P50)),
        ("p90_seconds", known(Statistic::P90)),
        ("p95_seconds", known(Statistic::P95)),
        ("p99_seconds", known(Statistic::P99)),
        ("max_seconds", known(Statistic::Max)),
        ("longest_wait_seconds", stats.longest_wait().map(seconds)),
        ("phases", Some(phases.collect())),
        ("causes", Some(causes.collect())),
    ])
}

fn group(name: &str, stats: &StartStats, slowest: Option<&ExplainedPod>) -> Value {
    let known = |statistic| stats.statistic(statistic).map(seconds);
    object([
        ("name", Some(name.into())),
        ("pods", Some(stats.pods.into())),
        ("ready", Some(stats.ready.into())),
        ("starting", Some(stats.starting.into())),
        ("failed", Some(stats.failed.into())),
        ("p50_seconds", known(Statistic::P50)),
        ("p95_seconds", known(Statistic::P95)),
        ("max_seconds", known(Statistic::Max)),
        ("longest_wait_seconds", stats.longest_wait().map(seconds)),
        ("slowest", slowest.map(slowest_pod)),
    ])
}

fn slowest_pod(pod: &ExplainedPod) -> Value {
    let record = &pod.record;
    let identity = &record.pod.summary.identity;
    let longest = record.longest();
    object([
        ("namespace", Some((*identity.namespace).into())),
        ("name", Some((*identity.name).into())),
        ("ready", Some(record.is_complete().into())),
        ("seconds", record.total().map(seconds)),
        (
            "longest_phase",
            longest
                .as_ref()
                .map(|longest| longest.phase.as_str().into()),
        ),
        ("node", record.pod.summary.node.as_deref().map(Into::into)),
        ("pool", pod.pool.as_deref().map(Into::into)),
        ("cause", Some(record.cause_in(pod.pool.as_deref()).into())),
    ])
}

fn revision(revision: &Revision) -> Value {
    object([
        ("number", revision.number.map(Into::into)),
        ("hash", Some((*revision.hash).into())),
    ])
}

fn phases_changed(before: &StartStats, after: &StartStats) -> Value {
    let changes = phase_changes(before, after).into_iter().map(|change| {
        object([
            ("phase", Some(change.phase.as_str().into())),
            ("container", change.container.as_deref().map(Into::into)),
            ("before_mean_seconds", Some(seconds(change.before))),
            ("after_mean_seconds", Some(seconds(change.after))),
        ])
    });
    changes.collect()
}

fn images_changed(before: &StartStats, after: &StartStats) -> Value {
    let changes = image_changes(before, after).into_iter().map(|change| {
        object([
            ("container", Some(change.container.into())),
            ("before", change.before.map(Into::into)),
            ("after", change.after.map(Into::into)),
        ])
    });
    changes.collect()
}

fn check(verdict: &Verdict) -> Value {
    object([
        ("threshold", Some(verdict.threshold.to_string().into())),
        ("outcome", Some(verdict.outcome.as_str().into())),
        ("before_seconds", verdict.before.map(seconds)),
        ("after_seconds", verdict.after.map(seconds)),
        ("allowed_seconds", verdict.allowed.map(seconds)),
    ])
}

/// An object without the members that are unknown.
fn object<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    let known = members.into_iter();
    let known = known.filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(known.collect())
}

/// Seconds, to the millisecond.
fn seconds(duration: Duration) -> Value {
    rounded(duration.as_secs_f64())
}

fn rounded(value: f64) -> Value {
    json!((value * 1_000.0).round() / 1_000.0)
}
