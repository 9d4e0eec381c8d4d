//! The blocks of the other probers: `tcp`, `udp`, `tls`, `dns`, `grpc`, `exec`.

use std::time::Duration;

use super::http::{header_name, header_value};
use super::module::{list, network, regexp, regexps, report, tls_config};
use super::reader::{Item, Section, excerpt};
use super::tree::Value;
use super::variables::Variables;
use crate::probers::dns::{DnsSettings, RecordRules};
use crate::probers::exec::ExecSettings;
use crate::probers::grpc::GrpcSettings;
use crate::probers::tcp::{QueryResponse, TcpSettings};
use crate::probers::tls::TlsSettings;
use crate::probers::udp::UdpSettings;

/// Maximum size of a datagram.
const MAX_PAYLOAD: usize = 65_507;

pub(super) fn tcp(section: Option<&Section<'_>>, variables: &Variables) -> TcpSettings {
    let Some(section) = section else {
        return TcpSettings::default();
    };
    let items = list(section, "query_response");
    TcpSettings {
        query_response: items.iter().filter_map(query_response).collect(),
        tls: section.boolean("tls").unwrap_or(false),
        tls_config: tls_config(section, variables),
        network: network(section, true),
    }
}

fn query_response(item: &Item<'_>) -> Option<QueryResponse> {
    let step = item.section()?;
    let labels = list(&step, "labels");
    let labels = labels.iter().filter_map(|item| {
        let label = item.section()?;
        let (name, value) = (label.text("name"), label.text("value"));
        if !name.as_deref().is_some_and(is_label_name) || value.is_none() {
            label.report("needs a `name` that is a label name, and a `value`");
        }
        label.finish();
        Some((name?, value?))
    });
    let compiled = QueryResponse {
        labels: labels.collect(),
        expect: step.item("expect").and_then(|item| regexp(&item)),
        expect_bytes: step.text("expect_bytes").map(String::into_bytes),
        send: step.text("send"),
        starttls: step.boolean("starttls").unwrap_or(false),
    };
    step.finish();
    Some(compiled)
}

pub(super) fn udp(section: Option<&Section<'_>>) -> UdpSettings {
    let mut settings = UdpSettings::default();
    let Some(section) = section else {
        return settings;
    };
    settings.payload = section.text("payload").unwrap_or_default().into_bytes();
    if settings.payload.len() > MAX_PAYLOAD {
        section.report_at("payload", "is larger than a datagram");
    }
    settings.expect = section.item("expect").and_then(|item| regexp(&item));
    let most = u64::from(UdpSettings::MAX_PACKETS);
    if let Some(packets) = section.unsigned("packets", most) {
        settings.packets = u32::try_from(packets).unwrap_or(1);
        if packets == 0 {
            section.report_at("packets", "must be at least 1");
        }
    }
    if let Some(pause) = section.duration("packet_interval") {
        settings.packet_interval = pause;
    }
    if let Some(timeout) = section.duration("answer_timeout") {
        settings.answer_timeout = timeout;
    }
    if let Some(item) = section.item("max_loss") {
        match item.node.value {
            Value::Float(loss) if (0.0..=1.0).contains(&loss) => settings.max_loss = loss,
            Value::Integer(0) => settings.max_loss = 0.0,
            Value::Integer(1) => settings.max_loss = 1.0,
            _ => item.report("must be a number from 0 to 1"),
        }
    }
    settings.network = network(section, true);
    settings
}

pub(super) fn tls(section: Option<&Section<'_>>, variables: &Variables) -> TlsSettings {
    let Some(section) = section else {
        return TlsSettings::default();
    };
    TlsSettings {
        minimum_validity: section
            .duration("minimum_validity")
            .unwrap_or(Duration::ZERO),
        tls_config: tls_config(section, variables),
        network: network(section, true),
    }
}

