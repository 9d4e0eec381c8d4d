//! The workload of a pod, as it was deployed.

use kubevitals_model::{OwnerReference, Pod};

/// The labels of controllers for the revision of a template.
const TEMPLATE_HASH: &str = "pod-template-hash";
const ROLLOUT_HASH: &str = "rollouts-pod-template-hash";

/// The name of a `CronJob`'s Job ends in the minute of its schedule, at most this long before the
/// pod was created.
const MAX_DELAY_MINUTES: i64 = 366 * 24 * 60;

/// Kinds whose names last. Objects of all other kinds may be runs: ad-hoc Jobs, Workflows,
/// `TaskRun`s, `EphemeralRunner`s, with a new name each time.
const LASTING_KINDS: [&str; 9] = [
    "CloneSet",
    "CronJob",
    "DaemonSet",
    "Deployment",
    "ReplicaSet",
    "ReplicationController",
    "Rollout",
    "StatefulSet",
    "StaticPod",
];

/// Labels of controllers for the template of a run.
const TEMPLATE_LABELS: [&str; 3] = [
    "actions.github.com/scale-set-name",
    "tekton.dev/pipeline",
    "tekton.dev/task",
];

/// The alphabet of the suffix that the API server appends to `generateName`, and its length.
const SUFFIX_ALPHABET: &str = "bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

/// The object that was deployed, rather than the one in between, so that it outlives a revision or
/// a run.
///
/// It is derived from the pod alone: a `Deployment` from the template's hash in the name of its
/// `ReplicaSet`, a `CronJob` from the minute in the name of its Job, a static pod from the name of
/// its node in its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload<'p> {
    /// The kind, as in the API, or `StaticPod`.
    pub kind: &'p str,
    pub name: &'p str,
}

impl<'p> Workload<'p> {
    /// Returns the workload of a pod; `None` if it has no owner.
    pub fn of(pod: &'p Pod) -> Option<Self> {
        let owner = owner(pod)?;
        let found = match &*owner.kind {
            "ReplicaSet" => {
                deployment(pod, owner).or_else(|| hashed(pod, owner, ROLLOUT_HASH, "Rollout"))
            }
            "Job" => cron_job(pod, owner),
            "Node" => static_pod(pod, owner),
            _ => None,
        };
        Some(found.unwrap_or(Self {
            kind: &owner.kind,
            name: &owner.name,
        }))
    }

    /// Returns the workload of a pod under a name that its next run has too, for labels that last;
    /// `None` if it has no owner.
    ///
    /// A run has the name of its template: from a label of its controller, or its own name up to
    /// the first part that looks generated. The name is empty if nothing is left of it.
    pub fn template_of(pod: &'p Pod) -> Option<Self> {
        let workload = Self::of(pod)?;
        if LASTING_KINDS.contains(&workload.kind) {
            return Some(workload);
        }
        let label = TEMPLATE_LABELS
            .iter()
            .find_map(|key| pod.summary.labels.get(key));
        let name = label.map_or_else(|| stem(workload.name), AsRef::as_ref);
        Some(Self { name, ..workload })
    }

    /// The `CronJob` of a pod.
    pub fn cron_job_of(pod: &'p Pod) -> Option<&'p str> {
        let owner = owner(pod).filter(|owner| &*owner.kind == "Job")?;
        cron_job(pod, owner).map(|found| found.name)
    }

    /// The `Deployment` of a pod.
    pub fn deployment_of(pod: &'p Pod) -> Option<&'p str> {
        deployment(pod, owner(pod)?).map(|found| found.name)
    }
}

/// The owner of a pod: its controller, or else the first owner.
pub fn owner(pod: &Pod) -> Option<&OwnerReference> {
    pod.meta.controller().or(pod.meta.owners.first())
}

fn deployment<'p>(pod: &'p Pod, owner: &'p OwnerReference) -> Option<Workload<'p>> {
    hashed(pod, owner, TEMPLATE_HASH, "Deployment").filter(|_| &*owner.kind == "ReplicaSet")
}

fn hashed<'p>(
    pod: &'p Pod,
    owner: &'p OwnerReference,
    label: &str,
    kind: &'static str,
) -> Option<Workload<'p>> {
    let hash = pod.summary.labels.get(label)?;
    let name = owner.name.strip_suffix(&**hash)?.strip_suffix('-')?;
    (!name.is_empty()).then_some(Workload { kind, name })
}

