//! `kubevitals demo` with the real kubectl: every printed command works.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use kubevitals_e2e::Cluster;

/// The last line that the demo prints.
const LAST_LINE: &str = "stop with Ctrl-C";

/// A demo that ends with the test.
struct Demo(Child);

impl Drop for Demo {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test]
async fn the_printed_commands_work_in_a_shell() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let bin = tempfile::tempdir()?;
    for program in ["kubectl", "kubevitals"] {
        symlink(cluster.program(program)?, bin.path().join(program))?;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", bin.path().display());

    let mut demo = Demo(
        Command::new(bin.path().join("kubevitals"))
            .args(["demo", "--nodes=3", "--pods-per-node=4"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?,
    );
    let stdout = demo.0.stdout.take().context("stdout is a pipe")?;
    let printed: Vec<String> = BufReader::new(stdout)
        .lines()
        .map_while(Result::ok)
        .take_while(|line| line != LAST_LINE)
        .collect();
    let commands: Vec<&str> = printed
        .iter()
        .filter_map(|line| line.strip_prefix("  "))
        .collect();
    let (export, commands) = commands.split_first().context("commands are printed")?;
    for program in [
        "kubectl top",
        "kubectl get --raw",
        "kubevitals explain",
        "curl",
    ] {
        let is_printed = commands.iter().any(|line| line.starts_with(program));
        ensure!(is_printed, "no {program} in {printed:#?}");
    }
    for command in commands {
        let output = Command::new("sh")
            .args(["-ec", &format!("{export}\n{command}")])
            .env("PATH", &path)
            .output()?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        println!("$ {command}\n{stdout}{stderr}");
        ensure!(output.status.success(), "{command}: {stderr}");
        let expected = match *command {
            "kubectl top nodes" => "node-00002",
            "kubectl top pods -A" => "MEMORY(bytes)",
            other if other.contains("metrics.k8s.io") => "NodeMetricsList",
            other if other.contains("readyz") => "readyz check passed",
            _ => "",
        };
        ensure!(stdout.contains(expected), "{command}: {stdout}");
    }

    let id = demo.0.id().to_string();
    ensure!(Command::new("kill").args(["-INT", &id]).status()?.success());
    ensure!(demo.0.wait()?.success(), "the demo failed at its end");
    Ok(())
}
