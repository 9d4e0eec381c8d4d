//! The contents of the files of cgroups and of `/proc`.
//!
//! All parsers take bytes and keep what they understand: an unknown or malformed line is left out.
//! They stand in for `procfs`, which builds owned structures for each file, and for `cgroups-rs`,
//! which has no pressure and brings D-Bus.

use kubevitals_model::node_stats::{CpuQuota, DeviceIo, InterfaceStats, Pressure, PressureLine};
use memchr::memchr;

/// The maximum number of block devices of a cgroup, and of network interfaces of a pod.
const MAX_ITEMS: usize = 1024;

/// A limit beyond this is none: cgroup v1 has no other way to state it.
const NO_LIMIT: u64 = 1 << 62;

/// `cpu.stat` of either version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuStat {
    pub usage_micros: Option<u64>,
    pub user_micros: Option<u64>,
    pub system_micros: Option<u64>,
    pub periods: Option<u64>,
    pub throttled_periods: Option<u64>,
    pub throttled_nanos: Option<u64>,
}

/// `memory.stat` of either version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryStat {
    pub rss: Option<u64>,
    pub cache: Option<u64>,
    pub mapped_file: Option<u64>,
    pub active_file: Option<u64>,
    pub inactive_file: Option<u64>,
    pub kernel: Option<u64>,
    pub swap: Option<u64>,
    pub page_faults: Option<u64>,
    pub major_page_faults: Option<u64>,
}

/// `memory.events`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryEvents {
    pub max: Option<u64>,
    pub oom_kill: Option<u64>,
}

/// `/proc/meminfo`, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemInfo {
    pub total: Option<u64>,
    pub swap_total: Option<u64>,
    pub swap_free: Option<u64>,
}

/// Parses `cpu.stat`.
pub fn cpu_stat(content: &[u8]) -> CpuStat {
    let mut stat = CpuStat::default();
    for (key, value) in keyed(content) {
        match key {
            b"usage_usec" => stat.usage_micros = number(value),
            b"user_usec" => stat.user_micros = number(value),
            b"system_usec" => stat.system_micros = number(value),
            b"nr_periods" => stat.periods = number(value),
            b"nr_throttled" => stat.throttled_periods = number(value),
            b"throttled_usec" => {
                stat.throttled_nanos = number(value).and_then(|micros| micros.checked_mul(1000));
            }
            b"throttled_time" => stat.throttled_nanos = number(value),
            _ => {}
        }
    }
    stat
}

/// Parses `cpuacct.stat` into ticks of user and system time.
pub fn cpuacct_stat(content: &[u8]) -> (Option<u64>, Option<u64>) {
    let mut ticks = (None, None);
    for (key, value) in keyed(content) {
        match key {
            b"user" => ticks.0 = number(value),
            b"system" => ticks.1 = number(value),
            _ => {}
        }
    }
    ticks
}

/// Parses `memory.stat` of version 2.
pub fn memory_stat(content: &[u8]) -> MemoryStat {
    let mut stat = MemoryStat::default();
    for (key, value) in keyed(content) {
        match key {
            b"anon" => stat.rss = number(value),
            b"file" => stat.cache = number(value),
            b"file_mapped" => stat.mapped_file = number(value),
            b"active_file" => stat.active_file = number(value),
            b"inactive_file" => stat.inactive_file = number(value),
            b"kernel" => stat.kernel = number(value),
            b"pgfault" => stat.page_faults = number(value),
            b"pgmajfault" => stat.major_page_faults = number(value),
            _ => {}
        }
    }
    stat
}

/// Parses `memory.stat` of version 1. Of a hierarchy the totals count; inactive files always do.
pub fn memory_stat_v1(content: &[u8], is_hierarchy: bool) -> MemoryStat {
    let mut stat = MemoryStat::default();
    for (key, value) in keyed(content) {
        let (key, is_total) = match key.strip_prefix(b"total_") {
            Some(key) => (key, true),
            None => (key, false),
        };
        if key == b"inactive_file" {
            if is_total {
                stat.inactive_file = number(value);
            }
            continue;
        }
        if is_total != is_hierarchy {
            continue;
        }
        match key {
            b"rss" => stat.rss = number(value),
            b"cache" => stat.cache = number(value),
            b"mapped_file" => stat.mapped_file = number(value),
            b"active_file" => stat.active_file = number(value),
            b"swap" => stat.swap = number(value),
            b"pgfault" => stat.page_faults = number(value),
            b"pgmajfault" => stat.major_page_faults = number(value),
            _ => {}
        }
    }
    stat
}

/// Parses `memory.events`, and `memory.oom_control` of version 1.
pub fn memory_events(content: &[u8]) -> MemoryEvents {
    let mut events = MemoryEvents::default();
    for (key, value) in keyed(content) {
        match key {
            b"max" => events.max = number(value),
            b"oom_kill" => events.oom_kill = number(value),
            _ => {}
        }
    }
    events
}

