//! What a pod asks for that cannot be given here: such a pod fails at once, with the reason.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};
use kubevitals_virtual_node::RuntimeError;

use crate::environment::Identity;
use crate::state::containers;

/// What this process may do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Powers {
    pub uid: u32,
    pub is_root: bool,
}

impl Powers {
    pub(crate) fn own() -> Self {
        let uid = rustix::process::geteuid();
        Self {
            uid: uid.as_raw(),
            is_root: uid.is_root(),
        }
    }
}

/// Rejects a pod that cannot run here, and never will.
pub(crate) fn admit(pod: &Pod, powers: Powers) -> Result<(), RuntimeError> {
    let Some(spec) = &pod.spec else {
        return Err(reject("InvalidPod", "the pod has no spec".to_owned()));
    };
    admit_pod(spec)?;
    for volume in spec.volumes.iter().flatten() {
        admit_volume(volume)?;
    }
    for (_, container) in containers(pod) {
        admit_container(pod, container, powers)?;
    }
    Ok(())
}

fn admit_pod(spec: &PodSpec) -> Result<(), RuntimeError> {
    let unsupported = |what: &str| {
        Err(reject(
            "PodFeatureNotSupported",
            format!("pods as processes do not support {what}"),
        ))
    };
    if spec.containers.is_empty() {
        return Err(reject("InvalidPod", "the pod has no containers".to_owned()));
    }
    if spec.runtime_class_name.is_some() {
        return unsupported("spec.runtimeClassName");
    }
    if spec.host_users == Some(false) {
        return unsupported("user namespaces (spec.hostUsers: false)");
    }
    if spec.os.as_ref().is_some_and(|os| os.name != "linux") {
        return unsupported("operating systems other than linux");
    }
    if spec
        .resource_claims
        .as_ref()
        .is_some_and(|one| !one.is_empty())
    {
        return unsupported("spec.resourceClaims");
    }
    let shared = spec.security_context.as_ref();
    if shared.is_some_and(|one| one.se_linux_options.is_some()) {
        return unsupported("seLinuxOptions");
    }
    if shared.is_some_and(|one| one.sysctls.as_ref().is_some_and(|all| !all.is_empty())) {
        return unsupported("sysctls: they would be those of the host");
    }
    Ok(())
}

fn admit_container(pod: &Pod, container: &Container, powers: Powers) -> Result<(), RuntimeError> {
    let name = &container.name;
    if container.command.as_ref().is_none_or(Vec::is_empty) {
        return Err(reject(
            "ImageNotSupported",
            format!(
                "container {name:?} has no command: pods run as processes of this host, without \
                 images, so the command of the image {:?} is not known",
                container.image.as_deref().unwrap_or_default()
            ),
        ));
    }
    let unsupported = |what: String| {
        let message = format!("container {name:?}: {what}");
        Err(reject("SecurityContextNotSupported", message))
    };
    if container
        .volume_devices
        .as_ref()
        .is_some_and(|one| !one.is_empty())
    {
        return Err(reject(
            "VolumeNotSupported",
            format!("container {name:?}: volumeDevices are not supported"),
        ));
    }
    for mount in container.volume_mounts.iter().flatten() {
        if mount
            .mount_propagation
            .as_deref()
            .is_some_and(|one| one != "None")
        {
            return Err(reject(
                "VolumeNotSupported",
                format!(
                    "container {name:?}: mountPropagation of {:?} is not supported",
                    mount.name
                ),
            ));
        }
    }
    let context = container.security_context.as_ref();
    let identity = Identity::of(pod, container);
    let uid = identity.uid.unwrap_or(powers.uid);
    if !powers.is_root {
        if uid != powers.uid || identity.groups.as_ref().is_some_and(|one| !one.is_empty()) {
            return unsupported("runAsUser and groups need a node that runs as root".to_owned());
        }
        if context.is_some_and(|one| one.privileged == Some(true)) {
            return unsupported("privileged needs a node that runs as root".to_owned());
        }
    }
    let shared = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.security_context.as_ref());
    let non_root = context
        .and_then(|one| one.run_as_non_root)
        .or_else(|| shared.and_then(|one| one.run_as_non_root));
    if non_root == Some(true) && uid == 0 {
        return unsupported("runAsNonRoot is set and the user is root: set runAsUser".to_owned());
    }
    let Some(context) = context else {
        return Ok(());
    };
    if context.se_linux_options.is_some() || context.windows_options.is_some() {
        return unsupported("seLinuxOptions and windowsOptions are not supported".to_owned());
    }
    let is_local = |kind: &str| kind == "Localhost";
    if context
        .seccomp_profile
        .as_ref()
        .is_some_and(|one| is_local(&one.type_))
        || context
            .app_armor_profile
            .as_ref()
            .is_some_and(|one| is_local(&one.type_))
    {
        return unsupported("Localhost profiles are not supported".to_owned());
    }
    Ok(())
}

