//! Processor time and memory of a process, from `/proc`.

use std::time::Duration;

use crate::BenchError;

/// Processor time of a process, in clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTicks {
    /// All its threads, in user and kernel mode.
    pub own: u64,
    /// Children that have ended and were waited for.
    pub children: u64,
}

/// Resident memory of a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// Now (`VmRSS`).
    pub resident: u64,
    /// Maximum so far (`VmHWM`).
    pub peak: u64,
    /// The part that is no file's (`RssAnon`): heap and stacks. The rest is pages of the program,
    /// which are shared and can be dropped. None if the kernel does not say.
    pub anonymous: Option<u64>,
}

impl CpuTicks {
    /// Parses `/proc/PID/stat`. The second field is the program's name in parentheses, and may
    /// contain anything.
    pub fn parse(stat: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(')')?;
        // The state is field 3; utime, stime, cutime and cstime are 14 to 17.
        let mut fields = fields.split_ascii_whitespace().skip(11);
        let mut ticks = || fields.next()?.parse::<u64>().ok();
        let own = ticks()?.checked_add(ticks()?)?;
        let children = ticks()?.checked_add(ticks()?)?;
        Some(Self { own, children })
    }

    /// Reads a running process. Its own running children are not counted.
    pub fn read(pid: u32) -> Result<Self, BenchError> {
        read(pid, "stat", Self::parse)
    }

    /// Converts to a duration; the resolution is one clock tick, commonly 10 ms.
    pub fn time(self) -> Duration {
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        let ticks = self.own.saturating_add(self.children);
        let rest = (ticks % per_second).saturating_mul(1_000_000_000) / per_second;
        Duration::from_secs(ticks / per_second).saturating_add(Duration::from_nanos(rest))
    }
}

impl Memory {
    /// Parses `/proc/PID/status`; none for a process that has exited, which has no memory left.
    pub fn parse(status: &str) -> Option<Self> {
        let bytes = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            let kilobytes = line.trim().strip_suffix("kB")?.trim();
            kilobytes.parse::<u64>().ok()?.checked_mul(1024)
        };
        Some(Self {
            resident: bytes("VmRSS:")?,
            peak: bytes("VmHWM:")?,
            anonymous: bytes("RssAnon:"),
        })
    }

    /// Reads a running process.
    pub fn read(pid: u32) -> Result<Self, BenchError> {
        read(pid, "status", Self::parse)
    }
}

/// Returns the time for which the threads of a process had a processor, by the scheduler's clock:
/// in nanoseconds, where [`CpuTicks`] are 10 ms. Threads that have ended are not counted.
pub fn scheduled_time(pid: u32) -> Result<Duration, BenchError> {
    let path = format!("/proc/{pid}/task");
    let failed = |error: std::io::Error| BenchError::Proc {
        path: path.clone(),
        problem: error.to_string(),
    };
    let mut total = Duration::ZERO;
    for task in std::fs::read_dir(&path).map_err(failed)? {
        let file = task.map_err(failed)?.path().join("schedstat");
        // The thread may have ended in between.
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let nanoseconds = text.split(' ').next().and_then(|word| word.parse().ok());
        total = total.saturating_add(Duration::from_nanos(nanoseconds.unwrap_or(0)));
    }
    Ok(total)
}

fn read<T>(pid: u32, file: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, BenchError> {
    let path = format!("/proc/{pid}/{file}");
    // The name of a program need not be UTF-8.
    let text = std::fs::read(&path).map_err(|error| BenchError::Proc {
        path: path.clone(),
        problem: error.to_string(),
    })?;
    parse(&String::from_utf8_lossy(&text)).ok_or_else(|| BenchError::Proc {
        path,
        problem: "fields are missing: the process has exited, or is a kernel thread".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn times_are_found_after_any_name(
            name in any::<String>(), before in prop::collection::vec(any::<i32>(), 10),
            times in any::<[u32; 4]>(), after in prop::collection::vec(any::<u64>(), 0..40),
        ) {
            let words = |numbers: Vec<String>| numbers.join(" ");
            let before = words(before.iter().map(ToString::to_string).collect());
            let after = words(after.iter().map(ToString::to_string).collect());
            let [user, system, child_user, child_system] = times.map(u64::from);
            let stat = format!(
                "42 ({name}) S {before} {user} {system} {child_user} {child_system} {after}\n"
            );
            prop_assert_eq!(CpuTicks::parse(&stat), Some(CpuTicks {
                own: user + system,
                children: child_user + child_system,
            }));
        }

        #[test]
        fn parsers_never_panic(text in any::<String>()) {
            let _ = CpuTicks::parse(&text);
            let _ = Memory::parse(&text);
        }

        #[test]
        fn memory_is_found_among_other_lines(
            name in "[^\n]{0,16}", peak in 0..u64::from(u32::MAX), resident in 0..u64::from(u32::MAX),
            anonymous in 0..u64::from(u32::MAX),
        ) {
            let status = format!(
                "Name:\t{name}\nVmPeak:\t  999 kB\nVmHWM:\t{peak:>8} kB\nVmRSS:\t{resident:>8} kB\nRssAnon:\t{anonymous:>8} kB\nThreads:\t7\n"
            );
            let expected = Memory {
                resident: resident * 1024,
                peak: peak * 1024,
                anonymous: Some(anonymous * 1024),
            };
            prop_assert_eq!(Memory::parse(&status), Some(expected));
        }
    }

    #[test]
    fn a_process_that_has_exited_has_no_memory() {
        assert_eq!(Memory::parse("Name:\tgone\nState:\tZ (zombie)\n"), None);
    }

    #[test]
    fn the_current_process_can_be_read() {
        let pid = std::process::id();
        let memory = Memory::read(pid).unwrap();
        assert!(memory.peak >= memory.resident && memory.resident > 0);
        assert!(memory.anonymous < Some(memory.resident));
        CpuTicks::read(pid).unwrap();
        scheduled_time(pid).unwrap();
    }
}
