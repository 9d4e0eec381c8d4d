//! exec through the real API server, over WebSocket and SPDY.

use k8s_openapi::api::core::v1::Pod;
use kubevitals_e2e::{Cluster, TestNamespace, VirtualNode, is_ready};
use serde_json::json;

use super::{pod, process_node};

/// What makes kubectl speak each protocol; with WebSocket the API server passes it on to nodes that
/// declare it.
const PROTOCOLS: [&str; 2] = [
    "export KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true",
    "export KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false",
];

/// Starts a pod that waits, and prints what it reads.
async fn target(namespace: &TestNamespace, node: &VirtualNode) -> anyhow::Result<()> {
    let mut target = pod(
        node,
        "target",
        "echo up; cat; echo end of input; sleep 86396",
    );
    target["spec"]["containers"][0]["stdin"] = json!(true);
    target["spec"]["containers"][0]["stdinOnce"] = json!(true);
    namespace.apply(&target).await?;
    namespace.wait_for::<Pod>("target", is_ready).await?;
    Ok(())
}

#[tokio::test]
async fn exec_has_streams_exit_codes_and_a_terminal() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("node-exec").await?;
    let node = process_node(&namespace).await?;
    target(&namespace, &node).await?;
    for protocol in PROTOCOLS {
        let run = |script: &str| {
            let script = format!("{protocol}; {script}");
            let namespace = &namespace;
            async move { namespace.shell(&script).await }
        };
        let both = "kubectl exec target -- sh -c 'echo out; echo err >&2' 2>&1 >/dev/null";
        assert_eq!(run(both).await?, "err\n", "{protocol}");
        let code = "kubectl exec target -- sh -c 'exit 7' 2>/dev/null || echo $?";
        assert_eq!(run(code).await?, "7\n", "{protocol}");
        // The end of the input reaches the command.
        let input = "printf 'one\\ntwo\\n' | kubectl exec -i target -- sh -c 'cat; echo end'";
        assert_eq!(run(input).await?, "one\ntwo\nend\n", "{protocol}");
        let terminal = "script -qec \"kubectl exec -it target -- sh -c 'tty && stty size'\" \
                        /dev/null < /dev/null | tr -d '\\r'";
        let said = run(terminal).await?;
        assert!(said.contains("/dev/pts/"), "{protocol}: {said}");
        let missing = "kubectl exec target -- /nonexistent 2>&1 || true";
        let said = run(missing).await?;
        assert!(said.contains("nonexistent"), "{protocol}: {said}");
    }
    node.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}

#[tokio::test]
async fn a_hundred_megabytes_arrive_whole_in_both_directions() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("node-stream").await?;
    let node = process_node(&namespace).await?;
    target(&namespace, &node).await?;
    let make = "openssl enc -aes-128-ctr -K 00112233445566778899aabbccddeeff \
                -iv 00000000000000000000000000000000 -in /dev/zero 2>/dev/null | head -c 100000000";
    for protocol in PROTOCOLS {
        let script = format!(
            "{protocol}; set +o pipefail; want=$({make} | sha256sum); \
             up=$({make} | kubectl exec -i target -- sha256sum); \
             down=$(kubectl exec target -- sh -c \"{make}\" | sha256sum); \
             test \"$want\" = \"$up\" && test \"$want\" = \"$down\" && echo same"
        );
        assert_eq!(namespace.shell(&script).await?, "same\n", "{protocol}");
    }
    node.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}
