//! CPU profiles of this process, one at a time.
//!
//! The sampler runs in a signal handler and unwinds the interrupted thread. It skips samples inside
//! the C library, the unwinder and the vDSO, where unwinding can deadlock. It stores its samples in
//! a temporary file, so it needs a writable temporary directory.

mod proto;

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use pprof::{Frames, ProfilerGuardBuilder, Report, Symbol};
use thiserror::Error;
use tokio::sync::Semaphore;

use self::proto::{CpuProfile, Line, Stack};

/// Samples per second; odd, so that sampling does not align with periodic timers.
const FREQUENCY: i32 = 99;
const DEFAULT_SECONDS: u64 = 30;
const MAX_SECONDS: u64 = 120;

/// Takes CPU profiles, one at a time: the signal of the sampler is shared by the process.
#[derive(Debug)]
pub struct Profiler {
    permit: Semaphore,
}

/// An error of [`Profiler::cpu`] or [`parse_seconds`].
#[derive(Debug, Error)]
pub enum ProfileError {
    #[error("`seconds` must be a whole number from 1 to {MAX_SECONDS}")]
    BadSeconds,
    #[error("another profile is in progress; try again later")]
    Busy,
    #[error("the profiler failed ({0}); it needs a writable temporary directory")]
    Sampler(#[source] pprof::Error),
    #[error("failed to encode the profile: {0}")]
    Encoder(#[source] tokio::task::JoinError),
}

/// Parses the query parameter `seconds`.
pub fn parse_seconds(text: Option<&str>) -> Result<Duration, ProfileError> {
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

impl Default for Profiler {
    fn default() -> Self {
        Self::new()
    }
}

impl Profiler {
    pub const fn new() -> Self {
        Self {
            permit: Semaphore::const_new(1),
        }
    }

    /// Samples for `duration` and returns the profile in the format of `go tool pprof`.
    ///
    /// Dropping the future stops the sampling.
    pub async fn cpu(&self, duration: Duration) -> Result<Vec<u8>, ProfileError> {
        let _permit = self.permit.try_acquire().map_err(|_| ProfileError::Busy)?;
        let builder = ProfilerGuardBuilder::default().frequency(FREQUENCY);
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        let builder = builder.blocklist(&["libc", "libgcc", "pthread", "vdso"]);
        let guard = builder.build().map_err(ProfileError::Sampler)?;
        tokio::time::sleep(duration).await;
        // Symbolization takes a while.
        tokio::task::spawn_blocking(move || {
            let report = guard.report().build().map_err(ProfileError::Sampler)?;
            drop(guard);
            Ok(convert(&report).encode())
        })
        .await
        .map_err(ProfileError::Encoder)?
    }
}

fn convert(report: &Report) -> CpuProfile {
    let mut counts: HashMap<Stack, u64> = HashMap::new();
    for (frames, count) in &report.data {
        *counts.entry(stack_of(frames)).or_default() += u64::try_from(*count).unwrap_or_default();
    }
    let start = report
        .timing
        .start_time
        .duration_since(SystemTime::UNIX_EPOCH);
    CpuProfile {
        samples: counts.into_iter().collect(),
        start: start.unwrap_or_default(),
        duration: report.timing.duration,
        period: Duration::from_secs(1) / u32::try_from(FREQUENCY).unwrap_or(1),
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
        thread: frames.thread_name_or_id(),
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
    fn seconds_are_limited() {
        assert_eq!(parse_seconds(None).unwrap(), Duration::from_secs(30));
        assert_eq!(parse_seconds(Some("1")).unwrap(), Duration::from_secs(1));
        for bad in ["", "0", "-1", "1.5", "121", "99999999999999999999"] {
            assert!(parse_seconds(Some(bad)).is_err(), "{bad}");
        }
    }
}
