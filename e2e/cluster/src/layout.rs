//! Paths, names and addresses of a cluster, all derived from its name and its folder.

use std::fmt::{self, Display};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use xtask::cache;

/// Length limit of a name: `kubevitals-NAME-0123abcd` is a file name and a cgroup name.
const MAX_NAME_LENGTH: usize = 30;

/// The names of one cluster, derived from its folder: two caches may each have a `dev`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// As the user gave it.
    pub(crate) name: String,
    /// `<cache>/clusters/<name>`.
    pub(crate) folder: PathBuf,
}

/// The addresses of one cluster: three subnets that its index chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addresses {
    index: u8,
}

/// An IPv4 subnet as `10.213.7.0/30`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subnet {
    first: Ipv4Addr,
    prefix: u8,
}

impl Layout {
    /// The cluster of that name in the user's cache.
    pub(crate) fn of(name: &str) -> Result<Self> {
        Self::within(&cache::folder()?, name)
    }

    /// The cluster of that folder.
    pub(crate) fn at(folder: &Path) -> Result<Self> {
        match (
            folder.file_name().and_then(|name| name.to_str()),
            folder.parent().and_then(Path::parent),
        ) {
            (Some(name), Some(cache)) => Self::within(cache, name),
            _ => bail!("{} is not the folder of a cluster", folder.display()),
        }
    }

    fn within(cache: &Path, name: &str) -> Result<Self> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let edges = [name.chars().next(), name.chars().last()];
        if name.len() > MAX_NAME_LENGTH
            || !name.chars().all(allowed)
            || edges.iter().any(|edge| matches!(edge, None | Some('-')))
        {
            bail!(
                "invalid cluster name `{name}`: use up to {MAX_NAME_LENGTH} lowercase letters, digits and inner dashes"
            );
        }
        let cache = std::path::absolute(cache)?;
        // The cluster's processes have a `/run` and a `/var/log` of their own, which hide the
        // host's.
        for hidden in ["/run", "/var/run", "/var/log", "/proc", "/sys"] {
            if cache.starts_with(hidden) {
                bail!(
                    "a cluster cannot be kept below {hidden}: set KUBEVITALS_CACHE to another folder"
                );
            }
        }
        Ok(Self {
            name: name.to_owned(),
            folder: cache.join("clusters").join(name),
        })
    }

    /// Returns every cluster that has a folder in the user's cache.
    pub(crate) fn all() -> Result<Vec<Self>> {
        let clusters = cache::folder()?.join("clusters");
        let mut found = Vec::new();
        if !clusters.exists() {
            return Ok(found);
        }
        for entry in std::fs::read_dir(clusters)? {
            let entry = entry?;
            if entry.file_type()?.is_dir()
                && let Some(name) = entry.file_name().to_str()
                && let Ok(layout) = Self::of(name)
            {
                found.push(layout);
            }
        }
        found.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(found)
    }

    /// A file or folder of the cluster.
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        self.folder.join(inside)
    }

    /// Locked while the cluster is changed. Beside the folder, which is removed with the cluster.
    pub(crate) fn lock_file(&self) -> PathBuf {
        self.folder.with_extension("lock")
    }

    /// The logs of a failed start, after its folder was removed.
    pub(crate) fn failed_logs(&self) -> PathBuf {
        self.folder.with_extension("failed-logs")
    }

    /// The cgroup below which the kubelet puts its pods, in every hierarchy.
    pub(crate) fn cgroup(&self) -> String {
        format!("kubevitals-{}-{:08x}", self.name, fingerprint(&self.folder))
    }

    /// The one Node.
    pub(crate) fn node_name(&self) -> String {
        format!("{}-node", self.name)
    }

    /// The alias that marks an interface as this cluster's.
    pub(crate) fn interface_alias(&self) -> String {
        format!("kubevitals cluster {}", self.folder.display())
    }

    /// The index to try first: the same name gets the same addresses if they are free.
    pub(crate) fn preferred_index(&self) -> u8 {
        fingerprint(&self.folder).to_le_bytes()[0]
    }
}

impl Addresses {
    pub(crate) fn new(index: u8) -> Self {
        Self { index }
    }

    pub(crate) fn index(self) -> u8 {
        self.index
    }

    /// The host's end of the pair, named after the index.
    pub(crate) fn interface(self) -> String {
        format!("kubevitals{}", self.index)
    }

    /// The subnet between host and node.
    pub(crate) fn link(self) -> Subnet {
        Subnet::new(213, self.index, 30)
    }

    /// The host's end.
    pub(crate) fn host(self) -> Ipv4Addr {
        self.link().address(1)
    }

