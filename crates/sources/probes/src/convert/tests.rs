use proptest::prelude::*;

use super::*;
use crate::config::{Config, Source};

fn convert(text: &str) -> Conversion {
    convert_blackbox(text).unwrap_or_else(|error| panic!("{error}"))
}

fn warnings(conversion: &Conversion) -> String {
    let lines: Vec<_> = conversion
        .warnings
        .iter()
        .map(ToString::to_string)
        .collect();
    lines.join("\n")
}

const EXAMPLE: &str = r#"
modules:
  http_2xx:
    prober: http
    timeout: 5s
    http:
      valid_http_versions: ["HTTP/1.1", "HTTP/2.0"]
      valid_status_codes: []
      method: GET
      headers:
        Host: vhost.example.com
        X-Number: 12
      fail_if_header_not_matches:
        - header: Access-Control-Allow-Origin
          regexp: '(\*|example\.com)'
      tls_config:
        min_version: TLS10
        ca_file: /certs/$(x).crt
      enable_http3: false
  cel: {prober: http, http: {fail_if_body_json_matches_cel: "body.a == 1"}}
  proxied: {prober: http, http: {proxy_url: "http://127.0.0.1:3128", no_proxy: x}}
  quick: {prober: http, http: {enable_http2: false, enable_http3: true}}
  old: {prober: tcp, tcp: {tls: true, tls_config: {max_version: TLS11}}}
  ping: {prober: icmp, icmp: {ttl: 5}}
  socket: {prober: unix}
  chat: {prober: websocket}
  smtp:
    prober: tcp
    tcp:
      query_response:
        - expect: "^220 ([^ ]+) ESMTP (.+)$"
        - send: "EHLO prober\r"
        - starttls: true
        - expect: !!binary MjIw
    icmp: {ttl: 3}
  name:
    prober: dns
    dns:
      query_name: example.com
      validate_answer_rrs:
        fail_if_all_match_regexp: [".*127.0.0.1"]
  health: {prober: grpc}
  wrong: {prober: http, http: {methd: GET}}
other: 1
"#;

#[test]
fn what_is_the_same_is_copied_and_what_is_not_is_named() {
    let conversion = convert(EXAMPLE);
    insta::assert_snapshot!("text", conversion.text);
    insta::assert_snapshot!("warnings", warnings(&conversion));
}

#[test]
fn the_result_is_valid() {
    let conversion = convert(EXAMPLE);
    let config = Config::parse(&conversion.text, &Variables::default()).unwrap();
    for name in ["http_2xx", "smtp", "name", "health"] {
        assert!(config.module(name).is_some(), "{name}");
    }
    for name in ["cel", "proxied", "quick", "old", "ping", "wrong"] {
        assert!(config.module(name).is_none(), "{name}");
    }
}

/// blackbox_exporter fails when not all records match.
#[test]
fn the_reversed_rule_of_dns_keeps_its_meaning() {
    let conversion = convert(
        "modules: {a: {prober: dns, dns: {query_name: x, validate_answer_rrs: \
         {fail_if_all_match_regexp: [a], fail_if_not_matches_regexp: [b]}}}}",
    );
    let config = Config::parse(&conversion.text, &Variables::default()).unwrap();
    let crate::Prober::Dns(dns) = &config.module("a").unwrap().prober else {
        panic!("not dns");
    };
    let rules = &dns.validate_answer_rrs;
    assert!(rules.fail_if_all_match_regexp.is_empty());
    assert_eq!(rules.fail_if_not_all_match_regexp[0].as_str(), "a");
    assert_eq!(rules.fail_if_not_matches_regexp[0].as_str(), "b");
}

#[test]
fn a_conversion_converts_to_itself_without_warnings() {
    let once = convert(EXAMPLE);
    let twice = convert(&once.text.replace("$$(", "$("));
    assert_eq!(once.text, twice.text);
    let remaining = warnings(&twice);
    assert!(
        remaining.lines().all(|line| line.contains("`grpc`")),
        "{remaining}"
    );
}

#[test]
fn secrets_are_not_shown() {
    let conversion = convert(
        "modules: {a: {prober: http, http: {basic_auth: {username: x, password: hunter2}}}}",
    );
    assert!(conversion.text.contains("hunter2"));
    assert!(!format!("{conversion:?}").contains("hunter2"));
}

#[test]
fn only_a_mapping_can_be_converted() {
    assert!(convert_blackbox("[1]").is_err());
    assert!(convert_blackbox("a: [").is_err());
    assert!(convert("").warnings.is_empty());
}

/// Without lines, which a written document has others of.
fn strip(node: &Node) -> Node {
    let value = match &node.value {
        Value::List(items) => Value::List(items.iter().map(strip).collect()),
        Value::Map(entries) => {
            let strip_entry = |(key, node): &(String, Node)| (key.clone(), strip(node));
            Value::Map(entries.iter().map(strip_entry).collect())
        }
        other => other.clone(),
    };
    Node { line: 0, value }
}

fn tree_strategy() -> impl Strategy<Value = Node> {
    let node = |value| Node { line: 0, value };
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Integer),
        any::<f64>()
            .prop_filter("equal to itself", |f| !f.is_nan())
            .prop_map(Value::Float),
        ".{0,20}".prop_map(Value::Text),
        "(?s).{0,20}".prop_map(Value::Text),
        "[a-z0-9:#{}\\[\\]\\- ~.,&*!|>'\"%@`?\n\t]{0,12}".prop_map(Value::Text),
    ];
    leaf.prop_map(node).prop_recursive(4, 40, 6, move |inner| {
        let key = "[a-z \\-:#~0-9]{0,8}";
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6)
                .prop_map(move |items| node(Value::List(items))),
            prop::collection::btree_map(key, inner, 0..6)
                .prop_map(move |map| node(Value::Map(map.into_iter().collect()))),
        ]
    })
}

/// Text that is made of pieces of configurations.
fn config_like() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "modules:",
        "probes:",
        "\n",
        "  ",
        "- ",
        "a: ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "prober: http",
        "prober: dns",
        "http:",
        "dns:",
        "query_name: x",
        "timeout: 5s",
        "tls_config:",
        "min_version: TLS10",
        "fail_if_all_match_regexp: [a]",
        "validate_answer_rrs:",
        "name: p",
        "module: http_2xx",
        "targets: [a]",
        "interval: 1s",
        "'",
        "\"",
        "$(X)",
        "&a ",
        "*a",
        "0",
        "1e400",
        "null",
        "headers: {a: b}",
        "body_size_limit: 9999999999GB",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_written_tree_is_read_back_equal(node in tree_strategy()) {
        let text = write(&node);
        let read = tree::parse(&text);
        prop_assert!(read.is_ok(), "{:?} of {text:?}", read);
        prop_assert!(strip(&read.unwrap()) == strip(&node), "{}", text);
    }

    #[test]
    fn every_conversion_is_valid(text in config_like()) {
        if let Ok(conversion) = convert_blackbox(&text) {
            let parsed = Config::parse(&conversion.text, &Variables::default());
            prop_assert!(parsed.is_ok(), "{:?} of {}", parsed, conversion.text);
        }
    }

    #[test]
    fn arbitrary_configurations_never_panic(text in config_like(), other in "(?s).{0,100}") {
        let source = |text: &str| Source { name: None, text: text.to_owned() };
        let _ = Config::from_sources(&[source(&text), source(&other)], &Variables::default());
    }
}
