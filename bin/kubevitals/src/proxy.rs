//! Proxies in front of the API server and of kubelets, chosen as Go programs do.
//!
//! kube reads `HTTPS_PROXY` for a kubeconfig only, never for the service account of a pod, and
//! compares `NO_PROXY` with the name of the proxy instead of the server. So its choice is replaced.

use std::env;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use kubevitals_cli::RunError;
use kubevitals_model::ProxyRules;
use kubevitals_scrape::KubeletProxy;
use percent_encoding::percent_decode_str;

/// The rules in the environment of this process.
pub(crate) fn rules_of_environment() -> ProxyRules {
    ProxyRules::from_env(|name| env::var(name).ok())
}

/// Sets the proxy for the API server. `named` is the one that the kubeconfig names, to which
/// `NO_PROXY` does not apply, as in client-go.
pub(crate) fn choose(
    config: &mut kube::Config,
    named: Option<&str>,
    rules: &ProxyRules,
) -> Result<(), RunError> {
    let url = named.or_else(|| proxy_of(&config.cluster_url, rules));
    config.proxy_url = url.map(parse).transpose()?;
    if let Some(proxy) = &config.proxy_url {
        let host = proxy.host().unwrap_or_default();
        tracing::info!(proxy = host, "the API server is reached through a proxy");
    }
    Ok(())
}

/// The proxy for kubelets, if the rules name one. It must speak plain HTTP.
pub(crate) fn for_kubelets(rules: ProxyRules) -> Result<Option<KubeletProxy>, RunError> {
    let Some(url) = rules.https_proxy() else {
        return Ok(None);
    };
    let url = parse(url)?;
    if url.scheme_str() != Some("http") {
        return Err(RunError::runtime(
            "--kubelet-use-proxy needs a proxy in HTTPS_PROXY of the form http://HOST:PORT",
        ));
    }
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    let authorization = user.map(|user| {
        let user: Vec<u8> = percent_decode_str(user).collect();
        format!("Basic {}", STANDARD.encode(user))
    });
    let host = url.host().unwrap_or_default();
    Ok(Some(KubeletProxy {
        host: host.trim_matches(['[', ']']).to_owned(),
        port: url.port_u16().unwrap_or(80),
        authorization,
        rules,
    }))
}

fn proxy_of<'r>(server: &Uri, rules: &'r ProxyRules) -> Option<&'r str> {
    let is_https = server.scheme_str() == Some("https");
    let port = server.port_u16();
    let port = port.unwrap_or(if is_https { 443 } else { 80 });
    let host = server.host()?.trim_matches(['[', ']']);
    rules.proxy_for(is_https, host, port)
}

/// The error does not repeat the URL, which may have a password.
fn parse(url: &str) -> Result<Uri, RunError> {
    const SCHEMES: [&str; 3] = ["http", "https", "socks5"];
    let parsed: Uri = url.parse().map_err(|error| {
        RunError::context("the URL of the proxy (HTTPS_PROXY) is invalid", error)
    })?;
    let is_supported = parsed.scheme_str().is_some_and(|s| SCHEMES.contains(&s));
    if !is_supported || parsed.host().is_none_or(str::is_empty) {
        return Err(RunError::runtime(
            "the URL of the proxy (HTTPS_PROXY) is invalid: write http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT",
        ));
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(no_proxy: &str) -> ProxyRules {
        ProxyRules::from_env(|name| match name {
            "HTTPS_PROXY" => Some("proxy.test:3128".to_owned()),
            "NO_PROXY" => Some(no_proxy.to_owned()),
            _ => None,
        })
    }

    fn chosen(server: &str, named: Option<&str>, no_proxy: &str) -> Option<String> {
        let mut config = kube::Config::new(server.parse().unwrap());
        // What kube chose.
        config.proxy_url = Some("http://wrong.test".parse().unwrap());
        choose(&mut config, named, &rules(no_proxy)).unwrap();
        config.proxy_url.map(|url| url.to_string())
    }

    /// kube 5.0 used the proxy for a server that `NO_PROXY` names.
    #[test]
    fn a_server_in_no_proxy_is_reached_directly() {
        let proxy = Some("http://proxy.test:3128/".to_owned());
        for (server, no_proxy, expected) in [
            ("https://api.example:6443", "", proxy.clone()),
            ("https://api.example:6443", "proxy.test", proxy.clone()),
            ("https://api.example:6443", "api.example", None),
            ("https://api.example", "api.example:443", None),
            ("https://api.example", "api.example:6443", proxy.clone()),
            ("https://10.96.0.1:443", "10.96.0.0/12", None),
            ("https://[fd00::1]:6443", "fd00::/8", None),
            ("https://[fd00::1]:6443", ".example", proxy),
            ("https://127.0.0.1:6443", "", None),
            // HTTPS_PROXY is not for plain HTTP.
            ("http://api.example", "", None),
        ] {
            let found = chosen(server, None, no_proxy);
            assert_eq!(found, expected, "{server} and NO_PROXY={no_proxy}");
        }
    }

    #[test]
    fn the_proxy_of_a_kubeconfig_takes_precedence() {
        let named = Some("socks5://other.test:1080");
        let found = chosen("https://127.0.0.1:6443", named, "*");
        assert_eq!(found.as_deref(), Some("socks5://other.test:1080/"));
    }

    #[test]
    fn the_proxy_for_kubelets_has_the_address_and_password_of_the_url() {
        let of = |url: &str| {
            let rules = ProxyRules::from_env(|name| (name == "HTTPS_PROXY").then(|| url.into()));
            for_kubelets(rules)
        };
        let proxy = of("http://user:p%40ss@[fd00::1]:3128").unwrap().unwrap();
        assert_eq!((&*proxy.host, proxy.port), ("fd00::1", 3128));
        let expected = format!("Basic {}", STANDARD.encode("user:p@ss"));
        assert_eq!(proxy.authorization, Some(expected));
        let proxy = of("proxy.test").unwrap().unwrap();
        assert_eq!((&*proxy.host, proxy.port), ("proxy.test", 80));
        assert_eq!(proxy.authorization, None);
        of("socks5://proxy.test").unwrap_err();
        let none = for_kubelets(ProxyRules::default()).unwrap();
        assert!(none.is_none());
    }

    #[test]
    fn an_invalid_proxy_is_an_error_without_its_password() {
        for url in ["ftp://user:secret@proxy.test", "http://user:secret@", "a b"] {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains("HTTPS_PROXY"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
