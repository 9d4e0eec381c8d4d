//! What a pod belongs to, in the words of whoever deployed it.

use kubevitals_model::{OwnerReference, Pod};

/// The labels that controllers put on pods to tell the revisions of a template apart.
const TEMPLATE_HASH: &str = "pod-template-hash";
const ROLLOUT_HASH: &str = "rollouts-pod-template-hash";

/// A name that a `CronJob` gave ends in the minute of its schedule, which is at most so long before
/// the pod was created.
const MAX_DELAY_MINUTES: i64 = 366 * 24 * 60;

/// What a pod belongs to: what was deployed rather than the object between, so that it outlives a
/// revision or a run.
///
/// It is told by the pod alone. A `Deployment` is known by the template's hash in the name of its
/// `ReplicaSet`, a `CronJob` by the minute in the name of its Job, a static pod by the name of its
/// node in its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload<'p> {
    /// Its kind, as the API spells it, or `StaticPod`.
    pub kind: &'p str,
    /// Its name.
    pub name: &'p str,
}

impl<'p> Workload<'p> {
    /// The workload of a pod; none if nothing owns it.
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

    /// The `Deployment` of a pod.
    pub fn deployment_of(pod: &'p Pod) -> Option<&'p str> {
        deployment(pod, owner(pod)?).map(|found| found.name)
    }
}

/// Who owns a pod: its controller, or else whoever is named first.
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

/// A user's own Job may end in digits too, in a date for one: only a minute shortly before the pod
/// was created counts.
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

/// Its kubelet adds the name of the node to that of the file.
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
    fn what_was_deployed_is_told_rather_than_what_stands_between() {
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
    fn a_name_that_only_looks_made_is_left_as_it_is() {
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
    fn runs_of_a_cron_job_are_one_workload() {
        let minute = 1_794_808_830 / 60;
        for delay in [0, 1, 5, 60 * 24] {
            let name = format!("backup-{}", minute - delay);
            check(&pod("p", "", ("Job", &name)), "CronJob", "backup");
        }
    }
}
