//! A result in the metric names of blackbox_exporter, for `/probe`.
//!
//! What is not known is left out: blackbox_exporter writes 0 for phases that were not entered and
//! for responses that did not come. `probe_failure_info` is ours: why, and in which phase.

use std::net::IpAddr;
use std::time::Duration;

use kubevitals_model::Timestamp;
use kubevitals_promtext::{Encoder, LabelName, MetricName, MetricType};

use crate::outcome::{Facts, Outcome, Phase, Reason, ServingStatus};

const PHASE: LabelName<'_> = LabelName::from_static("phase");

/// Writes the metrics of one run. `kind` is the name of the prober.
pub fn render_probe(outcome: &Outcome, kind: &str, timeout: Duration) -> String {
    let mut out = Vec::with_capacity(2_048);
    let mut text = Text(Encoder::new(&mut out));
    let facts = &outcome.facts;
    text.flag(
        "probe_success",
        "Whether the probe succeeded",
        outcome.is_success(),
    );
    text.seconds(
        "probe_duration_seconds",
        "How long the probe took, in seconds",
        outcome.duration,
    );
    text.seconds(
        "probe_timeout_seconds",
        "Maximum duration of the probe, in seconds",
        timeout,
    );
    if let Some(failure) = &outcome.failure {
        text.info(
            "probe_failure_info",
            "Why the probe failed, and the phase that was running",
            &[
                ("reason", failure.reason.as_str()),
                ("phase", failure.phase.map_or("", Phase::as_str)),
            ],
        );
    }
    lookup(&mut text, outcome);
    phases(&mut text, outcome, kind);
    match kind {
        "http" => http(&mut text, outcome),
        "tcp" => tcp(&mut text, outcome),
        "dns" => dns(&mut text, outcome),
        "grpc" => grpc(&mut text, facts),
        _ => {
            if let Some((sent, answered)) = facts.datagrams {
                text.count("probe_udp_datagrams_sent", "Datagrams that were sent", sent);
                text.count(
                    "probe_udp_datagrams_answered",
                    "Datagrams that were answered",
                    answered,
                );
            }
            if let Some(code) = facts.exit_code {
                let help = "The exit code of the command";
                text.gauge("probe_exec_exit_code", help, f64::from(code));
            }
        }
    }
    tls(&mut text, facts);
    // All that is written is text.
    String::from_utf8(out).unwrap_or_default()
}

struct Text<'w>(Encoder<'w>);

impl Text<'_> {
    fn gauge(&mut self, name: &'static str, help: &str, value: f64) {
        let name = MetricName::from_static(name);
        let kind = Some(MetricType::Gauge);
        let none: [(LabelName<'_>, &str); 0] = [];
        self.0
            .family(name, Some(help), kind)
            .sample(&none, value, None);
    }

    fn flag(&mut self, name: &'static str, help: &str, value: bool) {
        self.gauge(name, help, f64::from(u8::from(value)));
    }

    fn count(&mut self, name: &'static str, help: &str, value: u32) {
        self.gauge(name, help, f64::from(value));
    }

    fn seconds(&mut self, name: &'static str, help: &str, value: Duration) {
        self.gauge(name, help, value.as_secs_f64());
    }

    fn timestamp(&mut self, name: &'static str, help: &str, value: Option<Timestamp>) {
        if let Some(value) = value {
            self.gauge(name, help, unix_seconds(value));
        }
    }

    /// A gauge of 1 whose labels are what it says.
    fn info(&mut self, name: &'static str, help: &str, labels: &[(&'static str, &str)]) {
        let labels: Vec<_> = labels
            .iter()
            .map(|(name, value)| (LabelName::from_static(name), *value))
            .collect();
        let name = MetricName::from_static(name);
        let kind = Some(MetricType::Gauge);
        self.0
            .family(name, Some(help), kind)
            .sample(&labels, 1.0, None);
    }
}

