//! Profiles of our program, read by Go's own tool.

use kubevitals_e2e::{Cluster, RecordReader};
use tokio::process::Command;

use crate::in_time;

#[tokio::test]
async fn go_tool_pprof_reads_profiles_of_the_processor_and_of_the_heap() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("profiles").await?;
    let role = RecordReader::start(&namespace, &["--profiling"]).await?;
    for (path, kind) in [("heap", "inuse_space"), ("profile?seconds=1", "cpu")] {
        let url = format!("http://{}/debug/pprof/{path}", role.admin());
        let mut top = Command::new("go");
        top.args(["tool", "pprof", "-top", &url]);
        top.env("PPROF_TMPDIR", namespace.folder());
        let output = in_time("a profile", top.output()).await?;
        let text = String::from_utf8_lossy(&output.stdout);
        println!("{text}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{path}: {error}");
        assert!(text.contains(&format!("Type: {kind}")), "{path}: {text}");
    }
    role.stop().await?;
    namespace.finish().await?;
    Ok(())
}