    /// The node's end: the address of the API server and of the kubelet.
    pub(crate) fn node(self) -> Ipv4Addr {
        self.link().address(2)
    }

    pub(crate) fn pods(self) -> Subnet {
        Subnet::new(214, self.index, 24)
    }

    pub(crate) fn services(self) -> Subnet {
        Subnet::new(215, self.index, 24)
    }

    /// The Service `kubernetes`: the API server gives it the first address of the range.
    pub(crate) fn api_service(self) -> Ipv4Addr {
        self.services().address(1)
    }

    /// The conventional address of a DNS server; there is none unless a test starts one.
    pub(crate) fn dns_service(self) -> Ipv4Addr {
        self.services().address(10)
    }
}

impl Subnet {
    fn new(second: u8, third: u8, prefix: u8) -> Self {
        Self {
            first: Ipv4Addr::new(10, second, third, 0),
            prefix,
        }
    }

    /// Returns the address at that offset.
    pub(crate) fn address(self, offset: u8) -> Ipv4Addr {
        let [first, second, third, fourth] = self.first.octets();
        Ipv4Addr::new(first, second, third, fourth.saturating_add(offset))
    }

    /// Returns whether a destination as `ip` prints it (`10.0.0.0/8`, `10.1.2.3`) overlaps this
    /// subnet.
    pub(crate) fn overlaps(self, destination: &str) -> bool {
        let (address, prefix) = destination.split_once('/').unwrap_or((destination, "32"));
        let (Ok(address), Ok(prefix)) = (address.parse::<Ipv4Addr>(), prefix.parse::<u32>()) else {
            return false;
        };
        // A route to nearly all private addresses, as VPNs add it, does not mean that they are
        // used.
        if prefix < 12 {
            return false;
        }
        let bits = prefix.min(u32::from(self.prefix));
        let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        (u32::from(address) ^ u32::from(self.first)) & mask == 0
    }

    /// Returns an address with the prefix length of this subnet.
    pub(crate) fn with_prefix(self, address: Ipv4Addr) -> String {
        format!("{address}/{}", self.prefix)
    }
}

impl Display for Subnet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.first, self.prefix)
    }
}

/// FNV-1a: stable across builds, unlike the hashers of the standard library.
fn fingerprint(path: &Path) -> u32 {
    path.as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0x811c_9dc5, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(name: &str) -> Layout {
        Layout::within(Path::new("/home/someone/.cache/kubevitals"), name).unwrap()
    }

    #[test]
    fn clusters_and_caches_have_distinct_names() {
        let dev = layout("dev");
        assert_eq!(
            dev.folder,
            Path::new("/home/someone/.cache/kubevitals/clusters/dev")
        );
        assert_eq!(dev.node_name(), "dev-node");
        assert_eq!(dev.cgroup(), layout("dev").cgroup());
        assert_ne!(dev.cgroup(), layout("dev2").cgroup());
        let elsewhere = Layout::within(Path::new("/srv/cache"), "dev").unwrap();
        assert_ne!(dev.cgroup(), elsewhere.cgroup());
        assert_ne!(dev.interface_alias(), elsewhere.interface_alias());
        assert_eq!(dev.lock_file().parent(), dev.folder.parent());
    }

    #[test]
    fn a_name_that_could_leave_the_folder_is_rejected() {
        for name in [
            "",
            "..",
            "a/b",
            "A",
            "-a",
            "a-",
            "a.lock",
            "ä",
            &"a".repeat(31),
        ] {
            assert!(Layout::within(Path::new("/c"), name).is_err(), "{name}");
        }
        for name in ["a", "e2e-1", &"a".repeat(30)] {
            assert!(Layout::within(Path::new("/c"), name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_cache_that_the_cluster_could_not_see_is_rejected() {
        assert!(Layout::within(Path::new("/run/user/0/cache"), "dev").is_err());
        assert!(Layout::within(Path::new("/runner/cache"), "dev").is_ok());
    }

    #[test]
    fn every_index_has_its_own_subnets_and_interface() {
        let addresses = Addresses::new(7);
        assert_eq!(addresses.link().to_string(), "10.213.7.0/30");
        assert_eq!(addresses.host().to_string(), "10.213.7.1");
        assert_eq!(addresses.node().to_string(), "10.213.7.2");
        assert_eq!(addresses.pods().to_string(), "10.214.7.0/24");
        assert_eq!(addresses.services().to_string(), "10.215.7.0/24");
        assert_eq!(addresses.api_service().to_string(), "10.215.7.1");
        assert_eq!(
            addresses.link().with_prefix(addresses.node()),
            "10.213.7.2/30"
        );
        // The kernel rejects names over 15 bytes.
        assert!(Addresses::new(u8::MAX).interface().len() <= 15);
    }
}
