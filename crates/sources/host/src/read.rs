//! Reads the values of a cgroup, by the rules of cAdvisor.

use kubevitals_model::node_stats::{
    CgroupStats, CpuQuota, CpuStats, CpuThrottling, IoStats, MemoryStats, PidStats, Pressure,
    SwapStats,
};
use kubevitals_model::{Bytes, CoreNanos};

use crate::cgroup::{Cgroup, CgroupVersion, Context, Item, Limits};
use crate::parse::{self, CpuStat, MemInfo, MemoryEvents, MemoryStat};

/// Nanoseconds of a tick of `cpuacct.stat`; user space always sees 100 in a second.
const TICK_NANOS: u64 = 10_000_000;

/// How much of a cgroup is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The root: no limits and no processes; memory is that of the machine.
    Root,
    /// A pod or a parent of pods: CPU, memory, swap and pressure.
    Pod,
    Container,
}

impl Context {
    /// Reads a cgroup. What is absent or fails is left out.
    pub(crate) fn stats(
        &mut self,
        cgroup: &mut Cgroup,
        scope: Scope,
        machine: &MemInfo,
    ) -> CgroupStats {
        self.cgroups += 1;
        if scope != Scope::Root && cgroup.limits_are_due() {
            cgroup.forget_absent();
            cgroup.limits = self.limits(cgroup);
        }
        let cpu = self.cpu(cgroup);
        let (memory, swap, oom_kills) = self.memory(cgroup, scope, machine);
        let (io, pids) = if scope == Scope::Container {
            (self.io(cgroup), self.pids(cgroup))
        } else {
            (self.io_pressure(cgroup), None)
        };
        CgroupStats {
            path: cgroup.path.clone(),
            cpu,
            memory,
            swap,
            io,
            pids,
            oom_kills,
        }
    }

    fn cpu(&mut self, cgroup: &mut Cgroup) -> Option<CpuStats> {
        let stat: Option<CpuStat> = self.read(cgroup, Item::CpuStat).map(parse::cpu_stat);
        let (total, user, system) = match self.version {
            CgroupVersion::V2 => {
                let stat = stat?;
                let nanos = |micros: Option<u64>| micros?.checked_mul(1000);
                let total = self.require(nanos(stat.usage_micros))?;
                (total, nanos(stat.user_micros), nanos(stat.system_micros))
            }
            CgroupVersion::V1 => {
                let total = self.read(cgroup, Item::CpuUsage).map(parse::value)?;
                let total = self.require(total)?;
                let (user, system) = self
                    .read(cgroup, Item::CpuTicks)
                    .map_or((None, None), parse::cpuacct_stat);
                let nanos = |ticks: Option<u64>| ticks?.checked_mul(TICK_NANOS);
                (total, nanos(user), nanos(system))
            }
        };
        // After the read, as the value is at least as old.
        let moment = self.clock.moment();
        let throttling = stat.and_then(|stat| {
            Some(CpuThrottling {
                periods: stat.periods?,
                throttled_periods: stat.throttled_periods?,
                throttled_nanos: stat.throttled_nanos?,
            })
        });
        Some(CpuStats {
            at: moment.wall,
            total: CoreNanos::new(total),
            user: user.map(CoreNanos::new),
            system: system.map(CoreNanos::new),
            rate: cgroup.cpu.add(moment.monotonic, CoreNanos::new(total)),
            throttling,
            quota: cgroup.limits.quota,
            shares: cgroup.limits.shares,
            pressure: self.pressure(cgroup, Item::CpuPressure),
        })
    }

    fn memory(
        &mut self,
        cgroup: &mut Cgroup,
        scope: Scope,
        machine: &MemInfo,
    ) -> (Option<MemoryStats>, Option<SwapStats>, Option<u64>) {
        let is_root = scope == Scope::Root;
        let current = self.read(cgroup, Item::MemoryUsage).map(parse::value);
        let current = current.and_then(|usage| self.require(usage));
        let is_hierarchy = cgroup.limits.is_hierarchy || is_root;
        let version = self.version;
        let stat =
            self.read(cgroup, Item::MemoryStat)
                .map_or_else(MemoryStat::default, |content| match version {
                    CgroupVersion::V2 => parse::memory_stat(content),
                    CgroupVersion::V1 => parse::memory_stat_v1(content, is_hierarchy),
                });
        let at = self.clock.now();
        let usage = match current {
            Some(usage) => Some(usage),
            // The root of version 2 has no file for it.
            None if is_root => stat.rss.zip(stat.cache).and_then(|(a, b)| a.checked_add(b)),
            None => None,
        };
        let working_set = usage
            .zip(stat.inactive_file)
            .map(|(usage, inactive)| usage.saturating_sub(inactive));
        let limit = if is_root {
            machine.total
        } else {
            cgroup.limits.memory
        };
        let is_container = scope == Scope::Container;
        let events: MemoryEvents = if is_container {
            let events = self.read(cgroup, Item::MemoryEvents);
            events.map_or_else(MemoryEvents::default, parse::memory_events)
        } else {
            MemoryEvents::default()
        };
        let mut optional = |item| {
            is_container
                .then(|| self.read(cgroup, item).and_then(parse::value))
                .flatten()
        };
        let failures = match version {
            CgroupVersion::V2 => events.max,
            CgroupVersion::V1 => optional(Item::MemoryFailures),
        };
        let peak = optional(Item::MemoryPeak);
        let memory = usage.map(|usage| MemoryStats {
            at,
            usage: Some(Bytes::new(usage)),
            working_set: working_set.map(Bytes::new),
            rss: stat.rss.map(Bytes::new),
            cache: stat.cache.map(Bytes::new),
            mapped_file: stat.mapped_file.map(Bytes::new),
            active_file: stat.active_file.map(Bytes::new),
            inactive_file: stat.inactive_file.map(Bytes::new),
            kernel: stat.kernel.map(Bytes::new),
            peak: peak.map(Bytes::new),
            page_faults: stat.page_faults,
            major_page_faults: stat.major_page_faults,
            failures,
            limit: limit.map(Bytes::new),
            pressure: self.pressure(cgroup, Item::MemoryPressure),
        });
        let swap = if is_root {
            let used = machine
                .swap_total
                .zip(machine.swap_free)
                .map(|(total, free)| total.saturating_sub(free));
            used.zip(machine.swap_total)
                .map(|(used, total)| (used, Some(total)))
        } else {
            let used = match version {
                CgroupVersion::V2 => self.read(cgroup, Item::SwapUsage).and_then(parse::value),
                CgroupVersion::V1 => stat.swap,
            };
            used.map(|used| (used, cgroup.limits.swap))
        };
        let swap = swap.map(|(usage, limit)| SwapStats {
            at,
            usage: Bytes::new(usage),
            limit: limit.map(Bytes::new),
        });
        (memory, swap, events.oom_kill)
    }

