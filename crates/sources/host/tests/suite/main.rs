//! Hosts made of files, and the machine that runs the test.
#![expect(clippy::unwrap_used, reason = "helpers fail by panicking")]

mod attacks;
mod layouts;
mod sampler;
mod values;

use kubevitals_host::fixture::{Driver, FixtureHost, Runtime, Values};
use kubevitals_host::{CgroupVersion, HostOptions, HostReader, LogNames, Names};
use kubevitals_model::{Clock, SteppedClock, Timestamp};
use tempfile::TempDir;

const UID: &str = "b37f14a9-3bf4-458b-8cfd-e3c6a7a61b4a";
const HASH: &str = "e1a2b3c4d5e6f708192a3b4c5d6e7f80";

/// A host in a folder that is removed with it.
struct TestHost {
    _folder: TempDir,
    host: FixtureHost,
    clock: SteppedClock,
}

impl TestHost {
    fn new(version: CgroupVersion) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let host = FixtureHost::create(folder.path(), version).unwrap();
        Self {
            _folder: folder,
            host,
            clock: SteppedClock::new(Timestamp::from_unix_millis(1_800_000_000_000)),
        }
    }

    fn options(&self) -> HostOptions {
        HostOptions {
            paths: self.host.paths(),
            ..HostOptions::new("node-1")
        }
    }

    fn reader(&self) -> HostReader {
        self.reader_with(self.options())
    }

    fn reader_with(&self, options: HostOptions) -> HostReader {
        let logs = LogNames::new(options.paths.log.clone());
        let names = Names::new(None, Some(logs));
        HostReader::open(options, names, self.clock()).unwrap()
    }

    fn clock(&self) -> Clock {
        self.clock.clock()
    }

    /// Adds a pod with a sandbox and one container, and returns the path of the container.
    fn pod(&self, layout: (Driver, Runtime), root: &str, name: &str, uid: &str) -> String {
        let (driver, runtime) = layout;
        let pod = driver.pod_path(root, uid);
        self.host.write_cgroup(&pod, Values::default()).unwrap();
        let id = id_of(name);
        let container = format!("{pod}/{}", driver.container_name(runtime, &id));
        self.host
            .write_cgroup(&container, Values::default())
            .unwrap();
        let sandbox = id_of(&format!("{name}/sandbox"));
        let sandbox = match (driver, runtime) {
            // CRI-O's sandbox has no `.scope`, and its monitor is a container by its name.
            (Driver::Systemd, Runtime::CrioCrun) => format!("crio-{sandbox}"),
            _ => driver.container_name(runtime, &sandbox),
        };
        self.host
            .write_cgroup(&format!("{pod}/{sandbox}"), Values::default())
            .unwrap();
        self.host
            .name_container(("default", name, uid), "app", &id)
            .unwrap();
        container
    }
}

/// An id made of a name.
fn id_of(name: &str) -> String {
    format!("{:016x}", kubevitals_model::fnv1a(name.as_bytes())).repeat(4)
}

/// The machine that runs the test may have any cgroups, and pods or none.
#[test]
fn the_machine_of_the_test_can_be_read() {
    let options = HostOptions::new("here");
    if !options.paths.cgroup.exists() {
        return;
    }
    let names = Names::new(None, Some(LogNames::new(&options.paths.log)));
    let Ok(mut reader) = HostReader::open(options, names, Clock::system()) else {
        return;
    };
    reader.sample();
    let sample = reader.sample();
    assert!(sample.stats.machine.cores.is_some());
    assert!(sample.stats.machine.memory.is_some());
    assert!(sample.stats.started.is_some());
    assert!(sample.cgroups >= 1);
}
