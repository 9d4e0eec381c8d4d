//! Versions of the measured libraries, read from the lock files that they were built from.

use std::collections::BTreeMap;
use std::path::Path;

use crate::go;

/// Returns versions of our own crates' dependencies, of Go modules and of Go itself, by name.
/// Unknown ones are omitted.
pub async fn of(bench: &Path, crates: &[&str], modules: &[&str]) -> BTreeMap<String, String> {
    let lock = std::fs::read_to_string(bench.join("../Cargo.lock")).unwrap_or_default();
    let go_mod = std::fs::read_to_string(bench.join("go/go.mod")).unwrap_or_default();
    let own = (
        "kubevitals".to_owned(),
        env!("CARGO_PKG_VERSION").to_owned(),
    );
    let mut versions = BTreeMap::from([own]);
    for name in crates {
        versions.extend(of_crate(&lock, name).map(|version| ((*name).to_owned(), version)));
    }
    for name in modules {
        versions.extend(of_module(&go_mod, name).map(|version| ((*name).to_owned(), version)));
    }
    versions.extend(
        go::toolchain()
            .await
            .map(|version| ("go".to_owned(), version)),
    );
    versions
}

/// The first version of a crate in a `Cargo.lock`.
fn of_crate(lock: &str, name: &str) -> Option<String> {
    let quoted = |line: &str, key: &str| {
        Some(
            line.strip_prefix(key)?
                .strip_prefix(" = \"")?
                .strip_suffix('"')?
                .to_owned(),
        )
    };
    let mut lines = lock.lines();
    lines.find(|line| quoted(line, "name").is_some_and(|found| found == name))?;
    quoted(lines.next()?, "version")
}

fn of_module(go_mod: &str, module: &str) -> Option<String> {
    go_mod.lines().find_map(|line| {
        let mut words = line
            .split_whitespace()
            .skip_while(|word| *word == "require");
        (words.next()? == module).then(|| words.next().map(str::to_owned))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_module_is_found() {
        let text = "module x\n\nrequire a.b/c v1.2.3\nrequire (\n\ta.b/cd v0.1.0\n\td.e/f v2.0.0 // indirect\n)\n";
        assert_eq!(of_module(text, "a.b/c").as_deref(), Some("v1.2.3"));
        assert_eq!(of_module(text, "a.b/cd").as_deref(), Some("v0.1.0"));
        assert_eq!(of_module(text, "d.e/f").as_deref(), Some("v2.0.0"));
        assert_eq!(of_module(text, "x"), None);
    }

    #[test]
    fn a_locked_crate_is_found() {
        let lock = "[[package]]\nname = \"kube-core\"\nversion = \"5.0.1\"\n\n[[package]]\nname = \"kube\"\nversion = \"5.0.0\"\n";
        assert_eq!(of_crate(lock, "kube").as_deref(), Some("5.0.0"));
        assert_eq!(of_crate(lock, "cube"), None);
    }

    #[tokio::test]
    async fn versions_in_reports_are_pinned() {
        let bench = Path::new(env!("CARGO_MANIFEST_DIR"));
        let crates = ["kube", "k8s-openapi", "prometheus-parse"];
        let modules = [
            "github.com/prometheus/common",
            "github.com/prometheus/prometheus",
            "k8s.io/client-go",
        ];
        let versions = of(bench, &crates, &modules).await;
        for name in crates.iter().chain(&modules) {
            assert!(versions.contains_key(*name), "{name}");
        }
    }
}
