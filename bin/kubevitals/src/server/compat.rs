//! What becomes of each flag of metrics-server: it works here, has no effect, or is rejected.
//!
//! One table drives all of it: the arguments that clap accepts besides our own, the log line of a
//! flag without effect, the error of a rejected one, and the table in `docs/server.md`. A test
//! compares it with the `--help` of metrics-server.
//!
//! To support a flag: define it in `flags.rs`, move its name to a group of supported flags, and
//! write the documentation with `KUBEVITALS_UPDATE_DOCS=1 cargo test -p kubevitals --lib compat`.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use kubevitals_cli::InvalidSetting;

/// Flags of metrics-server that are treated alike.
struct Group {
    disposition: Disposition,
    /// Flags that take a value.
    options: &'static [&'static str],
    /// Booleans, whose value is optional.
    switches: &'static [&'static str],
}

/// What becomes of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disposition {
    /// It works as in metrics-server, but for the difference stated.
    Supported(Option<&'static str>),
    /// It is accepted, and the log says why it has no effect.
    Ignored(&'static str),
    /// A server that ignored it would lack something that it was configured to do.
    Rejected(&'static str),
}

/// The flags of metrics-server that this server does not have.
#[derive(Debug, Clone, Default)]
pub(super) struct CompatFlags {
    /// The flags that are set, each with its value.
    set: Vec<(&'static str, String)>,
}

/// All flags of metrics-server 0.9.0, and two of older releases that manifests still set.
const GROUPS: &[Group] = &[
    Group {
        disposition: Disposition::Supported(None),
        options: &[
            "authentication-kubeconfig",
            "authentication-token-webhook-cache-ttl",
            "authorization-always-allow-paths",
            "authorization-kubeconfig",
            "authorization-webhook-cache-authorized-ttl",
            "authorization-webhook-cache-unauthorized-ttl",
            "bind-address",
            "cert-dir",
            "client-ca-file",
            "goaway-chance",
            "http2-max-streams-per-connection",
            "kubeconfig",
            "kubelet-client-certificate",
            "kubelet-client-key",
            "kubelet-port",
            "logging-format",
            "max-requests-inflight",
            "node-selector",
            "request-timeout",
            "requestheader-allowed-names",
            "requestheader-client-ca-file",
            "requestheader-extra-headers-prefix",
            "requestheader-group-headers",
            "requestheader-uid-headers",
            "requestheader-username-headers",
            "tls-cert-file",
            "tls-private-key-file",
            "v",
        ],
        switches: &[
            "authentication-skip-lookup",
            "authentication-tolerate-lookup-failure",
            "deprecated-kubelet-completely-insecure",
            "disable-http2-serving",
            "kubelet-insecure-tls",
            "kubelet-use-node-status-port",
            "version",
        ],
    },
    Group {
        disposition: Disposition::Supported(Some("may be repeated, for several CA bundles")),
        options: &["kubelet-certificate-authority"],
        switches: &[],
    },
    Group {
        disposition: Disposition::Supported(Some("an address that fails is followed by the next")),
        options: &["kubelet-preferred-address-types"],
        switches: &[],
    },
    Group {
        disposition: Disposition::Supported(Some(
            "unset, it is 0.9 × the resolution, and at most 10s",
        )),
        options: &["kubelet-request-timeout"],
        switches: &[],
    },
    Group {
        disposition: Disposition::Supported(Some("from 1s on; metrics-server wants 10s or more")),
        options: &["metric-resolution"],
        switches: &[],
    },
    Group {
        disposition: Disposition::Supported(Some("5s by default; part of --shutdown-grace-period")),
        options: &["shutdown-delay-duration"],
        switches: &[],
    },
    Group {
        disposition: Disposition::Supported(Some("0 picks a free port")),
        options: &["secure-port"],
        switches: &[],
    },
    Group {
        disposition: Disposition::Supported(Some(
            "suites without forward secrecy or authenticated encryption are left out, with a warning",
        )),
        options: &["tls-cipher-suites"],
        switches: &[],
    },
    Group {
        disposition: Disposition::Supported(Some("P-521 (25) is left out, with a warning")),
        options: &["tls-curve-preferences"],
        switches: &[],
    },
    Group {
        disposition: Disposition::Supported(Some("VersionTLS12, the default, or VersionTLS13")),
        options: &["tls-min-version"],
        switches: &[],
    },
    Group {
        disposition: Disposition::Supported(Some("off by default; CPU time and the heap")),
        options: &[],
        switches: &["profiling"],
    },
    Group {
        disposition: Disposition::Ignored("there is no audit log"),
        options: &[
            "audit-log-batch-buffer-size",
            "audit-log-batch-max-size",
            "audit-log-batch-max-wait",
            "audit-log-batch-throttle-burst",
            "audit-log-batch-throttle-qps",
            "audit-log-format",
            "audit-log-maxage",
            "audit-log-maxbackup",
            "audit-log-maxsize",
            "audit-log-mode",
            "audit-log-truncate-max-batch-size",
            "audit-log-truncate-max-event-size",
            "audit-log-version",
            "audit-policy-file",
            "audit-webhook-batch-buffer-size",
            "audit-webhook-batch-max-size",
            "audit-webhook-batch-max-wait",
            "audit-webhook-batch-throttle-burst",
            "audit-webhook-batch-throttle-qps",
            "audit-webhook-initial-backoff",
            "audit-webhook-mode",
            "audit-webhook-truncate-max-batch-size",
            "audit-webhook-truncate-max-event-size",
            "audit-webhook-version",
        ],
        switches: &[
            "audit-log-batch-throttle-enable",
            "audit-log-compress",
            "audit-log-truncate-enabled",
            "audit-webhook-batch-throttle-enable",
            "audit-webhook-truncate-enabled",
        ],
    },
    Group {
        disposition: Disposition::Ignored(
            "logs are set up by --log-level, --logging-format and -v",
        ),
        options: &[
            "log-flush-frequency",
            "log-json-info-buffer-size",
            "log-text-info-buffer-size",
            "stderrthreshold",
            "vmodule",
        ],
        switches: &[
            "log-json-split-stream",
            "log-text-split-stream",
            "logtostderr",
        ],
    },
    Group {
        disposition: Disposition::Ignored("there are no feature gates and no emulated versions"),
        options: &[
            "emulated-version",
            "feature-gates",
            "min-compatibility-version",
        ],
        switches: &[
            "emulation-forward-compatible",
            "runtime-config-emulation-forward-compatible",
        ],
    },
    Group {
        disposition: Disposition::Ignored("the APIService refers to a Service, not to an address"),
        options: &["advertise-address", "external-hostname"],
        switches: &[],
    },
    Group {
        disposition: Disposition::Ignored("sockets are not shared"),
        options: &[],
        switches: &["permit-address-sharing", "permit-port-sharing"],
    },
    Group {
        disposition: Disposition::Ignored("this server is read-only and has no storage"),
        options: &[
            "max-mutating-requests-inflight",
            "storage-initialization-timeout",
        ],
        switches: &[],
    },
    Group {
        disposition: Disposition::Ignored("--max-requests-inflight is the limit"),
        options: &[],
        switches: &["enable-priority-and-fairness"],
    },
    Group {
        disposition: Disposition::Ignored("liveness does not depend on warming up"),
        options: &["livez-grace-period"],
        switches: &[],
    },
    Group {
        disposition: Disposition::Ignored(
            "the timeout of a watch is set by its client, and is at most an hour",
        ),
        options: &["min-request-timeout"],
        switches: &[],
    },
    Group {
        disposition: Disposition::Ignored("there are profiles of CPU time and of the heap only"),
        options: &["debug-socket-path"],
        switches: &["contention-profiling"],
    },
    Group {
        disposition: Disposition::Ignored("--shutdown-grace-period limits draining"),
        options: &["shutdown-watch-termination-grace-period"],
        switches: &["shutdown-send-retry-after"],
    },
    Group {
        disposition: Disposition::Rejected("there is no audit log; leave the flag out"),
        options: &["audit-log-path", "audit-webhook-config-file"],
        switches: &[],
    },
    Group {
        disposition: Disposition::Rejected("browsers are not served; leave the flag out"),
        options: &[
            "cors-allowed-origins",
            "strict-transport-security-directives",
        ],
        switches: &[],
    },
    Group {
        disposition: Disposition::Rejected(
            "all clients get the same certificate; write one with all names to --tls-cert-file",
        ),
        options: &["tls-sni-cert-key"],
        switches: &[],
    },
];

impl CompatFlags {
    /// The flags that are set and have no effect, each with the reason.
    pub(super) fn ignored(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let set = self.set.iter();
        set.filter_map(|(name, _)| match disposition(name)? {
            Disposition::Ignored(reason) => Some((*name, reason)),
            _ => None,
        })
    }

    /// Fails if a rejected flag is set. An empty value is as good as none.
    pub(super) fn validate(&self) -> Result<(), InvalidSetting> {
        for (name, value) in self.set.iter().filter(|(_, value)| !value.is_empty()) {
            if let Some(Disposition::Rejected(reason)) = disposition(name) {
                let (problem, advice) = reason.split_once("; ").unwrap_or((reason, ""));
                return Err(InvalidSetting {
                    flag: name,
                    value: value.clone(),
                    problem: problem.to_owned(),
                    advice: advice.to_owned(),
                });
            }
        }
        Ok(())
    }
}

impl Args for CompatFlags {
    fn augment_args(command: Command) -> Command {
        command.args(arguments())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for CompatFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let unsupported = GROUPS.iter().filter(|group| group.is_unsupported());
        let names = unsupported.flat_map(Group::names);
        let set = names
            .filter(|name| matches.value_source(name) == Some(ValueSource::CommandLine))
            .map(|name| {
                let values = matches.get_many::<String>(name).unwrap_or_default();
                (name, values.cloned().collect::<Vec<_>>().join(","))
            })
            .collect();
        Ok(Self { set })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Group {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.options.iter().chain(self.switches).copied()
    }

    /// Whether no other part of the program defines these flags.
    fn is_unsupported(&self) -> bool {
        !matches!(self.disposition, Disposition::Supported(_))
    }
}

fn disposition(name: &str) -> Option<Disposition> {
    let group = GROUPS
        .iter()
        .find(|group| group.names().any(|own| own == name));
    group.map(|group| group.disposition)
}

/// The arguments of flags that this server does not have. They are not in `--help`.
fn arguments() -> impl Iterator<Item = Arg> {
    let groups = GROUPS.iter().filter(|group| group.is_unsupported());
    groups.flat_map(|group| {
        let argument = |name: &&'static str| {
            let argument = Arg::new(*name).long(*name).value_name("TEXT");
            argument.hide(true).action(ArgAction::Append)
        };
        let options = group.options.iter().map(argument);
        let switches = group.switches.iter().map(argument).map(|argument| {
            argument
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
        });
        options.chain(switches)
    })
}

#[cfg(test)]
mod tests;
