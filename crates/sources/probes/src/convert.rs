//! A configuration of blackbox_exporter, as ours.
//!
//! Modules have the same keys in both, so most is copied. What we do not have, or what means
//! something else, gives a warning. A module that would succeed where blackbox_exporter fails, or
//! could only fail, is left out: a probe that lies is worse than none.

mod write;

use std::fmt;

use crate::config::reader::excerpt;
use crate::config::tree::{self, Node, Value};
use crate::config::{MAX_MODULES, Variables, compile_modules};
use crate::error::{ConfigError, Problem, Problems};
use write::write;

/// Maximum number of warnings that are kept.
const MAX_WARNINGS: usize = 1_000;

/// What is written above a converted configuration.
const HEADER: &str = "\
# Converted from a configuration of blackbox_exporter. Targets were in the configuration of
# Prometheus; here they are in a list of probes:
#
# probes:
#   - name: website
#     module: http_2xx
#     targets: [https://example.com/]
";

/// A converted configuration.
#[derive(Clone, PartialEq, Eq)]
pub struct Conversion {
    /// Our configuration, which is valid. It may have secrets.
    pub text: String,
    pub warnings: Vec<ConversionWarning>,
}

/// Something that is not the same as before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversionWarning {
    /// The line in the converted file.
    pub line: u64,
    /// The path of the key.
    pub path: String,
    pub text: String,
}

/// Whether a module can be kept.
#[derive(PartialEq, Eq)]
enum Keep {
    Yes,
    No,
}

/// What becomes of a key of `http` that we do not have.
const HTTP_KEYS: [(&str, Keep, &str); 9] = [
    (
        "fail_if_body_json_matches_cel",
        Keep::No,
        "CEL is not supported; write the rule as `fail_if_body_matches_regexp`",
    ),
    (
        "fail_if_body_json_not_matches_cel",
        Keep::No,
        "CEL is not supported; write the rule as `fail_if_body_not_matches_regexp`",
    ),
    ("enable_http3", Keep::No, "HTTP/3 is not supported"),
    ("oauth2", Keep::No, "OAuth 2.0 is not supported"),
    ("proxy_url", Keep::No, "proxies are not supported"),
    (
        "proxy_from_environment",
        Keep::No,
        "proxies are not supported",
    ),
    ("no_proxy", Keep::Yes, "proxies are not supported"),
    (
        "proxy_connect_header",
        Keep::Yes,
        "proxies are not supported",
    ),
    (
        "skip_resolve_phase_with_proxy",
        Keep::Yes,
        "proxies are not supported",
    ),
];

#[derive(Default)]
struct Converter {
    warnings: Vec<ConversionWarning>,
}

/// Converts a configuration of blackbox_exporter. Only a text that is no YAML mapping is an error.
pub fn convert_blackbox(text: &str) -> Result<Conversion, ConfigError> {
    let invalid = |text: String| {
        let mut problems = Problems::default();
        problems.push(Problem {
            file: None,
            line: 1,
            path: String::new(),
            text,
        });
        ConfigError::Invalid(problems)
    };
    let document = tree::parse(text).map_err(invalid)?;
    let entries = match document.value {
        Value::Map(entries) => entries,
        Value::Null => Vec::new(),
        other => {
            let found = other.kind();
            return Err(invalid(format!(
                "must be a mapping with `modules`, not {found}"
            )));
        }
    };
    let mut converter = Converter::default();
    let mut modules = Vec::new();
    for (key, node) in entries {
        match node.value {
            Value::Map(entries) if key == "modules" => {
                modules = converter.modules(entries);
            }
            Value::Null if key == "modules" => {}
            _ => converter.warn(node.line, &excerpt(&key), "is not converted"),
        }
    }
    let line = 1;
    let modules = Node {
        line,
        value: Value::Map(modules),
    };
    let document = Node {
        line,
        value: Value::Map(vec![("modules".to_owned(), modules)]),
    };
    let text = format!("{HEADER}{}", write(&document));
    if text.len() > tree::MAX_CONFIG_BYTES {
        return Err(invalid(
            "it is too large; split it into several files".to_owned(),
        ));
    }
    Ok(Conversion {
        text,
        warnings: converter.warnings,
    })
}

