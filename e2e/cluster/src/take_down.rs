//! Removing a cluster, or the remains of one.
//!
//! Nothing here relies on the state file alone: a bring-up may have been killed before it was
//! written.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cluster::HOLD;
use crate::layout::Layout;
use crate::process::{self, Process};
use crate::state::ClusterState;
use crate::{cgroups, network};

/// Set for every program that is started in a cluster's network, to find and kill it with the
/// cluster.
pub(crate) const GUEST_VARIABLE: &str = "KUBEVITALS_CLUSTER_FOLDER";

/// Removes all of this cluster and nothing else. It is idempotent. The lock must be held.
pub(crate) fn remove(layout: &Layout) -> Result<()> {
    let mut holders = holders(layout)?;
    if let Some(state) = ClusterState::load(layout)
        && !holders.contains(&state.holder)
    {
        holders.push(state.holder);
    }
    // The holder first: the `unshare` that waits for it then ends by itself.
    let host = process::namespace("self", "pid");
    let (outside, inside): (Vec<_>, Vec<_>) = holders
        .into_iter()
        .partition(|process| process::namespace(process.pid, "pid") == host);
    process::kill_all(&inside)?;
    process::await_end(&outside, Duration::from_secs(1));
    process::kill_all(&outside)?;
    process::kill_all(&guests(layout)?)?;
    network::disconnect(layout)?;
    cgroups::remove(&layout.cgroup())?;
    reject_mounts_below(&layout.folder)?;
    match fs::remove_dir_all(&layout.folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", layout.folder.display()))
        }
        _ => Ok(()),
    }
}

/// Returns whether there is anything to remove.
pub(crate) fn exists(layout: &Layout) -> Result<bool> {
    Ok(layout.folder.exists()
        || !holders(layout)?.is_empty()
        || !cgroups::existing(&layout.cgroup())?.is_empty())
}

/// Returns the holder and the `unshare` that waits for it, found by their arguments.
pub(crate) fn holders(layout: &Layout) -> Result<Vec<Process>> {
    let folder = process::bytes(&layout.folder);
    process::find(|pid| is_hold_command(&process::arguments(pid), folder))
}

fn is_hold_command(arguments: &[Vec<u8>], folder: &[u8]) -> bool {
    matches!(arguments, [.., cluster, hold, at] if cluster == b"cluster" && hold == HOLD.as_bytes() && at == folder)
}

/// Returns the programs that were started in the cluster's network from outside.
fn guests(layout: &Layout) -> Result<Vec<Process>> {
    let mut mark = format!("{GUEST_VARIABLE}=").into_bytes();
    mark.extend_from_slice(process::bytes(&layout.folder));
    let host = process::namespace("self", "net");
    process::find(|pid| {
        process::environment(pid).contains(&mark)
            && process::namespace(pid, "net").is_some_and(|own| Some(own) != host)
    })
}

/// Fails if something is mounted below the folder: we mount nothing there, so it is not ours.
fn reject_mounts_below(folder: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("reading the mounts")?;
    let point = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .find(|point| Path::new(point).starts_with(folder));
    match point {
        Some(point) => bail!("something is mounted on {point}: unmount it first"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_identified_by_its_whole_folder() {
        let words = |line: &str| {
            line.split(' ')
                .map(|word| word.as_bytes().to_vec())
                .collect::<Vec<_>>()
        };
        let folder = b"/cache/clusters/dev";
        assert!(is_hold_command(
            &words("xtask cluster hold /cache/clusters/dev"),
            folder
        ));
        assert!(is_hold_command(
            &words("unshare --pid -- xtask cluster hold /cache/clusters/dev"),
            folder
        ));
        for other in [
            "xtask cluster hold /cache/clusters/dev2",
            "xtask cluster up /cache/clusters/dev",
            "vi /cache/clusters/dev",
            "hold /cache/clusters/dev",
        ] {
            assert!(!is_hold_command(&words(other), folder), "{other}");
        }
    }
}
