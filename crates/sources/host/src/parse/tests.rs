use proptest::prelude::*;

use super::*;

#[test]
fn cpu_stat_of_both_versions() {
    let stat = cpu_stat(
        b"usage_usec 1234567\nuser_usec 1000000\nsystem_usec 234567\nnr_periods 10\n\
          nr_throttled 3\nthrottled_usec 4500\nnr_bursts 0\nburst_usec 0\n",
    );
    assert_eq!(stat.usage_micros, Some(1_234_567));
    assert_eq!(stat.throttled_nanos, Some(4_500_000));
    let stat = cpu_stat(b"nr_periods 7\nnr_throttled 2\nthrottled_time 99\n");
    assert_eq!((stat.periods, stat.throttled_nanos), (Some(7), Some(99)));
    assert_eq!(stat.usage_micros, None);
}

#[test]
fn memory_stat_of_version_1_counts_totals_of_a_hierarchy() {
    let content = b"cache 1\nrss 2\nmapped_file 3\ninactive_file 4\nswap 5\npgfault 6\n\
        total_cache 10\ntotal_rss 20\ntotal_mapped_file 30\ntotal_inactive_file 40\n\
        total_swap 50\ntotal_pgfault 60\n";
    let flat = memory_stat_v1(content, false);
    assert_eq!((flat.rss, flat.inactive_file), (Some(2), Some(40)));
    let deep = memory_stat_v1(content, true);
    assert_eq!((deep.rss, deep.inactive_file), (Some(20), Some(40)));
    assert_eq!((deep.swap, deep.page_faults), (Some(50), Some(60)));
}

