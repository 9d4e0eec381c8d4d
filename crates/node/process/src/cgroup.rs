//! Cgroups of pods and containers, version 2 and version 1 with its many hierarchies.
//!
//! Not `cgroups-rs`: it brings zbus and an old nix, and what is needed here is a few small files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::resources::Limits;

mod write;

/// Controllers that pods need, and those that only count.
const CONTROLLERS: [&str; 6] = ["cpu", "cpuacct", "memory", "pids", "freezer", "blkio"];
/// The type of a cgroup v2 file system.
const CGROUP2_MAGIC: i64 = 0x6367_7270;
/// How long to wait for killed processes to leave a cgroup.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The cgroup file systems of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchies {
    version: Version,
    /// The mount points: one for version 2. For version 1 one each, and the version 2 one without
    /// controllers if there is one (hybrid): its `cgroup.kill` has no race.
    roots: Vec<PathBuf>,
    /// The common parent of all our cgroups, below each root.
    parent: PathBuf,
}

/// The version of a hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Version {
    V1,
    V2,
}

/// A cgroup in all hierarchies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    version: Version,
    dirs: Vec<PathBuf>,
}

impl Hierarchies {
    /// Finds the hierarchies mounted below `mount` (`/sys/fs/cgroup`) and creates `parent` in them.
    pub fn open(mount: &Path, parent: &str) -> io::Result<Self> {
        let parent = PathBuf::from(parent.trim_matches('/'));
        if parent.as_os_str().is_empty() || parent.components().any(|c| c.as_os_str() == "..") {
            return Err(io::Error::other(
                "the cgroup parent is not a path below the root",
            ));
        }
        let is_v2 = |path: &Path| {
            rustix::fs::statfs(path).is_ok_and(|fs| {
                #[allow(
                    clippy::unnecessary_cast,
                    clippy::cast_lossless,
                    clippy::allow_attributes,
                    reason = "the width of the field differs between architectures"
                )]
                let kind = fs.f_type as i64;
                kind == CGROUP2_MAGIC
            })
        };
        let (version, roots) = if is_v2(mount) {
            (Version::V2, vec![mount.to_owned()])
        } else {
            let mut roots: Vec<PathBuf> = Vec::new();
            for controller in CONTROLLERS {
                // `cpu` is often a link to `cpu,cpuacct`.
                let Ok(path) = fs::canonicalize(mount.join(controller)) else {
                    continue;
                };
                if path.join("cgroup.procs").exists() && !roots.contains(&path) {
                    roots.push(path);
                }
            }
            let unified = mount.join("unified");
            if is_v2(&unified) {
                roots.push(unified);
            }
            (Version::V1, roots)
        };
        Self::create(version, roots, parent)
    }

    fn create(version: Version, roots: Vec<PathBuf>, parent: PathBuf) -> io::Result<Self> {
        if roots.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "no cgroup hierarchy is mounted",
            ));
        }
        let hierarchies = Self {
            version,
            roots,
            parent,
        };
        for root in &hierarchies.roots {
            let mut dir = root.clone();
            for part in hierarchies.parent.components() {
                if version == Version::V2 {
                    write::enable_controllers(&dir)?;
                }
                dir.push(part);
                create_dir(&dir)?;
            }
            if version == Version::V2 {
                write::enable_controllers(&dir)?;
            }
        }
        Ok(hierarchies)
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// The path of our parent below the root of a hierarchy.
    pub fn parent(&self) -> &Path {
        &self.parent
    }

    /// The mount points.
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// The cgroup of all pods and shims.
    pub(crate) fn own(&self) -> Cgroup {
        self.cgroup(Path::new(""))
    }

    /// The cgroup of a pod.
    pub(crate) fn pod(&self, uid: &str) -> Cgroup {
        self.cgroup(Path::new(&format!("pod{uid}")))
    }

    /// The cgroup of a container.
    pub(crate) fn container(&self, uid: &str, id: &str) -> Cgroup {
        self.cgroup(&Path::new(&format!("pod{uid}")).join(id))
    }

    /// The cgroup of the shims, which are not charged to pods.
    pub(crate) fn shims(&self) -> Cgroup {
        self.cgroup(Path::new("shims"))
    }

    fn cgroup(&self, path: &Path) -> Cgroup {
        let below = self.parent.join(path);
        Cgroup {
            version: self.version,
            dirs: self.roots.iter().map(|root| root.join(&below)).collect(),
        }
    }

    /// The UIDs of the pods that have a cgroup.
    pub(crate) fn pod_uids(&self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for dir in self.own().dirs {
            for name in children(&dir) {
                if let Some(uid) = name.strip_prefix("pod")
                    && !found.iter().any(|one| one == uid)
                {
                    found.push(uid.to_owned());
                }
            }
        }
        found
    }
}

