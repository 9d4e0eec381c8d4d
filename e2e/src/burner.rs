//! Pods that use a stated amount of CPU and hold a stated amount of memory.

use serde_json::{Value, json};

/// The image: a shell and the usual small programs, imported into every cluster.
const IMAGE: &str = "kubevitals.test/busybox";

/// Where the held memory is: a file of this kind of volume is memory of the container that wrote it.
const HELD: &str = "/held";

/// A pod that burns what it is told: the truth that measured usage is compared with.
///
/// Its one container is named `burner`. CPU is burnt in an endless loop under a limit, so the kernel's own accounting keeps it
/// at that amount. Memory is held as pages that were all written before the pod is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Burner {
    name: String,
    cpu_millicores: Option<u32>,
    held_mebibytes: u32,
}

impl Burner {
    /// A pod that does nothing until it is told more.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            cpu_millicores: None,
            held_mebibytes: 0,
        }
    }

    /// Burns so many thousandths of a core, all the time.
    #[must_use]
    pub fn cpu_millicores(mut self, millicores: u32) -> Self {
        self.cpu_millicores = Some(millicores);
        self
    }

    /// Holds so much memory.
    #[must_use]
    pub fn memory_mebibytes(mut self, mebibytes: u32) -> Self {
        self.held_mebibytes = mebibytes;
        self
    }

    /// The pod, as a manifest.
    pub fn pod(&self) -> Value {
        let held = self.held_mebibytes;
        let fill = format!(
            "dd if=/dev/zero of={HELD}/pages bs=1048576 count={held} 2>/dev/null; touch {HELD}/ready"
        );
        let burn = match self.cpu_millicores {
            Some(_) => "while :; do :; done",
            None => "while :; do sleep 3600 & wait; done",
        };
        let limits = match self.cpu_millicores {
            Some(millicores) => json!({"cpu": format!("{millicores}m")}),
            None => json!({}),
        };
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "labels": {"app": self.name}},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "burner",
                    "image": IMAGE,
                    "imagePullPolicy": "Never",
                    "command": ["sh", "-c", format!("{fill}; {burn}")],
                    "resources": {"requests": {"cpu": "10m", "memory": "8Mi"}, "limits": limits},
                    "readinessProbe": {
                        "exec": {"command": ["test", "-e", format!("{HELD}/ready")]},
                        "periodSeconds": 1,
                    },
                    "volumeMounts": [{"name": "held", "mountPath": HELD}],
                }],
                "volumes": [{"name": "held", "emptyDir": {"medium": "Memory"}}],
            },
        })
    }

    /// A pod that runs a shell script once, to its end.
    pub fn script(name: &str, script: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "script",
                    "image": IMAGE,
                    "imagePullPolicy": "Never",
                    "command": ["sh", "-c", script],
                }],
            },
        })
    }
}
