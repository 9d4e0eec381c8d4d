//! The Debian packages of a node, the container runtime and its tools, and of tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use xtask::step;

/// A Debian package that a real node or a test needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Package {
    Containerd,
    Runc,
    CniPlugins,
    BusyboxStatic,
    Iptables,
    Iproute2,
    Conntrack,
    UtilLinux,
    Stress,
}

/// Folders of programs that are searched besides `PATH`, which an ordinary user's lacks.
const FOLDERS: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

impl Package {
    /// The packages of a node.
    pub(crate) const NODE: [Self; 8] = [
        Self::Containerd,
        Self::Runc,
        Self::CniPlugins,
        Self::BusyboxStatic,
        Self::Iptables,
        Self::Iproute2,
        Self::Conntrack,
        Self::UtilLinux,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Runc => "runc",
            Self::CniPlugins => "containernetworking-plugins",
            Self::BusyboxStatic => "busybox-static",
            Self::Iptables => "iptables",
            Self::Iproute2 => "iproute2",
            Self::Conntrack => "conntrack",
            Self::UtilLinux => "util-linux",
            Self::Stress => "stress",
        }
    }

    /// The programs that are needed from it: a name to search for, or an absolute path.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Containerd => &["containerd", "containerd-shim-runc-v2", "ctr"],
            Self::Runc => &["runc"],
            Self::CniPlugins => &[
                "/usr/lib/cni/ptp",
                "/usr/lib/cni/host-local",
                "/usr/lib/cni/loopback",
                "/usr/lib/cni/portmap",
            ],
            Self::BusyboxStatic => &["busybox"],
            Self::Iptables => &["iptables"],
            Self::Iproute2 => &["ip"],
            Self::Conntrack => &["conntrack"],
            Self::UtilLinux => &["nsenter", "unshare"],
            Self::Stress => &["stress"],
        }
    }

    fn is_installed(self, folders: &[PathBuf]) -> bool {
        self.programs().iter().all(|program| {
            find(program, folders)
                .is_some_and(|path| self != Self::BusyboxStatic || is_static(&path))
        })
    }
}

/// Installs the packages whose programs are missing.
pub(crate) fn debian(packages: &[Package]) -> Result<()> {
    let missing = missing(packages, &folders());
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing
        .iter()
        .map(|package| package.name())
        .collect::<Vec<_>>()
        .join(" ");
    if find("apt-get", &folders()).is_none() {
        bail!("{names}: missing, and there is no apt-get to install them");
    }
    if !is_root()? {
        bail!("{names}: missing; run this as root, or `apt-get install {names}`");
    }
    println!("installing {names} from Debian's packages");
    let before = containerd_services();
    twice(|| step::run(apt_get().args(["update", "-qq"])))?;
    let install = || {
        let mut install = apt_get();
        install.args(["install", "-y", "-qq", "--no-install-recommends"]);
        step::run(install.args(missing.iter().map(|package| package.name())))
    };
    twice(install)?;
    if containerd_services() > before {
        bail!("installing containerd started its service: stop it, the tests run one of their own");
    }
    let still = self::missing(&missing, &folders());
    if let Some(package) = still.first() {
        bail!(
            "{} was installed but has no {}",
            package.name(),
            package.programs().join(", ")
        );
    }
    Ok(())
}

fn missing(packages: &[Package], folders: &[PathBuf]) -> Vec<Package> {
    packages
        .iter()
        .copied()
        .filter(|package| !package.is_installed(folders))
        .collect()
}

/// Retries once: a mirror may be slow for a moment.
fn twice(work: impl Fn() -> Result<()>) -> Result<()> {
    work().or_else(|_| work())
}

fn apt_get() -> Command {
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive")
        // systemctl then ignores "start", as it does in a chroot: no service of containerd comes
        // up, and unlike with a policy-rc.d no file has to be put there and taken away.
        .env("SYSTEMD_OFFLINE", "1")
        // Waits for another installation.
        .args(["-o", "DPkg::Lock::Timeout=300"])
        .stdout(Stdio::null());
    apt
}

fn folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(FOLDERS.into_iter().map(PathBuf::from))
        .collect()
}

fn find(program: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    // Joining an absolute path returns that path.
    folders
        .iter()
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// Returns whether a program names no dynamic loader: it runs in an image of its own.
fn is_static(program: &Path) -> bool {
    let loader = b"/ld-linux";
    std::fs::read(program)
        .is_ok_and(|bytes| !bytes.windows(loader.len()).any(|window| window == loader))
}

fn is_root() -> Result<bool> {
    let id = Command::new("id")
        .arg("-u")
        .output()
        .context("cannot start id")?;
    Ok(id.stdout.trim_ascii() == b"0")
}

/// Counts containerds that run without arguments, as Debian's service does; ours have some.
fn containerd_services() -> usize {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return 0;
    };
    processes
        .flatten()
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .filter(|command| is_containerd_service(command))
        .count()
}

/// `command` is the content of `/proc/PID/cmdline`: each word ends with a zero byte.
fn is_containerd_service(command: &[u8]) -> bool {
    command
        .strip_suffix(b"\0")
        .is_some_and(|word| word.ends_with(b"/containerd") && !word.contains(&0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(folder: &Path, program: &str, bytes: &[u8]) {
        std::fs::write(folder.join(program), bytes).unwrap();
    }

    #[test]
    fn only_missing_packages_are_installed() {
        let folder = tempfile::tempdir().unwrap();
        let folders = [folder.path().to_owned()];
        put(folder.path(), "runc", b"");
        put(folder.path(), "containerd", b"");
        let wanted = [Package::Runc, Package::Containerd, Package::Iproute2];
        // containerd is useless without its shim and ctr.
        assert_eq!(
            missing(&wanted, &folders),
            [Package::Containerd, Package::Iproute2]
        );
        put(folder.path(), "containerd-shim-runc-v2", b"");
        put(folder.path(), "ctr", b"");
        put(folder.path(), "ip", b"");
        assert_eq!(missing(&wanted, &folders), []);
    }

    #[test]
    fn a_busybox_that_needs_a_loader_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let folders = [folder.path().to_owned()];
        put(
            folder.path(),
            "busybox",
            b"\x7fELF /lib64/ld-linux-x86-64.so.2 ",
        );
        assert_eq!(
            missing(&[Package::BusyboxStatic], &folders),
            [Package::BusyboxStatic]
        );
        put(folder.path(), "busybox", b"\x7fELF all in one");
        assert_eq!(missing(&[Package::BusyboxStatic], &folders), []);
    }

    #[test]
    fn the_service_is_distinguished_from_a_containerd_of_ours() {
        assert!(is_containerd_service(b"/usr/bin/containerd\0"));
        assert!(!is_containerd_service(
            b"/usr/bin/containerd\0--config\0/x/containerd.toml\0"
        ));
        assert!(!is_containerd_service(
            b"/usr/bin/containerd-shim-runc-v2\0"
        ));
        assert!(!is_containerd_service(b""));
    }

    #[test]
    fn every_package_has_a_program() {
        for package in Package::NODE {
            assert!(!package.programs().is_empty(), "{package:?}");
            assert!(!package.is_installed(&[]), "{package:?}");
        }
    }
}
