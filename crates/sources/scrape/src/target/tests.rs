use kubevitals_model::LabelSelector;
use kubevitals_watch::{Decoder, decode_object};

use super::*;
use crate::config::ANNOTATIONS;
use crate::{Credentials, NodeFilter};

const SECOND: Duration = Duration::from_secs(1);

fn config() -> ScrapeConfig {
    kubevitals_tls::install_crypto_provider();
    let tls = kubevitals_tls::ClientTls::dangerous_without_verification(
        &kubevitals_tls::ClientOptions::default(),
    );
    let transport = Transport::Tls(tls.unwrap());
    ScrapeConfig::new(transport, Credentials::None)
}

fn node(metadata: &serde_json::Value, taint: &str) -> Node {
    let json = serde_json::json!({
        "metadata": metadata,
        "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]},
        "status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 10_250}}},
    });
    let decoder = Decoder::default().keep_annotations(ANNOTATIONS);
    decode_object(json.to_string().as_bytes(), &decoder).unwrap()
}

fn annotated(name: &str, value: &str) -> Node {
    let metadata = serde_json::json!({"name": "n1", "uid": "1", "annotations": {name: value}});
    node(&metadata, "a")
}

fn target(name: &str, value: &str) -> Target {
    Target::new(&annotated(name, value), &config())
}

#[test]
fn a_path_cannot_inject_a_request() {
    assert!(is_path("/metrics/nodes/a/metrics/resource?x=y"));
    for bad in ["", "metrics", "/a b", "/a\r\nHost: b", "/ä", "/a#b"] {
        assert!(!is_path(bad), "{bad:?}");
    }
    assert!(!is_path(&format!("/{}", "a".repeat(2_000))));
}

#[test]
fn annotations_set_port_scheme_resolution_and_path() {
    assert_eq!(target(PORT, "10255").port, 10_255);
    assert_eq!(target(RESOLUTION, "1s").resolution, SECOND);
    assert_eq!(target(RESOLUTION, "20s").resolution, 20 * SECOND);
    assert_eq!(&*target(RESOURCE_METRICS_PATH, "/x").path, "/x");
    assert!(target(SCHEME, "https").is_tls);
    let allowed = ScrapeConfig {
        allow_http: true,
        ..config()
    };
    assert!(!Target::new(&annotated(SCHEME, "http"), &allowed).is_tls);
    for (name, value) in [
        (PORT, "1"),
        (SCHEME, "https"),
        (SCRAPE, "true"),
        (SCRAPE, "false"),
        ("kubevitals.io/other", "x"),
    ] {
        assert_eq!(target(name, value).invalid, None, "{name}={value}");
    }
}

