//! Client configuration for the API server: from the files that kubectl reads, or from the service
//! account of this pod.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kubevitals_cli::{InvalidSetting, RunError, error_chain};

use crate::proxy;
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
                advice: advice(
                    error,
                    "name a kubeconfig file, and with --context one of its contexts",
                ),
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
        configure(kubeconfig, &options)
            .await
            .map_err(|error| error.or_invalid(invalid))
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
    let invalid = |error: &KubeconfigError| InvalidSetting {
        flag,
        value: path.display().to_string(),
        problem: error_chain(error),
        advice: advice(error, "name a kubeconfig file with a current context"),
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| invalid(&error))?;
    configure(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| error.or_invalid(invalid))
}

/// Why a kubeconfig makes no configuration.
enum ConfigureError {
    Kubeconfig(KubeconfigError),
    Proxy(RunError),
}

impl ConfigureError {
    fn or_invalid(self, invalid: impl Fn(&KubeconfigError) -> InvalidSetting) -> RunError {
        match self {
            Self::Kubeconfig(error) => invalid(&error).into(),
            Self::Proxy(error) => error,
        }
    }
}

async fn configure(
    kubeconfig: Kubeconfig,
    options: &KubeConfigOptions,
) -> Result<kube::Config, ConfigureError> {
    let proxy_url = named_proxy(&kubeconfig, options.context.as_deref());
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, options).await;
    let mut config = config.map_err(ConfigureError::Kubeconfig)?;
    let rules = proxy::rules_of_environment();
    proxy::choose(&mut config, proxy_url.as_deref(), &rules).map_err(ConfigureError::Proxy)?;
    Ok(config)
}

/// The `proxy-url` of the cluster of a context.
fn named_proxy(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let context = context.or(kubeconfig.current_context.as_deref())?;
    let mut contexts = kubeconfig.contexts.iter();
    let context = contexts.find(|named| named.name == context)?;
    let cluster = &context.context.as_ref()?.cluster;
    let mut clusters = kubeconfig.clusters.iter();
    let cluster = clusters.find(|named| named.name == *cluster)?;
    let url = cluster.cluster.as_ref()?.proxy_url.clone();
    url.filter(|url| !url.is_empty())
}

/// kube also reads `NO_PROXY`, and accepts less than Go.
fn advice(error: &KubeconfigError, otherwise: &str) -> String {
    let advice = match error {
        KubeconfigError::ParseNoProxy(_) => "write NO_PROXY without empty or malformed entries",
        _ => otherwise,
    };
    advice.to_owned()
}

fn incluster(flag: &'static str) -> Result<kube::Config, RunError> {
    let mut config = kube::Config::incluster().map_err(|error| InvalidSetting {
        flag,
        value: String::new(),
        problem: format!("not running in a pod with a service account: {error}"),
        advice: "name a kubeconfig file".to_owned(),
    })?;
    proxy::choose(&mut config, None, &proxy::rules_of_environment())?;
    Ok(config)
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
    fn the_proxy_is_that_of_the_cluster_of_the_context() {
        let kubeconfig = Kubeconfig::from_yaml(
            "current-context: one
contexts: [{name: one, context: {cluster: a}}, {name: two, context: {cluster: b}}]
clusters:
- {name: a, cluster: {server: 'https://a.test'}}
- {name: b, cluster: {server: 'https://b.test', proxy-url: 'http://proxy.test'}}
",
        )
        .unwrap();
        assert_eq!(named_proxy(&kubeconfig, None), None);
        let proxy = named_proxy(&kubeconfig, Some("two"));
        assert_eq!(proxy.as_deref(), Some("http://proxy.test"));
        assert_eq!(named_proxy(&kubeconfig, Some("three")), None);
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