/// Parses a pressure file. Without the line `some` there is none.
pub fn pressure(content: &[u8]) -> Option<Pressure> {
    let mut some = None;
    let mut full = None;
    for (key, rest) in keyed(content) {
        match key {
            b"some" => some = pressure_line(rest),
            b"full" => full = pressure_line(rest),
            _ => {}
        }
    }
    Some(Pressure { full, some: some? })
}

/// Parses `io.stat`.
pub fn io_stat(content: &[u8]) -> Vec<DeviceIo> {
    let mut devices = Vec::new();
    for (device, rest) in keyed(content).take(MAX_ITEMS) {
        let Some((major, minor)) = device_number(device) else {
            continue;
        };
        let mut io = empty_device(major, minor);
        for field in words(rest) {
            let Some((key, value)) = split_at_byte(field, b'=') else {
                continue;
            };
            let Some(value) = number(value) else {
                continue;
            };
            match key {
                b"rbytes" => io.read_bytes = value,
                b"wbytes" => io.written_bytes = value,
                b"rios" => io.reads = value,
                b"wios" => io.writes = value,
                _ => {}
            }
        }
        devices.push(io);
    }
    devices
}

/// Parses `blkio.throttle.io_service_bytes_recursive` and, with `is_bytes` unset, its counterpart
/// that counts operations, into `devices`.
pub fn blkio(content: &[u8], is_bytes: bool, devices: &mut Vec<DeviceIo>) {
    for (device, rest) in keyed(content) {
        let Some((major, minor)) = device_number(device) else {
            continue;
        };
        let mut fields = words(rest);
        let (Some(operation), Some(value)) = (fields.next(), fields.next().and_then(number)) else {
            continue;
        };
        let known = devices
            .iter()
            .position(|one| (one.major, one.minor) == (major, minor));
        let index = known.unwrap_or(devices.len());
        if known.is_none() {
            if devices.len() >= MAX_ITEMS {
                return;
            }
            devices.push(empty_device(major, minor));
        }
        let Some(io) = devices.get_mut(index) else {
            continue;
        };
        match (operation, is_bytes) {
            (b"Read", true) => io.read_bytes = value,
            (b"Write", true) => io.written_bytes = value,
            (b"Read", false) => io.reads = value,
            (b"Write", false) => io.writes = value,
            _ => {}
        }
    }
}

/// Parses a file that consists of one number.
pub fn value(content: &[u8]) -> Option<u64> {
    number(content.trim_ascii())
}

/// Parses a limit; the inner `None` is `max`, or a number that stands for it.
pub fn limit(content: &[u8]) -> Option<Option<u64>> {
    match content.trim_ascii() {
        b"max" => Some(None),
        text => number(text).map(|limit| (limit < NO_LIMIT).then_some(limit)),
    }
}

/// Parses `cpu.max`; the inner `None` is no limit.
pub fn cpu_max(content: &[u8]) -> Option<Option<CpuQuota>> {
    let mut fields = words(content);
    let quota = fields.next()?;
    let period_micros = number(fields.next()?)?;
    if quota == b"max" {
        return Some(None);
    }
    Some(Some(CpuQuota {
        quota_micros: number(quota)?,
        period_micros,
    }))
}

/// Converts a weight of version 2 to shares, by the inverse of what runtimes have done since 2025:
/// weight 100 is 1024 shares.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the weight is checked, and the result is at most 2^18"
)]
pub fn shares_of_weight(weight: u64) -> Option<u64> {
    if !(1..=10_000).contains(&weight) {
        return None;
    }
    let log = 612.0 * ((weight as f64).log10() + 7.0 / 34.0);
    let exponent = ((15_625.0 + 4.0 * log).sqrt() - 125.0) / 2.0;
    Some(exponent.exp2().round().clamp(2.0, 262_144.0) as u64)
}

/// Parses `/proc/<pid>/net/dev`. A line without its 16 counters discards the file, as in cAdvisor.
/// Interfaces that do not belong to a pod are left out.
pub fn net_dev(content: &[u8]) -> Option<Vec<InterfaceStats>> {
    const IGNORED: [&[u8]; 4] = [b"lo", b"veth", b"docker", b"nerdctl"];
    let mut interfaces = Vec::new();
    for line in lines(content) {
        // The two lines of the heading have no colon.
        let Some((name, rest)) = split_at_byte(line, b':') else {
            continue;
        };
        let mut counters = [0; 16];
        let mut fields = words(rest);
        for counter in &mut counters {
            *counter = number(fields.next()?)?;
        }
        let name = name.trim_ascii();
        if IGNORED.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        if interfaces.len() >= MAX_ITEMS {
            break;
        }
        let [
            rx_bytes,
            rx_packets,
            rx_errors,
            rx_dropped,
            _,
            _,
            _,
            _,
            tx @ ..,
        ] = counters;
        let [tx_bytes, tx_packets, tx_errors, tx_dropped, ..] = tx;
        interfaces.push(InterfaceStats {
            name: String::from_utf8_lossy(name).into_owned(),
            rx_bytes,
            rx_packets,
            rx_errors,
            rx_dropped,
            tx_bytes,
            tx_packets,
            tx_errors,
            tx_dropped,
        });
    }
    Some(interfaces)
}

