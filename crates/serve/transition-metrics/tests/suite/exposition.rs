//! The exposition after the recordings of a real cluster.

use kubevitals_telemetry::exposition::Format;
use kubevitals_transition_metrics::{FAMILIES, FamilyConfig, FamilyKind};

use crate::support::{Harness, recorded};

#[test]
fn the_recordings_of_a_real_cluster() {
    let harness = Harness::with(FamilyConfig::default());
    harness.record(&recorded());
    // Empty buckets are left out here, to keep what is looked at.
    let mut before = String::new();
    let text = harness.text();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let is_repeated = series.contains("_bucket{") && before == value;
            before = value.to_owned();
            !is_repeated || series.contains("+Inf")
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn every_registered_family_is_in_the_table() {
    let harness = Harness::with(FamilyConfig::default());
    harness.record(&recorded());
    let found = harness.registry.families().unwrap();
    let known: Vec<String> = FAMILIES
        .iter()
        .map(|family| format!("{} {}", family.kind.as_str(), family.name))
        .collect();
    for family in &found {
        assert!(known.contains(family), "{family}");
    }
    // What the recordings have nothing of.
    let missing: Vec<&String> = known.iter().filter(|name| !found.contains(name)).collect();
    insta::assert_debug_snapshot!(missing);
}

#[test]
fn names_and_help_texts_follow_the_conventions() {
    for family in FAMILIES {
        let name = family.name;
        let is_prefixed = ["kubevitals_pod_", "kubevitals_pods_"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        assert!(is_prefixed, "{name}");
        assert!(!family.help.ends_with('.') && !family.help.contains('\n'));
        match family.kind {
            FamilyKind::Counter => assert!(name.ends_with("_total"), "{name}"),
            FamilyKind::Histogram(bounds) => {
                assert!(name.ends_with("_duration_seconds"), "{name}");
                assert!(bounds.is_sorted_by(|one, two| one < two) && !bounds.is_empty());
            }
            FamilyKind::Gauge => assert!(!name.ends_with("_total")),
        }
    }
}

#[test]
fn formats_agree() {
    let harness = Harness::with(FamilyConfig {
        native_histograms: true,
        ..FamilyConfig::default()
    });
    harness.record(&recorded());
    let open_metrics = harness.registry.encode(Format::OpenMetrics).unwrap();
    let converted = Format::Prometheus.render(str::from_utf8(&open_metrics).unwrap());
    assert_eq!(String::from_utf8(converted).unwrap(), harness.text());
    assert!(
        !harness
            .registry
            .encode(Format::Protobuf)
            .unwrap()
            .is_empty()
    );
}
