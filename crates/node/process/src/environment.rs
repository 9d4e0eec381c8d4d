//! The environment, the command and the user of a container.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, Pod, Secret};
use kubevitals_virtual_node::runtime::PodInputs;

use crate::config::ProcessConfig;
use crate::downward;
use crate::error::ProcessError;
use crate::expand::expand;

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables in the order in which they were set; a later value replaces an earlier one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Variables(Vec<(String, String)>);

impl Variables {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(one, _)| one == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn set(&mut self, name: &str, value: String) {
        match self.0.iter_mut().find(|(one, _)| one == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    fn set_default(&mut self, name: &str, value: impl FnOnce() -> String) {
        if self.get(name).is_none() {
            self.set(name, value());
        }
    }

    pub(crate) fn into_pairs(self) -> Vec<(String, String)> {
        self.0
    }

    /// Expands a text by these variables.
    pub(crate) fn expand(&self, text: &str) -> String {
        expand(text, |name| self.get(name))
    }
}

/// Builds the environment of a container. `extra` are variables of the runtime, which the pod may
/// replace.
pub(crate) async fn variables(
    pod: &Pod,
    container: &Container,
    inputs: &dyn PodInputs,
    config: &ProcessConfig,
    extra: Vec<(String, String)>,
) -> Result<Variables, ProcessError> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut services = Variables::default();
    let links = pod.spec.as_ref().and_then(|spec| spec.enable_service_links);
    for (name, value) in inputs.service_environment(namespace).await? {
        // The API server's own is there without service links too.
        if links.unwrap_or(true) || name.starts_with("KUBERNETES_") {
            services.set(&name, value);
        }
    }
    let mut found = Variables::default();
    for (name, value) in extra {
        found.set(&name, value);
    }
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if let Some(reference) = &source.config_map_ref {
            let map = inputs.config_map(namespace, &reference.name).await?;
            let map = required(map, reference.optional, || {
                missing("configmap", &reference.name)
            })?;
            for (key, value) in map.iter().flat_map(|one| one.data.iter().flatten()) {
                set_valid(&mut found, prefix, key, value.clone());
            }
        }
        if let Some(reference) = &source.secret_ref {
            let secret = inputs.secret(namespace, &reference.name).await?;
            let secret = required(secret, reference.optional, || {
                missing("secret", &reference.name)
            })?;
            for (key, value) in secret.iter().flat_map(|one| one.data.iter().flatten()) {
                set_valid(&mut found, prefix, key, text(&value.0)?);
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match &variable.value_from {
            None => {
                let value = variable.value.as_deref().unwrap_or_default();
                let lookup = |name: &str| found.get(name).or_else(|| services.get(name));
                Some(expand(value, lookup))
            }
            Some(source) => value_from(pod, container, namespace, source, inputs, config).await?,
        };
        if let Some(value) = value {
            found.set(&variable.name, value);
        }
    }
    for (name, value) in services.0 {
        found.set_default(&name, || value);
    }
    found.set_default("PATH", || DEFAULT_PATH.to_owned());
    found.set_default("HOSTNAME", || hostname(pod));
    found.set_default("HOME", || home(Identity::of(pod, container).uid));
    Ok(found)
}

async fn value_from(
    pod: &Pod,
    container: &Container,
    namespace: &str,
    source: &EnvVarSource,
    inputs: &dyn PodInputs,
    config: &ProcessConfig,
) -> Result<Option<String>, ProcessError> {
    if let Some(field) = &source.field_ref {
        return downward::field(pod, &field.field_path, config).map(Some);
    }
    if let Some(selector) = &source.resource_field_ref {
        return downward::resource(pod, &container.name, selector, config).map(Some);
    }
    if let Some(selector) = &source.config_map_key_ref {
        let map = inputs.config_map(namespace, &selector.name).await?;
        let map = required(map, selector.optional, || {
            missing("configmap", &selector.name)
        })?;
        let Some(map) = map else {
            return Ok(None);
        };
        let value = config_map_value(&map, &selector.key)
            .map(|one| text(&one))
            .transpose()?;
        return required(value, selector.optional, || {
            let (key, name) = (&selector.key, &selector.name);
            format!("couldn't find key {key} in ConfigMap {namespace}/{name}")
        });
    }
    if let Some(selector) = &source.secret_key_ref {
        let secret = inputs.secret(namespace, &selector.name).await?;
        let secret = required(secret, selector.optional, || {
            missing("secret", &selector.name)
        })?;
        let Some(secret) = secret else {
            return Ok(None);
        };
        let value = secret_value(&secret, &selector.key)
            .map(|one| text(&one))
            .transpose()?;
        return required(value, selector.optional, || {
            let (key, name) = (&selector.key, &selector.name);
            format!("couldn't find key {key} in Secret {namespace}/{name}")
        });
    }
    Err(ProcessError::Config(
        "unsupported source of a variable".to_owned(),
    ))
}

/// The program and its arguments.
pub(crate) fn command(container: &Container, variables: &Variables) -> Vec<String> {
    let command = container.command.iter().flatten();
    let args = container.args.iter().flatten();
    command
        .chain(args)
        .map(|one| variables.expand(one))
        .collect()
}

/// A value of a ConfigMap, text or binary.
pub(crate) fn config_map_value(map: &ConfigMap, key: &str) -> Option<Vec<u8>> {
    let value = map.data.as_ref().and_then(|data| data.get(key));
    value.map(|one| one.clone().into_bytes()).or_else(|| {
        let binary = map.binary_data.as_ref()?;
        binary.get(key).map(|one| one.0.clone())
    })
}

/// A value of a Secret.
pub(crate) fn secret_value(secret: &Secret, key: &str) -> Option<Vec<u8>> {
    secret.data.as_ref()?.get(key).map(|one| one.0.clone())
}

/// Who a container runs as. `None` is the user of the runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub groups: Option<Vec<u32>>,
}

impl Identity {
    pub(crate) fn of(pod: &Pod, container: &Container) -> Self {
        let own = container.security_context.as_ref();
        let shared = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.security_context.as_ref());
        let id = |value: Option<i64>| value.and_then(|one| u32::try_from(one).ok());
        let uid = own
            .and_then(|one| one.run_as_user)
            .or_else(|| shared?.run_as_user);
        let gid = own
            .and_then(|one| one.run_as_group)
            .or_else(|| shared?.run_as_group);
        let mut groups: Vec<u32> = shared
            .into_iter()
            .flat_map(|one| one.supplemental_groups.iter().flatten())
            .filter_map(|one| u32::try_from(*one).ok())
            .collect();
        groups.extend(id(shared.and_then(|one| one.fs_group)));
        Self {
            uid: id(uid),
            // A user without a group has group 0, as in a container without a passwd file.
            gid: id(gid).or_else(|| uid.map(|_| 0)),
            groups: (uid.is_some() || !groups.is_empty()).then_some(groups),
        }
    }
}

