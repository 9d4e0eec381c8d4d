//! Proxies by the environment, with the rules of Go's `golang.org/x/net/http/httpproxy`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The proxies in `HTTP_PROXY` and `HTTPS_PROXY`, and the hosts in `NO_PROXY` that are reached
/// without one.
///
/// As in Go, an upper-case variable has precedence over its lower-case form, `localhost` and
/// loopback addresses are never proxied, and a malformed entry of `NO_PROXY` matches nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxyRules {
    http: Option<String>,
    https: Option<String>,
    exempt: Vec<Exemption>,
}

/// An entry of `NO_PROXY`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Exemption {
    /// `*`
    All,
    /// `10.0.0.0/8`
    Network { address: IpAddr, prefix: u32 },
    /// `10.0.0.1`, `10.0.0.1:443`
    Address { address: IpAddr, port: String },
    /// `example.com`, `.example.com:443`
    Domain {
        /// The name with a dot before it.
        suffix: String,
        port: String,
        /// Whether the domain itself is exempt too, not its subdomains alone.
        includes_itself: bool,
    },
}

impl ProxyRules {
    /// Reads the rules from variables. `get` returns the value of a variable.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: [&str; 2]| {
            let mut values = names.iter().filter_map(|name| get(name));
            values.find(|value| !value.is_empty())
        };
        let no_proxy = first(["NO_PROXY", "no_proxy"]).unwrap_or_default();
        Self {
            http: first(["HTTP_PROXY", "http_proxy"]).map(|text| with_scheme(&text)),
            https: first(["HTTPS_PROXY", "https_proxy"]).map(|text| with_scheme(&text)),
            exempt: exemptions(&no_proxy),
        }
    }

    /// Returns the URL of the proxy for requests to a host; `None` if it is reached directly. An
    /// IPv6 address has no brackets.
    pub fn proxy_for(&self, is_https: bool, host: &str, port: u16) -> Option<&str> {
        let proxy = if is_https { &self.https } else { &self.http };
        let proxy = proxy.as_deref()?;
        (!self.is_exempt(host, port)).then_some(proxy)
    }

    /// Returns the URL of the proxy for HTTPS, whatever the host.
    pub fn https_proxy(&self) -> Option<&str> {
        self.https.as_deref()
    }

    fn is_exempt(&self, host: &str, port: u16) -> bool {
        if host == "localhost" {
            return true;
        }
        let host = host.trim().to_ascii_lowercase();
        let address = host.split('%').next().unwrap_or_default();
        let address = address.parse().ok().map(|ip: IpAddr| ip.to_canonical());
        if address.is_some_and(|ip| ip.is_loopback()) {
            return true;
        }
        let port = port.to_string();
        let mut exempt = self.exempt.iter();
        exempt.any(|exemption| exemption.matches(&host, address, &port))
    }
}

impl Exemption {
    fn matches(&self, host: &str, target: Option<IpAddr>, target_port: &str) -> bool {
        let is_port = |port: &str| port.is_empty() || port == target_port;
        match self {
            Self::All => true,
            Self::Network { address, prefix } => {
                target.is_some_and(|target| is_within(target, *address, *prefix))
            }
            Self::Address { address, port } => target == Some(*address) && is_port(port),
            Self::Domain {
                suffix,
                port,
                includes_itself,
            } => {
                let is_itself = *includes_itself && suffix.strip_prefix('.') == Some(host);
                target.is_none() && (host.ends_with(suffix.as_str()) || is_itself) && is_port(port)
            }
        }
    }

    /// Parses an entry in lower case that is not empty.
    fn parse(entry: &str) -> Option<Self> {
        if let Some((address, prefix)) = parse_network(entry) {
            return Some(Self::Network { address, prefix });
        }
        let (host, port) = split_host_port(entry).unwrap_or((entry, ""));
        let port = port.to_owned();
        if let Ok(address) = host.parse::<IpAddr>() {
            let address = address.to_canonical();
            return Some(Self::Address { address, port });
        }
        let host = match host.strip_prefix('*') {
            Some(rest) if rest.starts_with('.') => rest,
            _ => host,
        };
        if host.is_empty() {
            return None;
        }
        let includes_itself = !host.starts_with('.');
        let dot = if includes_itself { "." } else { "" };
        Some(Self::Domain {
            suffix: format!("{dot}{host}"),
            port,
            includes_itself,
        })
    }
}

fn exemptions(no_proxy: &str) -> Vec<Exemption> {
    let mut parsed = Vec::new();
    for entry in no_proxy.split(',') {
        let entry = entry.trim().to_lowercase();
        if entry == "*" {
            return vec![Exemption::All];
        }
        if !entry.is_empty() {
            parsed.extend(Exemption::parse(&entry));
        }
    }
    parsed
}

/// Returns the URL of a proxy, which may be written as `host:port`.
fn with_scheme(text: &str) -> String {
    if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    }
}

/// Parses a network in CIDR notation.
fn parse_network(text: &str) -> Option<(IpAddr, u32)> {
    let (address, prefix) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    if prefix.is_empty() || !prefix.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let prefix: u32 = prefix.parse().ok()?;
    if prefix > bits(address) {
        return None;
    }
    // A network of addresses that are IPv4 in IPv6 is one of IPv4.
    match (address.to_canonical(), prefix.checked_sub(96)) {
        (IpAddr::V4(v4), Some(prefix)) if address.is_ipv6() => Some((v4.into(), prefix)),
        _ => Some((address, prefix)),
    }
}

fn bits(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => Ipv4Addr::BITS,
        IpAddr::V6(_) => Ipv6Addr::BITS,
    }
}

fn is_within(target: IpAddr, network: IpAddr, prefix: u32) -> bool {
    let host_bits = bits(network).saturating_sub(prefix);
    match (target, network) {
        (IpAddr::V4(target), IpAddr::V4(network)) => {
            let difference = target.to_bits() ^ network.to_bits();
            difference.checked_shr(host_bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(target), IpAddr::V6(network)) => {
            let difference = target.to_bits() ^ network.to_bits();
            difference.checked_shr(host_bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// Go's `net.SplitHostPort`; `None` where that fails.
fn split_host_port(text: &str) -> Option<(&str, &str)> {
    let (before, port) = text.rsplit_once(':')?;
    if let Some(rest) = before.strip_prefix('[') {
        let host = rest.strip_suffix(']')?;
        let has_brackets = |text: &str| text.contains(['[', ']']);
        return (!has_brackets(host) && !has_brackets(port)).then_some((host, port));
    }
    (!before.contains([':', '[', ']']) && !port.contains(['[', ']'])).then_some((before, port))
}
