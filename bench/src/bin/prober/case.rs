//! The kinds of probes that are compared, and the configurations of both programs.

use std::path::Path;

use kubevitals_bench::BenchError;
use serde_json::{Value, json};

use crate::targets::Targets;

/// A kind of probe with its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    Http,
    Https,
    Tcp,
    Dns,
    Grpc,
    /// HTTP that answers 500: the verdict is a failure.
    Failing,
}

impl Case {
    pub(crate) const ALL: [Self; 6] = [
        Self::Http,
        Self::Https,
        Self::Tcp,
        Self::Dns,
        Self::Grpc,
        Self::Failing,
    ];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// The key in results, and the name of the module.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Tcp => "tcp",
            Self::Dns => "dns",
            Self::Grpc => "grpc",
            Self::Failing => "http-500",
        }
    }

    /// The verdict that both must come to.
    pub(crate) const fn succeeds(self) -> bool {
        !matches!(self, Self::Failing)
    }

    /// The target as both programs read it.
    pub(crate) fn target(self, targets: &Targets) -> Result<String, BenchError> {
        let address = targets.addresses.get(self.key());
        let address = address.ok_or_else(|| BenchError::NoContender(self.key().to_owned()))?;
        Ok(match self {
            Self::Http | Self::Failing => format!("http://{address}/"),
            Self::Https => format!("https://{address}/"),
            Self::Tcp | Self::Dns | Self::Grpc => address.to_string(),
        })
    }
}

/// The modules, which both programs read in the same form.
fn modules(authority: &Path) -> Value {
    let ip4 = "ip4";
    let http = json!({
        "prober": "http",
        "timeout": "5s",
        "http": {"preferred_ip_protocol": ip4},
    });
    json!({
        "http": http,
        "http-500": http,
        "https": {
            "prober": "http",
            "timeout": "5s",
            "http": {
                "preferred_ip_protocol": ip4,
                "fail_if_not_ssl": true,
                "tls_config": {"ca_file": authority},
            },
        },
        "tcp": {"prober": "tcp", "timeout": "5s", "tcp": {"preferred_ip_protocol": ip4}},
        "dns": {
            "prober": "dns",
            "timeout": "5s",
            "dns": {
                "preferred_ip_protocol": ip4,
                "query_name": "probe.example.",
                "query_type": "A",
            },
        },
        "grpc": {"prober": "grpc", "timeout": "5s", "grpc": {"preferred_ip_protocol": ip4}},
    })
}

/// The configuration of `blackbox_exporter`.
pub(crate) fn blackbox_config(targets: &Targets) -> String {
    json!({"modules": modules(&targets.authority)}).to_string()
}

/// Ours, to be probed through `/probe` only.
pub(crate) fn endpoint_config(targets: &Targets) -> String {
    json!({
        "modules": modules(&targets.authority),
        "endpoint": {"allow_targets": ["127.0.0.1"]},
    })
    .to_string()
}

/// Ours with so many probes of one target, each once a second.
pub(crate) fn scheduled_config(
    targets: &Targets,
    case: Case,
    rate: u32,
) -> Result<String, BenchError> {
    let target = case.target(targets)?;
    let probes: Vec<Value> = (0..rate)
        .map(|number| {
            json!({
                "name": format!("{}-{number}", case.key()),
                "module": case.key(),
                "interval": "1s",
                "targets": [target],
            })
        })
        .collect();
    Ok(json!({"modules": modules(&targets.authority), "probes": probes}).to_string())
}
