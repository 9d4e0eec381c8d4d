//! Profiles of this process: CPU time and the live heap, one at a time.
//!
//! **CPU.** The sampler runs in a signal handler and unwinds the interrupted thread. It skips
//! samples inside the C library, the unwinder and the vDSO, where unwinding can deadlock. It stores
//! its samples in a temporary file.
//!
//! **Heap.** The allocator samples allocations and writes those that are not freed yet; the program
//! says how ([`set_heap_source`]).

pub mod heap;
mod proto;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use pprof::{Frames, ProfilerGuardBuilder, Report, Symbol};
use thiserror::Error;
use tokio::sync::Semaphore;

use self::heap::{HeapProfile, HeapProfileError};
use self::proto::{Line, Profile, Stack, ValueType};

/// Samples per second; odd, so that sampling does not align with periodic timers.
const FREQUENCY: i32 = 99;
const DEFAULT_SECONDS: u64 = 30;
const MAX_SECONDS: u64 = 120;

/// Writable in containers whose root file system is not.
const SHARED_MEMORY: &str = "/dev/shm";

/// The response to a request without the name of a profile.
pub const INDEX: &str = "\
profile   CPU time, ?seconds=30
heap      memory in use, sampled since the process started
";

/// One profile at a time: the signal of the sampler and the allocator belong to the process.
static PERMIT: Semaphore = Semaphore::const_new(1);

static HEAP: OnceLock<HeapSource> = OnceLock::new();

/// Writes the live heap in the format of jemalloc.
pub type HeapSource = fn() -> io::Result<Vec<u8>>;

/// A profile that can be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Cpu(Duration),
    Heap,
}

