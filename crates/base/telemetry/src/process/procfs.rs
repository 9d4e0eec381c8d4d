//! Reads the files of `/proc` about this process.

use std::{
    fs::{self, File},
    io::Read,
    path::Path,
};

use super::ProcessStats;

/// Longer than any of these files, except `/proc/stat` on machines with thousands of cores.
const MAX_FILE_SIZE: u64 = 1024 * 1024;

/// Fields of `/proc/self/stat`, in the kernel's units.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

/// Reads the files below `proc`, which is `/proc` outside tests.
pub(super) fn read(proc: &Path) -> ProcessStats {
    let stat = read_file(&proc.join("self/stat")).and_then(|text| Stat::parse(&text));
    let ticks_per_second = ticks_per_second();
    let seconds = |ticks: u64| Some(as_f64(ticks) / ticks_per_second?);
    let boot_time = read_file(&proc.join("stat")).and_then(|text| parse_boot_time(&text));
    ProcessStats {
        cpu_seconds: stat.as_ref().and_then(|stat| seconds(stat.cpu_ticks)),
        start_time_seconds: stat
            .as_ref()
            .and_then(|stat| Some(as_f64(boot_time?) + seconds(stat.start_ticks)?)),
        resident_memory_bytes: stat
            .as_ref()
            .and_then(|stat| stat.resident_pages.checked_mul(page_size()?)),
        virtual_memory_bytes: stat.as_ref().map(|stat| stat.virtual_bytes),
        open_fds: count_entries(&proc.join("self/fd")),
        max_fds: read_file(&proc.join("self/limits")).and_then(|text| parse_max_fds(&text)),
    }
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The command name comes second, in parentheses, and may itself contain blanks and
        // parentheses.
        let (_, after_name) = text.rsplit_once(')')?;
        // The first field after the name is the third of proc(5).
        let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)?.checked_add(field(15)?)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

fn parse_boot_time(stat: &str) -> Option<u64> {
    stat.lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()
}

/// The soft limit; `None` if it is `unlimited`.
fn parse_max_fds(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn count_entries(directory: &Path) -> Option<u64> {
    let entries = fs::read_dir(directory).ok()?.flatten().count();
    // Listing the directory holds one descriptor itself.
    u64::try_from(entries).ok()?.checked_sub(1)
}

fn read_file(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path)
        .ok()?
        .take(MAX_FILE_SIZE)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

#[cfg(target_os = "linux")]
fn ticks_per_second() -> Option<f64> {
    Some(as_f64(rustix::param::clock_ticks_per_second())).filter(|ticks| *ticks > 0.0)
}

#[cfg(not(target_os = "linux"))]
fn ticks_per_second() -> Option<f64> {
    None
}

#[cfg(target_os = "linux")]
fn page_size() -> Option<u64> {
    u64::try_from(rustix::param::page_size()).ok()
}

#[cfg(not(target_os = "linux"))]
fn page_size() -> Option<u64> {
    None
}

#[expect(
    clippy::cast_precision_loss,
    reason = "ticks and seconds stay far below 2^53"
)]
fn as_f64(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAT: &str = "42 (a) b (c)) S 1 42 42 0 -1 4194560 900 0 1 0 150 25 0 0 20 0 4 0 12345 \
                        21000192 2560 18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 1 0 0 0 0 0\n";

    #[test]
    fn a_command_name_with_parentheses_does_not_shift_the_fields() {
        assert_eq!(
            Stat::parse(STAT).unwrap(),
            Stat {
                cpu_ticks: 175,
                start_ticks: 12345,
                virtual_bytes: 21_000_192,
                resident_pages: 2560
            }
        );
        assert_eq!(Stat::parse("42 (short) S 1 2 3"), None);
    }

    #[test]
    fn limits_and_boot_time() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max cpu time              unlimited            unlimited            seconds\n\
                      Max open files            1024                 524288               files\n";
        assert_eq!(parse_max_fds(limits), Some(1024));
        assert_eq!(parse_max_fds(&limits.replace("1024  ", "unlimited")), None);
        assert_eq!(parse_max_fds(""), None);
        assert_eq!(
            parse_boot_time("cpu 1 2\nbtime 1700000000\nprocesses 9\n"),
            Some(1_700_000_000)
        );
        assert_eq!(parse_boot_time("cpu 1 2\n"), None);
    }

    #[test]
    fn without_proc_there_are_no_values() {
        assert_eq!(read(Path::new("/nonexistent")), ProcessStats::default());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_text_panics(text in "[()0-9 a-zS\n-]{0,200}") {
            let _ = Stat::parse(&text);
            let _ = parse_max_fds(&text);
            let _ = parse_boot_time(&text);
        }
    }
}