fn admit_volume(volume: &Volume) -> Result<(), RuntimeError> {
    let is_supported = volume.empty_dir.is_some()
        || volume.host_path.is_some()
        || volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some();
    let projected = volume
        .projected
        .iter()
        .flat_map(|one| one.sources.iter().flatten());
    for source in projected {
        if source.cluster_trust_bundle.is_some() || source.pod_certificate.is_some() {
            let message = format!(
                "volume {:?}: clusterTrustBundle and podCertificate are not supported",
                volume.name
            );
            return Err(reject("VolumeNotSupported", message));
        }
    }
    if is_supported {
        return Ok(());
    }
    let kind = serde_json::to_value(volume)
        .ok()
        .and_then(|value| {
            let map = value.as_object()?;
            map.keys().find(|key| *key != "name").cloned()
        })
        .unwrap_or_else(|| "unknown".to_owned());
    Err(reject(
        "VolumeNotSupported",
        format!(
            "volume {:?} is of type {kind}: supported are emptyDir, hostPath, configMap, secret, \
             downwardAPI and projected",
            volume.name
        ),
    ))
}

fn reject(reason: &'static str, message: String) -> RuntimeError {
    RuntimeError::Rejected { reason, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(spec: &serde_json::Value, powers: Powers) -> Option<(&'static str, String)> {
        let pod = serde_json::from_value(serde_json::json!({"spec": spec})).expect("a pod");
        match admit(&pod, powers) {
            Ok(()) => None,
            Err(RuntimeError::Rejected { reason, message }) => Some((reason, message)),
            Err(other) => panic!("not a rejection: {other}"),
        }
    }

    #[test]
    fn what_cannot_be_given_is_rejected_with_a_reason() {
        let root = Powers {
            uid: 0,
            is_root: true,
        };
        let user = Powers {
            uid: 1000,
            is_root: false,
        };
        let sh = serde_json::json!(["/bin/sh"]);
        let one = |extra: serde_json::Value| {
            let mut container = serde_json::json!({"name": "c", "command": sh});
            for (key, value) in extra.as_object().expect("an object") {
                container[key] = value.clone();
            }
            serde_json::json!({"containers": [container]})
        };
        let ok = one(serde_json::json!({}));
        assert_eq!(verdict(&ok, root), None);
        assert_eq!(verdict(&ok, user), None);
        let image_only =
            serde_json::json!({"containers": [{"name": "c", "image": "nginx", "args": ["x"]}]});
        let (reason, message) = verdict(&image_only, root).expect("rejected");
        assert_eq!(reason, "ImageNotSupported");
        assert!(message.contains("\"nginx\""), "{message}");
        let mut claim = ok.clone();
        claim["volumes"] =
            serde_json::json!([{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]);
        let (reason, message) = verdict(&claim, root).expect("rejected");
        assert_eq!(reason, "VolumeNotSupported");
        assert!(message.contains("persistentVolumeClaim"), "{message}");
        let other_user = one(serde_json::json!({"securityContext": {"runAsUser": 1001}}));
        assert_eq!(verdict(&other_user, root), None);
        assert_eq!(
            verdict(&other_user, user).expect("rejected").0,
            "SecurityContextNotSupported"
        );
        let non_root = one(serde_json::json!({"securityContext": {"runAsNonRoot": true}}));
        assert!(verdict(&non_root, root).is_some());
        assert_eq!(verdict(&non_root, user), None);
        let privileged = one(serde_json::json!({"securityContext": {"privileged": true}}));
        assert_eq!(verdict(&privileged, root), None);
        assert!(verdict(&privileged, user).is_some());
        let mut class = ok;
        class["runtimeClassName"] = serde_json::json!("gvisor");
        assert!(verdict(&class, root).is_some());
    }
}
