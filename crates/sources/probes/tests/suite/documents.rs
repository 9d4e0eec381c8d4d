//! `docs/probes.md` says what is true.

use std::collections::BTreeSet;
use std::path::Path;

use kubevitals_probes::{BUILTIN_PROBES, Config, Variables};

fn document() -> String {
    // Read at run time: clones may share a target folder, and with it this binary.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    std::fs::read_to_string(Path::new(&manifest).join("../../../docs/probes.md")).unwrap()
}

/// The words in backticks.
fn code(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The known keys, as the problem about an unknown one lists them.
fn known_keys(text: &str) -> BTreeSet<String> {
    let error = Config::parse(text, &Variables::default())
        .unwrap_err()
        .to_string();
    let list = error
        .lines()
        .find_map(|line| line.split_once("use one of: "));
    let (_, list) = list.expect("a list of the known keys");
    list.split(", ").map(str::to_owned).collect()
}

#[test]
fn every_example_is_valid() {
    let text = document();
    let examples = text.split("```yaml\n").skip(1);
    let examples: Vec<_> = examples
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(examples.len() >= 3);
    for example in examples {
        if let Err(error) = Config::parse(example, &Variables::default()) {
            panic!("{error} in\n{example}");
        }
    }
}

#[test]
fn the_table_of_modules_names_every_key() {
    const SHARED: [&str; 4] = [
        "preferred_ip_protocol",
        "ip_protocol_fallback",
        "source_ip_address",
        "resolver",
    ];
    // An old name, and what is refused.
    const OTHERS: [&str; 10] = [
        "no_follow_redirects",
        "fail_if_body_json_matches_cel",
        "fail_if_body_json_not_matches_cel",
        "enable_http3",
        "oauth2",
        "proxy_url",
        "no_proxy",
        "proxy_from_environment",
        "proxy_connect_header",
        "skip_resolve_phase_with_proxy",
    ];
    let text = document();
    for prober in ["http", "tcp", "dns", "grpc", "udp", "tls", "exec"] {
        let row = text
            .lines()
            .find(|line| line.starts_with(&format!("| `{prober}` | `")));
        let (_, keys) = row
            .unwrap()
            .trim_start_matches("| `")
            .split_once('|')
            .unwrap();
        // Those of `query_response` are in parentheses.
        let keys: String = keys.split(['(', ')']).step_by(2).collect();
        let mut documented: BTreeSet<String> =
            code(&keys).iter().map(|key| (*key).to_owned()).collect();
        let mut known = known_keys(&format!(
            "modules: {{m: {{prober: {prober}, {prober}: {{unknown_key_of_a_test: 1}}}}}}"
        ));
        for key in SHARED.iter().chain(&OTHERS) {
            known.remove(*key);
            documented.remove(*key);
        }
        assert_eq!(known, documented, "{prober}");
    }
}

#[test]
fn the_table_of_probes_names_every_key() {
    let text = document();
    let (_, table) = text.split_once("| key | default | |").unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let documented: BTreeSet<String> = rows
        .map(|row| row.split('`').nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(
        known_keys("probes: [{unknown_key_of_a_test: 1}]"),
        documented
    );
}

#[test]
fn the_table_of_built_in_probes_names_each() {
    let text = document();
    for name in BUILTIN_PROBES {
        assert!(text.contains(&format!("\n| `{name}` | ")), "{name}");
    }
}
