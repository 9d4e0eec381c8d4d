//! The standard `process_*` metrics, read from `/proc` at each scrape.
//!
//! A value that cannot be read is left out rather than shown as zero. Systems other than Linux have
//! none of these metrics.

#[cfg(any(target_os = "linux", test))]
mod procfs;

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

/// Collects the metrics of the process it runs in.
#[derive(Debug, Default)]
pub struct ProcessCollector {
    _private: (),
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ProcessStats {
    cpu_seconds: Option<f64>,
    start_time_seconds: Option<f64>,
    resident_memory_bytes: Option<u64>,
    virtual_memory_bytes: Option<u64>,
    open_fds: Option<u64>,
    max_fds: Option<u64>,
}

impl ProcessCollector {
    pub fn new() -> Self {
        Self::default()
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        ProcessStats::read().encode(&mut encoder)
    }
}

impl ProcessStats {
    #[cfg(target_os = "linux")]
    fn read() -> Self {
        procfs::read(std::path::Path::new("/proc"))
    }

    #[cfg(not(target_os = "linux"))]
    fn read() -> Self {
        Self::default()
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        // The encoder appends `_total` to this one.
        if let Some(seconds) = self.cpu_seconds {
            let counter = ConstCounter::new(seconds);
            counter.encode(encoder.encode_descriptor(
                "process_cpu_seconds",
                "Total user and system CPU time spent in seconds.",
                None,
                counter.metric_type(),
            )?)?;
        }
        if let Some(seconds) = self.start_time_seconds {
            let gauge = ConstGauge::new(seconds);
            gauge.encode(encoder.encode_descriptor(
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
                None,
                gauge.metric_type(),
            )?)?;
        }
        for (name, help, value) in [
            (
                "process_resident_memory_bytes",
                "Resident memory size in bytes.",
                self.resident_memory_bytes,
            ),
            (
                "process_virtual_memory_bytes",
                "Virtual memory size in bytes.",
                self.virtual_memory_bytes,
            ),
            (
                "process_open_fds",
                "Number of open file descriptors.",
                self.open_fds,
            ),
            (
                "process_max_fds",
                "Maximum number of open file descriptors.",
                self.max_fds,
            ),
        ] {
            let Some(value) = value else { continue };
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    #[derive(Debug)]
    struct Fixed(ProcessStats);

    impl Collector for Fixed {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
            self.0.encode(&mut encoder)
        }
    }

    fn encode(stats: ProcessStats) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Fixed(stats)));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn names_are_those_of_other_client_libraries() {
        insta::assert_snapshot!(encode(ProcessStats {
            cpu_seconds: Some(1.25),
            start_time_seconds: Some(1_700_000_000.5),
            resident_memory_bytes: Some(4096),
            virtual_memory_bytes: Some(8192),
            open_fds: Some(9),
            max_fds: Some(1024),
        }));
    }

    #[test]
    fn unreadable_values_are_left_out() {
        assert_eq!(encode(ProcessStats::default()), "# EOF\n");
        let stats = ProcessStats {
            open_fds: Some(0),
            ..ProcessStats::default()
        };
        assert_eq!(
            encode(stats)
                .lines()
                .filter(|line| !line.starts_with('#'))
                .count(),
            1
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_all_metrics() {
        let stats = ProcessStats::read();
        assert!(stats.cpu_seconds.is_some());
        assert!(stats.resident_memory_bytes.unwrap() > 100 * 1024);
        assert!(stats.virtual_memory_bytes >= stats.resident_memory_bytes);
        assert!(stats.open_fds.unwrap() >= 3);
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs_f64();
        let age = now - stats.start_time_seconds.unwrap();
        assert!((-2.0..3600.0).contains(&age), "{age}");
    }
}
