//! The block `http` of a module.

use http::{HeaderName, HeaderValue, Method, Version};
use secrecy::SecretString;

use super::module::{MAX_LIST, file, list, network, regexp, regexps, secret, tls_config};
use super::reader::{Item, Section, excerpt};
use super::variables::Variables;
use crate::probers::http::{BasicAuth, Compression, HeaderMatch, HeaderSetting, HttpSettings};
use crate::settings::Secret;

/// What is refused, and what to do.
const REFUSED: [(&str, &str); 9] = [
    (
        "fail_if_body_json_matches_cel",
        "CEL is not supported; use `fail_if_body_matches_regexp`",
    ),
    (
        "fail_if_body_json_not_matches_cel",
        "CEL is not supported; use `fail_if_body_not_matches_regexp`",
    ),
    ("enable_http3", "HTTP/3 is not supported; remove it"),
    (
        "oauth2",
        "OAuth 2.0 is not supported; use `authorization` with a file that another program keeps",
    ),
    ("proxy_url", "proxies are not supported; remove it"),
    ("no_proxy", "proxies are not supported; remove it"),
    (
        "proxy_from_environment",
        "proxies are not supported; remove it",
    ),
    (
        "proxy_connect_header",
        "proxies are not supported; remove it",
    ),
    (
        "skip_resolve_phase_with_proxy",
        "proxies are not supported; remove it",
    ),
];

/// Compiles the block.
pub(super) fn http(section: Option<&Section<'_>>, variables: &Variables) -> HttpSettings {
    let Some(section) = section else {
        return HttpSettings::default();
    };
    let mut settings = HttpSettings {
        valid_status_codes: status_codes(section),
        valid_http_versions: versions(section),
        headers: headers(section, variables),
        body: section.text("body").map(String::into_bytes),
        body_file: file(section, "body_file", variables),
        body_size_limit: size(section, "body_size_limit"),
        compression: compression(section),
        fail_if_ssl: section.boolean("fail_if_ssl").unwrap_or(false),
        fail_if_not_ssl: section.boolean("fail_if_not_ssl").unwrap_or(false),
        fail_if_body_matches_regexp: regexps(section, "fail_if_body_matches_regexp"),
        fail_if_body_not_matches_regexp: regexps(section, "fail_if_body_not_matches_regexp"),
        fail_if_header_matches: header_matches(section, "fail_if_header_matches"),
        fail_if_header_not_matches: header_matches(section, "fail_if_header_not_matches"),
        tls_config: tls_config(section, variables),
        basic_auth: basic_auth(section, variables),
        authorization: authorization(section, variables),
        enable_http2: section.boolean("enable_http2").unwrap_or(true),
        network: network(section, true),
        ..HttpSettings::default()
    };
    if let Some(method) = section.text("method").filter(|method| !method.is_empty()) {
        match Method::from_bytes(method.as_bytes()) {
            Ok(method) => settings.method = method,
            Err(_) => section.report_at("method", "is not a method of HTTP, such as `GET`"),
        }
    }
    let follow = section.boolean("follow_redirects").unwrap_or(true);
    // The old key wins, as in blackbox_exporter.
    let refuse = section.boolean("no_follow_redirects").map(|no| !no);
    settings.follow_redirects = refuse.unwrap_or(follow);
    if settings.body.is_some() && settings.body_file.is_some() {
        section.report_at("body", "is also in `body_file`; set one of them");
    }
    if settings.fail_if_ssl && settings.fail_if_not_ssl {
        section.report_at("fail_if_ssl", "no response passes with `fail_if_not_ssl`");
    }
    if settings.basic_auth.is_some() && settings.authorization.is_some() {
        section.report_at("basic_auth", "`authorization` is set too; set one of them");
    }
    for (key, why) in REFUSED {
        section.refuse(key, why);
    }
    settings
}

fn status_codes(section: &Section<'_>) -> Vec<u16> {
    if section.boolean("accept_any_response") == Some(true) {
        section.item("valid_status_codes");
        return (100..=999).collect();
    }
    let items = list(section, "valid_status_codes");
    let codes = items.iter().filter_map(|item| {
        let code = item.unsigned(999)?;
        if code < 100 {
            item.report("must be a status code, from 100 to 999");
        }
        u16::try_from(code).ok()
    });
    codes.collect()
}

fn versions(section: &Section<'_>) -> Vec<Version> {
    let items = list(section, "valid_http_versions");
    let versions = items.iter().filter_map(|item| {
        let text = item.text()?;
        match text.as_str() {
            "HTTP/1.0" => Some(Version::HTTP_10),
            "HTTP/1.1" => Some(Version::HTTP_11),
            "HTTP/2.0" | "HTTP/2" => Some(Version::HTTP_2),
            _ => {
                item.report("must be `HTTP/1.0`, `HTTP/1.1` or `HTTP/2.0`");
                None
            }
        }
    });
    versions.collect()
}

fn compression(section: &Section<'_>) -> Option<Compression> {
    match section.text("compression")?.as_str() {
        "gzip" => Some(Compression::Gzip),
        "deflate" => Some(Compression::Deflate),
        "identity" => Some(Compression::Identity),
        "" => None,
        _ => {
            section.report_at("compression", "must be `gzip`, `deflate` or `identity`");
            None
        }
    }
}

