use std::fs;

use kubevitals_host::fixture::{Driver, Runtime, Values};
use kubevitals_host::{CgroupVersion, ContainerNames, HostReader, Names, PodNames, PodTable};
use kubevitals_model::{Bytes, PodKey, Timestamp};

use crate::{HASH, TestHost, UID, id_of};

#[test]
fn pods_are_found_in_the_layouts_of_all_drivers_runtimes_and_roots() {
    for version in [CgroupVersion::V1, CgroupVersion::V2] {
        for driver in [Driver::Systemd, Driver::Cgroupfs] {
            for runtime in [Runtime::Containerd, Runtime::CrioCrun, Runtime::Docker] {
                for root in ["", "/kubelet"] {
                    let test = TestHost::new(version);
                    test.pod((driver, runtime), root, "web", UID);
                    test.pod((driver, runtime), root, "static", HASH);
                    // Not pods.
                    test.host
                        .write_cgroup("/system.slice/ssh.service", Values::default())
                        .unwrap();
                    let sample = test.reader().sample();
                    let what = format!("{version:?} {driver:?} {runtime:?} {root:?}");
                    let names: Vec<_> = sample
                        .stats
                        .pods
                        .iter()
                        .map(|pod| (pod.key.name().to_string(), pod.containers.len()))
                        .collect();
                    assert_eq!(
                        names,
                        [("static".to_owned(), 1), ("web".to_owned(), 1)],
                        "{what}"
                    );
                    assert_eq!(sample.unresolved, 0, "{what}");
                    assert_eq!(sample.faults.total(), 0, "{what}");
                    // The root, the pods, their containers, and the parent of all pods.
                    assert_eq!(sample.cgroups, 6, "{what}");
                    let system = &sample.stats.system_containers;
                    assert_eq!(system.len(), 1, "{what}");
                    assert_eq!(system[0].name, "pods");
                }
            }
        }
    }
}

#[test]
fn a_rootless_kubelet_is_found_below_its_user() {
    let test = TestHost::new(CgroupVersion::V2);
    let root = "/user.slice/user-1000.slice/user@1000.service/kubelet";
    test.pod((Driver::Cgroupfs, Runtime::Containerd), root, "web", UID);
    assert_eq!(test.reader().sample().stats.pods.len(), 1);
}

/// crun sets limits on, and runs processes in, a cgroup inside that of the container.
#[test]
fn limits_and_processes_of_crun_are_in_the_inner_cgroup() {
    let test = TestHost::new(CgroupVersion::V2);
    let path = test.pod((Driver::Systemd, Runtime::CrioCrun), "", "web", UID);
    let inner = Values {
        memory: 1 << 20,
        processes: 3,
        first_process: 500,
        ..Values::default()
    };
    test.host
        .write_cgroup(&format!("{path}/container"), inner)
        .unwrap();
    fs::write(test.host.file(&path, "cgroup.procs"), "").unwrap();
    fs::write(test.host.file(&path, "memory.max"), "max\n").unwrap();
    test.host.network(500, 42).unwrap();
    // Conmon runs beside it.
    let pod = Driver::Systemd.pod_path("", UID);
    let monitor = format!("{pod}/crio-conmon-{}.scope", id_of("monitor"));
    test.host.write_cgroup(&monitor, Values::default()).unwrap();
    let sample = test.reader().sample();
    let pod = &sample.stats.pods[0];
    let usage = &pod.containers[0].usage;
    let memory = usage.memory.unwrap();
    assert_eq!(memory.usage, Some(Bytes::new(64 << 20)), "of the scope");
    assert_eq!(
        memory.limit,
        Some(Bytes::new(2 << 20)),
        "of the inner cgroup"
    );
    assert_eq!(usage.pids.unwrap().processes, Some(3));
    let network = pod.network.as_ref().unwrap();
    assert_eq!(network.default_interface().unwrap().rx_bytes, 42);
    assert_eq!(sample.unresolved, 0);
}

