//! Where a kubelet may be reached, in which order.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use kubevitals_watch::NodeAddress;

use crate::error::ScrapeError;

/// No node has nearly as many addresses; one that claims to costs no more than this many attempts.
const MAX_ADDRESSES: usize = 16;

/// A type of address of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressType {
    /// `Hostname`.
    Hostname,
    /// `InternalDNS`.
    InternalDns,
    /// `InternalIP`.
    InternalIp,
    /// `ExternalDNS`.
    ExternalDns,
    /// `ExternalIP`.
    ExternalIp,
}

/// The addresses of a node in the order in which they are tried.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Addresses {
    hosts: Vec<Arc<str>>,
    /// The place of the one that worked last.
    works: usize,
}

impl AddressType {
    /// All of them, in the order that metrics-server's flag has by default.
    pub const ALL: [Self; 5] = [
        Self::Hostname,
        Self::InternalDns,
        Self::InternalIp,
        Self::ExternalDns,
        Self::ExternalIp,
    ];

    /// As Node objects write it.
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
    type Err = ScrapeError;

    fn from_str(text: &str) -> Result<Self, ScrapeError> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| ScrapeError::UnknownAddressType {
            given: text.chars().take(60).collect(),
        })
    }
}

impl Addresses {
    /// Those of the wanted types: by type in the order wanted, then in the order of the API, each
    /// once.
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
        Self { hosts, works: 0 }
    }

    /// Whether both are the same addresses, whichever worked.
    pub(crate) fn are_same(&self, other: &Self) -> bool {
        self.hosts == other.hosts
    }

    /// The address to try at a turn, and its place: first the one that worked last, then the others
    /// in their order.
    pub(crate) fn at_turn(&self, turn: usize) -> Option<(usize, &Arc<str>)> {
        let place = match turn {
            0 => self.works,
            turn if turn <= self.works => turn - 1,
            turn => turn,
        };
        Some((place, self.hosts.get(place)?))
    }

    /// Remembers that the address at a place works.
    pub(crate) fn worked(&mut self, place: usize) {
        self.works = place;
    }

    /// Forgets which one worked, so that the preferred one gets another chance.
    pub(crate) fn start_over(&mut self) {
        self.works = 0;
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
            .map_while(|turn| addresses.at_turn(turn))
            .map(|(_, host)| host.to_string())
            .collect()
    }

    #[test]
    fn types_are_tried_in_the_order_wanted_and_what_worked_goes_first() {
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
        chosen.worked(2);
        assert_eq!(order(&chosen), ["worker", "10.0.0.3", "fd00::3"]);
        chosen.worked(1);
        assert_eq!(order(&chosen), ["fd00::3", "10.0.0.3", "worker"]);
        chosen.start_over();
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
        fn every_address_is_tried_exactly_once(count in 1_usize..40, works in 0_usize..40) {
            let all: Vec<_> = (0..count).map(|n| address("InternalIP", &n.to_string())).collect();
            let mut chosen = Addresses::choose(&all, &[AddressType::InternalIp]);
            let most = count.min(MAX_ADDRESSES);
            chosen.worked(works % most);
            let mut tried = order(&chosen);
            prop_assert_eq!(&tried[0], &(works % most).to_string());
            tried.sort();
            tried.dedup();
            prop_assert_eq!(tried.len(), most);
        }
    }
}
