//! Trees of files as a host has them, for tests and benchmarks.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cgroup::CgroupVersion;
use crate::machine::HostPaths;

/// A host in a folder.
#[derive(Debug, Clone)]
pub struct FixtureHost {
    root: PathBuf,
    version: CgroupVersion,
}

/// Where the cgroup of a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    Systemd,
    Cgroupfs,
}

/// A runtime, by the names of its cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    Containerd,
    /// With crun, which makes a cgroup inside that of a container.
    CrioCrun,
    Docker,
}

/// The values of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Values {
    pub cpu_micros: u64,
    pub memory: u64,
    pub inactive_file: u64,
    pub swap: u64,
    /// The number of processes; their ids start at `first_process`.
    pub processes: u32,
    pub first_process: u32,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            cpu_micros: 1_500_000,
            memory: 64 << 20,
            inactive_file: 16 << 20,
            swap: 4096,
            processes: 2,
            first_process: 100,
        }
    }
}

impl FixtureHost {
    /// Creates a machine without pods in `root`.
    pub fn create(root: &Path, version: CgroupVersion) -> io::Result<Self> {
        let this = Self {
            root: root.to_owned(),
            version,
        };
        let proc = root.join("proc");
        write(
            &proc.join("meminfo"),
            "MemTotal: 8388608 kB\nMemFree: 1 kB\nSwapTotal: 2048 kB\nSwapFree: 1024 kB\n",
        )?;
        write(
            &proc.join("stat"),
            "cpu  1 2 3\ncpu0 1 2 3\ncpu1 1 2 3\nbtime 1700000000\n",
        )?;
        write(&proc.join("loadavg"), "0.1 0.2 0.3 2/345 678\n")?;
        write(&proc.join("sys/kernel/pid_max"), "4194304\n")?;
        write(&proc.join("sys/kernel/threads-max"), "62000\n")?;
        write(&proc.join("sys/kernel/osrelease"), "6.12.0\n")?;
        write(&proc.join("sys/kernel/random/boot_id"), "boot\n")?;
        this.network(1, 5_000)?;
        write(&root.join("etc/machine-id"), "machine\n")?;
        write(&root.join("etc/os-release"), "PRETTY_NAME=\"Fixture 1\"\n")?;
        for folder in [
            "var/lib/kubelet",
            "var/lib/containerd",
            "var/log/pods",
            "var/log/containers",
        ] {
            fs::create_dir_all(root.join(folder))?;
        }
        match version {
            CgroupVersion::V2 => {
                let cgroup = root.join("sys/fs/cgroup");
                write(&cgroup.join("cgroup.controllers"), "cpu io memory pids\n")?;
                write(
                    &cgroup.join("cpu.stat"),
                    "usage_usec 90000000\nuser_usec 60000000\nsystem_usec 30000000\n",
                )?;
                write(
                    &cgroup.join("memory.stat"),
                    &memory_stat(3 << 30, 1 << 30, 1 << 29),
                )?;
                write(&cgroup.join("cpu.pressure"), PRESSURE)?;
                write(&cgroup.join("memory.pressure"), PRESSURE)?;
                write(&cgroup.join("io.pressure"), PRESSURE)?;
            }
            CgroupVersion::V1 => {
                let values = Values {
                    cpu_micros: 90_000_000,
                    memory: 4 << 30,
                    inactive_file: 1 << 29,
                    ..Values::default()
                };
                this.write_cgroup("", values)?;
            }
        }
        Ok(this)
    }

    /// The paths of this host.
    pub fn paths(&self) -> HostPaths {
        HostPaths::below(&self.root)
    }

    /// Writes the files of a cgroup, by its path below the root.
    pub fn write_cgroup(&self, path: &str, values: Values) -> io::Result<()> {
        match self.version {
            CgroupVersion::V2 => self.write_v2(path, values),
            CgroupVersion::V1 => self.write_v1(path, values),
        }
    }

    /// Removes a cgroup.
    pub fn remove_cgroup(&self, path: &str) -> io::Result<()> {
        for root in self.hierarchies() {
            fs::remove_dir_all(root.join(path.trim_start_matches('/')))?;
        }
        Ok(())
    }

    /// The folder of a cgroup in the hierarchy that has a file.
    pub fn file(&self, path: &str, name: &str) -> PathBuf {
        let hierarchy = match (self.version, name.split('.').next()) {
            (CgroupVersion::V2, _) => "",
            (CgroupVersion::V1, Some("cpu")) => "cpu",
            (CgroupVersion::V1, Some("memory")) => "memory",
            (CgroupVersion::V1, Some("pids")) => "pids",
            (CgroupVersion::V1, Some("blkio")) => "blkio",
            (CgroupVersion::V1, _) => "cpuacct",
        };
        let root = self.root.join("sys/fs/cgroup").join(hierarchy);
        root.join(path.trim_start_matches('/')).join(name)
    }

