//! The cgroups of pods and containers: found by their names, wherever they are.
//!
//! A walk over all cgroups finds those that contain pods. It is repeated once in a while; between
//! walks only these parents and the pods themselves are listed.

use std::collections::VecDeque;
use std::ffi::CString;

use hashbrown::HashMap;

use crate::cgroup::{Cgroup, Context, Hierarchies};
use crate::error::{Fault, Faults};
use crate::file::{Folder, FolderVersion};
use crate::layout;

/// How often all cgroups are walked, in samples.
const WALK_INTERVAL: u32 = 6;

/// The limits of a walk.
const MAX_FOLDERS: usize = 20_000;
const MAX_DEPTH: usize = 16;

/// The limits of what is read. A kubelet has at most some hundred pods.
const MAX_PODS: usize = 2_000;
const MAX_CONTAINERS: usize = 128;

/// How often pods are listed even if nothing says that they changed, in samples.
const LIST_INTERVAL: u64 = 6;

/// All pods.
#[derive(Default)]
pub(crate) struct Tree {
    parents: Vec<Parent>,
    /// Samples until the next walk.
    walk_in: u32,
    generation: u64,
    opened: u32,
}

/// A cgroup that contains pods.
struct Parent {
    path: String,
    folder: Folder,
    pods: HashMap<Box<[u8]>, PodEntry>,
}

/// The cgroup of a pod.
pub(crate) struct PodEntry {
    pub(crate) uid: String,
    pub(crate) cgroup: Cgroup,
    pub(crate) containers: HashMap<Box<[u8]>, ContainerEntry>,
    in_slice: bool,
    /// The version of the folder when its containers were listed.
    listed: Option<FolderVersion>,
    generation: u64,
}

/// The cgroup of a container or of a sandbox.
pub(crate) struct ContainerEntry {
    pub(crate) id: String,
    pub(crate) path: String,
    /// Opened once the container has a name; sandboxes are not read.
    pub(crate) cgroup: Option<Cgroup>,
    /// The creation of the cgroup, in milliseconds.
    pub(crate) created: Option<i64>,
    /// The number of samples without a name.
    pub(crate) nameless: u32,
    /// The size of its log files.
    pub(crate) log_bytes: Option<u64>,
    generation: u64,
}

impl Tree {
    /// Finds pods and containers that are new, and forgets those that are gone. Returns whether a
    /// walk was made.
    pub(crate) fn update(&mut self, hierarchies: &Hierarchies, context: &mut Context) -> bool {
        self.generation += 1;
        let walks = self.walk_in == 0;
        if walks {
            self.walk_in = WALK_INTERVAL;
            self.walk(hierarchies, context);
        }
        self.walk_in -= 1;
        let mut room = MAX_PODS;
        let mut index = 0;
        while let Some(parent) = self.parents.get_mut(index) {
            index += 1;
            let before = parent.pods.len();
            let qos = parent.update(
                hierarchies,
                context,
                self.generation,
                &mut room,
                &mut self.opened,
            );
            if before > 0 && parent.pods.is_empty() {
                // Perhaps it was removed and made again.
                self.walk_in = 0;
            }
            for path in qos {
                self.add_parent(hierarchies, path);
            }
        }
        let lists_all = self.generation.is_multiple_of(LIST_INTERVAL);
        for pod in self.pods_mut() {
            pod.update(context, lists_all);
        }
        walks
    }

    pub(crate) fn pods_mut(&mut self) -> impl Iterator<Item = &mut PodEntry> {
        self.parents
            .iter_mut()
            .flat_map(|parent| parent.pods.values_mut())
    }

    /// The paths of the cgroups that contain all pods of a kubelet.
    pub(crate) fn pods_roots(&self) -> impl Iterator<Item = &str> {
        let is_root = |path: &&str| layout::is_pods_root(last_name(path).as_bytes());
        self.parents
            .iter()
            .map(|parent| parent.path.as_str())
            .filter(is_root)
    }

