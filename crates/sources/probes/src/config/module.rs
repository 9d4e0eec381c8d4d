//! Modules, from the tree to compiled settings. The keys are those of blackbox_exporter; `udp`,
//! `tls` and `exec` are ours.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use regex::bytes::Regex;
use secrecy::SecretString;

use super::http::http;
use super::reader::{Item, Section, excerpt, nearest};
use super::steps::{dns, exec, grpc, tcp, tls, udp};
use super::variables::Variables;
use crate::settings::{
    ClientTlsSettings, IpProtocol, NetworkSettings, ProbeTls, Secret, SettingsError, TlsVersion,
    compile_regexp,
};
use crate::{Module, Prober};

/// Maximum length of a list in a module.
pub(super) const MAX_LIST: usize = 100;

/// The timeout of a module without one, as in blackbox_exporter: two minutes less half a second.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(119_500);

const MAX_TIMEOUT: Duration = Duration::from_mins(10);

/// A module, and whether its timeout was written down.
#[derive(Debug, Clone)]
pub(crate) struct CompiledModule {
    pub(crate) module: Arc<Module>,
    pub(crate) timeout: Option<Duration>,
}

/// Compiles a module. `None` if there are problems.
pub(super) fn module(item: &Item<'_>, variables: &Variables) -> Option<CompiledModule> {
    let section = item.section()?;
    let timeout = section.duration("timeout");
    if timeout.is_some_and(|timeout| timeout.is_zero() || timeout > MAX_TIMEOUT) {
        section.report_at("timeout", "must be longer than 0s and at most 10m");
    }
    let prober = prober(&section, variables);
    section.finish();
    let module = Module {
        timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
        prober: prober?,
    };
    Some(CompiledModule {
        module: Arc::new(module),
        timeout,
    })
}

fn prober(section: &Section<'_>, variables: &Variables) -> Option<Prober> {
    const KINDS: [&str; 7] = ["http", "tcp", "dns", "grpc", "udp", "tls", "exec"];
    let Some(kind) = section.text("prober") else {
        section.report(format!("has no `prober`; set one of: {}", KINDS.join(", ")));
        return None;
    };
    let compiled = match kind.as_str() {
        "http" => with_block(section, "http", |block| Some(http(block, variables)))
            .map(|settings| Prober::Http(Box::new(settings))),
        "tcp" => with_block(section, "tcp", |block| Some(tcp(block, variables)))
            .map(|settings| Prober::Tcp(Box::new(settings))),
        "dns" => with_block(section, "dns", |block| dns(section, block, variables))
            .map(|settings| Prober::Dns(Box::new(settings))),
        "grpc" => with_block(section, "grpc", |block| Some(grpc(block, variables)))
            .map(|settings| Prober::Grpc(Box::new(settings))),
        "udp" => with_block(section, "udp", |block| Some(udp(block)))
            .map(|settings| Prober::Udp(Box::new(settings))),
        "tls" => with_block(section, "tls", |block| Some(tls(block, variables)))
            .map(|settings| Prober::Tls(Box::new(settings))),
        "exec" => with_block(section, "exec", |block| exec(section, block))
            .map(|settings| Prober::Exec(Box::new(settings))),
        "icmp" | "unix" | "websocket" => {
            section.report_at(
                "prober",
                format!("`{kind}` is not supported; remove the module, or probe with tcp or http"),
            );
            // Its block is no unknown key: one problem is enough.
            section.item("icmp");
            section.item("unix");
            section.item("websocket");
            return None;
        }
        other => {
            let hint = nearest(other, KINDS).map_or_else(
                || format!("use one of: {}", KINDS.join(", ")),
                |kind| format!("did you mean `{kind}`?"),
            );
            let other = excerpt(other);
            section.report_at("prober", format!("`{other}` is not a prober; {hint}"));
            return None;
        }
    };
    // As in blackbox_exporter, blocks of other probers are read and have no effect.
    for other in KINDS.into_iter().filter(|other| *other != kind) {
        section.item(other);
    }
    compiled
}

/// Reads the block of a prober, if there is one; without it the defaults hold.
fn with_block<'a, T>(
    section: &Section<'a>,
    key: &'static str,
    read: impl FnOnce(Option<&Section<'a>>) -> Option<T>,
) -> Option<T> {
    let block = section.section(key);
    let settings = read(block.as_ref());
    if let Some(block) = block {
        block.finish();
    }
    settings
}

/// Reads `tls_config`.
pub(super) fn tls_config(section: &Section<'_>, variables: &Variables) -> ProbeTls {
    let Some(tls) = section.section("tls_config") else {
        return ProbeTls::default();
    };
    let settings = ClientTlsSettings {
        insecure_skip_verify: tls.boolean("insecure_skip_verify").unwrap_or(false),
        ca_file: file(&tls, "ca_file", variables),
        cert_file: file(&tls, "cert_file", variables),
        key_file: file(&tls, "key_file", variables),
        server_name: tls.text("server_name").filter(|name| !name.is_empty()),
        min_version: tls_version(&tls, "min_version"),
        max_version: tls_version(&tls, "max_version"),
    };
    for (key, file) in [
        ("ca", "ca_file"),
        ("cert", "cert_file"),
        ("key", "key_file"),
    ] {
        tls.refuse(
            key,
            &format!("write it to a file, and name that in `{file}`"),
        );
    }
    let compiled = ProbeTls::new(settings).map_err(|error| report(&tls, &error));
    tls.finish();
    compiled.unwrap_or_default()
}

