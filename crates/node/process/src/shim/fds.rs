//! Files that do not block, and terminals.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::OFlags;

/// Whether to try again later.
pub(super) fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

pub(super) fn set_nonblocking(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    rustix::fs::fcntl_setfl(file, flags | OFlags::NONBLOCK)?;
    Ok(())
}

/// Opens a file for writing, without waiting for a reader.
pub(super) fn open_nonblocking(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    File::options().write(true).custom_flags(flags).open(path)
}

/// Opens a new terminal: our side, and the path of the program's.
pub(crate) fn open_terminal() -> io::Result<(File, std::path::PathBuf)> {
    use std::os::unix::ffi::OsStringExt as _;
    let flags = rustix::pty::OpenptFlags::RDWR
        | rustix::pty::OpenptFlags::NOCTTY
        | rustix::pty::OpenptFlags::CLOEXEC;
    let terminal = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&terminal)?;
    rustix::pty::unlockpt(&terminal)?;
    let name = rustix::pty::ptsname(&terminal, Vec::new())?;
    let terminal = File::from(terminal);
    set_nonblocking(&terminal)?;
    let path = std::ffi::OsString::from_vec(name.into_bytes());
    Ok((terminal, path.into()))
}
