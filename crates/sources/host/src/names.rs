//! Names of pods and containers, by the UIDs and ids in the names of cgroups.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashMap;
use kubevitals_model::{PodKey, Timestamp};
use parking_lot::RwLock;

use crate::layout::ID_LENGTH;

/// The maximum number of entries of a folder that are looked at.
const MAX_ENTRIES: usize = 20_000;

/// The longest name of a file; a kubelet cuts names of links to it.
const MAX_FILE_NAME: usize = 255;

/// The names of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodNames {
    pub key: PodKey,
    pub started: Option<Timestamp>,
    /// Whether its network is that of the node.
    pub host_network: bool,
    pub containers: Vec<ContainerNames>,
}

/// The names of a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerNames {
    /// Its id without the scheme, or the start of it.
    pub id: String,
    pub name: String,
    pub image: String,
    pub started: Option<Timestamp>,
}

/// The pods of this node, by the UID in the name of the cgroup. Clones are the same table.
///
/// For a static pod that is the hash of its manifest, which its mirror object has in the annotation
/// `kubernetes.io/config.hash`.
#[derive(Debug, Clone, Default)]
pub struct PodTable(Arc<RwLock<HashMap<Box<str>, Arc<PodNames>>>>);

/// The names that log folders have: `/var/log/pods` and the links in `/var/log/containers`. They
/// need no API server.
#[derive(Debug)]
pub struct LogNames {
    folder: PathBuf,
    pods: HashMap<String, Arc<PodNames>>,
}

/// Where names are looked up: first in the table, then in log folders.
#[derive(Debug, Default)]
pub struct Names {
    table: Option<PodTable>,
    logs: Option<LogNames>,
}

impl PodNames {
    /// Finds a container by its id. Of ids that were cut, only one may match.
    pub fn container(&self, id: &str) -> Option<&ContainerNames> {
        let exact = self.containers.iter().find(|one| one.id == id);
        exact.or_else(|| {
            let mut cut = self
                .containers
                .iter()
                .filter(|one| one.id.len() < ID_LENGTH && id.starts_with(&one.id));
            let first = cut.next()?;
            cut.all(|other| other.name == first.name).then_some(first)
        })
    }
}

impl PodTable {
    pub fn insert(&self, uid: &str, names: PodNames) {
        self.0.write().insert(uid.into(), Arc::new(names));
    }

    pub fn remove(&self, uid: &str) {
        self.0.write().remove(uid);
    }

    /// Replaces all pods.
    pub fn replace(&self, pods: impl IntoIterator<Item = (String, PodNames)>) {
        let pods = pods
            .into_iter()
            .map(|(uid, names)| (uid.into(), Arc::new(names)))
            .collect();
        *self.0.write() = pods;
    }

    pub fn get(&self, uid: &str) -> Option<Arc<PodNames>> {
        self.0.read().get(uid).cloned()
    }
}

impl LogNames {
    /// Names in the folders `pods` and `containers` of `folder`, usually `/var/log`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            pods: HashMap::new(),
        }
    }

    /// Reads the folders again. What cannot be read has no names.
    pub fn scan(&mut self) {
        let mut pods: HashMap<String, PodNames> = HashMap::new();
        for name in entries(&self.folder.join("pods")) {
            if let Some((uid, key)) = name.to_str().and_then(parse_pod_folder) {
                let names = PodNames {
                    key,
                    started: None,
                    host_network: false,
                    containers: Vec::new(),
                };
                pods.insert(uid, names);
            }
        }
        let mut by_key: HashMap<PodKey, Vec<ContainerNames>> = HashMap::new();
        let links = self.folder.join("containers");
        for name in entries(&links) {
            let Some(name) = name.to_str() else {
                continue;
            };
            let found = parse_link(name).or_else(|| parse_cut_link(&links, name));
            if let Some((key, container)) = found {
                by_key.entry(key).or_default().push(container);
            }
        }
        self.pods = pods
            .into_iter()
            .map(|(uid, mut names)| {
                // Ids are unique, so that containers of a pod of the same name do no harm.
                names.containers = by_key.get(&names.key).cloned().unwrap_or_default();
                (uid, Arc::new(names))
            })
            .collect();
    }

    pub fn get(&self, uid: &str) -> Option<Arc<PodNames>> {
        self.pods.get(uid).cloned()
    }
}

impl Names {
    /// Looks up names in a table that someone else keeps, and in log folders.
    pub fn new(table: Option<PodTable>, logs: Option<LogNames>) -> Self {
        Self { table, logs }
    }

    pub(crate) fn get(&self, uid: &str) -> Option<Arc<PodNames>> {
        let in_table = self.table.as_ref().and_then(|table| table.get(uid));
        in_table.or_else(|| self.logs.as_ref()?.get(uid))
    }

    pub(crate) fn scan(&mut self) {
        if let Some(logs) = &mut self.logs {
            logs.scan();
        }
    }

    /// Whether only log folders are read: then a container without a name is not known to be a
    /// sandbox.
    pub(crate) fn has_logs(&self) -> bool {
        self.logs.is_some()
    }
}

