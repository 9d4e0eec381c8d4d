//! Volumes of pods: folders on this host, files from the API server.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, HostPathVolumeSource, KeyToPath, Pod, ProjectedVolumeSource, Volume,
};
use kubevitals_virtual_node::runtime::{PodId, PodInputs, TokenRequest};

use crate::config::ProcessConfig;
use crate::downward;
use crate::environment::{config_map_value, secret_value};
use crate::error::ProcessError;

const DEFAULT_MODE: u32 = 0o644;
/// All files of one volume; the API server allows 1 MiB in an object.
const MAX_PAYLOAD_BYTES: usize = 16 << 20;

/// The files of a volume by their path in it.
pub(crate) type Payload = BTreeMap<PathBuf, PayloadFile>;

/// One file of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PayloadFile {
    pub content: Vec<u8>,
    pub mode: u32,
}

/// Sets up or refreshes all volumes of a pod. Returns when tokens must be renewed.
pub(crate) async fn set_up(
    id: &PodId,
    pod: &Pod,
    inputs: &dyn PodInputs,
    config: &ProcessConfig,
) -> Result<Option<Duration>, ProcessError> {
    let mut renew: Option<Duration> = None;
    for volume in pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten())
    {
        let failed = |message: String| ProcessError::Volume {
            volume: volume.name.clone(),
            message,
        };
        let folder = folder(id, &volume.name, config);
        if volume.empty_dir.is_some() {
            empty_dir(&folder, fs_group(pod)).map_err(|error| failed(error.to_string()))?;
        } else if let Some(source) = &volume.host_path {
            host_path(source).map_err(failed)?;
        } else {
            let payload = match payload(id, pod, volume, inputs, config).await {
                Ok((payload, after)) => {
                    renew = [renew, after].into_iter().flatten().min();
                    payload
                }
                Err(ProcessError::Config(message)) => return Err(failed(message)),
                Err(error) => return Err(failed(error.to_string())),
            };
            let group = fs_group(pod);
            write_payload(&folder, &payload, group).map_err(|error| failed(error.to_string()))?;
        }
    }
    Ok(renew)
}

/// The folder of a volume that is ours.
fn folder(id: &PodId, volume: &str, config: &ProcessConfig) -> PathBuf {
    config
        .pod_folder(&id.uid.to_string())
        .join("volumes")
        .join(volume)
}

/// Where the files of a volume are on this host.
pub(crate) fn location(
    id: &PodId,
    pod: &Pod,
    name: &str,
    config: &ProcessConfig,
) -> Option<PathBuf> {
    let volumes = pod.spec.as_ref()?.volumes.as_ref()?;
    let volume = volumes.iter().find(|one| one.name == name)?;
    Some(match &volume.host_path {
        Some(source) => PathBuf::from(&source.path),
        None => folder(id, name, config),
    })
}

/// The path of a subPath in a volume, created if it is missing. A link must not lead out of it.
pub(crate) fn sub_path(volume: &Path, sub_path: &str) -> io::Result<PathBuf> {
    let relative = relative(sub_path)
        .ok_or_else(|| io::Error::other(format!("subPath {sub_path:?} leads out of its volume")))?;
    let path = volume.join(relative);
    if !path.exists() {
        fs::create_dir_all(&path)?;
    }
    let real = fs::canonicalize(&path)?;
    if real.starts_with(fs::canonicalize(volume)?) {
        Ok(real)
    } else {
        Err(io::Error::other(format!(
            "subPath {sub_path:?} leads out of its volume"
        )))
    }
}

/// A path below a folder: relative, without `..`.
fn relative(path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let is_below = path
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    (is_below && !path.as_os_str().is_empty()).then(|| path.to_owned())
}

