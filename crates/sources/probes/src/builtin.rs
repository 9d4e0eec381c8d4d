//! Modules and probes that need no configuration.
//!
//! They are written as users would write them, with variables for what differs from cluster to
//! cluster. One whose variables are not set is not available.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{CompiledModule, ConfiguredProbe, Variables, compile_modules, tree};
use crate::probe::{ProbeInfo, Threshold};
use crate::target::Target;

/// A built-in module.
struct BuiltinModule {
    name: &'static str,
    text: &'static str,
}

/// A built-in probe.
struct BuiltinProbe {
    name: &'static str,
    /// The name of a built-in module.
    module: &'static str,
    target: &'static str,
}

/// The names of all built-in probes. The first six are those of gke-prober.
pub const PROBES: [&str; 8] = [
    "http_get",
    "dns_lookup",
    "kube_dns",
    "metrics_server",
    "fluentbit",
    "gke-metadata-server",
    "api_server",
    "kubelet",
];

const INTERVAL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(5);

/// IPv4 is preferred: names on the internet have addresses of IPv6 that many clusters cannot reach.
const MODULES: [BuiltinModule; 14] = [
    BuiltinModule {
        name: "http_2xx",
        text: "{prober: http}",
    },
    BuiltinModule {
        name: "tcp_connect",
        text: "{prober: tcp}",
    },
    BuiltinModule {
        name: "grpc",
        text: "{prober: grpc}",
    },
    BuiltinModule {
        name: "tls_expiry",
        text: "{prober: tls, tls: {minimum_validity: 168h, preferred_ip_protocol: ip4}}",
    },
    BuiltinModule {
        name: "registry",
        // A registry that asks for credentials is up.
        text: "{prober: http, http: {valid_status_codes: [200, 401], preferred_ip_protocol: ip4}}",
    },
    BuiltinModule {
        name: "http_get",
        text: "{prober: http, http: {valid_status_codes: [204], preferred_ip_protocol: ip4}}",
    },
    BuiltinModule {
        name: "dns_lookup",
        text: "{prober: dns, dns: {query_name: google.com., query_type: A,
            validate_answer_rrs: {fail_if_none_matches_regexp: [.]}}}",
    },
    BuiltinModule {
        name: "kube_dns",
        // The dot at the end keeps search domains out.
        text:
            "{prober: dns, dns: {query_name: kubernetes.default.svc.cluster.local., query_type: A,
            validate_answer_rrs: {fail_if_none_matches_regexp: [.]}}}",
    },
    BuiltinModule {
        name: "metrics_server",
        // The metrics API answers with an empty list when it has no usage yet.
        text: "{prober: http, http: {
            fail_if_body_not_matches_regexp: ['\"items\":\\s*\\[\\s*\\{'],
            authorization: {credentials_file: $(TOKEN_FILE)}, tls_config: {ca_file: $(CA_FILE)}}}",
    },
    BuiltinModule {
        name: "fluentbit",
        text: "{prober: http, http: {follow_redirects: false}}",
    },
    BuiltinModule {
        name: "gke-metadata-server",
        text: "{prober: http, http: {headers: {Metadata-Flavor: Google}, follow_redirects: false,
            fail_if_body_not_matches_regexp: ['@'], preferred_ip_protocol: ip4}}",
    },
    BuiltinModule {
        name: "api_server",
        text: "{prober: http, http: {fail_if_not_ssl: true,
            authorization: {credentials_file: $(TOKEN_FILE)}, tls_config: {ca_file: $(CA_FILE)}}}",
    },
    BuiltinModule {
        name: "kubelet",
        text: "{prober: http, http: {fail_if_not_ssl: true,
            authorization: {credentials_file: $(TOKEN_FILE)}, tls_config: {ca_file: $(CA_FILE)}}}",
    },
    BuiltinModule {
        name: "tcp_tls",
        text: "{prober: tcp, tcp: {tls: true}}",
    },
];

/// In the order of [`PROBES`].
const PROBE_TABLE: [BuiltinProbe; PROBES.len()] = [
    BuiltinProbe {
        name: "http_get",
        module: "http_get",
        target: "http://googleapis.com/generate_204",
    },
    BuiltinProbe {
        name: "dns_lookup",
        module: "dns_lookup",
        target: "$(DNS_SERVER)",
    },
    BuiltinProbe {
        name: "kube_dns",
        module: "kube_dns",
        target: "$(CLUSTER_DNS)",
    },
    BuiltinProbe {
        name: "metrics_server",
        module: "metrics_server",
        // One namespace that always has pods: the list of a large cluster is megabytes.
        target: "$(API_SERVER)/apis/metrics.k8s.io/v1beta1/namespaces/kube-system/pods",
    },
    BuiltinProbe {
        name: "fluentbit",
        module: "fluentbit",
        target: "http://$(HOST_IP):2020/api/v1/uptime",
    },
    BuiltinProbe {
        name: "gke-metadata-server",
        module: "gke-metadata-server",
        target: "http://$(METADATA_HOST)/computeMetadata/v1/instance/service-accounts/default/email",
    },
    BuiltinProbe {
        name: "api_server",
        module: "api_server",
        target: "$(API_SERVER)/readyz",
    },
    BuiltinProbe {
        name: "kubelet",
        module: "kubelet",
        target: "https://$(HOST_IP):10250/healthz",
    },
];

