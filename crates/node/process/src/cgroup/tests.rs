use super::*;

/// A folder that looks like a cgroup v2 hierarchy.
fn fixture() -> (tempfile::TempDir, Hierarchies) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path().to_owned();
    // The kernel makes these files with each folder.
    for dir in ["", "kv", "kv/podu", "kv/podu/c"] {
        let dir = root.join(dir);
        fs::create_dir_all(&dir).expect("create");
        for (file, text) in [
            ("cgroup.controllers", "cpuset cpu io memory pids\n"),
            ("cgroup.subtree_control", ""),
            ("cgroup.procs", ""),
            ("cgroup.kill", ""),
            ("cpu.weight", ""),
            ("cpu.max", ""),
            ("memory.max", ""),
            ("memory.oom.group", ""),
            ("pids.max", ""),
        ] {
            fs::write(dir.join(file), text).expect("write");
        }
    }
    let found = Hierarchies::create(Version::V2, vec![root], PathBuf::from("kv")).expect("v2");
    (folder, found)
}

fn read(dir: &Path, file: &str) -> String {
    fs::read_to_string(dir.join(file)).expect("read")
}

#[test]
fn version_2_is_written_as_the_kernel_expects_it() {
    let (folder, hierarchies) = fixture();
    let limits = Limits {
        cpu_shares: Some(1024),
        cpu_quota_micros: Some(50_000),
        memory_bytes: Some(1 << 20),
        max_pids: Some(64),
    };
    let cgroup = hierarchies.container("u", "c");
    hierarchies
        .pod("u")
        .create(&Limits::default(), true)
        .expect("pod");
    cgroup.create(&limits, false).expect("container");
    let dir = folder.path().join("kv/podu/c");
    assert_eq!(cgroup.dirs(), std::slice::from_ref(&dir));
    // The files of the fixture do not grow by writes as the kernel's: the last value stays.
    assert_eq!(read(&dir, "cpu.weight"), "100");
    assert_eq!(read(&dir, "cpu.max"), "50000 100000");
    assert_eq!(read(&dir, "memory.max"), "1048576");
    assert_eq!(read(&dir, "memory.oom.group"), "1");
    assert_eq!(read(&dir, "pids.max"), "64");
    let pod = folder.path().join("kv/podu");
    assert_eq!(read(&pod, "cpu.max"), "max 100000");
    assert!(read(&pod, "cgroup.subtree_control").contains("+io"));
    assert!(read(&folder.path().join("kv"), "cgroup.subtree_control").contains('+'));
    cgroup.kill_once();
    assert_eq!(read(&dir, "cgroup.kill"), "1");
    assert_eq!(hierarchies.pod_uids(), ["u"]);
}

#[test]
fn oom_kills_are_read_from_both_versions() {
    let (folder, hierarchies) = fixture();
    let cgroup = hierarchies.container("u", "c");
    assert_eq!(cgroup.oom_kills(), 0);
    let dir = folder.path().join("kv/podu/c");
    fs::write(
        dir.join("memory.oom_control"),
        "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    )
    .expect("write");
    assert_eq!(cgroup.oom_kills(), 2);
    fs::write(dir.join("memory.events"), "low 0\noom 3\noom_kill 3\n").expect("write");
    assert_eq!(cgroup.oom_kills(), 3);
}

#[test]
fn a_parent_that_leads_elsewhere_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for parent in ["", "/", "../x", "a/../../b"] {
        assert!(
            Hierarchies::open(folder.path(), parent).is_err(),
            "{parent:?}"
        );
    }
    assert!(
        Hierarchies::open(folder.path(), "kv").is_err(),
        "nothing is mounted"
    );
}

/// Version 1 alone, without the version 2 hierarchy of hybrid hosts.
#[test]
fn the_freezer_kills_what_forks() {
    let freezer = Path::new("/sys/fs/cgroup/freezer");
    let parent = PathBuf::from(format!("kubevitals-test-freezer-{}", std::process::id()));
    let open = || Hierarchies::create(Version::V1, vec![freezer.to_owned()], parent);
    if !freezer.join("cgroup.procs").exists() {
        println!("skipped: there is no freezer of cgroup v1");
        return;
    }
    let hierarchies = match open() {
        Ok(found) => found,
        Err(error) => {
            println!("skipped: cgroups are not permitted: {error}");
            return;
        }
    };
    let cgroup = hierarchies.container("u", "c");
    hierarchies
        .pod("u")
        .create(&Limits::default(), true)
        .expect("pod");
    cgroup.create(&Limits::default(), false).expect("container");
    let [dir] = cgroup.dirs() else {
        panic!("one hierarchy");
    };
    // It joins by itself, and then forks all the time.
    let join = format!("echo 0 > {}/cgroup.procs", dir.display());
    let mut child = std::process::Command::new("/bin/sh")
        .args([
            "-c",
            &format!("{join}; while :; do sleep 1000 & sleep 0.001; done"),
        ])
        .spawn()
        .expect("a shell");
    let started = Instant::now();
    while cgroup.processes().len() < 5 {
        assert!(
            started.elapsed() < Duration::from_mins(1),
            "it does not join"
        );
        pause();
    }
    assert!(cgroup.kill(), "all processes are killed");
    let status = child.wait().expect("the shell has ended");
    assert!(!status.success());
    hierarchies.own().remove().expect("removed");
    assert!(!cgroup.exists());
}
