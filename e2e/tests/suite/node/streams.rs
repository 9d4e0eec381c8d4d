//! exec, attach, cp and port-forward through the real API server, over WebSocket and SPDY.

use k8s_openapi::api::core::v1::Pod;
use kubevitals_e2e::{Cluster, TestNamespace, VirtualNode, is_ready, phase_is};
use serde_json::json;

use super::{pod, process_node};

/// What makes kubectl speak each protocol; with WebSocket the API server passes it on to nodes that
/// declare it.
const PROTOCOLS: [&str; 2] = [
    "export KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true KUBECTL_PORT_FORWARD_WEBSOCKETS=true",
    "export KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false KUBECTL_PORT_FORWARD_WEBSOCKETS=false",
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

#[tokio::test]
async fn cp_copies_files_in_both_directions() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("node-copy").await?;
    let node = process_node(&namespace).await?;
    target(&namespace, &node).await?;
    let folder = namespace.folder().display().to_string();
    for protocol in PROTOCOLS {
        let copy = format!(
            "{protocol}; cd '{folder}'; echo copied > there.txt; \
             kubectl cp there.txt target:'{folder}/copied.txt'; \
             kubectl cp target:'{folder}/copied.txt' back.txt >/dev/null; cat back.txt; rm back.txt"
        );
        assert_eq!(namespace.shell(&copy).await?, "copied\n", "{protocol}");
    }
    node.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}

#[tokio::test]
async fn attach_reads_the_output_of_a_running_container() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("node-attach").await?;
    let node = process_node(&namespace).await?;
    for (index, protocol) in PROTOCOLS.into_iter().enumerate() {
        let name = format!("reader-{index}");
        // It ends with its input, and the attached kubectl with it.
        let mut reader = pod(
            &node,
            &name,
            "while read -r line; do echo \"got $line\"; done",
        );
        reader["spec"]["containers"][0]["stdin"] = json!(true);
        reader["spec"]["containers"][0]["stdinOnce"] = json!(true);
        namespace.apply(&reader).await?;
        namespace.wait_for::<Pod>(&name, is_ready).await?;
        let attach =
            format!("{protocol}; printf 'one\\ntwo\\n' | kubectl attach -i {name} 2>/dev/null");
        assert_eq!(
            namespace.shell(&attach).await?,
            "got one\ngot two\n",
            "{protocol}"
        );
        namespace
            .wait_for::<Pod>(&name, phase_is("Succeeded"))
            .await?;
    }
    node.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}

#[tokio::test]
async fn port_forward_reaches_a_port_of_the_pod() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("node-ports").await?;
    let node = process_node(&namespace).await?;
    let serve = "import http.server as h\n\
                 class R(h.BaseHTTPRequestHandler):\n \
                 def do_GET(self):\n  \
                 self.send_response(200); self.end_headers(); self.wfile.write(b'from the pod')\n\
                 s = h.HTTPServer(('127.0.0.1', 0), R); print(s.server_port, flush=True)\n\
                 s.serve_forever()";
    let mut web = pod(&node, "web", "");
    web["spec"]["containers"][0]["command"] = json!(["python3", "-c", serve]);
    namespace.apply(&web).await?;
    namespace.wait_for::<Pod>("web", is_ready).await?;
    let folder = namespace.folder().display().to_string();
    for protocol in PROTOCOLS {
        // The server logs each request: its port is on the first line. `kubectl` is a function of
        // the shell, so that the process to end is a child of the job.
        let forward = format!(
            "{protocol}; cd '{folder}'; rm -f forward.txt; \
             retry() {{ for i in $(seq 100); do \"$@\" && return; sleep 0.2; done; return 1; }}; \
             port() {{ kubectl logs web | sed -n 1p | grep .; }}; \
             listening() {{ sed -n 's/.*127.0.0.1:\\([0-9]*\\) .*/\\1/p' forward.txt | grep .; }}; \
             port=$(retry port); \
             (kubectl port-forward pod/web :$port > forward.txt 2>&1) & \
             local=$(retry listening); \
             for i in 1 2 3; do curl -sf --max-time 20 http://127.0.0.1:$local/; echo; done; \
             pkill -TERM -P $! || true; wait"
        );
        let said = namespace.shell(&forward).await?;
        assert_eq!(said, "from the pod\n".repeat(3), "{protocol}");
    }
    node.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}