#[test]
fn pods_and_containers_come_and_go_between_walks() {
    let test = TestHost::new(CgroupVersion::V2);
    let layout = (Driver::Systemd, Runtime::Containerd);
    test.pod(layout, "", "one", UID);
    let mut reader = test.reader();
    assert_eq!(reader.sample().stats.pods.len(), 1);
    let path = test.pod(layout, "", "two", HASH);
    let sample = reader.sample();
    assert_eq!(sample.stats.pods.len(), 2);
    // The container restarts with a new id.
    test.host.remove_cgroup(&path).unwrap();
    let pod = Driver::Systemd.pod_path("", HASH);
    let id = id_of("two, restarted");
    test.host
        .write_cgroup(
            &format!("{pod}/cri-containerd-{id}.scope"),
            Values::default(),
        )
        .unwrap();
    test.host
        .name_container(("default", "two", HASH), "app", &id)
        .unwrap();
    let sample = reader.sample();
    let pod = &sample.stats.pods[1];
    assert_eq!((pod.containers.len(), &pod.containers[0].id), (1, &id));
    test.host
        .remove_cgroup(&Driver::Systemd.pod_path("", HASH))
        .unwrap();
    let sample = reader.sample();
    assert_eq!(sample.stats.pods.len(), 1);
    // Files of cgroups that are gone are closed.
    let kept = sample.kept_files;
    assert!(kept > 0 && kept < 40, "{kept}");
    test.host.remove_cgroup("/kubepods.slice").unwrap();
    reader.sample();
    assert!(reader.sample().stats.pods.is_empty());
    // Another kubelet with another root is found by the next walk.
    test.pod((Driver::Cgroupfs, Runtime::Docker), "/other", "three", UID);
    let found = (0..8).any(|_| reader.sample().stats.pods.len() == 1);
    assert!(found);
}

#[test]
fn names_come_from_the_table_of_pods_first() {
    let test = TestHost::new(CgroupVersion::V2);
    let layout = (Driver::Systemd, Runtime::Containerd);
    test.pod(layout, "", "web", UID);
    test.pod(layout, "", "host", HASH);
    let table = PodTable::default();
    let started = Timestamp::from_unix_millis(1_750_000_000_000);
    let names = |pod: &str, host_network| PodNames {
        key: PodKey::new("prod", pod),
        started: Some(started),
        host_network,
        containers: vec![ContainerNames {
            id: id_of(pod),
            name: "main".to_owned(),
            image: "registry/app:1".to_owned(),
            started: Some(started),
        }],
    };
    table.insert(UID, names("web", false));
    let names_of = Names::new(Some(table.clone()), None);
    let mut reader = HostReader::open(test.options(), names_of, test.clock()).unwrap();
    let sample = reader.sample();
    assert_eq!(sample.unresolved, 1);
    let pod = &sample.stats.pods[0];
    assert_eq!(
        (&pod.key, pod.started),
        (&PodKey::new("prod", "web"), Some(started))
    );
    assert_eq!(pod.containers[0].image, "registry/app:1");
    assert_eq!(pod.containers[0].started, Some(started));
    // A network of the host is read once, with that of the node.
    table.insert(HASH, names("host", true));
    let sample = reader.sample();
    assert_eq!(sample.unresolved, 0);
    assert_eq!(sample.stats.pods[0].network, sample.stats.network);
    table.replace([]);
    assert_eq!(reader.sample().unresolved, 2);
}

#[test]
fn files_are_not_kept_open_beyond_the_limit() {
    let test = TestHost::new(CgroupVersion::V2);
    test.pod((Driver::Systemd, Runtime::Containerd), "", "web", UID);
    for keep_files in [0, 5] {
        let options = kubevitals_host::HostOptions {
            keep_files,
            ..test.options()
        };
        let mut reader = test.reader_with(options);
        for _ in 0..3 {
            let sample = reader.sample();
            assert_eq!(sample.kept_files, keep_files);
            assert_eq!(sample.stats.pods.len(), 1);
            assert!(sample.stats.pods[0].containers[0].usage.cpu.is_some());
        }
    }
}