/// The working directory: the root, unless the container has one.
pub(crate) fn working_dir(container: &Container, variables: &Variables) -> PathBuf {
    let path = container.working_dir.as_deref().unwrap_or("/");
    PathBuf::from(variables.expand(path))
}

fn hostname(pod: &Pod) -> String {
    let own = pod.spec.as_ref().and_then(|spec| spec.hostname.clone());
    own.or_else(|| pod.metadata.name.clone())
        .unwrap_or_default()
}

/// The home folder of a user, by the host's passwd file.
fn home(uid: Option<u32>) -> String {
    let uid = uid
        .unwrap_or_else(|| rustix::process::geteuid().as_raw())
        .to_string();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.nth(2)? == uid).then(|| fields.nth(2).map(ToOwned::to_owned))?
    });
    found.unwrap_or_else(|| "/".to_owned())
}

fn required<T>(
    value: Option<T>,
    optional: Option<bool>,
    message: impl FnOnce() -> String,
) -> Result<Option<T>, ProcessError> {
    match value {
        None if optional != Some(true) => Err(ProcessError::Config(message())),
        other => Ok(other),
    }
}

fn missing(kind: &str, name: &str) -> String {
    format!("{kind} {name:?} not found")
}

/// Sets a variable unless its name cannot be one.
fn set_valid(variables: &mut Variables, prefix: &str, key: &str, value: String) {
    let name = format!("{prefix}{key}");
    if !name.is_empty() && !name.contains(['=', '\0']) {
        variables.set(&name, value);
    }
}

fn text(value: &[u8]) -> Result<String, ProcessError> {
    let text = String::from_utf8_lossy(value).into_owned();
    if text.contains('\0') {
        let message = "a value of the environment holds a NUL".to_owned();
        return Err(ProcessError::Config(message));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