/// Parses `<namespace>_<pod>_<uid>`.
fn parse_pod_folder(name: &str) -> Option<(String, PodKey)> {
    let mut parts = name.split('_');
    let (namespace, pod, uid) = (parts.next()?, parts.next()?, parts.next()?);
    let is_complete = parts.next().is_none();
    let is_named = !namespace.is_empty() && !pod.is_empty() && !uid.is_empty();
    (is_complete && is_named).then(|| (uid.to_owned(), PodKey::new(namespace, pod)))
}

/// Parses `<pod>_<namespace>_<container>-<id>.log`.
fn parse_link(name: &str) -> Option<(PodKey, ContainerNames)> {
    let (rest, id) = name.strip_suffix(".log")?.rsplit_once('-')?;
    if id.len() != ID_LENGTH || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut parts = rest.splitn(3, '_');
    let (pod, namespace, container) = (parts.next()?, parts.next()?, parts.next()?);
    let container = ContainerNames {
        id: id.to_owned(),
        name: container.to_owned(),
        ..ContainerNames::default()
    };
    Some((PodKey::new(namespace, pod), container))
}

/// Finds the names of a link that was cut, and has only the start of the id, by its target:
/// `…/pods/<namespace>_<pod>_<uid>/<container>/<n>.log`.
fn parse_cut_link(folder: &Path, name: &str) -> Option<(PodKey, ContainerNames)> {
    if name.len() < MAX_FILE_NAME {
        return None;
    }
    let target = fs::read_link(folder.join(name)).ok()?;
    let mut parts = target.iter().rev().skip(1).map(OsStr::to_str);
    let container = parts.next()??;
    let (_, key) = parse_pod_folder(parts.next()??)?;
    let prefix = format!("{}_{}_{container}-", key.name(), key.namespace());
    let stem = name.strip_suffix(".log")?;
    let id = stem.strip_prefix(&prefix).unwrap_or_default();
    let container = ContainerNames {
        id: id.to_owned(),
        name: container.to_owned(),
        ..ContainerNames::default()
    };
    Some((key, container))
}

fn entries(folder: &Path) -> impl Iterator<Item = std::ffi::OsString> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.take(MAX_ENTRIES).map(|entry| entry.file_name())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn names_are_found_in_log_folders() {
        let folder = tempfile::tempdir().unwrap();
        let pods = folder.path().join("pods");
        let links = folder.path().join("containers");
        fs::create_dir_all(pods.join("kube-system_etcd-node_e1a2b3c4d5e6f708192a3b4c5d6e7f80"))
            .unwrap();
        fs::create_dir_all(pods.join("garbage")).unwrap();
        fs::create_dir_all(&links).unwrap();
        fs::write(
            links.join(format!("etcd-node_kube-system_et-cd-{ID}.log")),
            "",
        )
        .unwrap();
        fs::write(links.join("other.log"), "").unwrap();
        let mut names = LogNames::new(folder.path());
        assert_eq!(names.get("e1a2b3c4d5e6f708192a3b4c5d6e7f80"), None);
        names.scan();
        let pod = names.get("e1a2b3c4d5e6f708192a3b4c5d6e7f80").unwrap();
        assert_eq!(pod.key, PodKey::new("kube-system", "etcd-node"));
        assert_eq!(pod.container(ID).unwrap().name, "et-cd");
        assert_eq!(pod.container(&ID.replace('0', "1")), None);
        assert_eq!(names.pods.len(), 1);
    }

    #[test]
    fn a_link_whose_name_was_cut_is_resolved_by_its_target() {
        let folder = tempfile::tempdir().unwrap();
        let links = folder.path().join("containers");
        let uid = "b37f14a9-3bf4-458b-8cfd-e3c6a7a61b4a";
        let pod = "p".repeat(180);
        let pod_folder = format!("default_{pod}_{uid}");
        fs::create_dir_all(folder.path().join("pods").join(&pod_folder)).unwrap();
        fs::create_dir_all(&links).unwrap();
        let name = format!("{pod}_default_a-container-{ID}");
        let name = format!("{}.log", name.get(..251).unwrap());
        std::os::unix::fs::symlink(
            format!("/var/log/pods/{pod_folder}/a-container/0.log"),
            links.join(&name),
        )
        .unwrap();
        let mut names = LogNames::new(folder.path());
        names.scan();
        let found = names.get(uid).unwrap();
        assert_eq!(found.key, PodKey::new("default", pod.as_str()));
        assert_eq!(found.container(ID).unwrap().name, "a-container");
        assert_eq!(found.container(&ID.replace('0', "1")), None);
    }

    #[test]
    fn a_cut_id_that_fits_two_containers_names_none() {
        let container = |name: &str| ContainerNames {
            id: "0123".to_owned(),
            name: name.to_owned(),
            ..ContainerNames::default()
        };
        let names = |containers| PodNames {
            key: PodKey::new("a", "b"),
            started: None,
            host_network: false,
            containers,
        };
        let one = names(vec![container("x"), container("x")]);
        assert_eq!(one.container(ID).unwrap().name, "x");
        let two = names(vec![container("x"), container("y")]);
        assert_eq!(two.container(ID), None);
    }
}