fn empty_dir(folder: &Path, group: Option<u32>) -> io::Result<()> {
    if !folder.exists() {
        fs::create_dir_all(folder)?;
        // With a group, files in it belong to the group.
        let mode = if group.is_some() { 0o2777 } else { 0o777 };
        std::os::unix::fs::chown(folder, None, group)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn host_path(source: &HostPathVolumeSource) -> Result<(), String> {
    let path = Path::new(&source.path);
    let kind = source.type_.as_deref().unwrap_or_default();
    let found = fs::metadata(path);
    let check = |is_so: bool| {
        is_so.then_some(()).ok_or_else(|| {
            format!(
                "hostPath type check failed: {} is not a {}",
                source.path,
                describe(kind)
            )
        })
    };
    match (kind, found) {
        ("", _) => Ok(()),
        ("DirectoryOrCreate", Err(_)) => {
            fs::create_dir_all(path).map_err(|error| error.to_string())?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(|e| e.to_string())
        }
        ("FileOrCreate", Err(_)) => fs::File::create(path)
            .map(drop)
            .map_err(|error| error.to_string()),
        ("Directory" | "DirectoryOrCreate", Ok(found)) => check(found.is_dir()),
        ("File" | "FileOrCreate", Ok(found)) => check(found.is_file()),
        ("Socket", Ok(found)) => check(found.file_type().is_socket()),
        ("CharDevice", Ok(found)) => check(found.file_type().is_char_device()),
        ("BlockDevice", Ok(found)) => check(found.file_type().is_block_device()),
        _ => check(false),
    }
}

fn describe(kind: &str) -> &'static str {
    match kind {
        "Directory" | "DirectoryOrCreate" => "directory",
        "File" | "FileOrCreate" => "file",
        "Socket" => "socket file",
        "CharDevice" => "character device",
        "BlockDevice" => "block device",
        _ => "known hostPath type",
    }
}

fn fs_group(pod: &Pod) -> Option<u32> {
    let context = pod.spec.as_ref()?.security_context.as_ref()?;
    u32::try_from(context.fs_group?).ok()
}

async fn payload(
    id: &PodId,
    pod: &Pod,
    volume: &Volume,
    inputs: &dyn PodInputs,
    config: &ProcessConfig,
) -> Result<(Payload, Option<Duration>), ProcessError> {
    let namespace = id.key.namespace();
    let mut out = Payload::new();
    let mut renew = None;
    if let Some(source) = &volume.config_map {
        let files = Files::new(
            source.items.as_deref(),
            source.default_mode,
            source.optional,
        );
        config_map(&mut out, namespace, &source.name, &files, inputs).await?;
    } else if let Some(source) = &volume.secret {
        let files = Files::new(
            source.items.as_deref(),
            source.default_mode,
            source.optional,
        );
        let name = source.secret_name.as_deref().unwrap_or_default();
        secret(&mut out, namespace, name, &files, inputs).await?;
    } else if let Some(source) = &volume.downward_api {
        let mode = mode(source.default_mode, DEFAULT_MODE);
        downward_files(&mut out, pod, source.items.as_deref(), mode, config)?;
    } else if let Some(source) = &volume.projected {
        renew = projected(&mut out, id, pod, source, inputs, config).await?;
    }
    let bytes: usize = out.values().map(|one| one.content.len()).sum();
    if bytes > MAX_PAYLOAD_BYTES {
        return Err(ProcessError::Config(format!(
            "the volume has {bytes} bytes, too many"
        )));
    }
    Ok((out, renew))
}

async fn projected(
    out: &mut Payload,
    id: &PodId,
    pod: &Pod,
    projected: &ProjectedVolumeSource,
    inputs: &dyn PodInputs,
    config: &ProcessConfig,
) -> Result<Option<Duration>, ProcessError> {
    let namespace = id.key.namespace();
    let mut renew: Option<Duration> = None;
    for source in projected.sources.iter().flatten() {
        if let Some(one) = &source.config_map {
            let files = Files::new(one.items.as_deref(), projected.default_mode, one.optional);
            config_map(out, namespace, &one.name, &files, inputs).await?;
        }
        if let Some(one) = &source.secret {
            let files = Files::new(one.items.as_deref(), projected.default_mode, one.optional);
            secret(out, namespace, &one.name, &files, inputs).await?;
        }
        if let Some(one) = &source.downward_api {
            let mode = mode(projected.default_mode, DEFAULT_MODE);
            downward_files(out, pod, one.items.as_deref(), mode, config)?;
        }
        if let Some(one) = &source.service_account_token {
            let seconds = one.expiration_seconds.unwrap_or(3600);
            let account = pod
                .spec
                .as_ref()
                .and_then(|spec| spec.service_account_name.clone());
            let request = TokenRequest {
                pod: id.clone(),
                service_account: account.unwrap_or_else(|| "default".to_owned()),
                audiences: one.audience.iter().cloned().collect(),
                expiration: Duration::from_secs(u64::try_from(seconds).unwrap_or(3600)),
            };
            let token = inputs.service_account_token(request).await?;
            renew = Some(renew.map_or(token.renew_after, |one| one.min(token.renew_after)));
            // As the kubelet: with a group the token is readable to it, otherwise to its owner.
            let mode = if fs_group(pod).is_some() {
                0o640
            } else {
                token_mode(pod)
            };
            put(out, &one.path, token.token.into_bytes(), mode)?;
        }
    }
    Ok(renew)
}

/// Tokens are for the user alone, if there is none but root; else all must be able to read.
fn token_mode(pod: &Pod) -> u32 {
    let is_root = crate::state::containers(pod).all(|(_, one)| {
        crate::environment::Identity::of(pod, one)
            .uid
            .is_none_or(|uid| uid == 0)
    });
    if is_root { 0o600 } else { DEFAULT_MODE }
}

/// Which keys become files.
struct Files<'a> {
    items: Option<&'a [KeyToPath]>,
    mode: u32,
    is_optional: bool,
}

