//! Description of the machine, for readers of the figures.

use serde::{Deserialize, Serialize};

/// The machine of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Available processors.
    pub cores: usize,
    /// Model name of the processor.
    pub cpu_model: String,
    /// Version of the kernel.
    pub kernel: String,
    /// Total memory, in bytes.
    pub memory_bytes: u64,
}

impl Machine {
    /// Reads this machine; missing values are `unknown`, or 0.
    pub fn read() -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            cpu_model: cpu_model(&text("/proc/cpuinfo")),
            kernel: first_line(&text("/proc/sys/kernel/osrelease")),
            memory_bytes: memory(&text("/proc/meminfo")).unwrap_or_default(),
        }
    }
}

fn cpu_model(cpuinfo: &str) -> String {
    let value = |line: &str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    };
    let model = cpuinfo.lines().find_map(value);
    model.unwrap_or_else(|| "unknown".to_owned())
}

fn memory(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default().trim();
    if line.is_empty() { "unknown" } else { line }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_and_memory_are_found() {
        let cpuinfo =
            "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Some CPU @ 2.0GHz\n\nprocessor\t: 1\n";
        assert_eq!(cpu_model(cpuinfo), "Some CPU @ 2.0GHz");
        assert_eq!(cpu_model(""), "unknown");
        assert_eq!(
            memory("MemTotal:        2048 kB\nMemFree: 1 kB\n"),
            Some(2_097_152)
        );
        assert_eq!(memory("MemTotal: much"), None);
    }
}
