//! The configuration of probes, and its conversion from blackbox_exporter.

use std::time::Duration;

use kubevitals_probes::{Config, MAX_JOBS, NoTargets, Variables, convert_blackbox};

/// Tokens of configurations.
pub(crate) const CONFIG_TOKENS: &[&[u8]] = &[
    b"modules",
    b"probes",
    b"builtin_probes",
    b"endpoint",
    b"allow_targets",
    b"prober: http",
    b"prober: tcp",
    b"prober: udp",
    b"prober: tls",
    b"prober: grpc",
    b"prober: exec",
    b"dns: {query_name: x}",
    b"tls_config: {",
    b"min_version: TLS10",
    b"fail_if_all_match_regexp: [a]",
    b"fail_if_body_matches_regexp: ['(']",
    b"query_response: [{expect: a, send: '${1}'}]",
    b"http_headers: {a: {secrets: [b]}}",
    b"body_size_limit: 9999999999GB",
    b"timeout: 5s",
    b"interval: 1ms",
    b"threshold: 0",
    b"targets: [a]",
    b"name: ",
    b"$(HOST_IP)",
    b"$$(",
    b": ",
    b"\n",
    b"  ",
    b"- ",
    b"[",
    b"]",
    b"{",
    b"}",
    b"&a ",
    b"*a",
    b"<<: ",
    b"!!binary ",
    b"\"",
    b"'",
    b"null",
    b"1e400",
    b"-1",
];

/// Reads any configuration. One that is valid keeps the limits.
///
/// # Panics
///
/// If a property is violated.
pub fn probes_config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut variables = Variables::default();
    variables.set(Variables::HOST_IP, "192.0.2.1");
    match Config::parse(text, &variables) {
        Ok(config) => {
            let jobs = config.jobs(&NoTargets);
            assert!(jobs.len() <= MAX_JOBS);
            for job in jobs {
                let probe = &job.probe;
                assert!(probe.interval >= Duration::from_secs(1));
                assert!(probe.jitter <= probe.interval && probe.timeout <= probe.interval);
                assert!(!probe.timeout.is_zero());
                assert!(probe.threshold.failures >= 1 && probe.threshold.successes >= 1);
                assert!(!probe.name.is_empty() && !job.target.as_str().is_empty());
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Converts any configuration of blackbox_exporter. The result is valid, and converts to itself.
///
/// # Panics
///
/// If a property is violated.
pub fn blackbox_config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(conversion) = convert_blackbox(text) else {
        return;
    };
    let parsed = Config::parse(&conversion.text, &Variables::default());
    let problem = parsed.err().map(|error| error.to_string());
    assert_eq!(problem, None, "in {}", conversion.text);
    // What looks like a variable is escaped once more each time.
    if !conversion.text.contains("$(") {
        let again = convert_blackbox(&conversion.text).map(|again| again.text);
        assert_eq!(again.ok().as_ref(), Some(&conversion.text));
    }
}
