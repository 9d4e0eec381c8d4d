//! The host, as the Node shows it.

use std::fs;
use std::num::NonZero;
use std::path::Path;

/// Facts of the host. What cannot be read is empty or absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) host_name: String,
    pub(super) cores: u64,
    pub(super) memory: Option<u64>,
    /// `/etc/machine-id`.
    pub(super) id: String,
    pub(super) system_uuid: String,
    pub(super) boot_id: String,
    pub(super) kernel: String,
    pub(super) os_image: String,
}

impl Machine {
    /// Reads the files of the kernel and of the distribution.
    pub(super) fn read() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let machine_id = text("/etc/machine-id");
        let uuid = text("/sys/class/dmi/id/product_uuid");
        Self {
            host_name: text("/proc/sys/kernel/hostname").to_lowercase(),
            cores: u64::try_from(cores).unwrap_or(1),
            memory: total_memory(&text("/proc/meminfo")),
            system_uuid: if uuid.is_empty() {
                machine_id.clone()
            } else {
                uuid
            },
            id: machine_id,
            boot_id: text("/proc/sys/kernel/random/boot_id"),
            kernel: text("/proc/sys/kernel/osrelease"),
            os_image: pretty_name(&text("/etc/os-release")),
        }
    }

    /// The architecture by its name in Go.
    pub(super) fn architecture() -> &'static str {
        match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
    }
}

/// The size of the file system of a folder, or of the nearest one above it that exists.
pub(super) fn disk_size(folder: &Path) -> Option<u64> {
    let existing = folder.ancestors().find(|folder| folder.exists())?;
    let stat = rustix::fs::statvfs(existing).ok()?;
    stat.f_blocks.checked_mul(stat.f_frsize)
}

fn text(file: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.trim().to_owned()
}

fn total_memory(meminfo: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn pretty_name(os_release: &str) -> String {
    let mut lines = os_release.lines();
    let name = lines.find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("unknown").trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_host_are_read() {
        assert_eq!(
            total_memory("MemTotal:       16384 kB\nMemFree: 1 kB"),
            Some(16_777_216)
        );
        assert_eq!(total_memory("MemTotal: many"), None);
        assert_eq!(
            pretty_name("ID=x\nPRETTY_NAME=\"Debian 13\"\n"),
            "Debian 13"
        );
        assert_eq!(pretty_name(""), "unknown");
        assert!(disk_size(Path::new("/no/such/folder")).is_some());
    }
}