    fn add_parent(&mut self, hierarchies: &Hierarchies, path: String) {
        if self.parents.iter().any(|parent| parent.path == path) {
            return;
        }
        if let Some(folder) = open(hierarchies, &path) {
            self.parents.push(Parent {
                path,
                folder,
                pods: HashMap::new(),
            });
        }
    }

    fn walk(&mut self, hierarchies: &Hierarchies, context: &mut Context) {
        let mut found = Vec::new();
        let mut queue = VecDeque::from([(String::new(), 0)]);
        let mut walked = 0;
        while let Some((path, depth)) = queue.pop_front() {
            walked += 1;
            if walked > MAX_FOLDERS || depth > MAX_DEPTH {
                context.faults.add(Fault::TooMany);
                continue;
            }
            let Some(folder) = open(hierarchies, &path) else {
                continue;
            };
            let name = last_name(&path).as_bytes();
            let mut has_pods = layout::is_pods_root(name);
            let listed = context.buffer.subfolders(&folder, |name| {
                let bytes = name.to_bytes();
                let Ok(text) = name.to_str() else {
                    return;
                };
                if layout::pod_uid(bytes).is_some() {
                    has_pods = true;
                } else if !layout::is_leaf_unit(bytes) && queue.len() < MAX_FOLDERS {
                    queue.push_back((format!("{path}/{text}"), depth + 1));
                }
            });
            if let Err(fault) = listed {
                context.faults.add(fault);
            }
            if has_pods {
                found.push((path, folder));
            }
        }
        let mut known = std::mem::take(&mut self.parents);
        for (path, folder) in found {
            let old = known.iter_mut().find(|parent| parent.path == path);
            self.parents.push(Parent {
                pods: old
                    .map(|old| std::mem::take(&mut old.pods))
                    .unwrap_or_default(),
                // Open anew: it may have been removed and made again.
                folder,
                path,
            });
        }
    }
}

impl Parent {
    /// Lists the pods. Returns paths of cgroups of a class of service.
    fn update(
        &mut self,
        hierarchies: &Hierarchies,
        context: &mut Context,
        generation: u64,
        room: &mut usize,
        opened: &mut u32,
    ) -> Vec<String> {
        let Self { path, folder, pods } = self;
        let is_root = layout::is_pods_root(last_name(path).as_bytes());
        // What is there again is opened anew.
        pods.retain(|_, pod| !pod.cgroup.is_stale);
        let mut qos = Vec::new();
        let mut faults = Faults::default();
        let listed = context.buffer.subfolders(folder, |name| {
            let bytes = name.to_bytes();
            if let Some(pod) = pods.get_mut(bytes) {
                pod.generation = generation;
                *room = room.saturating_sub(1);
                return;
            }
            let Ok(text) = name.to_str() else {
                return;
            };
            let child = || format!("{path}/{text}");
            let Some(uid) = layout::pod_uid(bytes) else {
                if is_root && layout::is_qos(bytes) {
                    qos.push(child());
                }
                return;
            };
            if *room == 0 {
                return faults.add(Fault::TooMany);
            }
            *opened = opened.wrapping_add(1);
            match hierarchies.cgroup(&child(), *opened) {
                Ok(cgroup) => {
                    *room -= 1;
                    let pod = PodEntry {
                        uid,
                        cgroup,
                        containers: HashMap::new(),
                        in_slice: bytes.ends_with(b".slice"),
                        listed: None,
                        generation,
                    };
                    pods.insert(bytes.into(), pod);
                }
                Err(error) => faults.add(error.into()),
            }
        });
        if let Err(fault) = listed {
            faults.add(fault);
        }
        context.faults.merge(&faults);
        pods.retain(|_, pod| pod.generation == generation);
        qos
    }
}

impl PodEntry {
    /// Whether a container was removed while it was read.
    pub(crate) fn has_stale(&self) -> bool {
        let mut cgroups = self
            .containers
            .values()
            .filter_map(|one| one.cgroup.as_ref());
        cgroups.any(|cgroup| cgroup.is_stale)
    }

