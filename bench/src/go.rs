//! The contenders in Go: small programs under `bench/go`, built from pinned modules.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::BenchError;

/// Builds a program of `bench/go` into a folder; none without Go on the path, and the table then
/// lacks its contenders.
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
    Err(BenchError::Exited {
        name: command,
        status: built.to_string(),
        log: "the lines above".into(),
    })
}

/// Version of the Go toolchain.
pub async fn toolchain() -> Option<String> {
    let output = Command::new("go")
        .args(["env", "GOVERSION"])
        .output()
        .await
        .ok()?;
    let version = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!version.is_empty()).then_some(version)
}