fn lookup(text: &mut Text<'_>, outcome: &Outcome) {
    let resolve = outcome
        .phases
        .iter()
        .find(|time| time.phase == Phase::Resolve);
    if let Some(resolve) = resolve {
        text.seconds(
            "probe_dns_lookup_time_seconds",
            "How long the lookup of the target's name took, in seconds",
            resolve.duration,
        );
    }
    if let Some(version) = outcome.facts.ip_version {
        text.gauge(
            "probe_ip_protocol",
            "The version of IP that was used: 4 or 6",
            f64::from(version),
        );
    }
    if let Some(address) = outcome.facts.address {
        text.count(
            "probe_ip_addr_hash",
            "A hash of the address, to see when it changes",
            address_hash(address),
        );
    }
}

fn phases(text: &mut Text<'_>, outcome: &Outcome, kind: &str) {
    let name = match kind {
        "http" => "probe_http_duration_seconds",
        "dns" => "probe_dns_duration_seconds",
        "grpc" => "probe_grpc_duration_seconds",
        "tcp" => "probe_tcp_duration_seconds",
        "tls" => "probe_tls_duration_seconds",
        "udp" => "probe_udp_duration_seconds",
        _ => "probe_exec_duration_seconds",
    };
    if outcome.phases.is_empty() {
        return;
    }
    let help = "How long each phase took, in seconds; over redirects the sum";
    let kind_of = Some(MetricType::Gauge);
    let mut family = text
        .0
        .family(MetricName::from_static(name), Some(help), kind_of);
    for phase in Phase::ALL {
        let times = outcome.phases.iter().filter(|time| time.phase == phase);
        let mut times = times.map(|time| time.duration).peekable();
        if times.peek().is_none() {
            continue;
        }
        let sum = times.fold(Duration::ZERO, Duration::saturating_add);
        let label = match (kind, phase) {
            ("grpc", Phase::Request) => "check",
            _ => phase.as_str(),
        };
        family.sample(&[(PHASE, label)], sum.as_secs_f64(), None);
    }
}

fn failed_by(outcome: &Outcome, reasons: &[Reason]) -> bool {
    let failure = outcome.failure.as_ref();
    failure.is_some_and(|failure| reasons.contains(&failure.reason))
}

fn http(text: &mut Text<'_>, outcome: &Outcome) {
    let facts = &outcome.facts;
    if let Some(status) = facts.http_status {
        let help = "The status code of the last response";
        text.gauge("probe_http_status_code", help, f64::from(status));
        let by = [Reason::BodyMismatch, Reason::HeaderMismatch];
        let help = "Whether the probe failed because of a regular expression";
        text.flag("probe_failed_due_to_regex", help, failed_by(outcome, &by));
    }
    let version = facts.http_version.and_then(|version| match version {
        http::Version::HTTP_09 => Some(0.9),
        http::Version::HTTP_10 => Some(1.0),
        http::Version::HTTP_11 => Some(1.1),
        http::Version::HTTP_2 => Some(2.0),
        _ => None,
    });
    if let Some(version) = version {
        let help = "The version of HTTP of the last response";
        text.gauge("probe_http_version", help, version);
    }
    if let Some(redirects) = facts.http_redirects {
        let help = "Number of redirects that were followed";
        text.count("probe_http_redirects", help, redirects);
    }
    if let Some(ssl) = facts.http_ssl {
        let help = "Whether the last response came over TLS";
        text.flag("probe_http_ssl", help, ssl);
    }
    if let Some(length) = facts.http_content_length {
        let help = "The length that the last response named";
        text.gauge("probe_http_content_length", help, to_float(length));
    }
    if let Some(length) = facts.http_body_length {
        let help = "The length of the last response's body, uncompressed";
        text.gauge(
            "probe_http_uncompressed_body_length",
            help,
            to_float(length),
        );
    }
    text.timestamp(
        "probe_http_last_modified_timestamp_seconds",
        "When the target last changed, as it says, in seconds since the epoch",
        facts.http_last_modified,
    );
}

