//! The files of a configuration.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::tree::MAX_CONFIG_BYTES;
use crate::error::ConfigError;

/// Maximum number of files in all folders.
const MAX_FILES: usize = 200;

/// A text of configuration.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    /// The name of its file, for messages.
    pub name: Option<String>,
    pub text: String,
}

/// Shows no text: it may have secrets.
impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Source({:?}, {} bytes)", self.name, self.text.len())
    }
}

/// Reads files, and of folders the files that end in `.yaml` or `.yml`, in the order of their
/// names. Hidden files are left out: in a mounted ConfigMap they are its own links. It blocks.
pub fn read_sources(paths: &[PathBuf]) -> Result<Vec<Source>, ConfigError> {
    let mut sources = Vec::new();
    for path in paths {
        if path.is_dir() {
            for file in yaml_files(path)? {
                sources.push(read(&file)?);
            }
        } else {
            sources.push(read(path)?);
        }
        if sources.len() > MAX_FILES {
            return Err(too_many(path));
        }
    }
    Ok(sources)
}

fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let failed = |source| ConfigError::Read {
        path: folder.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let hidden = path
            .file_name()
            .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_yaml = path
            .extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml");
        if hidden || !is_yaml || !path.is_file() {
            continue;
        }
        files.push(path);
        if files.len() > MAX_FILES {
            return Err(too_many(folder));
        }
    }
    files.sort();
    Ok(files)
}

fn too_many(path: &Path) -> ConfigError {
    ConfigError::Files {
        path: path.to_owned(),
        problem: format!("there are more than {MAX_FILES} files"),
    }
}

fn read(path: &Path) -> Result<Source, ConfigError> {
    let failed = |source| ConfigError::Read {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    // One byte more than allowed: the parser says that it is too large.
    let limit = MAX_CONFIG_BYTES as u64 + 1;
    let file = fs::File::open(path).map_err(failed)?;
    file.take(limit).read_to_string(&mut text).map_err(failed)?;
    Ok(Source {
        name: Some(path.display().to_string()),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_yaml_files_of_a_folder_are_read_in_order() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.yml", "a.yaml", "notes.txt", ".hidden.yaml"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        fs::create_dir(folder.path().join("deep.yaml")).unwrap();
        let single = folder.path().join("notes.txt");
        let sources = read_sources(&[folder.path().to_owned(), single]).unwrap();
        let texts: Vec<_> = sources.iter().map(|source| source.text.as_str()).collect();
        assert_eq!(texts, ["a.yaml", "b.yml", "notes.txt"]);
        assert!(sources[0].name.as_ref().unwrap().ends_with("a.yaml"));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read_sources(&[PathBuf::from("/no/such/file")]).unwrap_err();
        assert!(error.to_string().contains("/no/such/file"), "{error}");
    }
}