/// An error of [`take`] or [`Kind::parse`].
#[derive(Debug, Error)]
pub enum ProfileError {
    #[error("no such profile; there are `profile` and `heap`")]
    Unknown,
    #[error("`seconds` must be a whole number from 1 to {MAX_SECONDS}")]
    BadSeconds,
    #[error("another profile is in progress; try again later")]
    Busy,
    #[error("the profiler failed ({0}); it needs a writable temporary directory")]
    Sampler(#[source] pprof::Error),
    #[error("the allocator of this program cannot write profiles")]
    NoHeap,
    #[error("the allocator wrote no profile: {0}")]
    Dump(#[source] io::Error),
    #[error("failed to read the profile of the allocator: {0}")]
    Heap(#[source] HeapProfileError),
    #[error("failed to encode the profile: {0}")]
    Encoder(#[source] tokio::task::JoinError),
}

/// Sets the source of heap profiles, once for each process.
pub fn set_heap_source(source: HeapSource) {
    let _first = HEAP.set(source);
}

impl Kind {
    /// The profile of a name, with the query parameter `seconds`.
    pub fn parse(name: &str, seconds: Option<&str>) -> Result<Self, ProfileError> {
        match name {
            "profile" => parse_seconds(seconds).map(Self::Cpu),
            "heap" => Ok(Self::Heap),
            _ => Err(ProfileError::Unknown),
        }
    }
}

/// Takes a profile, in the format of `go tool pprof`. Dropping the future stops the sampling.
pub async fn take(kind: Kind) -> Result<Vec<u8>, ProfileError> {
    let _permit = PERMIT.try_acquire().map_err(|_| ProfileError::Busy)?;
    match kind {
        Kind::Cpu(duration) => cpu(duration).await,
        Kind::Heap => blocking(live_heap).await,
    }
}

fn parse_seconds(text: Option<&str>) -> Result<Duration, ProfileError> {
    let seconds = match text {
        None => DEFAULT_SECONDS,
        Some(text) => text.parse().map_err(|_| ProfileError::BadSeconds)?,
    };
    if (1..=MAX_SECONDS).contains(&seconds) {
        Ok(Duration::from_secs(seconds))
    } else {
        Err(ProfileError::BadSeconds)
    }
}

async fn cpu(duration: Duration) -> Result<Vec<u8>, ProfileError> {
    use_writable_temporary_directory();
    let builder = ProfilerGuardBuilder::default().frequency(FREQUENCY);
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    let builder = builder.blocklist(&["libc", "libgcc", "pthread", "vdso"]);
    let guard = builder.build().map_err(ProfileError::Sampler)?;
    tokio::time::sleep(duration).await;
    blocking(move || {
        let report = guard.report().build().map_err(ProfileError::Sampler)?;
        drop(guard);
        Ok(cpu_profile(&report).encode())
    })
    .await
}

/// Symbolization takes a while.
async fn blocking(
    work: impl FnOnce() -> Result<Vec<u8>, ProfileError> + Send + 'static,
) -> Result<Vec<u8>, ProfileError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(ProfileError::Encoder)?
}

/// The root file system of a container is often read-only.
fn use_writable_temporary_directory() {
    if tempfile::tempfile().is_err() && Path::new(SHARED_MEMORY).is_dir() {
        // Only the first call has an effect.
        let _ = tempfile::env::override_temp_dir(SHARED_MEMORY.as_ref());
    }
}

fn live_heap() -> Result<Vec<u8>, ProfileError> {
    let source = HEAP.get().ok_or(ProfileError::NoHeap)?;
    let dump = source().map_err(ProfileError::Dump)?;
    let heap = HeapProfile::parse(&dump).map_err(ProfileError::Heap)?;
    Ok(heap_profile(&heap).encode())
}

fn heap_profile(heap: &HeapProfile) -> Profile {
    let mut names = HashMap::new();
    let mut name = |address: u64| -> Vec<Line> {
        let lines = names.entry(address).or_insert_with(|| lines_at(address));
        lines.clone()
    };
    let mut samples: HashMap<Stack, [u64; 2]> = HashMap::new();
    for sample in &heap.samples {
        let locations: Vec<Vec<Line>> = sample.addresses.iter().map(|at| name(*at)).collect();
        let is_allocator = |lines: &Vec<Line>| lines.iter().any(Line::is_allocator);
        // Everything up to the outermost call into the allocator is its own.
        let own = locations
            .iter()
            .rposition(is_allocator)
            .map_or(0, |at| at + 1);
        let stack = Stack {
            locations: locations.into_iter().skip(own).collect(),
            thread: None,
        };
        let [objects, bytes] = samples.entry(stack).or_default();
        *objects = objects.saturating_add(sample.objects);
        *bytes = bytes.saturating_add(sample.bytes);
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Profile {
        types: [
            ValueType("inuse_objects", "count"),
            ValueType("inuse_space", "bytes"),
        ],
        samples: samples.into_iter().collect(),
        time: now.unwrap_or_default(),
        duration: None,
        period_type: ValueType("space", "bytes"),
        period: heap.sample_period,
    }
}

/// The functions at a return address, innermost first.
fn lines_at(address: u64) -> Vec<Line> {
    let mut lines = Vec::new();
    let pointer = std::ptr::without_provenance_mut(usize::try_from(address).unwrap_or_default());
    backtrace::resolve(pointer, |symbol| {
        lines.push(Line {
            function: symbol
                .name()
                .map_or_else(|| format!("{address:#x}"), |name| format!("{name:#}")),
            file: symbol
                .filename()
                .map_or(String::new(), |file| file.display().to_string()),
            number: symbol.lineno().unwrap_or_default(),
        });
    });
    if lines.is_empty() {
        lines.push(Line {
            function: format!("{address:#x}"),
            file: String::new(),
            number: 0,
        });
    }
    lines
}

fn cpu_profile(report: &Report) -> Profile {
    let period = Duration::from_secs(1) / u32::try_from(FREQUENCY).unwrap_or(1);
    let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
    let mut counts: HashMap<Stack, u64> = HashMap::new();
    for (frames, count) in &report.data {
        *counts.entry(stack_of(frames)).or_default() += u64::try_from(*count).unwrap_or_default();
    }
    let samples = counts.into_iter();
    let start = report
        .timing
        .start_time
        .duration_since(SystemTime::UNIX_EPOCH);
    Profile {
        types: [
            ValueType("samples", "count"),
            ValueType("cpu", "nanoseconds"),
        ],
        samples: samples
            .map(|(stack, count)| (stack, [count, count.saturating_mul(period)]))
            .collect(),
        time: start.unwrap_or_default(),
        duration: Some(report.timing.duration),
        period_type: ValueType("cpu", "nanoseconds"),
        period,
    }
}

fn stack_of(frames: &Frames) -> Stack {
    let locations = frames
        .frames
        .iter()
        .skip_while(|symbols| symbols.iter().any(is_sampler))
        .map(|symbols| {
            symbols
                .iter()
                .map(|symbol| Line {
                    function: symbol.name(),
                    file: symbol.filename().into_owned(),
                    number: symbol.lineno(),
                })
                .collect()
        })
        .collect();
    Stack {
        locations,
        thread: Some(frames.thread_name_or_id()),
    }
}

/// The innermost calls of every stack are the sampler's own.
fn is_sampler(symbol: &Symbol) -> bool {
    let name = symbol.name();
    name.starts_with("backtrace::") || name.contains("pprof::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_have_names_and_seconds_are_limited() {
        let cpu = |seconds| Kind::parse("profile", seconds);
        assert_eq!(cpu(None).unwrap(), Kind::Cpu(Duration::from_secs(30)));
        assert_eq!(cpu(Some("1")).unwrap(), Kind::Cpu(Duration::from_secs(1)));
        for bad in ["", "0", "-1", "1.5", "121", "99999999999999999999"] {
            assert!(
                matches!(cpu(Some(bad)), Err(ProfileError::BadSeconds)),
                "{bad}"
            );
        }
        assert_eq!(Kind::parse("heap", Some("x")).unwrap(), Kind::Heap);
        for unknown in ["", "goroutine", "heap/", "Heap"] {
            assert!(matches!(
                Kind::parse(unknown, None),
                Err(ProfileError::Unknown)
            ));
        }
    }

    /// A return address of this very test.
    fn here() -> u64 {
        let mut found = 0;
        backtrace::trace(|frame| {
            let mut is_here = false;
            backtrace::resolve_frame(frame, |symbol| {
                let name = symbol.name().map(|name| name.to_string());
                is_here |= name.is_some_and(|name| name.contains("frames_of_the_allocator"));
            });
            if is_here {
                found = frame.ip().addr() as u64;
            }
            !is_here
        });
        found
    }

    #[test]
    fn frames_of_the_allocator_are_left_out_and_addresses_get_names() {
        let here = here();
        let text = format!("heap_v2/1\n@ 0x10 {here:#x}\n  t*: 2: 64 [0: 0]\n");
        let heap = HeapProfile::parse(text.as_bytes()).unwrap();
        let profile = heap_profile(&heap);
        let [(stack, values)] = &profile.samples[..] else {
            panic!("one sample");
        };
        assert_eq!(*values, [2, 64]);
        let names: Vec<&str> = stack
            .locations
            .iter()
            .flatten()
            .map(|line| line.function.as_str())
            .collect();
        assert_eq!(names[0], "0x10", "an address without a name");
        assert!(names[1].contains("frames_of_the_allocator"), "{names:?}");
        assert!(Line::named("_rjem_je_prof_backtrace").is_allocator());
        assert!(Line::named("prof_backtrace_impl").is_allocator());
        assert!(Line::named("__rust_alloc").is_allocator());
        assert!(!Line::named("kubevitals::allocate").is_allocator());
    }
}
