//! Volumes at their paths, in a mount namespace of the container's own.
//!
//! The file system of the host stays as it is. Where a mount path does not exist, its parent is
//! covered by a temporary file system that shows the same entries and has the missing one too. This
//! is no isolation: the container sees the host's files.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_remount,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use super::record::MountPlan;

/// Folders with more entries than this are not covered.
const MAX_ENTRIES: usize = 4096;

/// Enters the mount namespace and the root of another process.
pub(super) fn join(pid: i32) -> io::Result<()> {
    let namespace = fs::File::open(format!("/proc/{pid}/ns/mnt"))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, format!("/proc/{pid}/root"), flags, Mode::empty())?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
    rustix::process::fchdir(&root)?;
    rustix::process::chroot(".")?;
    rustix::process::chdir("/")?;
    Ok(())
}

/// Makes all volumes appear. `scratch` is an empty folder of ours.
pub(super) fn set_up(scratch: &Path, mounts: &[MountPlan]) -> Result<(), String> {
    let context = |what: String| move |error: io::Error| format!("{what}: {error}");
    #[expect(
        deprecated,
        reason = "its successor is unsafe because of CLONE_FILES, which is not used here"
    )]
    rustix::thread::unshare(UnshareFlags::NEWNS)
        .map_err(io::Error::from)
        .map_err(context("unshare the mount namespace".to_owned()))?;
    mount_change(
        "/",
        MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC,
    )
    .map_err(io::Error::from)
    .map_err(context("make mounts private".to_owned()))?;
    // Sources are bound before anything is covered: a volume may lie below a path that is.
    let mut staged = Vec::new();
    temporary(scratch).map_err(context("mount a temporary file system".to_owned()))?;
    for (index, plan) in mounts.iter().enumerate() {
        let place = scratch.join(format!("volume-{index}"));
        bind(&plan.source, &place, plan.read_only)
            .map_err(context(format!("mount {}", plan.source.display())))?;
        staged.push((place, plan));
    }
    let mut root = PathBuf::from("/");
    // Shallow paths first: a mount may lie in another.
    staged.sort_by_key(|(_, plan)| plan.target.components().count());
    let mut covered = 0;
    for (place, plan) in staged {
        attach(scratch, &mut root, &mut covered, &place, &plan.target)
            .map_err(context(format!("mount at {}", plan.target.display())))?;
    }
    if root != Path::new("/") {
        rustix::process::chroot(&root)
            .and_then(|()| rustix::process::chdir("/"))
            .map_err(io::Error::from)
            .map_err(context("change the root".to_owned()))?;
    }
    Ok(())
}

fn temporary(at: &Path) -> io::Result<()> {
    fs::create_dir_all(at)?;
    mount(
        "tmpfs",
        at,
        "tmpfs",
        MountFlags::NODEV | MountFlags::NOSUID,
        c"mode=755",
    )?;
    Ok(())
}

/// Binds a file or a folder to a path that does not exist yet.
fn bind(source: &Path, place: &Path, read_only: bool) -> io::Result<()> {
    if fs::metadata(source)?.is_dir() {
        fs::create_dir(place)?;
    } else {
        fs::File::create(place)?;
    }
    mount_bind_recursive(source, place)?;
    if read_only {
        mount_remount(place, MountFlags::BIND | MountFlags::RDONLY, c"")?;
    }
    Ok(())
}

/// Attaches a staged volume at its path, and makes the path if it is missing.
fn attach(
    scratch: &Path,
    root: &mut PathBuf,
    covered: &mut usize,
    place: &Path,
    target: &Path,
) -> io::Result<()> {
    let names: Vec<&std::ffi::OsStr> = target
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    let Some((last, folders)) = names.split_last() else {
        return Err(io::Error::other("a volume cannot be mounted at the root"));
    };
    let mut at = PathBuf::from("/");
    for name in folders {
        let next = resolve(root, &at.join(name))?;
        if !real(root, &next).exists() {
            cover(scratch, root, covered, &at)?;
            fs::create_dir_all(real(root, &next))?;
        }
        at = next;
    }
    let end = resolve(root, &at.join(last))?;
    let is_dir = fs::metadata(place)?.is_dir();
    match fs::metadata(real(root, &end)) {
        Ok(found) if found.is_dir() == is_dir => {}
        Ok(_) => {
            return Err(io::Error::other(
                "a folder and a file cannot be mounted on each other",
            ));
        }
        Err(_) => {
            let parent = end.parent().unwrap_or(Path::new("/")).to_owned();
            cover(scratch, root, covered, &parent)?;
            if is_dir {
                fs::create_dir_all(real(root, &end))?;
            } else {
                fs::File::create(real(root, &end))?;
            }
        }
    }
    mount_bind_recursive(place, real(root, &end))?;
    Ok(())
}

/// The path as this process sees it, before the root is changed.
fn real(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Follows links, as far as the path exists. Links are those of the host.
fn resolve(root: &Path, path: &Path) -> io::Result<PathBuf> {
    match fs::symlink_metadata(real(root, path)) {
        Ok(found) if found.is_symlink() => match fs::canonicalize(path) {
            Ok(path) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(io::Error::other("a part of the path is a broken link"))
            }
            Err(error) => Err(error),
        },
        _ => Ok(path.to_owned()),
    }
}

/// Covers a folder with a temporary file system that has the same entries.
fn cover(scratch: &Path, root: &mut PathBuf, covered: &mut usize, path: &Path) -> io::Result<()> {
    if is_ours(&real(root, path)) {
        return Ok(());
    }
    let fresh = scratch.join(format!("cover-{covered}"));
    *covered += 1;
    temporary(&fresh)?;
    let metadata = fs::metadata(real(root, path))?;
    fs::set_permissions(&fresh, metadata.permissions())?;
    for (count, entry) in fs::read_dir(real(root, path))?.enumerate() {
        let entry = entry?;
        if count > MAX_ENTRIES {
            return Err(io::Error::other("its folder has too many entries"));
        }
        let place = fresh.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, place)?;
        } else if kind.is_dir() {
            fs::create_dir(&place)?;
            mount_bind_recursive(entry.path(), &place)?;
        } else {
            fs::File::create(&place)?;
            mount_bind(entry.path(), &place)?;
        }
    }
    fs::File::create(fresh.join(MARK))?;
    if path == Path::new("/") {
        *root = fresh;
    } else {
        mount_bind_recursive(&fresh, real(root, path))?;
    }
    Ok(())
}

/// Marks folders that are covered already.
const MARK: &str = ".kubevitals-mounts";

fn is_ours(path: &Path) -> bool {
    path.join(MARK).exists()
}
