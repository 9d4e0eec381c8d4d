//! Pods that use a given amount of CPU and memory.

use serde_json::{Value, json};

/// A shell and the usual small programs. Every cluster has it.
const SHELL_IMAGE: &str = "kubevitals.test/busybox:1";

/// Burns all CPU that its limit allows, and holds `HOLD_BYTES` of memory. Every cluster has it.
const BURNER_IMAGE: &str = "kubevitals.test/burner:1";

/// A pod with a known usage, to which measured usage is compared.
///
/// Its one container is named `burner`. CPU is burnt in an endless loop under a limit, so the
/// kernel's own accounting keeps it at that amount. Memory is held as pages that were all written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Burner {
    name: String,
    cpu_millicores: Option<u32>,
    held_mebibytes: u64,
}

impl Burner {
    /// A pod that does nothing.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            cpu_millicores: None,
            held_mebibytes: 0,
        }
    }

    /// Burns this much CPU all the time.
    #[must_use]
    pub fn cpu_millicores(mut self, millicores: u32) -> Self {
        self.cpu_millicores = Some(millicores);
        self
    }

    /// Holds this much memory.
    #[must_use]
    pub fn memory_mebibytes(mut self, mebibytes: u64) -> Self {
        self.held_mebibytes = mebibytes;
        self
    }

    /// Returns the manifest of the pod.
    pub fn pod(&self) -> Value {
        // Requested as well as limited: on a busy machine it must also get its share.
        let (burn, cpu) = match self.cpu_millicores {
            Some(millicores) => ("yes", json!({"cpu": format!("{millicores}m")})),
            None => ("no", json!({})),
        };
        let held = self.held_mebibytes << 20;
        let container = json!({
            "name": "burner",
            "image": BURNER_IMAGE,
            "imagePullPolicy": "Never",
            "env": [
                {"name": "BURN", "value": burn},
                {"name": "HOLD_BYTES", "value": held.to_string()},
            ],
            "resources": {"requests": cpu, "limits": cpu},
        });
        pod(&self.name, "Always", &container)
    }

    /// A pod that runs a shell script once, to its end.
    pub fn script(name: &str, script: &str) -> Value {
        let container = json!({
            "name": "script",
            "image": SHELL_IMAGE,
            "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", script],
        });
        pod(name, "Never", &container)
    }
}

/// Returns a pod without a grace period.
fn pod(name: &str, restart_policy: &str, container: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "restartPolicy": restart_policy,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burnt_cpu_is_both_requested_and_limited() {
        let burner = Burner::new("b")
            .cpu_millicores(200)
            .memory_mebibytes(64)
            .pod();
        let container = &burner["spec"]["containers"][0];
        for amount in ["requests", "limits"] {
            assert_eq!(container["resources"][amount], json!({"cpu": "200m"}));
        }
        assert_eq!(container["env"][0]["value"], "yes");
        assert_eq!(container["env"][1]["value"], "67108864");
        let idle = Burner::new("i").pod();
        assert_eq!(idle["spec"]["containers"][0]["env"][0]["value"], "no");
    }
}