impl<'a> Files<'a> {
    fn new(items: Option<&'a [KeyToPath]>, default: Option<i32>, optional: Option<bool>) -> Self {
        Self {
            items,
            mode: mode(default, DEFAULT_MODE),
            is_optional: optional == Some(true),
        }
    }

    /// Adds the files of an object with the given keys.
    fn add(
        &self,
        out: &mut Payload,
        keys: Vec<String>,
        value: impl Fn(&str) -> Option<Vec<u8>>,
    ) -> Result<(), ProcessError> {
        match self.items {
            None | Some([]) => {
                for key in keys {
                    let content = value(&key).unwrap_or_default();
                    put(out, &key, content, self.mode)?;
                }
            }
            Some(items) => {
                for item in items {
                    match value(&item.key) {
                        Some(content) => put(out, &item.path, content, mode(item.mode, self.mode))?,
                        None if self.is_optional => {}
                        None => {
                            let message = format!("references non-existent key: {}", item.key);
                            return Err(ProcessError::Config(message));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

async fn config_map(
    out: &mut Payload,
    namespace: &str,
    name: &str,
    files: &Files<'_>,
    inputs: &dyn PodInputs,
) -> Result<(), ProcessError> {
    match inputs.config_map(namespace, name).await? {
        Some(map) => {
            let text = map.data.iter().flat_map(BTreeMap::keys);
            let binary = map.binary_data.iter().flat_map(BTreeMap::keys);
            let keys = text.chain(binary).cloned().collect();
            files.add(out, keys, |key| config_map_value(&map, key))
        }
        None if files.is_optional => Ok(()),
        None => Err(ProcessError::Config(format!(
            "configmap {name:?} not found"
        ))),
    }
}

async fn secret(
    out: &mut Payload,
    namespace: &str,
    name: &str,
    files: &Files<'_>,
    inputs: &dyn PodInputs,
) -> Result<(), ProcessError> {
    match inputs.secret(namespace, name).await? {
        Some(secret) => {
            let keys = secret
                .data
                .iter()
                .flat_map(BTreeMap::keys)
                .cloned()
                .collect();
            files.add(out, keys, |key| secret_value(&secret, key))
        }
        None if files.is_optional => Ok(()),
        None => Err(ProcessError::Config(format!("secret {name:?} not found"))),
    }
}

fn downward_files(
    out: &mut Payload,
    pod: &Pod,
    items: Option<&[DownwardAPIVolumeFile]>,
    default_mode: u32,
    config: &ProcessConfig,
) -> Result<(), ProcessError> {
    for item in items.unwrap_or_default() {
        let value = if let Some(field) = &item.field_ref {
            downward::field(pod, &field.field_path, config)?
        } else if let Some(selector) = &item.resource_field_ref {
            downward::resource(pod, "", selector, config)?
        } else {
            continue;
        };
        put(
            out,
            &item.path,
            value.into_bytes(),
            mode(item.mode, default_mode),
        )?;
    }
    Ok(())
}

fn put(out: &mut Payload, path: &str, content: Vec<u8>, mode: u32) -> Result<(), ProcessError> {
    let invalid = || ProcessError::Config(format!("invalid path {path:?} in a volume"));
    let path = relative(path).ok_or_else(invalid)?;
    if path.starts_with("..data") || path.as_os_str().as_encoded_bytes().starts_with(b"..") {
        return Err(invalid());
    }
    out.insert(path, PayloadFile { content, mode });
    Ok(())
}

fn mode(value: Option<i32>, default: u32) -> u32 {
    value
        .and_then(|one| u32::try_from(one).ok())
        .map_or(default, |one| one & 0o777)
}

/// Writes the files of a volume so that readers see all old or all new ones: they are links through
/// `..data`, which is swapped. Nothing changes if the content is the same.
pub(crate) fn write_payload(
    folder: &Path,
    payload: &Payload,
    group: Option<u32>,
) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let data = folder.join("..data");
    let old = fs::read_link(&data).ok().map(|name| folder.join(name));
    if let Some(old) = &old
        && has_payload(old, payload)
    {
        return Ok(());
    }
    let name = format!(
        "..{}",
        jiff::Timestamp::now().strftime("%Y_%m_%d_%H_%M_%S.%9f")
    );
    let fresh = folder.join(&name);
    fs::create_dir(&fresh)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755))?;
    for (path, file) in payload {
        let target = fresh.join(path);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        write_file(&target, file, group)?;
    }
    let staged = folder.join("..data_tmp");
    let _ = fs::remove_file(&staged);
    symlink(&name, &staged)?;
    fs::rename(&staged, &data)?;
    link_names(folder, payload)?;
    if let Some(old) = old {
        let _ = fs::remove_dir_all(old);
    }
    Ok(())
}

fn write_file(target: &Path, file: &PayloadFile, group: Option<u32>) -> io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut out = fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(target)?;
    out.write_all(&file.content)?;
    let mut mode = file.mode;
    if let Some(group) = group {
        std::os::unix::fs::fchown(&out, None, Some(group))?;
        mode |= 0o440;
    }
    out.set_permissions(fs::Permissions::from_mode(mode))
}

/// Links the first part of each path, and removes links whose file is gone.
fn link_names(folder: &Path, payload: &Payload) -> io::Result<()> {
    let first = |path: &Path| {
        path.components()
            .next()
            .map(|part| part.as_os_str().to_owned())
    };
    let mut names: Vec<_> = payload.keys().filter_map(|path| first(path)).collect();
    names.sort();
    names.dedup();
    for name in &names {
        let link = folder.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("..data").join(name), link)?;
        }
    }
    for entry in fs::read_dir(folder)?.flatten() {
        let name = entry.file_name();
        if !name.as_encoded_bytes().starts_with(b"..") && !names.contains(&name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn has_payload(folder: &Path, payload: &Payload) -> bool {
    let is_same = |(path, file): (&PathBuf, &PayloadFile)| {
        fs::read(folder.join(path)).is_ok_and(|content| content == file.content)
    };
    count_files(folder) == payload.len() && payload.iter().all(is_same)
}

fn count_files(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => count_files(&entry.path()),
            _ => 1,
        })
        .sum()
}

#[cfg(test)]
mod tests;