pub(super) fn dns(
    module: &Section<'_>,
    section: Option<&Section<'_>>,
    variables: &Variables,
) -> Option<DnsSettings> {
    let Some(section) = section else {
        module.report("needs a block `dns` with a `query_name`");
        return None;
    };
    let mut settings = DnsSettings {
        query_name: section.text("query_name").unwrap_or_default(),
        recursion_desired: section.boolean("recursion_desired").unwrap_or(true),
        dns_over_tls: section.boolean("dns_over_tls").unwrap_or(false),
        tls_config: tls_config(section, variables),
        valid_rcodes: rcodes(section),
        validate_answer_rrs: record_rules(section, "validate_answer_rrs"),
        validate_authority_rrs: record_rules(section, "validate_authority_rrs"),
        validate_additional_rrs: record_rules(section, "validate_additional_rrs"),
        network: network(section, true),
        ..DnsSettings::default()
    };
    if settings.query_name.is_empty() {
        section.report_at("query_name", "is missing: the name to ask for");
    } else if let Err(error) = settings.check() {
        report(section, &error);
    }
    match section.text("transport_protocol").as_deref() {
        None | Some("udp" | "") => {}
        Some("tcp") => settings.tcp = true,
        Some(_) => section.report_at("transport_protocol", "must be `udp` or `tcp`"),
    }
    if settings.dns_over_tls {
        // Go's exporter asks for TCP too; TLS implies it.
        settings.tcp = true;
    }
    if let Some(text) = section.text("query_type").filter(|text| !text.is_empty()) {
        match text.parse() {
            Ok(kind) => settings.query_type = kind,
            Err(_) => section.report_at("query_type", "is not a type of records, such as `A`"),
        }
    }
    if let Some(text) = section.text("query_class").filter(|text| !text.is_empty()) {
        match text.parse() {
            Ok(class) => settings.query_class = class,
            Err(_) => section.report_at("query_class", "is not a class of records, such as `IN`"),
        }
    }
    Some(settings)
}

fn rcodes(section: &Section<'_>) -> Vec<u16> {
    let items = list(section, "valid_rcodes");
    let codes = items.iter().filter_map(|item| {
        let name = item.text()?;
        let code = DnsSettings::rcode(&name);
        if code.is_none() {
            let name = excerpt(&name);
            item.report(format!(
                "`{name}` is not a response code, such as `NXDOMAIN`"
            ));
        }
        code
    });
    codes.collect()
}

fn record_rules(section: &Section<'_>, key: &'static str) -> RecordRules {
    let Some(rules) = section.section(key) else {
        return RecordRules::default();
    };
    let compiled = RecordRules {
        fail_if_matches_regexp: regexps(&rules, "fail_if_matches_regexp"),
        fail_if_all_match_regexp: regexps(&rules, "fail_if_all_match_regexp"),
        fail_if_not_all_match_regexp: regexps(&rules, "fail_if_not_all_match_regexp"),
        fail_if_not_matches_regexp: regexps(&rules, "fail_if_not_matches_regexp"),
        fail_if_none_matches_regexp: regexps(&rules, "fail_if_none_matches_regexp"),
    };
    rules.finish();
    compiled
}

pub(super) fn grpc(section: Option<&Section<'_>>, variables: &Variables) -> GrpcSettings {
    let Some(section) = section else {
        return GrpcSettings::default();
    };
    let mut metadata = Vec::new();
    if let Some(item) = section.item("metadata") {
        for (name, values) in item.entries() {
            let Some(name) = header_name(&name.to_ascii_lowercase(), &values) else {
                continue;
            };
            for item in values.items() {
                let text = item.text().unwrap_or_default();
                if let Some(value) = header_value(&name, &text, &item) {
                    metadata.push((name.clone(), value));
                }
            }
        }
    }
    if metadata.len() > super::module::MAX_LIST {
        section.report_at("metadata", "has more than 100 elements");
        metadata.clear();
    }
    GrpcSettings {
        service: section.text("service").unwrap_or_default(),
        tls: section.boolean("tls").unwrap_or(false),
        tls_config: tls_config(section, variables),
        metadata,
        network: network(section, false),
    }
}

pub(super) fn exec(module: &Section<'_>, section: Option<&Section<'_>>) -> Option<ExecSettings> {
    let Some(section) = section else {
        module.report("needs a block `exec` with a `command`");
        return None;
    };
    let command = list(section, "command");
    let command: Vec<String> = command.iter().filter_map(Item::text).collect();
    if command.is_empty() {
        section.report_at("command", "must be a list: a program and its arguments");
    }
    let mut environment = Vec::new();
    if let Some(item) = section.item("environment") {
        for (name, item) in item.entries() {
            if name.is_empty() || name.contains(['=', '\0']) {
                item.report("is not the name of a variable");
            } else if let Some(value) = item.text() {
                environment.push((name.to_owned(), value));
            }
        }
    }
    let codes = list(section, "valid_exit_codes");
    let codes = codes.iter().filter_map(|item| item.unsigned(255));
    Some(ExecSettings {
        command,
        environment,
        valid_exit_codes: codes.filter_map(|code| i32::try_from(code).ok()).collect(),
        fail_if_output_not_matches_regexp: regexps(section, "fail_if_output_not_matches_regexp"),
        fail_if_output_matches_regexp: regexps(section, "fail_if_output_matches_regexp"),
    })
}

/// Whether a text can be a label name.
pub(super) fn is_label_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    bytes.next().is_some_and(first)
        && bytes.all(|byte| first(byte) || byte.is_ascii_digit())
        && name.len() <= 64
}
