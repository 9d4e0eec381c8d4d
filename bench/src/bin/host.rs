//! The cost of one sample of a host with 110 pods of 2 containers each.
//!
//! `cargo xtask bench host` makes the files of such a host in memory and samples it: with files
//! that are kept open, with files that are opened for every sample, and with
//! `std::fs::read_to_string` and `str::parse` of the same files, in turns. A real cgroup file
//! system adds what the kernel needs to make up the contents, to all three alike.
#![expect(clippy::print_stdout, reason = "the table is the output")]

use std::collections::HashMap;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use kubevitals_bench::timing::Timing;
use kubevitals_host::fixture::{Driver, FixtureHost, Runtime, Values};
use kubevitals_host::{CgroupVersion, HostOptions, HostReader, LogNames, Names};
use kubevitals_model::Clock;

const PODS: u32 = 110;
const CONTAINERS: [&str; 2] = ["app", "sidecar"];
const TURNS: usize = 30;
/// The processor time of a sample.
const BAR: Duration = Duration::from_millis(5);

/// What a sample reads of a container, besides limits.
const CONTAINER_FILES: [&str; 12] = [
    "cpu.stat",
    "cpu.pressure",
    "memory.current",
    "memory.stat",
    "memory.events",
    "memory.peak",
    "memory.pressure",
    "memory.swap.current",
    "io.stat",
    "io.pressure",
    "cgroup.procs",
    "pids.current",
];

/// What a sample reads of a pod.
const POD_FILES: [&str; 7] = [
    "cpu.stat",
    "cpu.pressure",
    "memory.current",
    "memory.stat",
    "memory.pressure",
    "memory.swap.current",
    "io.pressure",
];

/// One way to sample; it returns the number of values.
struct Contender<'a> {
    name: &'static str,
    sample: Box<dyn FnMut() -> usize + 'a>,
    times: Vec<Duration>,
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() {
        tempfile::tempdir_in(memory)?
    } else {
        tempfile::tempdir()?
    };
    let host = make_host(folder.path())?;
    let reader = |keep_files| {
        let options = HostOptions {
            paths: host.paths(),
            keep_files,
            ..HostOptions::new("node")
        };
        let names = Names::new(None, Some(LogNames::new(options.paths.log.clone())));
        HostReader::open(options, names, Clock::system())
    };
    raise_open_files();
    let mut kept = reader(usize::MAX)?;
    let mut opened = reader(0)?;
    let first = kept.sample();
    let pods = folder
        .path()
        .join("sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice");
    let mut contenders = [
        Contender::new("files kept open", || kept.sample().stats.pods.len()),
        Contender::new("files opened each time", || {
            opened.sample().stats.pods.len()
        }),
        Contender::new("read_to_string", || sample_simply(&pods).unwrap_or(0)),
    ];
    for _ in 0..TURNS {
        for contender in &mut contenders {
            contender.take_turn();
        }
    }
    println!(
        "{PODS} pods of {} containers, {} cgroups, {} files kept open; processor time of a sample, \
         {TURNS} turns\n",
        CONTAINERS.len(),
        first.cgroups,
        first.kept_files
    );
    println!("{:<26} {:>10} {:>10} {:>8}", "", "best", "median", "ratio");
    let [own, ..] = &contenders;
    let base = own.median();
    for contender in &contenders {
        println!(
            "{:<26} {:>7} us {:>7} us {:>8.2}",
            contender.name,
            contender.times.iter().min().map_or(0, Duration::as_micros),
            contender.median().as_micros(),
            contender.median().as_secs_f64() / base.as_secs_f64()
        );
    }
    let good = base < BAR;
    println!(
        "\nbar of less than {BAR:?}: {}",
        if good { "reached" } else { "NOT reached" }
    );
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl<'a> Contender<'a> {
    fn new(name: &'static str, sample: impl FnMut() -> usize + 'a) -> Self {
        Self {
            name,
            sample: Box::new(sample),
            times: Vec::new(),
        }
    }

    fn take_turn(&mut self) {
        // Six, so that limits and walks, which are not part of every sample, have their share.
        let timing = Timing::of_cpu(1, |_| {
            for _ in 0..6 {
                black_box((self.sample)());
            }
        });
        self.times.push(timing.best / 6);
    }

    fn median(&self) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }
}

fn make_host(root: &Path) -> std::io::Result<FixtureHost> {
    let host = FixtureHost::create(root, CgroupVersion::V2)?;
    for pod in 0..PODS {
        let uid = format!("{pod:08x}-0000-4000-8000-000000000000");
        let path = Driver::Systemd.pod_path("", &uid);
        host.write_cgroup(&path, Values::default())?;
        let name = format!("pod-{pod}");
        for (index, container) in CONTAINERS.into_iter().enumerate() {
            let id = format!("{pod:08x}{index:08x}").repeat(4);
            let scope = Driver::Systemd.container_name(Runtime::Containerd, &id);
            let process = 1_000 + pod * 10;
            let values = Values {
                first_process: process,
                ..Values::default()
            };
            host.write_cgroup(&format!("{path}/{scope}"), values)?;
            host.name_container(("default", &name, &uid), container, &id)?;
            host.network(process, 1_000)?;
        }
        let sandbox = format!("{pod:08x}ffffffff").repeat(4);
        let scope = Driver::Systemd.container_name(Runtime::Containerd, &sandbox);
        host.write_cgroup(&format!("{path}/{scope}"), Values::default())?;
    }
    Ok(host)
}

/// Reads the same files in the simplest way.
fn sample_simply(parent: &Path) -> std::io::Result<usize> {
    let mut values = 0;
    for pod in fs::read_dir(parent)? {
        let pod = pod?;
        if !pod.file_type()?.is_dir() {
            continue;
        }
        values += read_files(&pod.path(), &POD_FILES)?;
        let mut containers: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(pod.path())? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                containers.push(entry.path());
            }
        }
        // One of them is the sandbox, which nobody reads.
        for container in containers.iter().take(CONTAINERS.len()) {
            values += read_files(container, &CONTAINER_FILES)?;
        }
    }
    Ok(values)
}

fn read_files(folder: &Path, names: &[&str]) -> std::io::Result<usize> {
    let mut values: HashMap<String, u64> = HashMap::new();
    for name in names {
        let content = fs::read_to_string(folder.join(name))?;
        for line in content.lines() {
            let (key, value) = line.split_once(' ').unwrap_or((name, line));
            if let Ok(value) = value.parse() {
                values.insert(key.to_owned(), value);
            }
        }
    }
    Ok(values.len())
}

/// Lets this process open as many files as it may.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // Without it fewer files are kept open, which the table shows.
    let _ = setrlimit(Resource::Nofile, raised);
}
