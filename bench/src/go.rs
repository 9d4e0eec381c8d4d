//! The contenders that are written in Go: small programs under `bench/go`, built from pinned modules.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::BenchError;

/// Builds a program of `bench/go` into a folder. Without Go on the path there is none, and the table lacks it.
pub async fn build(bench: &Path, name: &str, into: &Path) -> Result<Option<PathBuf>, BenchError> {
    let found = Command::new("go")
        .arg("version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !found.await.is_ok_and(|status| status.success()) {
        return Ok(None);
    }
    let program = into.join(name);
    let command = format!("go build ./{name}");
    let built = Command::new("go")
        .args(["build", "-trimpath", "-buildvcs=false", "-o"])
        .arg(&program)
        .arg(format!("./{name}"))
        .current_dir(bench.join("go"))
        .env("CGO_ENABLED", "0")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await
        .map_err(|source| BenchError::Start {
            program: command.clone(),
            source,
        })?;
    if built.success() {
        return Ok(Some(program));
    }
    Err(BenchError::Ended {
        name: command,
        status: built.to_string(),
        log: "the lines above".into(),
    })
}

/// The version of a module that `bench/go` is pinned to.
pub fn module_version(bench: &Path, module: &str) -> Option<String> {
    let text = std::fs::read_to_string(bench.join("go/go.mod")).ok()?;
    version_in(&text, module)
}

/// The Go toolchain, as it names itself.
pub async fn toolchain() -> Option<String> {
    let output = Command::new("go")
        .args(["env", "GOVERSION"])
        .output()
        .await
        .ok()?;
    let version = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!version.is_empty()).then_some(version)
}

fn version_in(go_mod: &str, module: &str) -> Option<String> {
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
    fn a_pin_is_found() {
        let text = "module x\n\nrequire a.b/c v1.2.3\nrequire (\n\ta.b/cd v0.1.0\n\td.e/f v2.0.0 // indirect\n)\n";
        assert_eq!(version_in(text, "a.b/c").as_deref(), Some("v1.2.3"));
        assert_eq!(version_in(text, "a.b/cd").as_deref(), Some("v0.1.0"));
        assert_eq!(version_in(text, "d.e/f").as_deref(), Some("v2.0.0"));
        assert_eq!(version_in(text, "x"), None);
    }

    #[test]
    fn what_the_benchmarks_tell_is_pinned() {
        let bench = Path::new(env!("CARGO_MANIFEST_DIR"));
        for module in [
            "github.com/prometheus/common",
            "github.com/prometheus/prometheus",
            "k8s.io/client-go",
        ] {
            assert!(module_version(bench, module).is_some(), "{module}");
        }
    }
}
