//! The addresses of a kubelet and the order in which they are tried.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use kubevitals_model::NodeAddress;

use crate::config::ConfigError;

/// Maximum number of addresses that are tried. No node has nearly as many.
const MAX_ADDRESSES: usize = 16;

/// A type of address of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressType {
    Hostname,
    InternalDns,
    InternalIp,
    ExternalDns,
    ExternalIp,
}

/// The addresses of a node in the order in which they are tried.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Addresses {
    hosts: Vec<Arc<str>>,
    /// The index of the one that worked last.
    working: usize,
}

impl AddressType {
    /// All types, in the default order of metrics-server's flag.
    pub const ALL: [Self; 5] = [
        Self::Hostname,
        Self::InternalDns,
        Self::InternalIp,
        Self::ExternalDns,
        Self::ExternalIp,
    ];

    /// Returns the type as in Node objects.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hostname => "Hostname",
            Self::InternalDns => "InternalDNS",
            Self::InternalIp => "InternalIP",
            Self::ExternalDns => "ExternalDNS",
            Self::ExternalIp => "ExternalIP",
        }
    }
}

impl fmt::Display for AddressType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for AddressType {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| ConfigError::UnknownAddressType {
            given: text.chars().take(60).collect(),
        })
    }
}

impl Addresses {
    /// Selects the addresses of the given types, ordered by type and then as in the API, each once.
    pub(crate) fn choose(all: &[NodeAddress], types: &[AddressType]) -> Self {
        let mut hosts: Vec<Arc<str>> = Vec::new();
        for wanted in types {
            for NodeAddress { kind, address } in all {
                let is_wanted = **kind == *wanted.as_str() && !address.is_empty();
                if is_wanted && hosts.len() < MAX_ADDRESSES && !hosts.contains(address) {
                    hosts.push(Arc::clone(address));
                }
            }
        }
        hosts.shrink_to_fit();
        Self { hosts, working: 0 }
    }

    /// Compares the addresses, whichever worked last.
    pub(crate) fn have_same_hosts(&self, other: &Self) -> bool {
        self.hosts == other.hosts
    }

    /// Returns the address of the given attempt and its index: first the one that worked last, then
    /// the others in order.
    pub(crate) fn attempt(&self, attempt: usize) -> Option<(usize, &Arc<str>)> {
        let index = match attempt {
            0 => self.working,
            attempt if attempt <= self.working => attempt - 1,
            attempt => attempt,
        };
        Some((index, self.hosts.get(index)?))
    }

    /// Records that the address at an index works.
    pub(crate) fn set_working(&mut self, index: usize) {
        self.working = index;
    }

    /// Forgets which address worked, so that the preferred one is tried first again.
    pub(crate) fn reset(&mut self) {
        self.working = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(kind: &str, address: &str) -> NodeAddress {
        NodeAddress {
            kind: kind.into(),
            address: address.into(),
        }
    }

    fn order(addresses: &Addresses) -> Vec<String> {
        (0..)
            .map_while(|attempt| addresses.attempt(attempt))
            .map(|(_, host)| host.to_string())
            .collect()
    }

    #[test]
    fn types_are_tried_in_the_given_order_after_the_working_address() {
        let all = [
            address("Hostname", "worker"),
            address("InternalIP", "10.0.0.3"),
            address("InternalIP", "fd00::3"),
            address("ExternalIP", ""),
            address("Other", "x"),
            address("ExternalDNS", "10.0.0.3"),
        ];
        let types = [
            AddressType::InternalIp,
            AddressType::ExternalIp,
            AddressType::ExternalDns,
            AddressType::Hostname,
        ];
        let mut chosen = Addresses::choose(&all, &types);
        assert_eq!(order(&chosen), ["10.0.0.3", "fd00::3", "worker"]);
        chosen.set_working(2);
        assert_eq!(order(&chosen), ["worker", "10.0.0.3", "fd00::3"]);
        chosen.set_working(1);
        assert_eq!(order(&chosen), ["fd00::3", "10.0.0.3", "worker"]);
        chosen.reset();
        assert_eq!(order(&chosen), ["10.0.0.3", "fd00::3", "worker"]);
        assert!(order(&Addresses::choose(&all, &[AddressType::InternalDns])).is_empty());
    }

    #[test]
    fn types_are_spelt_as_in_node_objects() {
        for kind in AddressType::ALL {
            assert_eq!(kind.to_string().parse::<AddressType>().unwrap(), kind);
        }
        let error = "internalip".parse::<AddressType>().unwrap_err();
        assert!(error.to_string().contains("InternalIP"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_address_is_tried_exactly_once(count in 1_usize..40, working in 0_usize..40) {
            let all: Vec<_> = (0..count).map(|n| address("InternalIP", &n.to_string())).collect();
            let mut chosen = Addresses::choose(&all, &[AddressType::InternalIp]);
            let expected = count.min(MAX_ADDRESSES);
            chosen.set_working(working % expected);
            let mut tried = order(&chosen);
            prop_assert_eq!(&tried[0], &(working % expected).to_string());
            tried.sort();
            tried.dedup();
            prop_assert_eq!(tried.len(), expected);
        }
    }
}
