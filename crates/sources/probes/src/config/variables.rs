//! `$(NAME)` in a configuration, written as in the arguments of a container.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Values of the environment: the node's address, the API server, the files of the service
/// account. The role fills them in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// The address of the node that we run on.
    pub const HOST_IP: &'static str = "HOST_IP";
    /// The URL of the API server, without a slash at its end.
    pub const API_SERVER: &'static str = "API_SERVER";
    /// The file with the token for the API server.
    pub const TOKEN_FILE: &'static str = "TOKEN_FILE";
    /// The file with the authorities of the API server.
    pub const CA_FILE: &'static str = "CA_FILE";
    /// The host of the metadata server, on a cloud that has one.
    pub const METADATA_HOST: &'static str = "METADATA_HOST";

    /// The first DNS server of this host.
    pub const DNS_SERVER: &'static str = "DNS_SERVER";
    /// The DNS server of the cluster: the address of the Service `kube-dns`.
    pub const CLUSTER_DNS: &'static str = "CLUSTER_DNS";

    /// Sets a variable. An empty value is none.
    pub fn set(&mut self, name: &str, value: &str) {
        if value.is_empty() {
            self.0.remove(name);
        } else {
            self.0.insert(name.to_owned(), value.to_owned());
        }
    }

    /// Sets an address as URLs and targets have it: with brackets if it is one of IPv6.
    pub fn set_address(&mut self, name: &str, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.set(name, &address.to_string()),
            IpAddr::V6(address) => self.set(name, &format!("[{address}]")),
        }
    }

    /// Sets [`DNS_SERVER`](Self::DNS_SERVER) to the first server of a `resolv.conf`, and
    /// [`CLUSTER_DNS`](Self::CLUSTER_DNS) if it is not set: in a pod they are the same.
    pub fn set_resolv_conf(&mut self, text: &str) {
        let mut words = text.lines().map(str::split_whitespace);
        let server = words.find_map(|mut words| {
            let is_server = words.next() == Some("nameserver");
            words.next().filter(|_| is_server)?.parse::<IpAddr>().ok()
        });
        if let Some(server) = server {
            self.set_address(Self::DNS_SERVER, server);
            if self.get(Self::CLUSTER_DNS).is_none() {
                self.set_address(Self::CLUSTER_DNS, server);
            }
        }
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Replaces every `$(NAME)`; `$$(NAME)` stays, with one dollar sign. The error is the name of
    /// the first variable that is not set.
    pub fn expand(&self, text: &str) -> Result<String, String> {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("$(") {
            expanded.push_str(before);
            let Some((name, end)) = after.split_once(')') else {
                expanded.push_str("$(");
                rest = after;
                continue;
            };
            if before.ends_with('$') {
                expanded.push('(');
                expanded.push_str(name);
                expanded.push(')');
            } else {
                expanded.push_str(self.get(name).ok_or_else(|| name.to_owned())?);
            }
            rest = end;
        }
        expanded.push_str(rest);
        Ok(expanded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_server_of_resolv_conf_is_the_dns_server() {
        let mut variables = Variables::default();
        variables.set(Variables::CLUSTER_DNS, "10.0.0.10");
        variables.set_resolv_conf("# nameserver 1.1.1.1\nsearch x\nnameserver fd00::a\n");
        assert_eq!(variables.get(Variables::DNS_SERVER), Some("[fd00::a]"));
        assert_eq!(variables.get(Variables::CLUSTER_DNS), Some("10.0.0.10"));
    }

    #[test]
    fn variables_are_replaced_as_in_the_arguments_of_a_container() {
        let mut variables = Variables::default();
        variables.set_address("HOST_IP", "fd00::1".parse().unwrap());
        variables.set("EMPTY", "");
        let expand = |text: &str| variables.expand(text);
        assert_eq!(
            expand("http://$(HOST_IP):2020/").unwrap(),
            "http://[fd00::1]:2020/"
        );
        assert_eq!(expand("$$(HOST_IP) $( ${1}").unwrap(), "$(HOST_IP) $( ${1}");
        assert_eq!(expand("$(EMPTY)"), Err("EMPTY".to_owned()));
        assert_eq!(expand("$(NO"), Ok("$(NO".to_owned()));
    }
}
