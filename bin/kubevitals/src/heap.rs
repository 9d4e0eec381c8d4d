//! Heap profiles of jemalloc.
//!
//! jemalloc decides when it starts whether it can sample allocations. That it can costs some
//! instructions for each allocation (docs/adr/0046-profiles.md), so it cannot unless `--profiling`
//! is given: then the program replaces itself by one with the setting.
//!
//! jemalloc is the allocator of Rust code alone, and so it starts after the C library. Under the
//! names of the C library it starts before that can list the unwind tables of a static program:
//! jemalloc unwinds a stack at its first allocation if it has the setting, and the unwinder aborts.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::OnceLock;

use kubevitals_telemetry::profile::set_heap_source;
use rustix::fs::{MemfdFlags, memfd_create};
use tikv_jemalloc_ctl::{Access as _, AsName as _};

/// Maximum size of a profile: some ten thousand stacks.
const MAX_DUMP: u64 = 64 << 20;

/// The file in memory that jemalloc writes to, since a container may have no writable directory.
struct DumpFile {
    file: File,
    /// Its path with the zero byte that C expects.
    path: &'static str,
}

static DUMP_FILE: OnceLock<DumpFile> = OnceLock::new();

/// The setting of jemalloc, in the variable that it reads.
const VARIABLE: &str = "_RJEM_MALLOC_CONF";
const SAMPLE: &str = "prof:true,prof_active:true";

/// Makes jemalloc sample allocations. Returns in a program that does.
pub(crate) fn start_sampling() {
    set_heap_source(dump);
    let given = env::var(VARIABLE).unwrap_or_default();
    // An operator who decides about profiles is obeyed, and so is this program, once.
    if is_sampling() || given.contains("prof:") {
        return;
    }
    let Ok(program) = env::current_exe() else {
        return;
    };
    let setting = if given.is_empty() {
        SAMPLE.to_owned()
    } else {
        format!("{given},{SAMPLE}")
    };
    let mut words = env::args_os();
    let name = words.next().unwrap_or_else(|| OsString::from("kubevitals"));
    let mut command = Command::new(program);
    command.arg0(name).args(words).env(VARIABLE, setting);
    // It returns only if it fails, and then this program goes on.
    let _error = command.exec();
}

fn is_sampling() -> bool {
    b"prof.active\0".name().read().unwrap_or_default()
}

/// Writes the live heap. One caller at a time.
fn dump() -> io::Result<Vec<u8>> {
    if !is_sampling() {
        let problem = "it does not sample; start with _RJEM_MALLOC_CONF=prof:true,prof_active:true";
        return Err(io::Error::other(problem));
    }
    let to = if let Some(file) = DUMP_FILE.get() {
        file
    } else {
        let file = DumpFile::create()?;
        DUMP_FILE.get_or_init(|| file)
    };
    let written = b"prof.dump\0".name().write(to.path);
    written.map_err(|error| io::Error::other(error.to_string()))?;
    let mut contents = Vec::new();
    let mut file = &to.file;
    file.seek(SeekFrom::Start(0))?;
    file.take(MAX_DUMP).read_to_end(&mut contents)?;
    to.file.set_len(0)?;
    Ok(contents)
}

impl DumpFile {
    fn create() -> io::Result<Self> {
        let file = File::from(memfd_create("heap-profile", MemfdFlags::CLOEXEC)?);
        let path = format!("/proc/self/fd/{}\0", file.as_raw_fd());
        Ok(Self {
            file,
            path: path.leak(),
        })
    }
}
