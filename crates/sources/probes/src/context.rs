//! What a run needs from its surroundings.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

use kubevitals_model::Clock;
use tokio::time::Instant;

/// What a run needs from its surroundings.
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
    /// Returns the addresses, in the order of the resolver; an error with [`io::ErrorKind::NotFound`]
    /// if the name does not exist.
    fn resolve<'a>(
        &'a self,
        host: &'a str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;
}

/// The lookup of the operating system: `/etc/hosts`, `/etc/resolv.conf` and their options.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

/// Maximum number of addresses of a name.
const MAX_ADDRESSES: usize = 64;

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
    fn resolve<'a>(
        &'a self,
        host: &'a str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|found| found.ip()).take(MAX_ADDRESSES).collect())
        })
    }
}
