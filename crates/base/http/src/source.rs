//! The origin of a connection.

use std::net::IpAddr;

/// The origin of a connection: an IPv4 address, or the /64 network of an IPv6 address, since one
/// client can use all addresses of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Source(u64);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(u64::from(address.to_bits())),
            // No IPv6 network in use begins with as many zeros as an IPv4 address has here.
            IpAddr::V6(address) => Self((address.to_bits() >> 64) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_network_are_one_source() {
        let of = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