/// A size in bytes. The units are powers of 1024, as in blackbox_exporter.
fn size(section: &Section<'_>, key: &'static str) -> u64 {
    let Some(text) = section.text(key) else {
        return 0;
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).unwrap_or(("", ""));
    let shift = match unit {
        "" | "B" => Some(0),
        "KB" | "KiB" => Some(10),
        "MB" | "MiB" => Some(20),
        "GB" | "GiB" => Some(30),
        _ => None,
    };
    let size = shift.and_then(|shift| number.parse::<u64>().ok()?.checked_mul(1 << shift));
    if size.is_none() {
        section.report_at(key, "must be a size such as `10MB`");
    }
    size.unwrap_or(0)
}

fn headers(section: &Section<'_>, variables: &Variables) -> Vec<HeaderSetting> {
    let mut headers = Vec::new();
    if let Some(plain) = section.item("headers") {
        for (name, item) in plain.entries() {
            if let (Some(name), Some(text)) = (header_name(name, &item), item.text())
                && let Some(value) = header_value(&name, &text, &item)
            {
                headers.push(HeaderSetting::Value(name, value));
            }
        }
    }
    if let Some(extended) = section.item("http_headers") {
        for (name, item) in extended.entries() {
            let (Some(name), Some(kinds)) = (header_name(name, &item), item.section()) else {
                continue;
            };
            for item in list(&kinds, "values") {
                let text = item.text().unwrap_or_default();
                if let Some(value) = header_value(&name, &text, &item) {
                    headers.push(HeaderSetting::Value(name.clone(), value));
                }
            }
            for secret in kinds.texts("secrets") {
                let secret = Secret::Value(SecretString::from(secret));
                headers.push(HeaderSetting::Secret(name.clone(), secret));
            }
            for path in list(&kinds, "files") {
                let text = path.text().unwrap_or_default();
                match variables.expand(&text) {
                    Ok(path) => {
                        let secret = Secret::File(path.into());
                        headers.push(HeaderSetting::Secret(name.clone(), secret));
                    }
                    Err(variable) => path.report(super::module::unset(&variable)),
                }
            }
            kinds.finish();
        }
    }
    if headers.len() > MAX_LIST {
        section.report_at("headers", format!("has more than {MAX_LIST} elements"));
        headers.clear();
    }
    headers
}

/// The name of a header.
pub(super) fn header_name(name: &str, item: &Item<'_>) -> Option<HeaderName> {
    let parsed = HeaderName::from_bytes(name.as_bytes()).ok();
    if parsed.is_none() {
        item.report(format!("`{}` is not the name of a header", excerpt(name)));
    }
    parsed
}

/// The value of a header. One that looks like a credential is not shown by `Debug`.
pub(super) fn header_value(name: &HeaderName, text: &str, item: &Item<'_>) -> Option<HeaderValue> {
    const CREDENTIALS: [&str; 6] = ["auth", "cookie", "key", "password", "secret", "token"];
    let Ok(mut value) = HeaderValue::from_bytes(text.as_bytes()) else {
        item.report("is not the value of a header: it has control characters");
        return None;
    };
    let name = name.as_str();
    value.set_sensitive(CREDENTIALS.iter().any(|part| name.contains(part)));
    Some(value)
}

fn header_matches(section: &Section<'_>, key: &'static str) -> Vec<HeaderMatch> {
    let items = list(section, key);
    let matches = items.iter().filter_map(|item| {
        let rule = item.section()?;
        let header = rule.item("header");
        let pattern = rule.item("regexp");
        let allow_missing = rule.boolean("allow_missing").unwrap_or(false);
        if header.is_none() || pattern.is_none() {
            rule.report("needs `header` and `regexp`");
        }
        rule.finish();
        let header = header?;
        Some(HeaderMatch {
            header: header_name(&header.text()?, &header)?,
            regexp: regexp(&pattern?)?,
            allow_missing,
        })
    });
    matches.collect()
}

fn basic_auth(section: &Section<'_>, variables: &Variables) -> Option<BasicAuth> {
    let auth = section.section("basic_auth")?;
    let username = secret(&auth, "username", "username_file", variables);
    let password = secret(&auth, "password", "password_file", variables);
    if username.is_none() {
        auth.report("needs `username` or `username_file`");
    }
    auth.finish();
    Some(BasicAuth {
        username: username?,
        password,
    })
}

fn authorization(section: &Section<'_>, variables: &Variables) -> Option<(String, Secret)> {
    let bearer = secret(section, "bearer_token", "bearer_token_file", variables);
    let Some(auth) = section.section("authorization") else {
        return bearer.map(|token| ("Bearer".to_owned(), token));
    };
    if bearer.is_some() {
        section.report_at(
            "bearer_token",
            "`authorization` is set too; set one of them",
        );
    }
    let kind = auth.text("type").unwrap_or_else(|| "Bearer".to_owned());
    if kind.is_empty() || !kind.bytes().all(|byte| byte.is_ascii_graphic()) {
        auth.report_at("type", "must be a word, such as `Bearer`");
    }
    let credentials = secret(&auth, "credentials", "credentials_file", variables);
    if credentials.is_none() {
        auth.report("needs `credentials` or `credentials_file`");
    }
    auth.finish();
    credentials.map(|credentials| (kind, credentials))
}
