//! `kubevitals sim` in process, and as a program.

use std::net::SocketAddr;

use clap::Parser;
use kubevitals::process::{Context, ProcessConfig, ProcessFlags};
use kubevitals::sim::{Sim, SimFlags};
use kubevitals_cli::flags::LogFlags;
use kubevitals_cli::shutdown_channel;

use crate::demo::Running;
use crate::{kubevitals, output};

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    sim: SimFlags,
    #[command(flatten)]
    logs: LogFlags,
}

#[tokio::test]
async fn it_starts_prints_and_ends_in_process() {
    kubevitals_tls::install_crypto_provider();
    let flags = Flags::parse_from(["sim", "--nodes=2", "--pods-per-node=3", "--churn=0/s"]);
    let process = ProcessFlags {
        admin_bind_address: SocketAddr::from(([127, 0, 0, 1], 0)),
        shutdown_grace_period: "1s".parse().unwrap(),
        profiling: false,
    };
    let config = ProcessConfig::new(&process, &flags.logs).unwrap();
    let (trigger, shutdown) = shutdown_channel();
    let context = Context::new(&config, shutdown, None);
    let mut out = StopWhenFlushed {
        text: Vec::new(),
        trigger,
    };
    Sim::configure(&flags.sim)
        .unwrap()
        .run(context, &mut out)
        .await
        .unwrap();
    let text = String::from_utf8(out.text).unwrap();
    assert!(text.starts_with("2 nodes and "), "{text}");
}

/// Requests shutdown once the last line is written.
struct StopWhenFlushed {
    text: Vec<u8>,
    trigger: kubevitals_cli::ShutdownTrigger,
}

impl std::io::Write for StopWhenFlushed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.trigger.trigger();
        Ok(())
    }
}

#[test]
fn the_kubeconfig_is_removed_with_the_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kubeconfig");
    let flag = format!("--write-kubeconfig={}", file.display());
    let sim = Running::start(&["sim", "--nodes=1", "--pods-per-node=1", &flag]);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("certificate-authority-data"), "{text}");
    assert!(
        sim.line("kubectl --kubeconfig")
            .contains(file.to_str().unwrap())
    );
    sim.stop("-TERM");
    assert!(!file.exists());
}

#[test]
fn a_fault_that_matches_no_node_is_bad_configuration() {
    for fault in ["hang=elsewhere", "sleepy=1%", "hang"] {
        let (code, _, stderr) = output(&mut kubevitals(&["sim", "--nodes=1", "--fault", fault]));
        assert_eq!(code, 64, "{fault}: {stderr}");
    }
    let (code, _, stderr) = output(&mut kubevitals(&["sim", "--churn=fast"]));
    assert_eq!(code, 64);
    assert!(stderr.contains("COUNT/s"), "{stderr}");
}