/// The name of a user's Job may end in digits too, such as a date: only a minute shortly before the
/// pod was created counts.
fn cron_job<'p>(pod: &'p Pod, owner: &'p OwnerReference) -> Option<Workload<'p>> {
    let (name, digits) = owner.name.rsplit_once('-')?;
    let minute: i64 = digits.parse().ok()?;
    let created = pod.meta.created?.unix_seconds().div_euclid(60);
    let delay = created.checked_sub(minute)?;
    let is_minute = digits.bytes().all(|byte| byte.is_ascii_digit())
        && (-1..=MAX_DELAY_MINUTES).contains(&delay);
    (is_minute && !name.is_empty()).then_some(Workload {
        kind: "CronJob",
        name,
    })
}

/// The part of a name before the first word that looks generated: a number, a date, a hash, or the
/// suffix of the API server.
fn stem(name: &str) -> &str {
    let mut at = 0_usize;
    for word in name.split('-') {
        if is_generated(word) {
            // Of `job1234` alone the letters are left.
            let letters = || word.find(|letter: char| letter.is_ascii_digit());
            let end = at.checked_sub(1).or_else(letters).unwrap_or(0);
            return name.get(..end).unwrap_or_default();
        }
        at += word.len() + 1;
    }
    name
}

/// Names such as `s3` and `v2` have one digit, those of runs more, or are longer.
fn is_generated(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let is_number = digits == word.len();
    let is_hash = digits >= 2 || (digits == 1 && word.len() >= 6);
    let is_suffix =
        word.len() == SUFFIX_LENGTH && word.chars().all(|one| SUFFIX_ALPHABET.contains(one));
    is_number || is_hash || is_suffix
}

/// The kubelet appends the name of the node to that of the manifest.
fn static_pod<'p>(pod: &'p Pod, owner: &'p OwnerReference) -> Option<Workload<'p>> {
    let name = pod.summary.identity.name.strip_suffix(&*owner.name)?;
    let name = name.strip_suffix('-').filter(|name| !name.is_empty())?;
    Some(Workload {
        kind: "StaticPod",
        name,
    })
}

#[cfg(test)]
mod tests {
    use kubevitals_watch::{Decoder, decode_object};

    use super::*;

