//! Values in files of cgroups.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use crate::resources::Limits;

/// Writes one value. The file must exist: it is the kernel's.
pub(super) fn value(file: &Path, value: &str) -> io::Result<()> {
    fs::File::options()
        .write(true)
        .open(file)?
        .write_all(value.as_bytes())
}

/// Writes a value whose file may be absent: its controller is not there.
fn optional(file: &Path, text: &str) -> io::Result<()> {
    match value(file, text) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Passes the controllers that a cgroup has on to its children.
pub(super) fn enable_controllers(dir: &Path) -> io::Result<()> {
    let available = fs::read_to_string(dir.join("cgroup.controllers"))?;
    let enabled = fs::read_to_string(dir.join("cgroup.subtree_control"))?;
    for controller in ["cpu", "memory", "pids", "io"] {
        let has = |text: &str| text.split_ascii_whitespace().any(|one| one == controller);
        if has(&available) && !has(&enabled) {
            value(
                &dir.join("cgroup.subtree_control"),
                &format!("+{controller}"),
            )?;
        }
    }
    Ok(())
}

/// Sets the limits of a cgroup v2.
pub(super) fn limits_v2(dir: &Path, limits: &Limits) -> io::Result<()> {
    if let Some(weight) = limits.cpu_weight() {
        optional(&dir.join("cpu.weight"), &weight.to_string())?;
    }
    let quota = limits
        .cpu_quota_micros
        .map_or("max".to_owned(), |q| q.to_string());
    optional(
        &dir.join("cpu.max"),
        &format!("{quota} {}", Limits::PERIOD_MICROS),
    )?;
    let memory = limits
        .memory_bytes
        .map_or("max".to_owned(), |b| b.to_string());
    optional(&dir.join("memory.max"), &memory)?;
    if limits.memory_bytes.is_some() {
        // A container that runs out of memory ends as a whole.
        optional(&dir.join("memory.oom.group"), "1")?;
    }
    let pids = limits.max_pids.map_or("max".to_owned(), |n| n.to_string());
    optional(&dir.join("pids.max"), &pids)
}

/// Sets the limits of a cgroup in one hierarchy of version 1.
pub(super) fn limits_v1(dir: &Path, limits: &Limits) -> io::Result<()> {
    if let Some(shares) = limits.cpu_shares {
        optional(&dir.join("cpu.shares"), &shares.to_string())?;
    }
    optional(
        &dir.join("cpu.cfs_period_us"),
        &Limits::PERIOD_MICROS.to_string(),
    )?;
    let quota = limits
        .cpu_quota_micros
        .map_or("-1".to_owned(), |q| q.to_string());
    optional(&dir.join("cpu.cfs_quota_us"), &quota)?;
    let memory = limits
        .memory_bytes
        .map_or("-1".to_owned(), |b| b.to_string());
    optional(&dir.join("memory.limit_in_bytes"), &memory)?;
    let pids = limits.max_pids.map_or("max".to_owned(), |n| n.to_string());
    optional(&dir.join("pids.max"), &pids)
}
