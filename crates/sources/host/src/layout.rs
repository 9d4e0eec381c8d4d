//! Names of cgroups: pods and containers in the layouts of both drivers and of all runtimes.
//!
//! | | systemd | cgroupfs |
//! |---|---|---|
//! | pod | `…-pod<uid with _>.slice` | `pod<uid>` |
//! | containerd | `cri-containerd-<id>.scope` | `<id>` |
//! | CRI-O | `crio-<id>.scope`; the sandbox has no `.scope` | `crio-<id>` |
//! | cri-dockerd | `docker-<id>.scope` | `<id>` |

/// The length of the id of a container.
pub const ID_LENGTH: usize = 64;

const UUID_LENGTH: usize = 36;
const HASH_LENGTH: usize = 32;

/// Returns the UID in the name of a pod's cgroup: a UUID, or the hash of the manifest of a static
/// pod.
pub fn pod_uid(name: &[u8]) -> Option<String> {
    let name = name.strip_suffix(b".slice").unwrap_or(name);
    [UUID_LENGTH, HASH_LENGTH].into_iter().find_map(|length| {
        let (prefix, uid) = name.split_at_checked(name.len().checked_sub(length)?)?;
        let before = prefix.strip_suffix(b"pod")?;
        if !before.is_empty() && !before.ends_with(b"-") {
            return None;
        }
        let is_valid = uid.iter().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 if length == UUID_LENGTH => matches!(byte, b'-' | b'_'),
            _ => is_hex(*byte),
        });
        let uid = str::from_utf8(uid).ok()?;
        is_valid.then(|| uid.replace('_', "-"))
    })
}

/// Returns the id in the name of a container's cgroup. Monitors and, where they can be told by
/// their name, sandboxes have none.
pub fn container_id(name: &[u8], in_slice: bool) -> Option<&str> {
    let (name, is_scope) = match name.strip_suffix(b".scope") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let (prefix, id) = name.split_at_checked(name.len().checked_sub(ID_LENGTH)?)?;
    let is_separated = prefix.is_empty() || prefix.ends_with(b"-") || prefix.ends_with(b":");
    let is_monitor = prefix.ends_with(b"conmon-");
    let is_sandbox = in_slice && !is_scope && prefix.ends_with(b"crio-");
    if !is_separated || is_monitor || is_sandbox || !id.iter().all(|byte| is_hex(*byte)) {
        return None;
    }
    str::from_utf8(id).ok()
}

/// Whether a cgroup contains the pods of a kubelet: `kubepods`, `kubepods.slice`, or one of these
/// below another root, as in `kubelet-kubepods.slice`.
pub fn is_pods_root(name: &[u8]) -> bool {
    let name = name.strip_suffix(b".slice").unwrap_or(name);
    name.strip_suffix(b"kubepods")
        .is_some_and(|before| before.is_empty() || before.ends_with(b"-"))
}

/// Whether a cgroup in [`is_pods_root`] contains the pods of a class of service.
pub fn is_qos(name: &[u8]) -> bool {
    let name = name.strip_suffix(b".slice").unwrap_or(name);
    [&b"burstable"[..], b"besteffort"].iter().any(|class| {
        name.strip_suffix(*class)
            .is_some_and(|before| before.is_empty() || before.ends_with(b"-"))
    })
}

/// Whether a cgroup can have no pods below it.
pub fn is_leaf_unit(name: &[u8]) -> bool {
    [&b".mount"[..], b".socket", b".swap", b".timer"]
        .iter()
        .any(|suffix| name.ends_with(suffix))
}

const fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "b37f14a9-3bf4-458b-8cfd-e3c6a7a61b4a";
    const HASH: &str = "e1a2b3c4d5e6f708192a3b4c5d6e7f80";
    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn pods_of_both_drivers_are_found() {
        let slice = UID.replace('-', "_");
        for (name, uid) in [
            (format!("pod{UID}"), UID),
            (format!("kubepods-pod{slice}.slice"), UID),
            (format!("kubepods-burstable-pod{slice}.slice"), UID),
            (format!("kubelet-kubepods-besteffort-pod{slice}.slice"), UID),
            (format!("pod{HASH}"), HASH),
            (format!("kubepods-burstable-pod{HASH}.slice"), HASH),
        ] {
            assert_eq!(pod_uid(name.as_bytes()).as_deref(), Some(uid), "{name}");
        }
        for name in [
            "",
            "pod",
            "kubepods.slice",
            "kubepods-burstable.slice",
            &format!("tripod{UID}"),
            &format!("pod{UID}.scope"),
            &format!("pod{}", UID.to_uppercase()),
            &format!("pod{}", UID.get(1..).unwrap()),
            &format!("pod{ID}"),
        ] {
            assert_eq!(pod_uid(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn containers_of_all_runtimes_are_found() {
        for (name, in_slice) in [
            (ID.to_owned(), false),
            (format!("cri-containerd-{ID}.scope"), true),
            (format!("crio-{ID}.scope"), true),
            (format!("crio-{ID}"), false),
            (format!("docker-{ID}.scope"), true),
            (format!("kubepods-pod.slice:cri-containerd:{ID}"), false),
        ] {
            assert_eq!(container_id(name.as_bytes(), in_slice), Some(ID), "{name}");
        }
        for (name, in_slice) in [
            ("container".to_owned(), true),
            (format!("crio-{ID}"), true),
            (format!("crio-conmon-{ID}.scope"), true),
            (format!("crio-conmon-{ID}"), false),
            (format!("x{ID}"), false),
            (ID.get(1..).unwrap().to_owned(), false),
            (format!("{ID}.mount"), false),
            ("\u{e9}".repeat(32), false),
        ] {
            assert_eq!(container_id(name.as_bytes(), in_slice), None, "{name}");
        }
    }

    #[test]
    fn parents_of_pods_are_recognized() {
        for name in ["kubepods", "kubepods.slice", "kubelet-kubepods.slice"] {
            assert!(is_pods_root(name.as_bytes()), "{name}");
        }
        for name in ["burstable", "kubepods-besteffort.slice"] {
            assert!(is_qos(name.as_bytes()), "{name}");
            assert!(!is_pods_root(name.as_bytes()), "{name}");
        }
        assert!(!is_pods_root(b"notkubepods"));
        assert!(!is_qos(b"system.slice"));
    }
}
