//! Where the programs of a cluster are.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::components::Component;

/// The paths of everything that a cluster runs.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    components: Vec<(Component, PathBuf)>,
    pub(crate) kubectl: PathBuf,
    pub(crate) busybox: PathBuf,
    pub(crate) cni_plugins: PathBuf,
}

impl Programs {
    /// Fetches what is missing.
    pub(crate) fn fetch() -> Result<Self> {
        let built =
            |name: &str| -> Result<PathBuf> { Ok(PathBuf::from("/tmp/kv/go-out").join(name)) };
        let components = Component::ALL
            .into_iter()
            .map(|component| {
                let path = match component {
                    Component::Containerd => installed("containerd")?,
                    _ => built(component.name())?,
                };
                Ok((component, path))
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            components,
            kubectl: built("kubectl")?,
            busybox: installed("busybox")?,
            cni_plugins: PathBuf::from("/usr/lib/cni"),
        })
    }

    pub(crate) fn of(&self, component: Component) -> &Path {
        let found = self.components.iter().find(|(of, _)| *of == component);
        found
            .map(|(_, path)| path.as_path())
            .expect("every component has a program")
    }
}

/// Where administrators' programs are, whatever the caller's `PATH` says.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn installed(name: &str) -> Result<PathBuf> {
    let found = PATH
        .split(':')
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file());
    let Some(path) = found else {
        bail!("{name} is not installed");
    };
    path.canonicalize()
        .with_context(|| format!("resolving {name}"))
}