impl Converter {
    fn warn(&mut self, line: u64, path: &str, text: impl Into<String>) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(ConversionWarning {
                line,
                path: path.to_owned(),
                text: text.into(),
            });
        }
    }

    fn modules(&mut self, entries: Vec<(String, Node)>) -> Vec<(String, Node)> {
        let mut converted = Vec::new();
        for (name, mut node) in entries {
            let line = node.line;
            let path = format!("modules.{}", excerpt(&name));
            if converted.len() >= MAX_MODULES {
                self.warn(
                    line,
                    &path,
                    format!("there are more than {MAX_MODULES} modules"),
                );
                break;
            }
            if self.module(&path, &mut node) == Keep::No {
                self.warn(line, &path, "the module is left out");
                continue;
            }
            if let Err(problems) = check(&name, &node) {
                for problem in problems.iter() {
                    self.warn(problem.line, &problem.path, problem.text.clone());
                }
                self.warn(line, &path, "the module is left out");
                continue;
            }
            converted.push((name, node));
        }
        converted
    }

    fn module(&mut self, path: &str, node: &mut Node) -> Keep {
        let line = node.line;
        let Some(Value::Text(prober)) = value_of(node, "prober").cloned() else {
            // The check says what is wrong.
            return Keep::Yes;
        };
        if ["icmp", "unix", "websocket"].contains(&prober.as_str()) {
            let text = format!("the prober `{prober}` is not supported");
            self.warn(line, &format!("{path}.prober"), text);
            return Keep::No;
        }
        // Blocks of other probers have no effect.
        for other in ["http", "tcp", "dns", "icmp", "grpc", "unix", "websocket"] {
            if other != prober {
                remove(node, other);
            }
        }
        let Some(block) = child(node, &prober) else {
            if prober == "grpc" {
                self.warn(
                    line,
                    path,
                    "without a block `grpc` blackbox_exporter does not fall back to IPv4; \
                     this one does",
                );
            }
            return Keep::Yes;
        };
        let path = format!("{path}.{prober}");
        let mut keep = self.tls_config(&path, block);
        escape_files(block);
        match prober.as_str() {
            "http" if self.http(&path, block) == Keep::No => keep = Keep::No,
            "dns" => {
                for section in ["answer", "authority", "additional"] {
                    self.record_rules(&path, block, &format!("validate_{section}_rrs"));
                }
            }
            _ => {}
        }
        keep
    }

    fn http(&mut self, path: &str, block: &mut Node) -> Keep {
        let mut keep = Keep::Yes;
        for (key, keeps, why) in &HTTP_KEYS {
            let Some(removed) = remove(block, key) else {
                continue;
            };
            if matches!(removed.value, Value::Bool(false) | Value::Null) {
                continue;
            }
            self.warn(removed.line, &format!("{path}.{key}"), *why);
            if *keeps == Keep::No {
                keep = Keep::No;
            }
        }
        if let Some(Value::Text(compression)) = value_of(block, "compression")
            && compression == "br"
        {
            self.warn(
                block.line,
                &format!("{path}.compression"),
                "`br` is not supported",
            );
            keep = Keep::No;
        }
        keep
    }

    fn tls_config(&mut self, path: &str, block: &mut Node) -> Keep {
        let Some(tls) = child(block, "tls_config") else {
            return Keep::Yes;
        };
        let path = format!("{path}.tls_config");
        let mut keep = Keep::Yes;
        let is_old = |node: &Node, key: &str| {
            matches!(value_of(node, key), Some(Value::Text(version))
                if version == "TLS10" || version == "TLS11")
        };
        if is_old(tls, "min_version") {
            remove(tls, "min_version");
            self.warn(
                tls.line,
                &format!("{path}.min_version"),
                "TLS 1.0 and 1.1 are not supported; the lowest version is now TLS 1.2",
            );
        }
        if is_old(tls, "max_version") {
            self.warn(
                tls.line,
                &format!("{path}.max_version"),
                "TLS 1.0 and 1.1 are not supported",
            );
            keep = Keep::No;
        }
        if let Some(removed) = remove(tls, "check_revoked")
            && removed.value == Value::Bool(true)
        {
            self.warn(
                removed.line,
                &format!("{path}.check_revoked"),
                "revocation is not checked",
            );
        }
        escape_files(tls);
        keep
    }

    /// blackbox_exporter fails when **not** all records match `fail_if_all_match_regexp`. Ours with
    /// this name does what it says; the other meaning has a name of its own.
    fn record_rules(&mut self, path: &str, block: &mut Node, key: &str) {
        let Some(Value::Map(rules)) = child(block, key).map(|rules| &mut rules.value) else {
            return;
        };
        for (name, node) in rules {
            if name == "fail_if_all_match_regexp" {
                "fail_if_not_all_match_regexp".clone_into(name);
                self.warn(
                    node.line,
                    &format!("{path}.{key}.fail_if_all_match_regexp"),
                    "blackbox_exporter does the reverse of this name: it fails when a record does \
                     not match; it became `fail_if_not_all_match_regexp`, which does the same",
                );
            }
        }
    }
}

/// Compiles a module as the configuration will.
fn check(name: &str, node: &Node) -> Result<(), Problems> {
    let wrap = |key: &str, node: Node| Node {
        line: node.line,
        value: Value::Map(vec![(key.to_owned(), node)]),
    };
    let document = wrap("modules", wrap(name, node.clone()));
    compile_modules(&document, &Variables::default()).map(drop)
}

/// Paths of files may have what would be a variable here.
fn escape_files(node: &mut Node) {
    let Value::Map(entries) = &mut node.value else {
        return;
    };
    for (key, value) in entries {
        match &mut value.value {
            Value::Text(text) if key.ends_with("_file") => *text = text.replace("$(", "$$("),
            Value::List(items) if key == "files" => {
                for item in items {
                    if let Value::Text(text) = &mut item.value {
                        *text = text.replace("$(", "$$(");
                    }
                }
            }
            Value::Map(headers) if key == "http_headers" => {
                for (_, header) in headers {
                    escape_files(header);
                }
            }
            Value::Map(_) if key == "basic_auth" || key == "authorization" => escape_files(value),
            _ => {}
        }
    }
}

fn value_of<'a>(node: &'a Node, key: &str) -> Option<&'a Value> {
    match &node.value {
        Value::Map(entries) => entries
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, node)| &node.value),
        _ => None,
    }
}

fn child<'a>(node: &'a mut Node, key: &str) -> Option<&'a mut Node> {
    match &mut node.value {
        Value::Map(entries) => entries
            .iter_mut()
            .find(|(name, node)| name == key && node.value != Value::Null)
            .map(|(_, node)| node),
        _ => None,
    }
}

fn remove(node: &mut Node, key: &str) -> Option<Node> {
    let Value::Map(entries) = &mut node.value else {
        return None;
    };
    let position = entries.iter().position(|(name, _)| name == key)?;
    Some(entries.remove(position).1)
}

impl fmt::Display for ConversionWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}: {}", self.line, self.path, self.text)
    }
}

/// Shows no text: it may have secrets.
impl fmt::Debug for Conversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversion")
            .field("bytes", &self.text.len())
            .field("warnings", &self.warnings)
            .finish()
    }
}

#[cfg(test)]
mod tests;