fn tcp(text: &mut Text<'_>, outcome: &Outcome) {
    let by = [Reason::ExpectMismatch];
    let help = "Whether the probe failed because of a regular expression";
    text.flag("probe_failed_due_to_regex", help, failed_by(outcome, &by));
    let mut labels: Vec<(LabelName<'_>, &str)> = Vec::new();
    for (name, value) in &outcome.facts.expect_labels {
        let Ok(name) = LabelName::new(name) else {
            continue;
        };
        if labels.iter().all(|(known, _)| *known != name) {
            labels.push((name, value));
        }
    }
    if !labels.is_empty() {
        let name = MetricName::from_static("probe_expect_info");
        let help = Some("What the target answered");
        let mut family = text.0.family(name, help, Some(MetricType::Gauge));
        family.sample(&labels, 1.0, None);
    }
}

fn dns(text: &mut Text<'_>, outcome: &Outcome) {
    let facts = &outcome.facts;
    let sections = [
        (
            "probe_dns_answer_rrs",
            "Number of records in the answer section",
            facts.dns_answers,
        ),
        (
            "probe_dns_authority_rrs",
            "Number of records in the authority section",
            facts.dns_authority,
        ),
        (
            "probe_dns_additional_rrs",
            "Number of records in the additional section",
            facts.dns_additional,
        ),
    ];
    for (name, help, count) in sections {
        if let Some(count) = count {
            text.count(name, help, count);
        }
    }
    text.flag(
        "probe_dns_query_succeeded",
        "Whether the query was answered",
        facts.dns_rcode.is_some(),
    );
    if let Some(serial) = facts.dns_serial {
        text.count("probe_dns_serial", "The serial number of the zone", serial);
    }
}

fn grpc(text: &mut Text<'_>, facts: &Facts) {
    if let Some(status) = facts.grpc_status {
        let help = "The status code of the response";
        text.gauge("probe_grpc_status_code", help, f64::from(status));
    }
    if let Some(ssl) = facts.grpc_ssl {
        let help = "Whether the connection had TLS";
        text.flag("probe_grpc_ssl", help, ssl);
    }
    if let Some(serving) = facts.grpc_serving {
        let name = MetricName::from_static("probe_grpc_healthcheck_response");
        let help = Some("What the health service answered");
        let mut family = text.0.family(name, help, Some(MetricType::Gauge));
        for status in ServingStatus::ALL {
            let label = LabelName::from_static("serving_status");
            let value = f64::from(u8::from(status == serving));
            family.sample(&[(label, status.as_str())], value, None);
        }
    }
}

fn tls(text: &mut Text<'_>, facts: &Facts) {
    text.timestamp(
        "probe_ssl_earliest_cert_expiry",
        "When the first certificate of the target ends, in seconds since the epoch",
        facts.certificate_expiry,
    );
    text.timestamp(
        "probe_ssl_last_chain_expiry_timestamp_seconds",
        "When the verified chain ends, in seconds since the epoch",
        facts.verified_chain_expiry,
    );
    if let Some(certificate) = &facts.certificate {
        text.info(
            "probe_ssl_last_chain_info",
            "The target's own certificate",
            &[
                ("fingerprint_sha256", &certificate.fingerprint_sha256),
                ("subject", &certificate.subject),
                ("issuer", &certificate.issuer),
                ("subjectalternative", &certificate.names.join(",")),
                ("serialnumber", &certificate.serial_number),
            ],
        );
    }
    if let Some(version) = facts.tls_version {
        let labels = [("version", version)];
        text.info("probe_tls_version_info", "The version of TLS", &labels);
    }
    if let Some(cipher) = facts.tls_cipher {
        let labels = [("cipher", cipher)];
        text.info("probe_tls_cipher_info", "The cipher suite of TLS", &labels);
    }
}

fn unix_seconds(time: Timestamp) -> f64 {
    let millis = time.unix_millis();
    // Milliseconds since the epoch are far below 2^53.
    #[expect(clippy::cast_precision_loss, reason = "exact below the year 287396")]
    let seconds = millis as f64 / 1_000.0;
    seconds
}

#[expect(clippy::cast_precision_loss, reason = "exact below 8 PiB")]
fn to_float(length: u64) -> f64 {
    length as f64
}

/// FNV-1a of 32 bits over the bytes of the address, as blackbox_exporter has it.
fn address_hash(address: IpAddr) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    match address.to_canonical() {
        IpAddr::V4(address) => address.octets().iter().fold(0x811c_9dc5, step),
        IpAddr::V6(address) => address.octets().iter().fold(0x811c_9dc5, step),
    }
}

#[cfg(test)]
mod tests;
