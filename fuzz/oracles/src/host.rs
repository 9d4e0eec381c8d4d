//! Files of cgroups and of `/proc`, and names of cgroups.

use std::collections::HashMap;

use kubevitals_host::{layout, parse};

/// Parts of all files.
pub(crate) const TOKENS: &[&[u8]] = &[
    b"\n",
    b" ",
    b"usage_usec 1",
    b"throttled_usec 18446744073709551615",
    b"throttled_time 5\n",
    b"nr_periods ",
    b"anon 7\n",
    b"inactive_file ",
    b"total_inactive_file 9\n",
    b"total_rss 1\n",
    b"some avg10=1.50 avg60=0.25 avg300=0.00 total=123456\n",
    b"full avg10=0 avg60=0 avg300=0 total=1",
    b"avg10=nan ",
    b"8:16 rbytes=1 wbytes=2 rios=3 wios=4\n",
    b"8:0 Read 100\n",
    b"eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n",
    b"veth1:",
    b"MemTotal: 16 kB\n",
    b"max 100000\n",
    b"50000 100000\n",
    b"max",
    b"pod",
    b"b37f14a9_3bf4_458b_8cfd_e3c6a7a61b4a",
    b".slice",
    b".scope",
    b"crio-",
    b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    b"\xff",
];

/// What a simple reading of `key value` lines gives: the last value of each key.
fn keyed(input: &[u8]) -> HashMap<&[u8], Option<u64>> {
    let lines = input.split(|byte| *byte == b'\n');
    let pairs = lines.filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b' ')?;
        Some((line.get(..at)?, number(line.get(at + 1..)?)))
    });
    pairs.collect()
}

fn number(text: &[u8]) -> Option<u64> {
    let text = str::from_utf8(text).ok()?;
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

/// Parsers agree with simple ones, keep their limits, and read back what they found.
///
/// # Panics
///
/// If the property is violated.
pub fn host_files(input: &[u8]) {
    let values = keyed(input);
    let value = |key: &str| values.get(key.as_bytes()).copied().flatten();

    let cpu = parse::cpu_stat(input);
    assert_eq!(cpu.usage_micros, value("usage_usec"));
    assert_eq!(cpu.user_micros, value("user_usec"));
    assert_eq!(cpu.periods, value("nr_periods"));
    let memory = parse::memory_stat(input);
    assert_eq!(memory.rss, value("anon"));
    assert_eq!(memory.inactive_file, value("inactive_file"));
    assert_eq!(memory.page_faults, value("pgfault"));
    for is_hierarchy in [false, true] {
        let memory = parse::memory_stat_v1(input, is_hierarchy);
        assert_eq!(memory.inactive_file, value("total_inactive_file"));
        let rss = if is_hierarchy { "total_rss" } else { "rss" };
        assert_eq!(memory.rss, value(rss));
    }
    let events = parse::memory_events(input);
    assert_eq!(events.oom_kill, value("oom_kill"));
    assert_eq!(parse::boot_time(input).is_some(), has_boot_time(input));

    if let Some(pressure) = parse::pressure(input) {
        for line in [Some(pressure.some), pressure.full].into_iter().flatten() {
            for share in [line.avg10, line.avg60, line.avg300] {
                assert!(share.is_finite() && share >= 0.0);
            }
            let total = format!("total={}", line.total_micros);
            let has_zeros = find(input, b"total=0");
            assert!(find(input, total.as_bytes()) || has_zeros, "{total}");
        }
    }
    let lines = input.split(|byte| *byte == b'\n').count();
    let devices = parse::io_stat(input);
    assert!(devices.len() <= lines.min(1024));
    let mut devices = Vec::new();
    parse::blkio(input, true, &mut devices);
    assert!(devices.len() <= lines.min(1024));
    if let Some(interfaces) = parse::net_dev(input) {
        assert!(interfaces.len() <= lines.min(1024));
        for interface in interfaces {
            assert!(!interface.name.starts_with("lo") && !interface.name.starts_with("veth"));
        }
    }
    parse::cpuacct_stat(input);
    parse::meminfo(input);
    parse::core_count(input);
    parse::thread_count(input);
    parse::os_name(input);
    assert!(parse::process_count(input) <= lines as u64);
    assert_ne!(parse::first_process(input), Some(0));
    if let Some(Some(limit)) = parse::limit(input) {
        assert_eq!(parse::value(input), Some(limit));
    }
    if let Some(Some(quota)) = parse::cpu_max(input) {
        let written = format!("{} {}\n", quota.quota_micros, quota.period_micros);
        assert_eq!(parse::cpu_max(written.as_bytes()), Some(Some(quota)));
    }

    if let Some(uid) = layout::pod_uid(input) {
        assert_eq!(layout::pod_uid(format!("pod{uid}").as_bytes()), Some(uid));
    }
    for in_slice in [false, true] {
        if let Some(id) = layout::container_id(input, in_slice) {
            assert_eq!(id.len(), layout::ID_LENGTH);
            assert_eq!(layout::container_id(id.as_bytes(), in_slice), Some(id));
        }
    }
    layout::is_pods_root(input);
    layout::is_qos(input);
}

/// The first line of the key counts.
fn has_boot_time(input: &[u8]) -> bool {
    let mut lines = input.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(b"btime "));
    value.is_some_and(|value| number(value.trim_ascii()).is_some())
}

fn find(input: &[u8], part: &[u8]) -> bool {
    input.windows(part.len()).any(|window| window == part)
}
