//! From the specification of a container to what its shim runs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::context::PodContext;
use crate::environment::{self, Identity, Variables};
use crate::error::ProcessError;
use crate::resources::{Limits, oom_score_adj};
use crate::shim::record::{LAUNCH_FILE, Launch, LogPlan, MountPlan, write_record};
use crate::volumes;

/// Where programs write why they ended.
pub(crate) const TERMINATION_LOG: &str = "termination-log";
pub(crate) const DEFAULT_TERMINATION_PATH: &str = "/dev/termination-log";

/// Builds the launch configuration of an instance. Fails with `Config` if something is missing that
/// may still come.
pub(crate) async fn launch(
    context: &PodContext,
    pod: &Pod,
    container: &Container,
    id: &str,
    attempt: u32,
) -> Result<Launch, ProcessError> {
    let config = &context.config;
    let folder = context.instance_folder(id);
    let mut extra = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let name = variable_name(&mount.name);
        let path = if config.mount_volumes {
            PathBuf::from(&mount.mount_path)
        } else {
            let path = volumes::location(&context.id, pod, &mount.name, config).unwrap_or_default();
            path.join(mount.sub_path.as_deref().unwrap_or_default())
        };
        extra.push((name, path.display().to_string()));
    }
    let termination_path = container
        .termination_message_path
        .as_deref()
        .unwrap_or(DEFAULT_TERMINATION_PATH);
    let shown = if config.mount_volumes {
        termination_path.to_owned()
    } else {
        folder.join(TERMINATION_LOG).display().to_string()
    };
    extra.push(("KUBEVITALS_TERMINATION_LOG".to_owned(), shown));
    let variables =
        environment::variables(pod, container, context.inputs.as_ref(), config, extra).await?;
    let mut mounts = Vec::new();
    if config.mount_volumes {
        mounts = volume_mounts(context, pod, container, &variables)?;
        mounts.push(MountPlan {
            source: folder.join(TERMINATION_LOG),
            target: PathBuf::from(termination_path),
            read_only: false,
        });
    }
    let security = container.security_context.as_ref();
    let identity = Identity::of(pod, container);
    let uid = context.id.uid.to_string();
    let cgroups = context.cgroups.as_ref();
    let drop = security.and_then(|one| one.capabilities.as_ref()?.drop.clone());
    Ok(Launch {
        id: id.to_owned(),
        command: environment::command(container, &variables),
        cwd: environment::working_dir(container, &variables),
        env: variables.into_pairs(),
        uid: identity.uid,
        gid: identity.gid,
        groups: identity.groups,
        oom_score_adj: Some(oom_score_adj(pod, container, config.memory_bytes)),
        no_new_privileges: security
            .is_some_and(|one| one.allow_privilege_escalation == Some(false)),
        drop_capabilities: drop.unwrap_or_default(),
        cgroup: cgroups.map(|one| one.container(&uid, id)),
        shim_cgroup: cgroups.map(|one| one.shims()),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        log: Some(LogPlan {
            folder: context.log_folder().join(&container.name),
            instance: attempt,
            max_bytes: config.log_max_bytes,
            max_files: config.log_max_files,
        }),
        mounts,
        scratch: folder.join("root"),
        ..Launch::default()
    })
}

/// Creates the folder and the cgroup of an instance.
pub(crate) fn create(
    context: &PodContext,
    pod: &Pod,
    container: &Container,
    launch: &Launch,
) -> Result<PathBuf, ProcessError> {
    let folder = context.instance_folder(&launch.id);
    fs::create_dir_all(folder.join("root")).map_err(ProcessError::file("create", &folder))?;
    let termination = folder.join(TERMINATION_LOG);
    let make = || {
        fs::File::create(&termination)?;
        fs::set_permissions(&termination, fs::Permissions::from_mode(0o666))
    };
    make().map_err(ProcessError::file("create", &termination))?;
    prune_logs(context, launch);
    if let (Some(cgroups), Some(cgroup), Some(spec)) = (&context.cgroups, &launch.cgroup, &pod.spec)
    {
        let uid = context.id.uid.to_string();
        let in_cgroup = |error| ProcessError::Shim {
            container: container.name.clone(),
            message: format!("create cgroup: {error}"),
        };
        let max_pids = context.config.max_pids;
        cgroups
            .pod(&uid)
            .create(&Limits::of_pod(spec, max_pids), true)
            .map_err(in_cgroup)?;
        let in_cgroup = |error| ProcessError::Shim {
            container: container.name.clone(),
            message: format!("create cgroup: {error}"),
        };
        cgroup
            .create(&Limits::of_container(container, max_pids), false)
            .map_err(in_cgroup)?;
    }
    let path = folder.join(LAUNCH_FILE);
    write_record(&path, launch, false).map_err(ProcessError::file("write", &path))?;
    Ok(folder)
}

/// Keeps the log of the previous instance, and removes those before.
fn prune_logs(context: &PodContext, launch: &Launch) {
    let Some(log) = &launch.log else {
        return;
    };
    let number = |path: &Path| -> Option<u32> {
        path.file_name()?.to_str()?.split('.').next()?.parse().ok()
    };
    for entry in fs::read_dir(&log.folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if number(&path).is_some_and(|one| one + 1 < log.instance)
            && let Err(error) = fs::remove_file(&path)
        {
            tracing::warn!(pod = %context.display(), path = %path.display(), %error, "cannot remove an old log");
        }
    }
}

fn volume_mounts(
    context: &PodContext,
    pod: &Pod,
    container: &Container,
    variables: &Variables,
) -> Result<Vec<MountPlan>, ProcessError> {
    let mut plans = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let failed = |message: String| {
            ProcessError::Config(format!("volume mount {:?}: {message}", mount.name))
        };
        let mut source = volumes::location(&context.id, pod, &mount.name, &context.config)
            .ok_or_else(|| failed("there is no such volume".to_owned()))?;
        let expression = mount
            .sub_path_expr
            .as_deref()
            .map(|one| variables.expand(one));
        if let Some(sub_path) = expression.as_deref().or(mount.sub_path.as_deref())
            && !sub_path.is_empty()
        {
            source =
                volumes::sub_path(&source, sub_path).map_err(|error| failed(error.to_string()))?;
        }
        plans.push(MountPlan {
            source,
            target: PathBuf::from(&mount.mount_path),
            read_only: mount.read_only == Some(true),
        });
    }
    Ok(plans)
}

/// `KUBEVITALS_MOUNT_MY_VOLUME` for `my-volume`.
fn variable_name(volume: &str) -> String {
    let name: String = volume
        .chars()
        .map(|one| {
            if one.is_ascii_alphanumeric() {
                one.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect();
    format!("KUBEVITALS_MOUNT_{name}")
}