    /// Creates the log folder and the link of a container, which have its names.
    pub fn name_container(
        &self,
        (namespace, pod, uid): (&str, &str, &str),
        container: &str,
        id: &str,
    ) -> io::Result<()> {
        let logs = self.root.join("var/log");
        let folder = format!("{namespace}_{pod}_{uid}/{container}");
        write(&logs.join("pods").join(&folder).join("0.log"), "12345")?;
        let link = format!("{pod}_{namespace}_{container}-{id}.log");
        let link = logs.join("containers").join(link);
        if link.symlink_metadata().is_ok() {
            return Ok(());
        }
        std::os::unix::fs::symlink(format!("/var/log/pods/{folder}/0.log"), link)
    }

    /// Writes the network of a process.
    pub fn network(&self, process: u32, received: u64) -> io::Result<()> {
        let content = format!(
            "Inter-|   Receive |  Transmit\n face |bytes |bytes\n    \
             lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  \
             eth0: {received} 10 0 0 0 0 0 0 7 8 0 0 0 0 0 0\n"
        );
        let proc = self.root.join("proc");
        write(&proc.join(process.to_string()).join("net/dev"), &content)
    }

    fn hierarchies(&self) -> Vec<PathBuf> {
        let root = self.root.join("sys/fs/cgroup");
        match self.version {
            CgroupVersion::V2 => vec![root],
            CgroupVersion::V1 => ["cpuacct", "cpu", "memory", "pids", "blkio"]
                .map(|name| root.join(name))
                .to_vec(),
        }
    }

    fn write_v2(&self, path: &str, values: Values) -> io::Result<()> {
        let Values {
            cpu_micros,
            memory,
            inactive_file,
            swap,
            ..
        } = values;
        let file = |name: &str, content: &str| write(&self.file(path, name), content);
        file(
            "cpu.stat",
            &format!(
                "usage_usec {cpu_micros}\nuser_usec {}\nsystem_usec {}\nnice_usec 0\n\
                 core_sched.force_idle_usec 0\nnr_periods 20\nnr_throttled 5\n\
                 throttled_usec 2500\nnr_bursts 0\nburst_usec 0\n",
                cpu_micros / 2,
                cpu_micros / 4
            ),
        )?;
        file("cpu.max", "50000 100000\n")?;
        file("cpu.weight", "100\n")?;
        file("memory.current", &format!("{memory}\n"))?;
        file(
            "memory.stat",
            &memory_stat(memory / 2, memory / 4, inactive_file),
        )?;
        file("memory.max", &format!("{}\n", memory * 2))?;
        file("memory.peak", &format!("{}\n", memory + 4096))?;
        file("memory.swap.current", &format!("{swap}\n"))?;
        file("memory.swap.max", "max\n")?;
        file(
            "memory.events",
            "low 0\nhigh 0\nmax 6\noom 1\noom_kill 1\noom_group_kill 0\n",
        )?;
        file("pids.current", "7\n")?;
        file("pids.max", "max\n")?;
        file(
            "io.stat",
            "259:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n",
        )?;
        for name in ["cpu.pressure", "memory.pressure", "io.pressure"] {
            file(name, PRESSURE)?;
        }
        file("cgroup.events", "populated 1\nfrozen 0\n")?;
        file("cgroup.procs", &values.process_list())
    }

    fn write_v1(&self, path: &str, values: Values) -> io::Result<()> {
        let Values {
            cpu_micros,
            memory,
            inactive_file,
            swap,
            ..
        } = values;
        let file = |name: &str, content: &str| write(&self.file(path, name), content);
        file("cpuacct.usage", &format!("{}\n", cpu_micros * 1000))?;
        let ticks = cpu_micros / 10_000;
        file(
            "cpuacct.stat",
            &format!("user {}\nsystem {}\n", ticks / 2, ticks / 4),
        )?;
        file("cgroup.procs", &values.process_list())?;
        file(
            "cpu.stat",
            "nr_periods 20\nnr_throttled 5\nthrottled_time 2500000\n",
        )?;
        file("cpu.cfs_quota_us", "50000\n")?;
        file("cpu.cfs_period_us", "100000\n")?;
        file("cpu.shares", "1024\n")?;
        file("memory.usage_in_bytes", &format!("{memory}\n"))?;
        file("memory.max_usage_in_bytes", &format!("{}\n", memory + 4096))?;
        file("memory.limit_in_bytes", &format!("{}\n", memory * 2))?;
        file("memory.memsw.limit_in_bytes", &format!("{}\n", memory * 3))?;
        file("memory.failcnt", "6\n")?;
        file("memory.use_hierarchy", "1\n")?;
        file(
            "memory.oom_control",
            "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
        )?;
        file(
            "memory.stat",
            &format!(
                "cache 1\nrss 2\ninactive_file 3\nswap 4\ntotal_cache {}\ntotal_rss {}\n\
                 total_mapped_file 4096\ntotal_swap {swap}\ntotal_pgfault 100\ntotal_pgmajfault 2\n\
                 total_inactive_file {inactive_file}\ntotal_active_file 8192\n",
                memory / 4,
                memory / 2
            ),
        )?;
        file("pids.current", "7\n")?;
        file("pids.max", "max\n")?;
        file(
            "blkio.throttle.io_service_bytes_recursive",
            "259:0 Read 4096\n259:0 Write 8192\nTotal 12288\n",
        )?;
        file(
            "blkio.throttle.io_serviced_recursive",
            "259:0 Read 1\n259:0 Write 2\nTotal 3\n",
        )
    }
}