/// The names of all built-in modules.
pub(crate) fn module_names() -> impl Iterator<Item = &'static str> {
    MODULES.iter().map(|module| module.name)
}

/// The built-in modules whose variables are set.
pub(crate) fn modules(variables: &Variables) -> BTreeMap<Arc<str>, CompiledModule> {
    let mut all = BTreeMap::new();
    for module in &MODULES {
        if let Ok(compiled) = compile(module, variables) {
            all.insert(module.name.into(), compiled);
        }
    }
    all
}

/// Compiles a module. The error is the variable that is not set.
fn compile(module: &BuiltinModule, variables: &Variables) -> Result<CompiledModule, String> {
    variables.expand(module.text)?;
    let text = format!("modules: {{{}: {}}}", module.name, module.text);
    let modules = compile_modules(&tree::parse(&text)?, variables);
    let modules = modules.map_err(|problems| problems.to_string())?;
    modules.into_values().next().ok_or_else(String::new)
}

/// A built-in probe. The error is the variable that is not set.
pub(crate) fn probe(name: &str, variables: &Variables) -> Result<ConfiguredProbe, String> {
    let probe = PROBE_TABLE.iter().find(|probe| probe.name == name);
    let probe = probe.ok_or_else(String::new)?;
    let module = MODULES.iter().find(|module| module.name == probe.module);
    let compiled = compile(module.ok_or_else(String::new)?, variables)?;
    let target = variables.expand(probe.target)?;
    let target = Target::parse(&target, &compiled.module.prober).map_err(|e| e.to_string())?;
    Ok(ConfiguredProbe {
        info: Arc::new(ProbeInfo {
            name: probe.name.into(),
            module: probe.module.into(),
            kind: compiled.module.prober.name(),
            labels: Vec::new(),
            interval: INTERVAL,
            jitter: INTERVAL / 10,
            timeout: TIMEOUT,
            threshold: Threshold::default(),
        }),
        module: compiled.module,
        targets: vec![target],
        targets_from: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_variables() -> Variables {
        let mut variables = Variables::default();
        variables.set_address(Variables::HOST_IP, "10.0.0.1".parse().unwrap());
        variables.set(Variables::API_SERVER, "https://10.96.0.1:443");
        variables.set(Variables::TOKEN_FILE, "/run/token");
        variables.set(Variables::CA_FILE, "/run/ca.crt");
        variables.set(Variables::METADATA_HOST, "metadata.google.internal");
        variables.set(Variables::DNS_SERVER, "10.96.0.10");
        variables.set(Variables::CLUSTER_DNS, "10.96.0.10");
        variables
    }

    #[test]
    fn everything_built_in_is_available_when_all_variables_are_set() {
        let variables = all_variables();
        for module in &MODULES {
            assert!(compile(module, &variables).is_ok(), "{}", module.name);
        }
        for (name, entry) in PROBES.iter().zip(&PROBE_TABLE) {
            assert_eq!(*name, entry.name);
            let probe = probe(name, &variables).unwrap();
            assert_eq!(*probe.info.name, **name);
        }
    }

    #[test]
    fn a_probe_without_its_variable_is_unavailable() {
        let variables = Variables::default();
        assert_eq!(probe("fluentbit", &variables).unwrap_err(), "HOST_IP");
        assert_eq!(
            probe("metrics_server", &variables).unwrap_err(),
            "TOKEN_FILE"
        );
        assert!(probe("http_get", &variables).is_ok());
        let available = modules(&variables);
        assert!(available.contains_key("http_2xx") && !available.contains_key("kubelet"));
    }

    #[test]
    fn targets_are_those_of_the_peer() {
        let variables = all_variables();
        let target = |name: &str| {
            let probe = probe(name, &variables).unwrap();
            probe.targets[0].as_str().to_owned()
        };
        assert_eq!(target("http_get"), "http://googleapis.com/generate_204");
        assert_eq!(target("fluentbit"), "http://10.0.0.1:2020/api/v1/uptime");
        assert_eq!(target("kube_dns"), "10.96.0.10");
    }
}
