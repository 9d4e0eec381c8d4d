//! The compared servers: programs that accept metrics-server's flags.

use std::hash::Hasher;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;

use crate::BenchError;
use crate::contender::Contender;

/// The peer, and the baseline of ratios.
pub const METRICS_SERVER: &str = "metrics-server";

pub const KUBEVITALS: &str = "kubevitals";

/// Paths of the programs
#[derive(Debug, Clone, Args)]
pub struct ServerFlags {
    /// Path of metrics-server
    #[arg(long, value_name = "FILE", env = "KUBEVITALS_METRICS_SERVER")]
    pub metrics_server: Option<PathBuf>,

    /// Path of kubevitals, which also simulates the cluster [default: next to this program]
    #[arg(long, value_name = "FILE")]
    pub kubevitals: Option<PathBuf>,

    /// Measure one server only: kubevitals or metrics-server
    #[arg(long, value_name = "NAME", value_parser = [KUBEVITALS, METRICS_SERVER])]
    pub only: Option<String>,
}

/// A server and how to start it.
#[derive(Debug, Clone)]
pub struct ServerProgram {
    /// Name in tables.
    pub name: &'static str,
    pub program: PathBuf,
    /// Subcommand before the flags.
    pub subcommand: Option<&'static str>,
}

impl ServerFlags {
    /// Returns the path of kubevitals.
    pub fn kubevitals(&self) -> Result<PathBuf, BenchError> {
        if let Some(program) = &self.kubevitals {
            return Ok(program.clone());
        }
        let program =
            std::env::current_exe().map_err(BenchError::file("locate", "this program"))?;
        Ok(program.with_file_name(KUBEVITALS))
    }

    /// Returns the selected servers whose programs are available.
    pub fn servers(&self) -> Result<Vec<ServerProgram>, BenchError> {
        let mut all = ServerProgram::all(&self.kubevitals()?, self.metrics_server.as_deref());
        if let Some(only) = &self.only {
            all.retain(|server| server.name == only);
        }
        if all.is_empty() {
            let unknown = "no metrics-server: set --metrics-server".to_owned();
            return Err(BenchError::NoContender(unknown));
        }
        Ok(all)
    }

    /// Returns the server for benchmarks of one server: kubevitals unless another is selected.
    pub fn server(&self) -> Result<ServerProgram, BenchError> {
        let name = self.only.as_deref().unwrap_or(KUBEVITALS);
        let server = self.servers()?.into_iter().find(|one| one.name == name);
        server.ok_or_else(|| BenchError::NoContender(format!("{name} is not available")))
    }
}

impl ServerProgram {
    /// Returns the available servers: ours first, then the peer.
    pub fn all(kubevitals: &Path, metrics_server: Option<&Path>) -> Vec<Self> {
        let peer = metrics_server.map(|program| Self {
            name: METRICS_SERVER,
            program: program.to_owned(),
            subcommand: None,
        });
        let ours = Self {
            name: KUBEVITALS,
            program: kubevitals.to_owned(),
            subcommand: Some("server"),
        };
        [ours].into_iter().chain(peer).collect()
    }

    /// Returns the program with its flags, listening on loopback only.
    pub fn contender(
        &self,
        address: SocketAddr,
        kubeconfig: &Path,
        resolution: Duration,
        folder: &Path,
    ) -> Contender {
        let kubeconfig = kubeconfig.display();
        let mut arguments: Vec<String> = self.subcommand.iter().map(ToString::to_string).collect();
        arguments.extend([
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            format!("--bind-address={}", address.ip()),
            format!("--secure-port={}", address.port()),
            format!(
                "--cert-dir={}",
                folder
                    .join(format!("{}-{}", self.name, address.port()))
                    .display()
            ),
            format!("--metric-resolution={}s", resolution.as_secs()),
            "--kubelet-use-node-status-port".to_owned(),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            format!(
                "--kubelet-request-timeout={}s",
                (resolution.as_secs() / 2).max(1)
            ),
        ]);
        Contender {
            name: self.name.to_owned(),
            program: self.program.clone(),
            arguments,
            environment: Vec::new(),
            log: folder.join(format!("{}.log", self.name)),
        }
    }

    /// Returns the module version that Go wrote into the program, else the first line of
    /// `--version`: a program that was built without a stamped version reports `v0.0.0-master`.
    pub fn version(&self) -> String {
        let program = self.program.as_os_str();
        let built = output(Command::new("go").args(["version", "-m"]).arg(program));
        let version = built
            .and_then(|text| module_version(&text))
            .or_else(|| {
                output(Command::new(program).arg("--version"))?
                    .lines()
                    .next()
                    .map(str::to_owned)
            })
            .unwrap_or_else(|| "unknown".to_owned());
        // Two builds of one version are two programs: their figures must not be combined.
        match std::fs::read(&self.program) {
            Ok(bytes) => format!("{version}, build {:016x}", fingerprint(&bytes)),
            Err(_) => version,
        }
    }
}

fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn output(command: &mut Command) -> Option<String> {
    let output = command
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// The version in the line `mod PATH VERSION SUM` of `go version -m`; a program built in its own
/// tree has none.
fn module_version(text: &str) -> Option<String> {
    let words = |line: &'_ str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    text.lines().find_map(|line| match words(line).as_slice() {
        [kind, _, version, ..] if kind == "mod" && version != "(devel)" => Some(version.clone()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_module_version() {
        let text = "/bin/x: go1.26.0\n\tpath\ta.b/x/cmd/x\n\tmod\ta.b/x\tv0.9.0\th1:abc=\n\tdep\tc.d/e\tv1.0.0\n";
        assert_eq!(module_version(text).as_deref(), Some("v0.9.0"));
        assert_eq!(
            module_version("/bin/x: go1.26.0\n\tmod\ta.b/x\t(devel)\t\n"),
            None
        );
    }

    #[test]
    fn the_subcommand_comes_first_and_the_server_listens_on_loopback_only() {
        let server = ServerProgram {
            name: "kubevitals",
            program: "/bin/kubevitals".into(),
            subcommand: Some("server"),
        };
        let address = "127.0.0.1:14443".parse().unwrap();
        let resolution = Duration::from_secs(15);
        let contender = server.contender(address, Path::new("/k"), resolution, Path::new("/logs"));
        assert_eq!(
            contender.arguments.first().map(String::as_str),
            Some("server")
        );
        for flag in [
            "--bind-address=127.0.0.1",
            "--secure-port=14443",
            "--metric-resolution=15s",
        ] {
            assert!(
                contender.arguments.iter().any(|found| found == flag),
                "{flag}"
            );
        }
    }
}