    fn io(&mut self, cgroup: &mut Cgroup) -> Option<IoStats> {
        let devices = match self.version {
            CgroupVersion::V2 => self.read(cgroup, Item::Io).map(parse::io_stat),
            CgroupVersion::V1 => {
                let mut devices = Vec::new();
                let bytes = self.read(cgroup, Item::Io);
                let is_present = bytes
                    .map(|content| parse::blkio(content, true, &mut devices))
                    .is_some();
                if let Some(content) = self.read(cgroup, Item::IoOperations) {
                    parse::blkio(content, false, &mut devices);
                }
                is_present.then_some(devices)
            }
        };
        let at = self.clock.now();
        let pressure = self.pressure(cgroup, Item::IoPressure);
        if devices.is_none() && pressure.is_none() {
            return None;
        }
        Some(IoStats {
            at,
            devices: devices.unwrap_or_default(),
            pressure,
        })
    }

    /// The pressure of input and output alone.
    fn io_pressure(&mut self, cgroup: &mut Cgroup) -> Option<IoStats> {
        let pressure = self.pressure(cgroup, Item::IoPressure)?;
        Some(IoStats {
            at: self.clock.now(),
            devices: Vec::new(),
            pressure: Some(pressure),
        })
    }

    fn pids(&mut self, cgroup: &mut Cgroup) -> Option<PidStats> {
        let of = |content: &[u8]| (parse::process_count(content), parse::first_process(content));
        let outer = self.read(cgroup, Item::Processes).map(of);
        let inner = self.read_inner_processes(cgroup).map(of);
        cgroup.process = outer
            .and_then(|(_, first)| first)
            .or(inner.and_then(|(_, first)| first));
        let processes = outer.map(|(count, _)| count + inner.map_or(0, |(count, _)| count));
        let threads = self.read(cgroup, Item::Threads).and_then(parse::value);
        if processes.is_none() && threads.is_none() {
            return None;
        }
        Some(PidStats {
            processes,
            threads,
            threads_limit: cgroup.limits.threads,
        })
    }

    fn pressure(&mut self, cgroup: &mut Cgroup, item: Item) -> Option<Pressure> {
        let pressure = self.read(cgroup, item).map(parse::pressure)?;
        self.require(pressure)
    }

    fn limits(&mut self, cgroup: &mut Cgroup) -> Limits {
        let number = |content: Option<&[u8]>| content.and_then(parse::value);
        let limit = |content: Option<&[u8]>| content.and_then(parse::limit).flatten();
        let memory = limit(self.read(cgroup, Item::MemoryLimit));
        let swap = limit(self.read(cgroup, Item::SwapLimit));
        let threads = limit(self.read(cgroup, Item::ThreadsLimit));
        let weight = number(self.read(cgroup, Item::CpuWeight));
        match self.version {
            CgroupVersion::V2 => Limits {
                quota: self
                    .read(cgroup, Item::CpuMax)
                    .and_then(parse::cpu_max)
                    .flatten(),
                shares: weight.and_then(parse::shares_of_weight),
                memory,
                swap,
                threads,
                is_hierarchy: true,
            },
            CgroupVersion::V1 => {
                // Without a limit the quota is -1, which is no number here.
                let quota = number(self.read(cgroup, Item::CpuMax));
                let period = number(self.read(cgroup, Item::CpuPeriod));
                Limits {
                    quota: quota
                        .zip(period)
                        .map(|(quota_micros, period_micros)| CpuQuota {
                            quota_micros,
                            period_micros,
                        }),
                    shares: weight,
                    memory,
                    // Version 1 limits the sum of memory and swap.
                    swap: swap
                        .zip(memory)
                        .map(|(both, memory)| both.saturating_sub(memory)),
                    threads,
                    is_hierarchy: number(self.read(cgroup, Item::UseHierarchy)) == Some(1),
                }
            }
        }
    }
}