    /// Lists the containers, if the folder says that they changed or `lists` says so. A listing
    /// costs as much as several reads: a cgroup has dozens of files.
    pub(crate) fn update(&mut self, context: &mut Context, lists: bool) {
        let has_stale = self.has_stale();
        let Self {
            cgroup,
            containers,
            in_slice,
            listed,
            generation,
            ..
        } = self;
        let Some(folder) = cgroup.main() else {
            return;
        };
        // Before the listing: what changes meanwhile is seen the next time.
        let version = folder.version();
        if !lists && !has_stale && version.is_some() && version == *listed {
            return;
        }
        *listed = version;
        containers.retain(|_, container| {
            let cgroup = container.cgroup.as_ref();
            cgroup.is_none_or(|cgroup| !cgroup.is_stale)
        });
        let mut faults = Faults::default();
        let result = context.buffer.subfolders(folder, |name| {
            let bytes = name.to_bytes();
            if let Some(container) = containers.get_mut(bytes) {
                container.generation = *generation;
                return;
            }
            let Some(id) = layout::container_id(bytes, *in_slice) else {
                return;
            };
            let Ok(text) = name.to_str() else {
                return;
            };
            if containers.len() >= MAX_CONTAINERS {
                return faults.add(Fault::TooMany);
            }
            let container = ContainerEntry {
                id: id.to_owned(),
                path: format!("{}/{text}", cgroup.path),
                cgroup: None,
                created: None,
                nameless: 0,
                log_bytes: None,
                generation: *generation,
            };
            containers.insert(bytes.into(), container);
        });
        if let Err(fault) = result {
            faults.add(fault);
        }
        context.faults.merge(&faults);
        containers.retain(|_, container| container.generation == *generation);
    }
}

fn open(hierarchies: &Hierarchies, path: &str) -> Option<Folder> {
    let relative = match path.trim_start_matches('/') {
        "" => ".",
        path => path,
    };
    let relative = CString::new(relative).ok()?;
    hierarchies.main()?.open_folder(&relative).ok()
}

fn last_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(all(test, feature = "test-util"))]
mod tests {
    use kubevitals_model::Clock;

    use super::*;
    use crate::cgroup::CgroupVersion;
    use crate::fixture::{Driver, FixtureHost, Values};

    /// The files of a cgroup that was removed fail for ever, whatever has its name now.
    #[test]
    fn a_pod_that_was_made_again_is_opened_anew() {
        let folder = tempfile::tempdir().unwrap();
        let host = FixtureHost::create(folder.path(), CgroupVersion::V2).unwrap();
        let pod = Driver::Cgroupfs.pod_path("", "b37f14a9-3bf4-458b-8cfd-e3c6a7a61b4a");
        host.write_cgroup(&pod, Values::default()).unwrap();
        let container = format!("{pod}/{}", "ab".repeat(32));
        host.write_cgroup(&container, Values::default()).unwrap();
        let hierarchies = Hierarchies::open(&host.paths().cgroup).unwrap();
        let mut context = Context::new(CgroupVersion::V2, Clock::system(), 100);
        let mut tree = Tree::default();
        tree.update(&hierarchies, &mut context);
        let entry = tree.pods_mut().next().unwrap();
        let inner = hierarchies.cgroup(&container, 0).unwrap();
        let of_container = entry.containers.values_mut().next().unwrap();
        of_container.cgroup.insert(inner).is_stale = true;
        tree.update(&hierarchies, &mut context);
        let entry = tree.pods_mut().next().unwrap();
        assert!(entry.containers.values().all(|one| one.cgroup.is_none()));
        assert_eq!(entry.containers.len(), 1);
        entry.cgroup.is_stale = true;
        tree.update(&hierarchies, &mut context);
        assert!(tree.pods_mut().all(|pod| !pod.cgroup.is_stale));
        assert_eq!(tree.pods_mut().count(), 1);
    }
}