/// Reports what a prober says of its settings.
pub(super) fn report(section: &Section<'_>, error: &SettingsError) {
    match error {
        SettingsError::Invalid { setting, problem } => section.report_at(setting, problem),
        other => section.report(other.to_string()),
    }
}

fn tls_version(section: &Section<'_>, key: &'static str) -> Option<TlsVersion> {
    let text = section.text(key)?;
    match text.as_str() {
        "" => None,
        "TLS12" => Some(TlsVersion::Tls12),
        "TLS13" => Some(TlsVersion::Tls13),
        "TLS10" | "TLS11" => {
            section.report_at(
                key,
                format!("{text} is not supported; use TLS12 or TLS13, or remove it"),
            );
            None
        }
        other => {
            let other = excerpt(other);
            section.report_at(
                key,
                format!("`{other}` is not a version; use TLS12 or TLS13"),
            );
            None
        }
    }
}

/// Reads how the target is reached. Only some probers have a source address.
pub(super) fn network(section: &Section<'_>, has_source: bool) -> NetworkSettings {
    let mut settings = NetworkSettings::default();
    match section.text("preferred_ip_protocol").as_deref() {
        None | Some("ip6" | "") => {}
        Some("ip4") => settings.preferred_ip_protocol = IpProtocol::Ip4,
        Some(_) => section.report_at("preferred_ip_protocol", "must be `ip4` or `ip6`"),
    }
    if let Some(fallback) = section.boolean("ip_protocol_fallback") {
        settings.ip_protocol_fallback = fallback;
    }
    if has_source {
        settings.source_ip_address = parsed(section, "source_ip_address", "an IP address");
    }
    settings.resolver = resolver(section);
    settings
}

/// The DNS server of a module: an address with or without a port.
fn resolver(section: &Section<'_>) -> Option<SocketAddr> {
    let text = section.text("resolver")?;
    let address = text.parse::<SocketAddr>().ok();
    let address = address.or_else(|| Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, 53)));
    if address.is_none() {
        section.report_at(
            "resolver",
            "must be the address of a DNS server, such as `10.96.0.10:53`",
        );
    }
    address
}

fn parsed<T: std::str::FromStr>(section: &Section<'_>, key: &'static str, what: &str) -> Option<T> {
    let text = section.text(key).filter(|text| !text.is_empty())?;
    let parsed = text.parse().ok();
    if parsed.is_none() {
        section.report_at(key, format!("must be {what}"));
    }
    parsed
}

/// A regular expression.
pub(super) fn regexp(item: &Item<'_>) -> Option<Regex> {
    let pattern = item.text()?;
    compile_regexp(&pattern)
        .map_err(|error| item.report(error.to_string()))
        .ok()
}

pub(super) fn regexps(section: &Section<'_>, key: &'static str) -> Vec<Regex> {
    list(section, key).iter().filter_map(regexp).collect()
}

/// A list that is not too long.
pub(super) fn list<'a>(section: &Section<'a>, key: &'static str) -> Vec<Item<'a>> {
    let items = section.items(key);
    if items.len() > MAX_LIST {
        section.report_at(key, format!("has more than {MAX_LIST} elements"));
        return Vec::new();
    }
    items
}

/// A path of a file, with variables.
pub(super) fn file(
    section: &Section<'_>,
    key: &'static str,
    variables: &Variables,
) -> Option<PathBuf> {
    let text = section.text(key).filter(|text| !text.is_empty())?;
    expand(section, key, &text, variables).map(PathBuf::from)
}

/// A text with variables.
pub(super) fn expand(
    section: &Section<'_>,
    key: &str,
    text: &str,
    variables: &Variables,
) -> Option<String> {
    let expanded = variables.expand(text);
    expanded
        .map_err(|name| section.report_at(key, unset(&name)))
        .ok()
}

/// The message about a variable that is not set.
pub(super) fn unset(name: &str) -> String {
    let name = excerpt(name);
    format!("the variable {name} is not set here; write the value, or `$$({name})` for the text")
}

/// A secret, or its file. Both are an error.
pub(super) fn secret(
    section: &Section<'_>,
    key: &'static str,
    file_key: &'static str,
    variables: &Variables,
) -> Option<Secret> {
    let value = section.text(key);
    let path = file(section, file_key, variables);
    match (value, path) {
        (Some(_), Some(_)) => {
            section.report_at(key, format!("is also in `{file_key}`; set one of them"));
            None
        }
        (Some(value), None) => Some(Secret::Value(SecretString::from(value))),
        (None, Some(path)) => Some(Secret::File(path)),
        (None, None) => None,
    }
}