impl Values {
    fn process_list(&self) -> String {
        let mut list = String::new();
        for process in self.first_process..self.first_process + self.processes {
            list.push_str(&process.to_string());
            list.push('\n');
        }
        list
    }
}

impl Driver {
    /// The path of the cgroup of a burstable pod below the cgroup `root`, which is empty or as
    /// `/kubelet`.
    pub fn pod_path(self, root: &str, uid: &str) -> String {
        match self {
            Self::Systemd => {
                // Slices nest by their names.
                let prefix = match root.trim_start_matches('/') {
                    "" => String::new(),
                    root => format!("{root}-"),
                };
                let parent = match root.trim_start_matches('/') {
                    "" => String::new(),
                    root => format!("/{root}.slice"),
                };
                let uid = uid.replace('-', "_");
                format!(
                    "{parent}/{prefix}kubepods.slice/{prefix}kubepods-burstable.slice/{prefix}kubepods-burstable-pod{uid}.slice"
                )
            }
            Self::Cgroupfs => format!("{root}/kubepods/burstable/pod{uid}"),
        }
    }

    /// The name of the cgroup of a container.
    pub fn container_name(self, runtime: Runtime, id: &str) -> String {
        match (self, runtime) {
            (Self::Systemd, Runtime::Containerd) => format!("cri-containerd-{id}.scope"),
            (Self::Systemd, Runtime::CrioCrun) => format!("crio-{id}.scope"),
            (Self::Systemd, Runtime::Docker) => format!("docker-{id}.scope"),
            (Self::Cgroupfs, Runtime::CrioCrun) => format!("crio-{id}"),
            (Self::Cgroupfs, _) => id.to_owned(),
        }
    }
}

const PRESSURE: &str = "some avg10=1.50 avg60=0.25 avg300=0.00 total=123456\n\
                        full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";

/// `memory.stat` as long as that of a kernel.
fn memory_stat(anon: u64, file: u64, inactive_file: u64) -> String {
    format!(
        "anon {anon}\nfile {file}\nkernel 1130496\nkernel_stack 65536\npagetables 126976\n\
         sec_pagetables 0\npercpu 2016\nsock 0\nvmalloc 0\nshmem 0\nzswap 0\nzswapped 0\n\
         file_mapped 4096\nfile_dirty 0\nfile_writeback 0\nswapcached 0\nanon_thp 0\nfile_thp 0\n\
         shmem_thp 0\ninactive_anon 53248\nactive_anon {anon}\ninactive_file {inactive_file}\n\
         active_file 8192\nunevictable 0\nslab_reclaimable 610848\nslab_unreclaimable 289416\n\
         slab 900264\nworkingset_refault_anon 0\nworkingset_refault_file 0\n\
         workingset_activate_anon 0\nworkingset_activate_file 0\nworkingset_restore_anon 0\n\
         workingset_restore_file 0\nworkingset_nodereclaim 0\npgdemote_kswapd 0\n\
         pgdemote_direct 0\npgdemote_khugepaged 0\npgscan 0\npgsteal 0\npgscan_kswapd 0\n\
         pgscan_direct 0\npgscan_khugepaged 0\npgsteal_kswapd 0\npgsteal_direct 0\n\
         pgsteal_khugepaged 0\npgfault 100\npgmajfault 2\npgrefill 0\npgactivate 0\n\
         pgdeactivate 0\npglazyfree 0\npglazyfreed 0\nswpin_zero 0\nswpout_zero 0\nzswpin 0\n\
         zswpout 0\nzswpwb 0\nthp_fault_alloc 0\nthp_collapse_alloc 0\nthp_swpout 0\n\
         thp_swpout_fallback 0\n"
    )
}

fn write(path: &Path, content: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, content)
}