#[test]
fn pressure_keeps_microseconds() {
    let pressure = pressure(
        b"some avg10=1.50 avg60=0.25 avg300=0.00 total=123456\n\
          full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
    )
    .unwrap();
    assert_eq!(pressure.some.total_micros, 123_456);
    assert!((pressure.some.avg10 - 1.5).abs() < f64::EPSILON);
    assert_eq!(pressure.full.unwrap().total_micros, 7);
    // The CPU of the root has no line `full` in older kernels.
    let some = super::pressure(b"some avg10=0 avg60=0 avg300=0 total=1\n").unwrap();
    assert_eq!(some.full, None);
    for bad in [
        "",
        "full avg10=0 avg60=0 avg300=0 total=1\n",
        "some avg10=nan avg60=0 avg300=0 total=1\n",
        "some avg10=0 avg60=0 avg300=0\n",
        "some avg10 total=1\n",
    ] {
        assert_eq!(super::pressure(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn io_of_both_versions() {
    let devices = io_stat(
        b"259:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n8:16 \nbad rbytes=1\n",
    );
    assert_eq!(devices.len(), 2);
    assert_eq!(
        (
            devices[0].major,
            devices[0].written_bytes,
            devices[0].writes
        ),
        (259, 8192, 2)
    );
    let mut devices = Vec::new();
    blkio(
        b"8:0 Read 100\n8:0 Write 200\n8:0 Sync 0\n8:0 Total 300\nTotal 300\n",
        true,
        &mut devices,
    );
    blkio(b"8:0 Read 1\n8:0 Write 2\n", false, &mut devices);
    assert_eq!(
        devices,
        [DeviceIo {
            major: 8,
            minor: 0,
            read_bytes: 100,
            written_bytes: 200,
            reads: 1,
            writes: 2
        }]
    );
}

#[test]
fn limits_and_quotas() {
    assert_eq!(limit(b"max\n"), Some(None));
    assert_eq!(limit(b"1048576\n"), Some(Some(1_048_576)));
    // What cgroup v1 shows without a limit.
    assert_eq!(limit(b"9223372036854771712\n"), Some(None));
    assert_eq!(limit(b"-1\n"), None);
    assert_eq!(cpu_max(b"max 100000\n"), Some(None));
    assert_eq!(
        cpu_max(b"50000 100000\n"),
        Some(Some(CpuQuota {
            quota_micros: 50_000,
            period_micros: 100_000
        }))
    );
    assert_eq!(cpu_max(b"50000\n"), None);
}

#[test]
fn weights_become_the_shares_that_they_were_made_of() {
    // By the formula of runtimes: ceil(10^((l*l + 125*l)/612 - 7/34)), l = log2(shares).
    for (weight, shares) in [(1, 2), (100, 1024), (10_000, 262_144)] {
        assert_eq!(shares_of_weight(weight), Some(shares));
    }
    assert_eq!(shares_of_weight(0), None);
    assert_eq!(shares_of_weight(10_001), None);
}

#[test]
fn interfaces_of_a_pod() {
    let content = b"Inter-|   Receive                                                |  Transmit\n \
        face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
        lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0\n  \
        eth0: 1000 10 1 2 0 0 0 0 2000 20 3 4 0 0 0 0\nvethabc:1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n";
    let interfaces = net_dev(content).unwrap();
    assert_eq!(
        interfaces,
        [InterfaceStats {
            name: "eth0".to_owned(),
            rx_bytes: 1000,
            rx_packets: 10,
            rx_errors: 1,
            rx_dropped: 2,
            tx_bytes: 2000,
            tx_packets: 20,
            tx_errors: 3,
            tx_dropped: 4,
        }]
    );
    assert_eq!(net_dev(b"eth0: 1 2 3\n"), None);
}

#[test]
fn the_machine() {
    let info = meminfo(b"MemTotal:       16318480 kB\nSwapTotal:       0 kB\nSwapFree:  0 kB\n");
    assert_eq!(info.total, Some(16_318_480 * 1024));
    assert_eq!(info.swap_total, Some(0));
    let stat = b"cpu  1 2 3\ncpu0 1 2 3\ncpu1 1 2 3\nintr 1\nbtime 1700000000\n";
    assert_eq!(boot_time(stat), Some(1_700_000_000));
    assert_eq!(core_count(stat), Some(2));
    assert_eq!(thread_count(b"0.52 0.58 0.59 3/1234 56789\n"), Some(1234));
    assert_eq!(
        os_name(b"NAME=x\nPRETTY_NAME=\"Debian 13\"\n").as_deref(),
        Some("Debian 13")
    );
    assert_eq!(process_count(b"1\n22\n333\n"), 3);
    assert_eq!(first_process(b"22\n1\n"), Some(22));
    // A process of another pid namespace.
    assert_eq!(first_process(b"0\n"), None);
    assert_eq!(process_count(b""), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn numbers_are_read_as_they_are_written(value: u64) {
        prop_assert_eq!(super::value(format!("{value}\n").as_bytes()), Some(value));
    }

    #[test]
    fn nothing_panics(content in proptest::collection::vec(any::<u8>(), 0..300)) {
        cpu_stat(&content);
        memory_stat(&content);
        memory_stat_v1(&content, true);
        memory_events(&content);
        pressure(&content);
        io_stat(&content);
        net_dev(&content);
        meminfo(&content);
        cpu_max(&content);
    }

    #[test]
    fn memory_stat_finds_its_keys_anywhere(anon: u64, file: u64, inactive: u64, noise in "([a-z_]{1,12} [0-9]{1,8}\n){0,20}") {
        let content = format!("{noise}x_anon 1\nanon {anon}\n{noise}file {file}\ninactive_file {inactive}\n");
        let stat = memory_stat(content.as_bytes());
        prop_assert_eq!(stat.rss, Some(anon));
        prop_assert_eq!(stat.cache, Some(file));
        prop_assert_eq!(stat.inactive_file, Some(inactive));
    }

    #[test]
    fn shares_are_within_a_weight(shares in 2_u32..=262_144) {
        let l = f64::from(shares).log2();
        let exact = 10_f64.powf((l * l + 125.0 * l) / 612.0 - 7.0 / 34.0);
        let weight = (1..=10_000_u32).find(|weight| f64::from(*weight) >= exact).unwrap_or(10_000);
        let back = shares_of_weight(weight.into()).unwrap();
        let shares = u64::from(shares);
        // Rounding up to a whole weight loses more the smaller the weight is.
        prop_assert!(back >= shares && back <= shares * 2 + 8, "{shares} {weight} {back}");
    }
}
