//! What a workload or a broken kernel can do to the files, and that it costs only itself.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use kubevitals_host::fixture::{Driver, Runtime, Values};
use kubevitals_host::{CgroupVersion, Fault};

use crate::{HASH, TestHost, UID, id_of};

const LAYOUT: (Driver, Runtime) = (Driver::Systemd, Runtime::Containerd);

#[test]
fn garbage_in_a_file_costs_only_its_value() {
    let test = TestHost::new(CgroupVersion::V2);
    let path = test.pod(LAYOUT, "", "web", UID);
    fs::write(test.host.file(&path, "memory.current"), b"\xff\xfe\n").unwrap();
    fs::write(test.host.file(&path, "io.pressure"), "none of this\n").unwrap();
    let sample = test.reader().sample();
    assert_eq!(sample.faults.count(Fault::Malformed), 2);
    let usage = &sample.stats.pods[0].containers[0].usage;
    assert_eq!(usage.memory, None);
    assert!(usage.cpu.is_some() && usage.swap.is_some());
    assert_eq!(usage.io.as_ref().unwrap().pressure, None);
    assert!(sample.stats.pods[0].usage.memory.is_some());
}

#[test]
fn a_huge_file_is_not_read_and_costs_only_its_value() {
    let test = TestHost::new(CgroupVersion::V2);
    let path = test.pod(LAYOUT, "", "web", UID);
    let file = fs::File::create(test.host.file(&path, "memory.stat")).unwrap();
    file.set_len(1 << 40).unwrap();
    let sample = test.reader().sample();
    assert_eq!(sample.faults.count(Fault::TooLarge), 1);
    let usage = &sample.stats.pods[0].containers[0].usage;
    assert!(usage.memory.unwrap().usage.is_some());
    assert_eq!(usage.memory.unwrap().working_set, None);
}

#[test]
fn links_are_not_followed() {
    let test = TestHost::new(CgroupVersion::V2);
    let path = test.pod(LAYOUT, "", "web", UID);
    let pod = Driver::Systemd.pod_path("", UID);
    let file = test.host.file(&path, "memory.current");
    fs::remove_file(&file).unwrap();
    symlink("/proc/self/stat", &file).unwrap();
    // A loop, and a pod and a container that are elsewhere.
    symlink("..", test.host.file(&pod, "loop")).unwrap();
    let outside = format!("cri-containerd-{}.scope", id_of("outside"));
    symlink("/", test.host.file(&pod, &outside)).unwrap();
    let other = Driver::Systemd.pod_path("", HASH);
    symlink(
        "/",
        test.host
            .file(&other, "")
            .to_str()
            .unwrap()
            .trim_end_matches('/'),
    )
    .unwrap();
    let sample = test.reader().sample();
    assert_eq!(sample.stats.pods.len(), 1);
    assert_eq!(sample.stats.pods[0].containers.len(), 1);
    assert_eq!(sample.stats.pods[0].containers[0].usage.memory, None);
    assert_eq!(sample.unresolved, 0);
}

#[test]
fn names_that_are_not_text_are_left_out() {
    let test = TestHost::new(CgroupVersion::V2);
    test.pod(LAYOUT, "", "web", UID);
    let pod = test.host.file(&Driver::Systemd.pod_path("", UID), "");
    fs::create_dir(pod.join(std::ffi::OsStr::from_bytes(b"\xff\xff.scope"))).unwrap();
    let uid = UID.replace('-', "_");
    let name = [b"\xff-pod", uid.as_bytes(), b".slice"].concat();
    let parent = pod.parent().unwrap();
    fs::create_dir(parent.join(std::ffi::OsStr::from_bytes(&name))).unwrap();
    let sample = test.reader().sample();
    assert_eq!(sample.stats.pods.len(), 1);
}

#[test]
fn a_pipe_in_place_of_a_file_does_not_block() {
    let test = TestHost::new(CgroupVersion::V2);
    let path = test.pod(LAYOUT, "", "web", UID);
    let file = test.host.file(&path, "cpu.stat");
    fs::remove_file(&file).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let sample = test.reader().sample();
    assert_eq!(sample.stats.pods[0].containers[0].usage.cpu, None);
    assert!(sample.faults.total() >= 1);
}

#[test]
fn thousands_of_cgroups_are_read_up_to_the_limit() {
    let test = TestHost::new(CgroupVersion::V2);
    test.pod(LAYOUT, "", "web", UID);
    let parent = test
        .host
        .file("/kubepods.slice/kubepods-burstable.slice", "");
    for index in 0..2_500 {
        let name = format!("kubepods-burstable-pod{index:08x}_0000_0000_0000_000000000000.slice");
        fs::create_dir(parent.join(name)).unwrap();
    }
    let pod = test.host.file(&Driver::Systemd.pod_path("", UID), "");
    for index in 0..200 {
        let id = id_of(&index.to_string());
        fs::create_dir(pod.join(format!("cri-containerd-{id}.scope"))).unwrap();
    }
    let sample = test.reader().sample();
    assert!(sample.faults.count(Fault::TooMany) >= 500);
    assert!(sample.unresolved <= 2_200, "{}", sample.unresolved);
}

#[test]
fn a_deep_tree_is_walked_to_a_limit() {
    let test = TestHost::new(CgroupVersion::V2);
    let deep = "/a".repeat(100);
    test.host.write_cgroup(&deep, Values::default()).unwrap();
    test.pod(LAYOUT, "", "web", UID);
    let sample = test.reader().sample();
    assert_eq!(sample.stats.pods.len(), 1);
    assert_eq!(sample.faults.count(Fault::TooMany), 1);
}

#[test]
fn a_container_that_vanishes_in_a_sample_takes_nothing_with_it() {
    let test = TestHost::new(CgroupVersion::V2);
    let path = test.pod(LAYOUT, "", "web", UID);
    let mut reader = test.reader();
    reader.sample();
    // The folder is still listed, but has no files any more, as while the kernel removes it.
    fs::remove_dir_all(test.host.file(&path, "")).unwrap();
    fs::create_dir(test.host.file(&path, "")).unwrap();
    let sample = reader.sample();
    assert_eq!(sample.stats.pods.len(), 1);
    assert!(sample.stats.pods[0].usage.cpu.is_some());
}

/// A user who owns a cgroup makes one in it with the names of someone else's pod.
#[test]
fn a_pod_is_the_one_nearest_to_the_root() {
    let test = TestHost::new(CgroupVersion::V2);
    let real = test.pod(LAYOUT, "", "web", UID);
    let user = "/user.slice/user-1000.slice/user@1000.service";
    test.pod((Driver::Cgroupfs, Runtime::Containerd), user, "web", UID);
    let mut reader = test.reader();
    for _ in 0..3 {
        let sample = reader.sample();
        assert_eq!(sample.stats.pods.len(), 1);
        assert_eq!(sample.stats.pods[0].containers[0].usage.path, real);
        assert_eq!(sample.faults.count(Fault::Duplicate), 1);
    }
}
