//! The context of a run: clock, deadline, resolver, permissions.

use std::fmt;
use std::future::Future;
use std::net::{IpAddr, ToSocketAddrs};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use kubevitals_model::Clock;
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The context of a run.
#[derive(Debug, Clone)]
pub struct ProbeContext {
    pub clock: Clock,
    /// When the run must have ended, all phases together.
    pub deadline: Instant,
    /// Looks up names, for modules without a resolver of their own.
    pub resolver: Arc<dyn Resolve>,
    pub allow: Arc<Allow>,
}

/// What probes may do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allow {
    /// Whether commands may be run.
    pub exec: bool,
    /// Addresses that must not be connected to, also after a redirect.
    pub denied_addresses: Vec<AddressRange>,
}

/// A range of addresses, such as `169.254.0.0/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    address: IpAddr,
    prefix: u8,
}

/// A lookup of the addresses of a name.
pub trait Resolve: fmt::Debug + Send + Sync {
    /// Returns the addresses, in the order of the resolver.
    fn resolve<'a>(&'a self, host: &'a str) -> ResolveFuture<'a>;
}

/// The future of a lookup.
pub type ResolveFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, ResolveError>> + Send + 'a>>;

/// Why a lookup failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResolveError {
    #[error("the name does not exist")]
    NotFound,
    #[error("the name has no address")]
    NoAddress,
    /// The resolver answered that it could not find out, or did not answer in time.
    #[error("the resolver failed: {0}")]
    Failed(String),
}

/// The lookup of the operating system: `/etc/hosts`, `/etc/resolv.conf` and their options.
///
/// A lookup occupies a thread until the system gives up, also if its probe has ended before. Their
/// number is limited, so that a resolver that hangs does not take all threads of the process.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

/// Maximum number of addresses of a name.
pub(crate) const MAX_ADDRESSES: usize = 64;
/// Maximum number of lookups of the system at the same time.
const MAX_LOOKUPS: usize = 128;

static LOOKUPS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MAX_LOOKUPS)));

impl Allow {
    /// Returns whether an address may be connected to.
    pub fn allows_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        !self
            .denied_addresses
            .iter()
            .any(|range| range.contains(address))
    }
}

impl AddressRange {
    /// Returns whether the address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix));
                let mask = mask.unwrap_or(0);
                u32::from(own) & mask == u32::from(other) & mask
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix));
                let mask = mask.unwrap_or(0);
                u128::from(own) & mask == u128::from(other) & mask
            }
            _ => false,
        }
    }
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is not a range of addresses such as 10.0.0.0/8");
        let (address, prefix) = text
            .split_once('/')
            .map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let widest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => widest,
            Some(prefix) => prefix.parse().map_err(|_| invalid())?,
        };
        if prefix > widest {
            return Err(invalid());
        }
        Ok(Self { address, prefix })
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> ResolveFuture<'a> {
        Box::pin(async move {
            let failed = |error: &dyn fmt::Display| ResolveError::Failed(error.to_string());
            let permit = Arc::clone(&LOOKUPS).acquire_owned().await;
            let permit = permit.map_err(|error| failed(&error))?;
            let host = host.to_owned();
            let lookup = tokio::task::spawn_blocking(move || {
                let found = (host.as_str(), 0).to_socket_addrs();
                drop(permit);
                found.map(|found| found.map(|found| found.ip()).take(MAX_ADDRESSES).collect())
            });
            match lookup.await {
                Ok(Ok(found)) => Ok(found),
                Ok(Err(error)) => Err(ResolveError::of_system(&error.to_string())),
                Err(error) => Err(failed(&error)),
            }
        })
    }
}

impl ResolveError {
    /// Classifies the text of an error of `getaddrinfo`: the number is not passed on by the
    /// standard library. The texts are those of glibc and of musl.
    fn of_system(text: &str) -> Self {
        const NOT_FOUND: [&str; 2] = ["Name or service not known", "Name does not resolve"];
        const NO_ADDRESS: [&str; 2] = [
            "No address associated with hostname",
            "Name has no usable address",
        ];
        let has = |texts: [&str; 2]| texts.iter().any(|known| text.contains(known));
        if has(NOT_FOUND) {
            Self::NotFound
        } else if has(NO_ADDRESS) {
            Self::NoAddress
        } else {
            Self::Failed(text.chars().take(200).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_contain_their_addresses_also_mapped_to_ipv6() {
        let allow = Allow {
            denied_addresses: ["169.254.0.0/16", "fd00::/8", "192.0.2.1", "::/128"]
                .map(|range| range.parse().unwrap())
                .to_vec(),
            ..Allow::default()
        };
        for denied in [
            "169.254.169.254",
            "::ffff:169.254.1.2",
            "fd12::1",
            "192.0.2.1",
            "::",
        ] {
            assert!(!allow.allows_address(denied.parse().unwrap()), "{denied}");
        }
        for allowed in ["169.253.0.1", "fe80::1", "192.0.2.2", "::1"] {
            assert!(allow.allows_address(allowed.parse().unwrap()), "{allowed}");
        }
        let all: AddressRange = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("203.0.113.9".parse().unwrap()));
        assert!(!all.contains("::1".parse().unwrap()));
        for invalid in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "::/129",
            "host/8",
            "10.0.0.0/",
        ] {
            assert!(invalid.parse::<AddressRange>().is_err(), "{invalid}");
        }
    }

    #[test]
    fn errors_of_the_system_are_told_apart_by_their_text() {
        let of = |text: &str| ResolveError::of_system(text);
        let prefix = "failed to lookup address information: ";
        assert_eq!(
            of(&format!("{prefix}Name or service not known")),
            ResolveError::NotFound
        );
        assert_eq!(
            of(&format!("{prefix}Name does not resolve")),
            ResolveError::NotFound
        );
        assert_eq!(
            of(&format!("{prefix}No address associated with hostname")),
            ResolveError::NoAddress
        );
        assert!(matches!(
            of("Temporary failure in name resolution"),
            ResolveError::Failed(_)
        ));
    }
}