/// Parses `/proc/meminfo`.
pub fn meminfo(content: &[u8]) -> MemInfo {
    let mut info = MemInfo::default();
    for (key, rest) in keyed(content) {
        let bytes = || {
            let kibibytes = words(rest).next().and_then(number)?;
            kibibytes.checked_mul(1024)
        };
        match key {
            b"MemTotal:" => info.total = bytes(),
            b"SwapTotal:" => info.swap_total = bytes(),
            b"SwapFree:" => info.swap_free = bytes(),
            _ => {}
        }
    }
    info
}

/// Finds the boot time in `/proc/stat`, in seconds since the epoch.
pub fn boot_time(content: &[u8]) -> Option<u64> {
    let (_, value) = keyed(content).find(|(key, _)| *key == b"btime")?;
    number(value.trim_ascii())
}

/// Counts the cores in `/proc/stat`.
pub fn core_count(content: &[u8]) -> Option<u64> {
    let is_core = |(key, _): &(&[u8], &[u8])| {
        key.strip_prefix(b"cpu")
            .is_some_and(|rest| number(rest).is_some())
    };
    let cores = keyed(content).filter(is_core).count() as u64;
    (cores > 0).then_some(cores)
}

/// Finds the number of threads of the machine in `/proc/loadavg`.
pub fn thread_count(content: &[u8]) -> Option<u64> {
    let (_, total) = split_at_byte(words(content).nth(3)?, b'/')?;
    number(total)
}

/// Counts the processes in `cgroup.procs`.
pub fn process_count(content: &[u8]) -> u64 {
    lines(content).filter(|line| !line.is_empty()).count() as u64
}

/// The first process in `cgroup.procs`. One of another pid namespace is shown as 0.
pub fn first_process(content: &[u8]) -> Option<u32> {
    let pid = lines(content).next().and_then(number)?;
    u32::try_from(pid).ok().filter(|pid| *pid > 0)
}

/// Finds `PRETTY_NAME` in `os-release`.
pub fn os_name(content: &[u8]) -> Option<String> {
    let line = lines(content).find_map(|line| line.strip_prefix(b"PRETTY_NAME="))?;
    let name = line.trim_ascii();
    let name = name.strip_prefix(b"\"").unwrap_or(name);
    let name = name.strip_suffix(b"\"").unwrap_or(name);
    Some(String::from_utf8_lossy(name).into_owned())
}

fn pressure_line(fields: &[u8]) -> Option<PressureLine> {
    let mut line = PressureLine {
        total_micros: 0,
        avg10: 0.0,
        avg60: 0.0,
        avg300: 0.0,
    };
    let mut total = None;
    for field in words(fields) {
        let (key, value) = split_at_byte(field, b'=')?;
        match key {
            b"avg10" => line.avg10 = percent(value)?,
            b"avg60" => line.avg60 = percent(value)?,
            b"avg300" => line.avg300 = percent(value)?,
            b"total" => total = Some(number(value)?),
            _ => {}
        }
    }
    line.total_micros = total?;
    Some(line)
}

fn percent(text: &[u8]) -> Option<f64> {
    let value: f64 = str::from_utf8(text).ok()?.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some(value)
}

fn device_number(text: &[u8]) -> Option<(u32, u32)> {
    let (major, minor) = split_at_byte(text, b':')?;
    let number = |text| number(text).and_then(|value| u32::try_from(value).ok());
    Some((number(major)?, number(minor)?))
}

const fn empty_device(major: u32, minor: u32) -> DeviceIo {
    DeviceIo {
        major,
        minor,
        read_bytes: 0,
        written_bytes: 0,
        reads: 0,
        writes: 0,
    }
}

/// Parses digits, and nothing else.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut value: u64 = 0;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

fn lines(mut content: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        if content.is_empty() {
            return None;
        }
        let end = memchr(b'\n', content).unwrap_or(content.len());
        let line = content.get(..end)?;
        content = content.get(end + 1..).unwrap_or_default();
        Some(line)
    })
}

/// The first word of each line, and the rest of it.
fn keyed(content: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines(content).filter_map(|line| split_at_byte(line, b' '))
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

fn split_at_byte(bytes: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr(byte, bytes)?;
    Some((bytes.get(..at)?, bytes.get(at + 1..)?))
}

#[cfg(test)]
mod tests;