#[test]
fn an_invalid_annotation_names_itself_and_what_is_expected() {
    let text = |name, value| target(name, value).invalid.unwrap().to_string();
    insta::assert_snapshot!(text(PORT, "99999"), @r#"annotation kubevitals.io/port of the node is "99999", expected a port from 1 to 65535"#);
    insta::assert_snapshot!(text(SCHEME, "ftp"), @r#"annotation kubevitals.io/scheme of the node is "ftp", expected https (http needs --kubelet-allow-http)"#);
    insta::assert_snapshot!(text(SCHEME, "http"), @r#"annotation kubevitals.io/scheme of the node is "http", expected https (http needs --kubelet-allow-http)"#);
    insta::assert_snapshot!(text(RESOLUTION, "1h"), @r#"annotation kubevitals.io/resolution of the node is "1h", expected a duration from 1s to 22s (half of --staleness), such as 30s"#);
    insta::assert_snapshot!(text(SCRAPE, "no"), @r#"annotation kubevitals.io/scrape of the node is "no", expected true or false"#);
    insta::assert_snapshot!(text(RESOURCE_METRICS_PATH, "a b"), @r#"annotation metrics.k8s.io/resource-metrics-path of the node is "a b", expected a path, such as /metrics/resource"#);
    let plain = ScrapeConfig::new(Transport::InsecureHttp, Credentials::None);
    let https = Target::new(&annotated(SCHEME, "https"), &plain).invalid;
    insta::assert_snapshot!(https.unwrap(), @r#"annotation kubevitals.io/scheme of the node is "https", expected http (https does not go with --deprecated-kubelet-completely-insecure)"#);
}

#[test]
fn odd_values_are_invalid_and_their_messages_are_bounded() {
    let long = "9".repeat(100_000);
    let odd = [
        "", " ", "0", "-1", "+80", "80 ", "0x50", "65536", "8e1", "\u{0}", "💥", "True", "FALSE",
        "1", "yes", "HTTPS", "https://", "http\r\n", "1.5", "-5s", "NaN", "1ns", "999ms",
        "9999999h", &long,
    ];
    for name in [PORT, SCHEME, RESOLUTION, SCRAPE] {
        for value in odd {
            let invalid = target(name, value).invalid;
            if (name, value) == (PORT, "1") {
                assert_eq!(invalid, None);
                continue;
            }
            let text = invalid.map(|invalid| invalid.to_string());
            let text = text.unwrap_or_else(|| panic!("{name}={value:?} is valid"));
            assert!(text.len() < 500, "{text}");
            assert!(!text.chars().any(char::is_control), "{text:?}");
        }
    }
}

#[test]
fn a_changed_annotation_is_another_endpoint() {
    let (valid, invalid) = (target(PORT, "10250"), target(PORT, "x"));
    assert!(!valid.has_same_endpoint(&invalid));
    assert!(valid.has_same_endpoint(&target(RESOLUTION, "5s")));
}

#[test]
fn nodes_are_excluded_by_annotation_label_taint_or_selector() {
    let filter = NodeFilter {
        taints: vec!["virtual-kubelet.io/provider".to_owned()],
        selector: LabelSelector::parse("eks.amazonaws.com/compute-type=fargate").ok(),
    };
    let metadata = |annotation: Option<&str>, labels: serde_json::Value| {
        let annotations = annotation.map(|value| serde_json::json!({SCRAPE: value}));
        serde_json::json!({"name": "n1", "uid": "1", "annotations": annotations, "labels": labels})
    };
    let none = || serde_json::json!({});
    let fargate = || serde_json::json!({"eks.amazonaws.com/compute-type": "fargate"});
    let virtual_taint = "virtual-kubelet.io/provider";
    let excluded = |annotation, labels, taint| {
        let reason = filter.exclusion(&node(&metadata(annotation, labels), taint));
        reason.map(|reason| reason.to_string()).unwrap_or_default()
    };
    let label = |value| serde_json::json!({SCRAPE: value});
    insta::assert_snapshot!(excluded(Some("false"), none(), "a"), @r#"annotation kubevitals.io/scrape is "false""#);
    insta::assert_snapshot!(excluded(None, label("false"), "a"), @r#"label kubevitals.io/scrape is "false""#);
    insta::assert_snapshot!(excluded(None, none(), virtual_taint), @"it has the taint virtual-kubelet.io/provider (--exclude-node-taints)");
    insta::assert_snapshot!(excluded(None, fargate(), "a"), @"its labels match --exclude-node-selector");
    assert_eq!(excluded(None, none(), "a"), "");
    // `true` takes precedence, and the annotation over the label.
    assert_eq!(excluded(Some("true"), fargate(), virtual_taint), "");
    assert_eq!(excluded(Some("true"), label("false"), "a"), "");
    assert_eq!(excluded(None, label("true"), virtual_taint), "");
    // Another value is an error of the node, which is scraped for it to show.
    assert_eq!(excluded(Some("no"), none(), "a"), "");
    // Nothing is excluded by default.
    let known = node(&metadata(None, fargate()), virtual_taint);
    assert_eq!(NodeFilter::default().exclusion(&known), None);
}
