//! A Go module in the source tree: the versions that it requires, and a key of its content.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The source files of a module, in order of their names.
#[derive(Debug)]
pub(crate) struct Module {
    folder: PathBuf,
    files: Vec<(String, Vec<u8>)>,
}

/// FNV-1a: stable across platforms and compilers; it detects changes, not attacks.
#[derive(Debug)]
struct Fnv(u64);

impl Module {
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let shown = folder.display();
        let mut files = Vec::new();
        for entry in
            std::fs::read_dir(folder).with_context(|| format!("cannot read the module {shown}"))?
        {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if is_source(&name) {
                let bytes = std::fs::read(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                files.push((name.into_owned(), bytes));
            }
        }
        files.sort();
        for needed in ["go.mod", "go.sum"] {
            if !files.iter().any(|(name, _)| name == needed) {
                bail!("{shown} has no {needed}");
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            files,
        })
    }

    /// Returns the version of a module that `go.mod` requires.
    pub(crate) fn version_of(&self, module: &str) -> Result<String> {
        let text = self
            .files
            .iter()
            .find(|(name, _)| name == "go.mod")
            .map(|(_, bytes)| String::from_utf8_lossy(bytes))
            .unwrap_or_default();
        required(&text, module)
            .map(str::to_owned)
            .with_context(|| format!("{}/go.mod requires no {module}", self.folder.display()))
    }

    /// Returns a hash of the module's files and the arguments of the build.
    pub(crate) fn key(&self, arguments: &[String]) -> u64 {
        let mut hash = Fnv::new();
        for (name, bytes) in &self.files {
            hash.field(name.as_bytes());
            hash.field(bytes);
        }
        for argument in arguments {
            hash.field(argument.as_bytes());
        }
        hash.0
    }
}

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Hashes the length first, so that fields cannot run into each other.
    fn field(&mut self, bytes: &[u8]) {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        for byte in length.to_le_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

fn is_source(name: &str) -> bool {
    let is_go = Path::new(name)
        .extension()
        .is_some_and(|extension| extension == "go");
    name == "go.mod" || name == "go.sum" || (is_go && !name.ends_with("_test.go"))
}

/// Returns the version in the `require` lines of a `go.mod`; other directives are ignored.
fn required<'a>(text: &'a str, module: &str) -> Option<&'a str> {
    let mut block = "";
    for line in text.lines() {
        let mut words = line
            .split("//")
            .next()
            .unwrap_or_default()
            .split_whitespace();
        let mut word = words.next();
        match (word, block) {
            (Some(")"), _) => block = "",
            (Some(verb), "") => {
                word = words.next();
                if word == Some("(") {
                    block = verb;
                } else if verb == "require" && word == Some(module) {
                    return words.next();
                }
            }
            (Some(name), "require") if name == module => return words.next(),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const GO_MOD: &str = "module ours

go 1.26.0

require k8s.io/kubernetes v1.37.1

require (
\tk8s.io/api v0.37.0
\tgo.etcd.io/etcd/server/v3 v3.7.3 // indirect
)

replace (
\tk8s.io/api => k8s.io/api v0.37.1
\tk8s.io/only-replaced => k8s.io/only-replaced v0.37.1
)
";

    fn module(files: &[(&str, &str)]) -> Module {
        Module {
            folder: PathBuf::from("e2e/kube/some"),
            files: files
                .iter()
                .map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()))
                .collect(),
        }
    }

    fn arguments(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn versions_are_read_from_single_lines_and_blocks() {
        assert_eq!(required(GO_MOD, "k8s.io/kubernetes"), Some("v1.37.1"));
        assert_eq!(
            required(GO_MOD, "go.etcd.io/etcd/server/v3"),
            Some("v3.7.3")
        );
    }

    #[test]
    fn a_replacement_is_not_a_requirement() {
        assert_eq!(required(GO_MOD, "k8s.io/api"), Some("v0.37.0"));
        assert_eq!(required(GO_MOD, "k8s.io/only-replaced"), None);
        assert_eq!(required(GO_MOD, "k8s.io"), None);
    }

    #[test]
    fn the_error_of_a_missing_requirement_names_the_module_and_the_file() {
        let error = module(&[("go.mod", GO_MOD)])
            .version_of("example.com/other")
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "e2e/kube/some/go.mod requires no example.com/other"
        );
    }

    #[test]
    fn the_key_depends_on_all_inputs_of_a_build() {
        let flags = arguments(&["-trimpath", "."]);
        let key = module(&[("go.mod", "a"), ("go.sum", "b"), ("main.go", "c")]).key(&flags);
        for (why, other) in
            [
                (
                    "go.mod",
                    module(&[("go.mod", "A"), ("go.sum", "b"), ("main.go", "c")]).key(&flags),
                ),
                (
                    "go.sum",
                    module(&[("go.mod", "a"), ("go.sum", "B"), ("main.go", "c")]).key(&flags),
                ),
                (
                    "a source",
                    module(&[("go.mod", "a"), ("go.sum", "b"), ("main.go", "C")]).key(&flags),
                ),
                (
                    "a name",
                    module(&[("go.mod", "a"), ("go.sum", "b"), ("other.go", "c")]).key(&flags),
                ),
                (
                    "where a file ends",
                    module(&[("go.mod", "ab"), ("go.sum", ""), ("main.go", "c")]).key(&flags),
                ),
                (
                    "an argument",
                    module(&[("go.mod", "a"), ("go.sum", "b"), ("main.go", "c")])
                        .key(&arguments(&["-trimpath", "-tags=x", "."])),
                ),
            ]
        {
            assert_ne!(other, key, "{why}");
        }
    }

    #[test]
    fn the_key_is_stable() {
        // A constant: a different key would rebuild all programs on every machine.
        assert_eq!(
            module(&[("go.mod", "a")]).key(&arguments(&["."])),
            0x2c87_fe5d_c1fe_9332
        );
    }

    #[test]
    fn tests_and_other_files_are_not_part_of_a_build() {
        let names = [
            "main.go",
            "main_test.go",
            "README.md",
            "go.sum",
            ".gitignore",
        ];
        let kept: Vec<&str> = names.into_iter().filter(|name| is_source(name)).collect();
        assert_eq!(kept, ["main.go", "go.sum"]);
    }
}
