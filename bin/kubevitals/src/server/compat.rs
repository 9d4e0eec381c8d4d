//! Flags of metrics-server that are accepted and have no effect. A manifest that sets them still
//! starts, and the log says once which flags are ignored and why.

use clap::Args;

/// Flags that are accepted and ignored.
///
/// A flag that an operator relies on (audit logs, SNI certificates) is not among them. It is
/// rejected as unknown, so that no server starts without what it was configured to do.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Accepted for compatibility")]
pub(super) struct CompatFlags {
    #[arg(long, hide = true, value_name = "TEXT")]
    contention_profiling: Option<String>,
    #[arg(long, hide = true, value_name = "TEXT", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_priority_and_fairness: Option<String>,
    #[arg(long, hide = true, value_name = "TEXT")]
    feature_gates: Option<String>,
    #[arg(long, hide = true, value_name = "TEXT")]
    goaway_chance: Option<String>,
    #[arg(long, hide = true, value_name = "TEXT")]
    livez_grace_period: Option<String>,
    #[arg(long, hide = true, value_name = "TEXT")]
    log_flush_frequency: Option<String>,
    #[arg(long, hide = true, value_name = "TEXT", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    logtostderr: Option<String>,
    #[arg(long, hide = true, value_name = "TEXT")]
    max_mutating_requests_inflight: Option<String>,
    #[arg(long, hide = true, value_name = "TEXT")]
    min_request_timeout: Option<String>,
    #[arg(long, hide = true, value_name = "TEXT", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    permit_address_sharing: Option<String>,
    #[arg(long, hide = true, value_name = "TEXT", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    permit_port_sharing: Option<String>,
    #[arg(long, hide = true, value_name = "TEXT")]
    shutdown_delay_duration: Option<String>,
    #[arg(long, hide = true, value_name = "TEXT")]
    stderrthreshold: Option<String>,
    #[arg(long, hide = true, value_name = "TEXT")]
    vmodule: Option<String>,
}

impl CompatFlags {
    /// The flags that are set, each with the reason why it has no effect.
    pub(super) fn ignored(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        const LOGS: &str = "logs are set up by --log-level, --logging-format and -v";
        const READS: &str = "this server is read-only";
        const SOCKET: &str = "sockets are not shared";
        const LIMITS: &str = "--max-requests-inflight is the limit";
        [
            (
                "contention-profiling",
                &self.contention_profiling,
                "there is no such profile",
            ),
            (
                "enable-priority-and-fairness",
                &self.enable_priority_and_fairness,
                LIMITS,
            ),
            (
                "feature-gates",
                &self.feature_gates,
                "there are no feature gates",
            ),
            (
                "goaway-chance",
                &self.goaway_chance,
                "connections are closed on shutdown only",
            ),
            (
                "livez-grace-period",
                &self.livez_grace_period,
                "liveness does not depend on warming up",
            ),
            ("log-flush-frequency", &self.log_flush_frequency, LOGS),
            ("logtostderr", &self.logtostderr, LOGS),
            (
                "max-mutating-requests-inflight",
                &self.max_mutating_requests_inflight,
                READS,
            ),
            (
                "min-request-timeout",
                &self.min_request_timeout,
                "the timeout of a watch is set by its client, and is at most an hour",
            ),
            (
                "permit-address-sharing",
                &self.permit_address_sharing,
                SOCKET,
            ),
            ("permit-port-sharing", &self.permit_port_sharing, SOCKET),
            (
                "shutdown-delay-duration",
                &self.shutdown_delay_duration,
                "--shutdown-grace-period bounds draining",
            ),
            ("stderrthreshold", &self.stderrthreshold, LOGS),
            ("vmodule", &self.vmodule, LOGS),
        ]
        .into_iter()
        .filter(|(_, value, _)| value.is_some())
        .map(|(flag, _, reason)| (flag, reason))
    }
}