    fn pod(name: &str, labels: &str, owner: (&str, &str)) -> Pod {
        let text = format!(
            r#"{{"metadata": {{"name": "{name}", "namespace": "a", "uid": "00000000-0000-4000-8000-000000000001",
                "resourceVersion": "1", "creationTimestamp": "2026-11-16T06:00:30Z", "labels": {{{labels}}},
                "ownerReferences": [{{"apiVersion": "v1", "kind": "{}", "name": "{}", "uid": "u", "controller": true}}]}},
               "spec": {{}}, "status": {{}}}}"#,
            owner.0, owner.1
        );
        decode_object(text.as_bytes(), &Decoder::default()).unwrap()
    }

    #[track_caller]
    fn check(pod: &Pod, kind: &str, name: &str) {
        assert_eq!(Workload::of(pod), Some(Workload { kind, name }));
    }

    #[test]
    fn the_deployed_object_is_the_workload() {
        let hash = r#""pod-template-hash": "7d4b""#;
        let deployed = pod("web-7d4b-x", hash, ("ReplicaSet", "web-7d4b"));
        check(&deployed, "Deployment", "web");
        assert_eq!(Workload::deployment_of(&deployed), Some("web"));
        let rollout = r#""rollouts-pod-template-hash": "5c""#;
        let rolled = pod("web-5c-x", rollout, ("ReplicaSet", "web-5c"));
        check(&rolled, "Rollout", "web");
        assert_eq!(Workload::deployment_of(&rolled), None);
        check(&pod("a-x", "", ("StatefulSet", "a")), "StatefulSet", "a");
        check(
            &pod("kube-proxy-real-1", "", ("Node", "real-1")),
            "StaticPod",
            "kube-proxy",
        );
    }

    #[test]
    fn a_name_that_only_looks_generated_is_kept() {
        let hash = r#""pod-template-hash": "7d4b""#;
        for (owner, labels) in [
            (("ReplicaSet", "web"), hash),
            (("ReplicaSet", "7d4b"), hash),
            (("ReplicaSet", "-7d4b"), hash),
            (("ReplicaSet", "web-7d4b"), ""),
            (("StatefulSet", "web-7d4b"), hash),
            (("Node", "elsewhere"), ""),
            // 2026-11-16 as a date, a minute that is yet to come, one of long ago, and a sign.
            (("Job", "backup-20261116"), ""),
            (("Job", "backup-29913490"), ""),
            (("Job", "backup-29000000"), ""),
            (("Job", "backup-+29913400"), ""),
            (("Job", "-29913400"), ""),
            (("Job", "backup"), ""),
        ] {
            let pod = pod("some-pod", labels, owner);
            check(&pod, owner.0, owner.1);
            assert_eq!(Workload::deployment_of(&pod), None);
        }
    }

    #[test]
    fn runs_have_the_name_of_their_template() {
        for (kind, owner, template) in [
            ("Job", "import-x7kq2", "import"),
            ("Job", "import-bcdfg", "import"),
            ("Job", "import-daily-20261116-1", "import-daily"),
            ("Job", "job-550e8400-e29b-41d4-a716-446655440000", "job"),
            ("Job", "load-deadbeef1", "load"),
            ("Job", "batch1234", "batch"),
            ("Job", "1234", ""),
            ("Job", "20261116-import", ""),
            ("Job", "db-migrate", "db-migrate"),
            ("Job", "s3-sync", "s3-sync"),
            ("Job", "etl-v2-load", "etl-v2-load"),
            ("Workflow", "nightly-build-7zq4m", "nightly-build"),
            ("TaskRun", "lint-run-9f8hd", "lint-run"),
            ("EphemeralRunner", "arc-set-4h2jk-runner-8sz6w", "arc-set"),
            ("Pod", "spark-driver-1f3b9c8d", "spark-driver"),
            // Names that last are kept, whatever they look like.
            ("StatefulSet", "kafka-2026-11", "kafka-2026-11"),
            ("DaemonSet", "gpu-bcdfg", "gpu-bcdfg"),
            ("ReplicaSet", "web-12345", "web-12345"),
        ] {
            let pod = pod("p", "", (kind, owner));
            let found = Workload::template_of(&pod).unwrap();
            assert_eq!((found.kind, found.name), (kind, template), "{owner}");
        }
        let labels = r#""tekton.dev/task": "git-clone""#;
        let run = pod("p", labels, ("TaskRun", "git-clone-and-more-x7kq2"));
        let found = Workload::template_of(&run).unwrap();
        assert_eq!((found.kind, found.name), ("TaskRun", "git-clone"));
    }

    #[test]
    fn runs_of_a_cron_job_are_one_workload() {
        let minute = 1_794_808_830 / 60;
        for delay in [0, 1, 5, 60 * 24] {
            let name = format!("backup-{}", minute - delay);
            let run = pod("p", "", ("Job", &name));
            check(&run, "CronJob", "backup");
            assert_eq!(Workload::template_of(&run), Workload::of(&run));
            assert_eq!(Workload::cron_job_of(&run), Some("backup"));
        }
    }
}
