//! Bodies of a real kubelet.

use kubevitals_promtext::{Document, Item, MetricType, parse};

const BODIES: [&[u8]; 2] = [
    include_bytes!("../fixtures/kubernetes-1.37/metrics-resource.txt"),
    include_bytes!("../fixtures/kubernetes-1.37/metrics-resource-2.txt"),
];

#[test]
fn a_kubelet_body_is_read_without_errors_and_written_back_unchanged() {
    for body in BODIES {
        let mut document = Document::parse(body);
        assert_eq!(document.errors(), []);
        let mut out = Vec::new();
        document.encode(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(body));
    }
}

#[test]
fn a_kubelet_body_in_reverse_is_sorted_back() {
    for body in BODIES {
        let text = str::from_utf8(body).unwrap();
        // Metadata first: a sample line must not precede the type of its family.
        let mut lines: Vec<_> = text.lines().rev().collect();
        lines.sort_by_key(|line| !line.starts_with('#'));
        let reversed = lines.join("\n");
        let mut out = Vec::new();
        Document::parse(reversed.as_bytes()).encode(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), text);
    }
}

#[test]
fn a_kubelet_body_has_the_expected_values() {
    let mut samples = 0;
    let mut types = 0;
    let summary = parse(BODIES[0], |item| match item {
        Item::Sample(sample) => {
            samples += 1;
            let [container, namespace, pod] = sample.pick(["container", "namespace", "pod"]);
            if sample.name == "container_cpu_usage_seconds_total" && sample.line == 3 {
                let labels = [container, namespace, pod].map(|label| label.unwrap().raw);
                assert_eq!(labels, ["app", "default", "web-fbb586dc9-2phdx"]);
                assert_eq!(sample.timestamp_ms, Some(1_794_773_499_456 - 16_195));
                assert!((sample.value - 3.248_510_285).abs() < f64::EPSILON);
            }
            assert_eq!(
                sample.name.as_str().starts_with("container_"),
                container.is_some()
            );
            assert!(sample.terminated);
        }
        Item::Type(kind) => {
            types += 1;
            let total = kind.name.as_str().ends_with("_total");
            assert_eq!(total, kind.kind == MetricType::Counter);
        }
        Item::Help(help) => assert!(help.text().starts_with('[')),
        Item::Comment(_) | Item::Error(_) => panic!("unexpected {item:?}"),
    });
    assert_eq!(summary.samples, samples);
    assert_eq!(summary.lines, samples + 2 * types);
    assert_eq!(summary.bytes, BODIES[0].len());
    assert!(summary.terminated);
}
