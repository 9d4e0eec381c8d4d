//! The objects of a cluster, to find out what remains of an installation.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::cluster::Cluster;
use crate::error::E2eError;
use crate::wait::DEADLINE;

/// Interval at which the objects are listed.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Kind, namespace and name of all objects, cluster-scoped ones and those of all namespaces. Events
/// are left out, since they remain after their object for an hour, and so are the Leases of nodes,
/// which come some time after their node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory {
    objects: BTreeSet<String>,
}

impl Inventory {
    /// Lists all objects of the cluster.
    pub async fn take(cluster: &Cluster) -> Result<Self, E2eError> {
        let resources = ["api-resources", "--verbs=list", "--output=name"];
        let resources = cluster.kubectl(&resources).await?.succeeded()?;
        let resources: Vec<&str> = resources
            .lines()
            .filter(|name| !name.starts_with("events") && !name.ends_with(".metrics.k8s.io"))
            .collect();
        let kinds = resources.join(",");
        let list = ["get", &kinds, "--all-namespaces", "--output=json"];
        let list = cluster.kubectl(&list).await?.succeeded()?;
        let list: Value =
            serde_json::from_str(&list).map_err(|error| E2eError::Yaml(error.to_string()))?;
        let items = list.get("items").and_then(Value::as_array);
        Ok(Self {
            objects: items
                .into_iter()
                .flatten()
                .map(name)
                .filter(|name| !name.starts_with("Lease kube-node-lease/"))
                .collect(),
        })
    }

    /// Returns the objects that this one lacks.
    pub fn added_in(&self, later: &Self) -> Vec<String> {
        later.objects.difference(&self.objects).cloned().collect()
    }

    /// Waits until the cluster has no objects that this one lacks: pods and what controllers own
    /// are deleted in the background.
    pub async fn until_nothing_is_added(&self, cluster: &Cluster) -> Result<(), E2eError> {
        let began = Instant::now();
        loop {
            let added = self.added_in(&Self::take(cluster).await?);
            if added.is_empty() {
                return Ok(());
            }
            if began.elapsed() > DEADLINE {
                return Err(E2eError::Deadline {
                    what: "the objects of the cluster".to_owned(),
                    waited: DEADLINE,
                    last_seen: format!("{added:#?}"),
                });
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

fn name(object: &Value) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let text = |pointer| text(pointer).unwrap_or_default();
    format!(
        "{} {}/{}",
        text("/kind"),
        text("/metadata/namespace"),
        text("/metadata/name")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_differ_by_kind_namespace_and_name() {
        let object = |kind, namespace, named| {
            name(&json!({"kind": kind, "metadata": {"namespace": namespace, "name": named}}))
        };
        let of = |objects: &[String]| Inventory {
            objects: objects.iter().cloned().collect(),
        };
        let before = of(&[object("Pod", "a", "x")]);
        let after = of(&[object("Pod", "b", "x"), object("Lease", "a", "x")]);
        assert_eq!(before.added_in(&after), ["Lease a/x", "Pod b/x"]);
        assert!(before.added_in(&before).is_empty());
    }
}
