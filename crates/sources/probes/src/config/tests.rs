use std::time::Duration;

use super::*;
use crate::probers::Prober;
use crate::settings::{IpProtocol, TlsVersion};

fn variables() -> Variables {
    let mut variables = Variables::default();
    variables.set("HOST_IP", "10.0.0.1");
    variables
}

fn parse(text: &str) -> Config {
    Config::parse(text, &variables()).unwrap_or_else(|error| panic!("{error}"))
}

fn problems(text: &str) -> Vec<String> {
    match Config::parse(text, &variables()) {
        Ok(_) => Vec::new(),
        Err(ConfigError::Invalid(problems)) => problems.iter().map(ToString::to_string).collect(),
        Err(other) => panic!("{other}"),
    }
}

fn http(config: &Config, name: &str) -> crate::HttpSettings {
    match &config.module(name).unwrap().prober {
        Prober::Http(settings) => (**settings).clone(),
        other => panic!("{}", other.name()),
    }
}

#[test]
fn every_key_of_http_is_read() {
    let config = parse(
        r#"
modules:
  web:
    prober: http
    timeout: 5s
    http:
      valid_status_codes: [200, 301]
      valid_http_versions: ["HTTP/1.1", "HTTP/2.0"]
      method: POST
      headers: {Host: example.com, Authorization: Bearer hunter2}
      http_headers:
        X-Key: {values: [a], secrets: [hunter2], files: [/run/key]}
      body: '{"password": "hunter2"}'
      body_size_limit: 10MB
      compression: gzip
      follow_redirects: true
      no_follow_redirects: true
      fail_if_ssl: false
      fail_if_not_ssl: true
      fail_if_body_matches_regexp: [error]
      fail_if_body_not_matches_regexp: [ok, fine]
      fail_if_header_matches:
        - {header: Set-Cookie, regexp: ".*", allow_missing: true}
      fail_if_header_not_matches:
        - {header: Content-Type, regexp: json}
      tls_config:
        insecure_skip_verify: true
        server_name: other.example
        min_version: TLS12
        max_version: TLS13
      basic_auth: {username: me, password: hunter2}
      enable_http2: false
      preferred_ip_protocol: ip4
      ip_protocol_fallback: false
      source_ip_address: 127.0.0.1
      resolver: 10.96.0.10
"#,
    );
    let settings = http(&config, "web");
    assert_eq!(
        config.module("web").unwrap().timeout,
        Duration::from_secs(5)
    );
    assert_eq!(settings.valid_status_codes, [200, 301]);
    assert_eq!(settings.valid_http_versions.len(), 2);
    assert_eq!(settings.method, ::http::Method::POST);
    assert_eq!(settings.headers.len(), 5);
    assert_eq!(
        settings.body.as_deref(),
        Some(b"{\"password\": \"hunter2\"}".as_slice())
    );
    assert_eq!(settings.body_size_limit, 10 << 20);
    assert_eq!(settings.compression, Some(crate::Compression::Gzip));
    assert!(!settings.follow_redirects, "the old key wins");
    assert!(settings.fail_if_not_ssl && !settings.fail_if_ssl);
    assert_eq!(settings.fail_if_body_matches_regexp.len(), 1);
    assert_eq!(settings.fail_if_body_not_matches_regexp.len(), 2);
    assert!(settings.fail_if_header_matches[0].allow_missing);
    assert!(
        settings.fail_if_header_not_matches[0]
            .regexp
            .is_match(b"application/json")
    );
    let tls = settings.tls_config.settings();
    assert!(tls.insecure_skip_verify);
    assert_eq!(tls.server_name.as_deref(), Some("other.example"));
    assert_eq!(tls.max_version, Some(TlsVersion::Tls13));
    assert!(settings.basic_auth.is_some() && !settings.enable_http2);
    assert_eq!(settings.network.preferred_ip_protocol, IpProtocol::Ip4);
    assert!(!settings.network.ip_protocol_fallback);
    assert_eq!(
        settings.network.resolver,
        Some("10.96.0.10:53".parse().unwrap())
    );
    let shown = format!("{config:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn every_key_of_the_other_probers_is_read() {
    let config = parse(
        r#"
modules:
  irc:
    prober: tcp
    tcp:
      query_response:
        - send: "NICK prober"
        - expect: "PING :([^ ]+)"
          send: "PONG ${1}"
          labels: [{name: server, value: "${1}"}]
        - expect_bytes: "ok"
        - starttls: true
      tls: true
      tls_config: {ca_file: /ca.crt}
  echo:
    prober: udp
    udp: {payload: ping, expect: pong, packets: 10, packet_interval: 5ms, answer_timeout: 2s, max_loss: 0.2}
  cert: {prober: tls, tls: {minimum_validity: 48h}}
  name:
    prober: dns
    dns:
      query_name: example.com
      query_type: AAAA
      query_class: IN
      recursion_desired: false
      transport_protocol: tcp
      dns_over_tls: true
      valid_rcodes: [NOERROR, NXDOMAIN]
      validate_answer_rrs:
        fail_if_matches_regexp: [a]
        fail_if_all_match_regexp: [b]
        fail_if_not_matches_regexp: [c]
        fail_if_none_matches_regexp: [d]
      validate_authority_rrs: {fail_if_matches_regexp: [e]}
      validate_additional_rrs: {fail_if_matches_regexp: [f]}
  health:
    prober: grpc
    grpc: {service: a.B, tls: true, metadata: {Key: [v1, v2]}}
  command:
    prober: exec
    exec: {command: [/bin/true], environment: {A: b}, valid_exit_codes: [0, 3]}
"#,
    );
    let prober = |name: &str| config.module(name).unwrap().prober.clone();
    let Prober::Tcp(tcp) = prober("irc") else {
        panic!()
    };
    assert_eq!(tcp.query_response.len(), 4);
    assert_eq!(tcp.query_response[1].labels.len(), 1);
    assert!(tcp.tls && tcp.query_response[3].starttls);
    let Prober::Udp(udp) = prober("echo") else {
        panic!()
    };
    assert_eq!((udp.packets, udp.answer_timeout.as_secs()), (10, 2));
    let Prober::Tls(tls) = prober("cert") else {
        panic!()
    };
    assert_eq!(tls.minimum_validity, Duration::from_hours(48));
    let Prober::Dns(dns) = prober("name") else {
        panic!()
    };
    assert_eq!(dns.valid_rcodes, [0, 3]);
    assert!(dns.tcp && dns.dns_over_tls && !dns.recursion_desired);
    assert_eq!(dns.validate_answer_rrs.fail_if_all_match_regexp.len(), 1);
    let Prober::Grpc(grpc) = prober("health") else {
        panic!()
    };
    assert_eq!(grpc.metadata.len(), 2);
    assert!(grpc.network.ip_protocol_fallback);
    let Prober::Exec(exec) = prober("command") else {
        panic!()
    };
    assert_eq!(exec.valid_exit_codes, [0, 3]);
}

#[test]
fn anchors_and_merge_keys_are_those_of_yaml() {
    let config = parse(
        "
modules:
  base: &base {prober: http, timeout: 5s, http: &http {method: HEAD, fail_if_ssl: true}}
  other: {<<: *base, http: {<<: *http, method: GET}}
",
    );
    let other = http(&config, "other");
    assert!(other.fail_if_ssl);
    assert_eq!(other.method, ::http::Method::GET);
    assert_eq!(
        config.module("other").unwrap().timeout,
        Duration::from_secs(5)
    );
}

#[test]
fn a_probe_has_the_defaults_that_the_documentation_names() {
    let config = parse("probes: [{name: web, module: http_2xx, targets: [a.example]}]");
    let info = config.probes().next().unwrap();
    assert_eq!(info.interval, Duration::from_secs(30));
    assert_eq!(info.jitter, Duration::from_secs(3));
    assert_eq!(info.timeout, Duration::from_secs(10));
    assert_eq!((info.threshold.failures, info.threshold.successes), (3, 1));
    assert_eq!((&*info.module, info.kind), ("http_2xx", "http"));
}

#[test]
fn a_probe_has_its_own_settings() {
    let config = parse(
        "
modules: {slow: {prober: tcp, timeout: 4s}}
probes:
  - name: ports
    module: slow
    targets: ['$(HOST_IP):22', '[::1]:80']
    interval: 1m
    jitter: 0s
    timeout: 5s
    threshold: {failures: 5, successes: 2}
    labels: {team: a, zone: b}
  - name: inline
    module: {prober: http, http: {method: HEAD}}
    targets: [a]
    threshold: 1
",
    );
    let probes: Vec<_> = config.probes().collect();
    assert_eq!(
        probes[0].timeout,
        Duration::from_secs(4),
        "the module is a limit"
    );
    assert_eq!(
        (probes[0].threshold.failures, probes[0].threshold.successes),
        (5, 2)
    );
    assert_eq!(probes[0].labels.len(), 2);
    assert_eq!(
        (&*probes[1].module, probes[1].threshold.failures),
        ("inline", 1)
    );
    let jobs = config.jobs(&NoTargets);
    let targets: Vec<_> = jobs.iter().map(|job| job.target.as_str()).collect();
    assert_eq!(targets, ["10.0.0.1:22", "[::1]:80", "a"]);
}

#[test]
fn discovered_targets_have_labels_of_their_own() {
    struct Nodes;
    impl TargetSource for Nodes {
        fn targets(&self, name: &str) -> Option<Vec<DiscoveredTarget>> {
            let of = |target: &str| DiscoveredTarget {
                target: target.to_owned(),
                labels: vec![("node".into(), target.into()), ("team".into(), "x".into())],
            };
            (name == "nodes").then(|| vec![of("a:1"), of("not a target"), of("b:1")])
        }
    }
    let config =
        parse("probes: [{name: n, module: tcp_connect, targets_from: nodes, labels: {team: a}}]");
    let (jobs, left_out) = config.jobs_and_left_out(&Nodes);
    assert_eq!((jobs.len(), left_out), (2, 1));
    let labels: Vec<_> = jobs[1]
        .probe
        .labels
        .iter()
        .map(|(n, v)| format!("{n}={v}"))
        .collect();
    assert_eq!(labels, ["node=b:1", "team=a"]);
}

#[test]
fn problems_name_the_path_and_what_to_do() {
    let found = problems(
        "
modules:
  a: {prober: htp}
  b: {prober: icmp, icmp: {ttl: 5}}
  c: {prober: http, http: {valid_status_code: [200], fail_if_body_matches_regexp: ['(']}}
  d: {prober: http, http: {tls_config: {min_version: TLS10}, enable_http3: true}}
  e: {timeout: 1d}
  f: {prober: dns}
probes:
  - {name: x, module: http_2x, targets: [a]}
  - {name: y, module: http_2xx, targets: ['$(NOPE)'], interval: 1ms, labels: {probe: z}}
  - {module: http_2xx}
other: 1
",
    );
    insta::assert_snapshot!(found.join("\n"));
}

#[test]
fn several_files_are_one_configuration() {
    let source = |name: &str, text: &str| Source {
        name: Some(name.to_owned()),
        text: text.to_owned(),
    };
    let probes = source("a.yaml", "probes: [{name: p, module: m, targets: [x]}]");
    let modules = source("b.yaml", "modules: {m: {prober: http}}");
    let both = [probes.clone(), modules.clone()];
    assert!(Config::from_sources(&both, &Variables::default()).is_ok());
    let twice = [
        modules.clone(),
        probes.clone(),
        probes,
        source("c.yaml", &modules.text),
    ];
    let error = Config::from_sources(&twice, &Variables::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a.yaml:1: probes[0].name: another probe has this name; rename one of them\n\
         c.yaml:1: modules.m: a module in another file has this name; rename one of them"
    );
}

#[test]
fn a_module_of_the_user_replaces_a_built_in_one() {
    let config = parse("modules: {http_2xx: {prober: http, http: {method: HEAD}}}");
    assert_eq!(http(&config, "http_2xx").method, ::http::Method::HEAD);
}

#[test]
fn built_in_probes_are_added_by_name() {
    let config = parse("builtin_probes: [http_get, fluentbit, kubelet]");
    let names: Vec<_> = config.probes().map(|info| info.name.to_string()).collect();
    assert_eq!(names, ["http_get", "fluentbit"]);
    assert_eq!(
        config.unavailable(),
        [Unavailable {
            probe: "kubelet",
            variable: "TOKEN_FILE".to_owned()
        }]
    );
    assert_eq!(problems("builtin_probes: [nope]").len(), 1);
}

#[test]
fn counts_are_limited() {
    let targets: Vec<_> = (0..=MAX_TARGETS).map(|n| format!("a:{}", n + 1)).collect();
    let text = format!(
        "probes: [{{name: x, module: tcp_connect, targets: [{}]}}]",
        targets
            .iter()
            .map(|t| format!("'{t}'"))
            .collect::<Vec<_>>()
            .join(", ")
    );
    assert!(problems(&text)[0].contains("more than 1000 targets"));
    let probes: Vec<_> = (0..=MAX_PROBES)
        .map(|n| format!("{{name: p{n}, module: tcp_connect, targets: ['a:1']}}"))
        .collect();
    let text = format!("probes: [{}]", probes.join(", "));
    assert!(problems(&text)[0].contains("more than 500 probes"));
    let labels: Vec<_> = (0..20).map(|n| format!("l{n}: v")).collect();
    let text = format!(
        "probes: [{{name: x, module: tcp_connect, targets: ['a:1'], labels: {{{}}}}}]",
        labels.join(", ")
    );
    assert!(problems(&text)[0].contains("more than 16 labels"));
    let modules: Vec<_> = (0..100).map(|n| format!("m{n}: {{x: 1}}")).collect();
    let error = Config::parse(
        &format!("modules: {{{}}}", modules.join(", ")),
        &variables(),
    );
    assert!(error.unwrap_err().to_string().ends_with("and 180 more"));
}
