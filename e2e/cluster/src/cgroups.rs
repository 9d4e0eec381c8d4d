//! The cgroup of a cluster's pods, in every hierarchy that the machine has.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::interrupt;
use crate::process::Process;

/// CPU weight of the cluster in cgroups of version 1 and 2: 64 times that of an ordinary
/// process.
const CPU_WEIGHT: [(&str, &str); 2] = [("cpu.shares", "65536"), ("cpu.weight", "6400")];

/// Creates the cgroup in every hierarchy.
pub(crate) fn make(name: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let folder = hierarchy.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        // A pod gets the CPU that its limit allows however busy the machine is, so that tests
        // measure the limit.
        for (file, weight) in CPU_WEIGHT {
            let here = folder.join(file);
            if here.exists() {
                fs::write(&here, weight).with_context(|| format!("writing {}", here.display()))?;
            }
        }
        // A new cpuset has no processors and no memory, and accepts no process before it has both.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let (above, here) = (hierarchy.join(file), folder.join(file));
            if above.exists() && here.exists() {
                let all = fs::read_to_string(&above)?;
                fs::write(&here, all.trim())
                    .with_context(|| format!("writing {}", here.display()))?;
            }
        }
    }
    Ok(())
}

/// Removes it from every hierarchy, with all below it. Processes that are still in it belong to the
/// cluster and are killed.
pub(crate) fn remove(name: &str) -> Result<()> {
    let timeout = Duration::from_secs(15);
    let started = Instant::now();
    for hierarchy in hierarchies()? {
        let folder = hierarchy.join(name);
        while let Err(error) = remove_tree(&folder) {
            if started.elapsed() > timeout {
                return Err(error);
            }
            interrupt::settle(Duration::from_millis(20));
        }
    }
    Ok(())
}

/// Returns the hierarchies' folders of this cgroup that exist.
pub(crate) fn existing(name: &str) -> Result<Vec<PathBuf>> {
    let mut folders: Vec<PathBuf> = hierarchies()?
        .into_iter()
        .map(|hierarchy| hierarchy.join(name))
        .collect();
    folders.retain(|folder| folder.exists());
    Ok(folders)
}

/// Removes a cgroup, children first: one with children cannot be removed. Its files go with it.
fn remove_tree(folder: &Path) -> Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("reading {}", folder.display())),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    let members = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    for process in members
        .lines()
        .filter_map(|line| line.parse().ok())
        .filter_map(Process::of)
    {
        process.kill()?;
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn hierarchies() -> Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("reading the mounts")?;
    let found = cgroup_mounts(&mounts);
    if found.is_empty() {
        bail!("no cgroup hierarchy is mounted");
    }
    Ok(found)
}

/// Returns the mount point of each hierarchy, without bind mounts of a part of one.
fn cgroup_mounts(mountinfo: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = mountinfo
        .lines()
        .filter_map(|line| {
            let (mount, source) = line.split_once(" - ")?;
            let kind = source.split(' ').next()?;
            let mut fields = mount.split(' ').skip(3);
            let (root, point) = (fields.next()?, fields.next()?);
            (matches!(kind, "cgroup" | "cgroup2") && root == "/").then(|| PathBuf::from(point))
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_full_mounts_of_either_version() {
        let mountinfo = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:7 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
52 31 0:38 /part /mnt/part rw,relatime - cgroup2 cgroup2 rw
";
        let expected = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"].map(PathBuf::from);
        assert_eq!(cgroup_mounts(mountinfo), expected);
    }

    #[test]
    fn removing_a_missing_cgroup_succeeds() {
        remove_tree(Path::new("/sys/fs/cgroup/kubevitals-never-made")).unwrap();
    }
}
