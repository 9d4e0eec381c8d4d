//! Client configuration for the API server: from the files that kubectl reads, or from the service
//! account of this pod.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kubevitals_cli::{InvalidSetting, RunError, error_chain};

use crate::role::Kubeconfig as RoleKubeconfig;

/// Flags of interactive commands, as kubectl has them.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub struct KubeconfigFlags {
    /// Path to a kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the service account of
    /// the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig to use
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

impl KubeconfigFlags {
    /// Loads the configuration that kubectl would use.
    pub(crate) async fn load(&self) -> Result<kube::Config, RunError> {
        let files = match &self.kubeconfig {
            Some(file) => vec![file.clone()],
            None => default_files(env::var_os("KUBECONFIG").as_deref(), env::home_dir()),
        };
        let invalid = |error: &KubeconfigError| {
            let names: Vec<String> = files
                .iter()
                .map(|file| file.display().to_string())
                .collect();
            InvalidSetting {
                flag: "kubeconfig",
                value: names.join(":"),
                problem: error_chain(error),
                advice: "name a kubeconfig file, and with --context one of its contexts".to_owned(),
            }
        };
        let merged = read(&files).map_err(|error| invalid(&error))?;
        let Some(kubeconfig) = merged else {
            return incluster("kubeconfig");
        };
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
        config.map_err(|error| invalid(&error).into())
    }
}

/// The configuration of the first file that roles name. Without a file, the service account of this
/// pod, or outside of a pod the files of kubectl if a role reads those.
pub(crate) async fn load_first(of_roles: &[RoleKubeconfig]) -> Result<kube::Config, RunError> {
    let file = of_roles.iter().find_map(|role| role.file.as_deref());
    let fall_back_to_kubectl = of_roles.iter().any(|role| role.fall_back_to_kubectl);
    if file.is_none() && fall_back_to_kubectl && env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
        return KubeconfigFlags::default().load().await;
    }
    load("kubeconfig", file).await
}

/// The configuration in a file, or the service account of this pod.
pub(crate) async fn load(
    flag: &'static str,
    file: Option<&Path>,
) -> Result<kube::Config, RunError> {
    let Some(path) = file else {
        return incluster(flag);
    };
    let invalid = |error: KubeconfigError| {
        RunError::from(InvalidSetting {
            flag,
            value: path.display().to_string(),
            problem: error_chain(&error),
            advice: "name a kubeconfig file with a current context".to_owned(),
        })
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(invalid)?;
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(invalid)
}

fn incluster(flag: &'static str) -> Result<kube::Config, RunError> {
    kube::Config::incluster().map_err(|error| {
        RunError::from(InvalidSetting {
            flag,
            value: String::new(),
            problem: format!("not running in a pod with a service account: {error}"),
            advice: "name a kubeconfig file".to_owned(),
        })
    })
}

/// The files that kubectl reads without a flag: those of `$KUBECONFIG`, or the default one, as far
/// as they exist.
fn default_files(named: Option<&OsStr>, home: Option<PathBuf>) -> Vec<PathBuf> {
    let named: Vec<PathBuf> = named
        .map(|list| env::split_paths(list).collect())
        .unwrap_or_default();
    let mut files: Vec<PathBuf> = named
        .into_iter()
        .filter(|file| !file.as_os_str().is_empty())
        .collect();
    if files.is_empty() {
        files.extend(home.map(|home| home.join(".kube").join("config")));
    }
    files.retain(|file| file.exists());
    files
}

/// Merges files as kubectl does: the first file that sets a value wins. `None` without files.
fn read(files: &[PathBuf]) -> Result<Option<Kubeconfig>, KubeconfigError> {
    let mut merged: Option<Kubeconfig> = None;
    for file in files {
        let next = Kubeconfig::read_from(file)?;
        merged = Some(match merged {
            Some(first) => first.merge(next)?,
            None => next,
        });
    }
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_those_that_kubectl_reads() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_owned();
        std::fs::create_dir(home.join(".kube")).unwrap();
        let default = home.join(".kube").join("config");
        assert_eq!(
            default_files(None, Some(home.clone())),
            Vec::<PathBuf>::new()
        );
        std::fs::write(&default, "").unwrap();
        for unset in [None, Some(OsStr::new(""))] {
            let found = default_files(unset, Some(home.clone()));
            assert_eq!(found, std::slice::from_ref(&default));
        }
        // As in kubectl: empty names are ignored, and a named file that does not exist is skipped.
        let (one, two) = (home.join("one"), home.join("two"));
        std::fs::write(&one, "").unwrap();
        let list = env::join_paths([Path::new(""), &two, &one]).unwrap();
        assert_eq!(default_files(Some(&list), Some(home.clone())), [one]);
        let missing = env::join_paths([&two]).unwrap();
        assert_eq!(
            default_files(Some(&missing), Some(home)),
            Vec::<PathBuf>::new()
        );
    }

    #[test]
    fn the_first_file_that_sets_a_value_wins() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["one", "two"].map(|name| folder.path().join(name));
        std::fs::write(&files[0], "current-context: first").unwrap();
        std::fs::write(
            &files[1],
            "current-context: second\ncontexts: [{name: second, context: {cluster: c}}]",
        )
        .unwrap();
        let merged = read(&files).unwrap().unwrap();
        assert_eq!(merged.current_context.as_deref(), Some("first"));
        assert_eq!(merged.contexts.len(), 1);
        assert!(read(&[]).unwrap().is_none());
    }
}