impl Cgroup {
    /// Creates the cgroup, with the limits.
    pub(crate) fn create(&self, limits: &Limits, is_inner: bool) -> io::Result<()> {
        for dir in &self.dirs {
            create_dir(dir)?;
            if is_inner && self.version == Version::V2 {
                write::enable_controllers(dir)?;
            }
        }
        self.apply(limits)
    }

    /// Changes the limits.
    pub(crate) fn apply(&self, limits: &Limits) -> io::Result<()> {
        for dir in &self.dirs {
            match self.version {
                Version::V2 => write::limits_v2(dir, limits)?,
                Version::V1 => write::limits_v1(dir, limits)?,
            }
        }
        Ok(())
    }

    /// Moves the calling process into the cgroup.
    pub(crate) fn join(&self) -> io::Result<()> {
        for dir in &self.dirs {
            write::value(&dir.join("cgroup.procs"), "0")?;
        }
        Ok(())
    }

    /// The processes in the cgroup and below it.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let mut found = Vec::new();
        for dir in &self.dirs {
            collect_processes(dir, &mut found, 0);
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    pub(crate) fn exists(&self) -> bool {
        self.dirs.iter().any(|dir| dir.exists())
    }

    /// How many processes the kernel has killed here for want of memory.
    pub(crate) fn oom_kills(&self) -> u64 {
        let value = |file: PathBuf| {
            let text = fs::read_to_string(file).ok()?;
            text.lines()
                .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
        };
        self.dirs
            .iter()
            .filter_map(|dir| {
                value(dir.join("memory.events")).or_else(|| value(dir.join("memory.oom_control")))
            })
            .max()
            .unwrap_or(0)
    }

    /// Kills all processes in the cgroup and below, once: what forks meanwhile may escape unless
    /// the kernel has `cgroup.kill` or a freezer.
    pub(crate) fn kill_once(&self) {
        let mut is_killed = false;
        for dir in &self.dirs {
            is_killed |= write::value(&dir.join("cgroup.kill"), "1").is_ok();
        }
        if is_killed {
            return;
        }
        let freezers: Vec<PathBuf> = self
            .dirs
            .iter()
            .map(|dir| dir.join("freezer.state"))
            .filter(|file| file.exists())
            .collect();
        for file in &freezers {
            let _ = write::value(file, "FROZEN");
        }
        for pid in self.processes() {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        for file in &freezers {
            let _ = write::value(file, "THAWED");
        }
    }

    /// Kills until nothing is left. Blocks.
    pub(crate) fn kill(&self) -> bool {
        let started = Instant::now();
        loop {
            if self.processes().is_empty() {
                return true;
            }
            if started.elapsed() > KILL_TIMEOUT {
                return false;
            }
            self.kill_once();
            pause();
        }
    }

    /// Kills what is left and removes the cgroup and those below. Blocks.
    pub(crate) fn remove(&self) -> io::Result<()> {
        if !self.exists() {
            return Ok(());
        }
        self.kill();
        let started = Instant::now();
        loop {
            let mut result = Ok(());
            for dir in &self.dirs {
                result = result.and(remove_dir(dir, 0));
            }
            match result {
                // A cgroup is busy for a moment after its last process has ended.
                Err(error)
                    if error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error())
                        && started.elapsed() < KILL_TIMEOUT =>
                {
                    pause();
                }
                other => return other,
            }
        }
    }

    /// The folders of the cgroup, one in each hierarchy.
    pub fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }
}

/// Waits for the kernel: a cgroup of version 1 has no event for this. Not on a thread of a runtime:
/// its callers block by contract.
#[expect(
    clippy::disallowed_methods,
    reason = "called where blocking is allowed"
)]
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

fn create_dir(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn children(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Deeper trees than this are not followed.
const MAX_DEPTH: usize = 16;

fn collect_processes(dir: &Path, found: &mut Vec<i32>, depth: usize) {
    if let Ok(text) = fs::read_to_string(dir.join("cgroup.procs")) {
        found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    }
    if depth < MAX_DEPTH {
        for name in children(dir) {
            collect_processes(&dir.join(name), found, depth + 1);
        }
    }
}

fn remove_dir(dir: &Path, depth: usize) -> io::Result<()> {
    if depth < MAX_DEPTH {
        for name in children(dir) {
            remove_dir(&dir.join(name), depth + 1)?;
        }
    }
    match fs::remove_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
