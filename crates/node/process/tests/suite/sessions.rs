//! Logs, exec, attach, port-forward and statistics.

use std::time::Duration;

use futures_util::StreamExt as _;
use kubevitals_kubelet_api::provider::{
    Attach as _, AttachRequest, ContainerLogs as _, ContainerTarget, Exec as _, ExecRequest,
    LogOptions, PodTarget, PortForward as _, Stats as _, StreamOptions, Streams, TerminalSize,
};
use kubevitals_virtual_node::runtime::PodId;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::harness::{DEADLINE, Node, container, of, pod, script};
use crate::lifecycle::wait_for_log;

fn target(id: &PodId) -> ContainerTarget {
    ContainerTarget {
        pod: PodTarget {
            key: id.key.clone(),
            uid: Some(id.uid.clone()),
        },
        container: "c".to_owned(),
    }
}

/// The client's ends of streams.
struct Client {
    stdin: DuplexStream,
    stdout: DuplexStream,
    stderr: DuplexStream,
    resize: mpsc::Sender<TerminalSize>,
}

fn streams() -> (Streams, Client) {
    let (stdin, stdin_end) = duplex(4096);
    let (stdout, stdout_end) = duplex(4096);
    let (stderr, stderr_end) = duplex(4096);
    let (sender, resize) = mpsc::channel(4);
    let streams = Streams {
        stdin: Some(Box::new(stdin_end)),
        stdout: Some(Box::new(stdout_end)),
        stderr: Some(Box::new(stderr_end)),
        resize,
    };
    let client = Client {
        stdin,
        stdout,
        stderr,
        resize: sender,
    };
    (streams, client)
}

const ALL: StreamOptions = StreamOptions {
    stdin: true,
    stdout: true,
    stderr: true,
    tty: false,
};

fn request(id: &PodId, text: &str, streams: StreamOptions) -> ExecRequest {
    ExecRequest {
        target: target(id),
        command: vec!["/bin/sh".to_owned(), "-c".to_owned(), text.to_owned()],
        streams,
    }
}

async fn running(node: &Node, text: &str) -> PodId {
    let mut one = container("c", text);
    one["env"] = json!([{"name": "FROM_POD", "value": "yes"}]);
    one["workingDir"] = json!("/tmp");
    let pod = pod(
        "session",
        json!({"restartPolicy": "Never", "containers": [one]}),
    );
    let id = node.sync(&pod).await;
    node.wait(&id, "ready", |one| of(&one.status, "c").ready)
        .await;
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_has_the_environment_streams_and_exit_code() {
    let node = Node::start().await;
    let id = running(&node, "sleep 1000").await;
    let text = "echo $FROM_POD; pwd; cat; echo problem >&2; exit 7";
    let session = node
        .runtime
        .exec(request(&id, text, ALL))
        .await
        .expect("accepted");
    let (streams, mut client) = streams();
    let run = tokio::spawn(session(streams));
    client.stdin.write_all(b"typed\n").await.expect("write");
    // The half-close is the end of input.
    client.stdin.shutdown().await.expect("shut down");
    let (mut out, mut err) = (String::new(), String::new());
    let read = async {
        client.stdout.read_to_string(&mut out).await.expect("read");
        client.stderr.read_to_string(&mut err).await.expect("read");
    };
    tokio::time::timeout(DEADLINE, read)
        .await
        .expect("the streams end");
    assert_eq!(
        (out.as_str(), err.as_str()),
        ("yes\n/tmp\ntyped\n", "problem\n")
    );
    let status = run.await.expect("no panic").expect("a status");
    assert_eq!(status.code, 7);
    let missing = ExecRequest {
        command: vec!["no-such-program".to_owned()],
        ..request(&id, "", ALL)
    };
    let session = node.runtime.exec(missing).await.expect("accepted");
    let (streams, mut client) = self::streams();
    drop(client.stdin);
    let run = tokio::spawn(session(streams));
    let mut err = String::new();
    client.stderr.read_to_string(&mut err).await.expect("read");
    assert_eq!(
        err,
        "exec: \"no-such-program\": executable file not found in $PATH\n"
    );
    assert_eq!(run.await.expect("no panic").expect("a status").code, 127);
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_copies_a_large_stream_and_ends_when_the_client_leaves() {
    let node = Node::start().await;
    let id = running(&node, "sleep 1000").await;
    let session = node
        .runtime
        .exec(request(&id, "head -c 5000000 /dev/zero", ALL))
        .await
        .expect("accepted");
    let (streams, mut client) = streams();
    let run = tokio::spawn(session(streams));
    let mut count = 0;
    let mut buffer = vec![0; 65_536];
    loop {
        match client.stdout.read(&mut buffer).await.expect("read") {
            0 => break,
            read => count += read,
        }
    }
    assert_eq!(count, 5_000_000);
    assert_eq!(run.await.expect("no panic").expect("a status").code, 0);
    let marker = format!("{}", 200_000 + std::process::id());
    let session = node
        .runtime
        .exec(request(&id, &format!("echo on; sleep {marker}; :"), ALL))
        .await
        .expect("accepted");
    let (streams, mut client) = self::streams();
    let run = tokio::spawn(session(streams));
    let mut on = [0; 3];
    client.stdout.read_exact(&mut on).await.expect("it runs");
    run.abort();
    let gone = async {
        while !crate::harness::processes_with(&marker).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, gone)
        .await
        .expect("the command is killed");
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_in_a_terminal_has_its_size() {
    let node = Node::start().await;
    let id = running(&node, "sleep 1000").await;
    let options = StreamOptions {
        tty: true,
        stderr: false,
        ..ALL
    };
    let text = "test -t 0 && echo terminal; stty size
        until test \"$(stty size)\" = '50 132'; do sleep 0.02; done
        read line; echo got $line; exit 3";
    let session = node
        .runtime
        .exec(request(&id, text, options))
        .await
        .expect("accepted");
    let (mut streams, mut client) = streams();
    streams.stderr = None;
    client
        .resize
        .send(TerminalSize {
            width: 80,
            height: 24,
        })
        .await
        .expect("send");
    let run = tokio::spawn(session(streams));
    let mut out = Vec::new();
    let mut buffer = [0; 1024];
    let read = async {
        while !String::from_utf8_lossy(&out).contains("24 80") {
            let count = client.stdout.read(&mut buffer).await.expect("read");
            assert!(count > 0, "ended early: {}", String::from_utf8_lossy(&out));
            out.extend_from_slice(&buffer[..count]);
        }
        client
            .resize
            .send(TerminalSize {
                width: 132,
                height: 50,
            })
            .await
            .expect("send");
        client.stdin.write_all(b"word\n").await.expect("write");
        client.stdout.read_to_end(&mut out).await.expect("read");
    };
    tokio::time::timeout(DEADLINE, read)
        .await
        .expect("the terminal ends");
    let text = String::from_utf8_lossy(&out).into_owned();
    assert!(
        text.contains("terminal\r\n") && text.contains("got word"),
        "{text}"
    );
    assert_eq!(run.await.expect("no panic").expect("a status").code, 3);
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attach_shows_output_from_now_on_and_feeds_input() {
    let node = Node::start().await;
    let mut one = container(
        "c",
        "echo before; while read line; do echo got $line; echo err >&2; done; echo end",
    );
    one["stdin"] = json!(true);
    one["stdinOnce"] = json!(true);
    let pod = pod(
        "attach",
        json!({"restartPolicy": "Never", "containers": [one]}),
    );
    let id = node.sync(&pod).await;
    node.wait(&id, "ready", |one| of(&one.status, "c").ready)
        .await;
    wait_for_log(&node, &pod, "before").await;
    let attach = AttachRequest {
        target: target(&id),
        streams: ALL,
    };
    let session = node.runtime.attach(attach).await.expect("accepted");
    let (streams, mut client) = streams();
    let run = tokio::spawn(session(streams));
    client.stdin.write_all(b"one\ntwo\n").await.expect("write");
    client.stdin.shutdown().await.expect("shut down");
    let (mut out, mut err) = (String::new(), String::new());
    let read = async {
        client.stdout.read_to_string(&mut out).await.expect("read");
        client.stderr.read_to_string(&mut err).await.expect("read");
    };
    tokio::time::timeout(DEADLINE, read)
        .await
        .expect("the streams end");
    assert_eq!(
        (out.as_str(), err.as_str()),
        ("got one\ngot two\nend\n", "err\nerr\n")
    );
    run.await.expect("no panic").expect("a status");
    node.wait_phase(&id, "Succeeded").await;
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_read_does_not_stop_the_container() {
    let node = Node::start().await;
    let mut one = container(
        "c",
        "read line; head -c 8000000 /dev/zero | tr '\\0' x; echo end",
    );
    one["stdin"] = json!(true);
    let pod = pod(
        "slow",
        json!({"restartPolicy": "Never", "containers": [one]}),
    );
    let id = node.sync(&pod).await;
    node.wait(&id, "ready", |one| of(&one.status, "c").ready)
        .await;
    let attach = AttachRequest {
        target: target(&id),
        streams: ALL,
    };
    let session = node.runtime.attach(attach).await.expect("accepted");
    let (streams, mut client) = streams();
    let run = tokio::spawn(session(streams));
    client.stdin.write_all(b"go\n").await.expect("write");
    // Nobody reads: the container still ends, and its log is complete.
    node.wait_phase(&id, "Succeeded").await;
    let options = LogOptions {
        limit_bytes: Some(1 << 30),
        ..LogOptions::default()
    };
    let text = read_log(&node, &id, options).await.expect("a log");
    assert_eq!(text.len(), 8_000_004);
    run.abort();
    node.end(&id).await;
    node.finish().await;
}

async fn read_log(node: &Node, id: &PodId, options: LogOptions) -> Result<String, String> {
    let mut stream = match node.runtime.logs(target(id), options).await {
        Ok(stream) => stream,
        Err(error) => return Err(error.to_string()),
    };
    let mut text = Vec::new();
    while let Some(part) = stream.next().await {
        text.extend_from_slice(&part.expect("a part"));
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_followed_to_the_end_and_previous_ones_are_kept() {
    let node = Node::start().await;
    let followed = script("follow", "echo a; sleep 0.3; echo b");
    let id = node.sync(&followed).await;
    node.wait_phase(&id, "Running").await;
    let options = LogOptions {
        follow: true,
        ..LogOptions::default()
    };
    let text = tokio::time::timeout(DEADLINE, read_log(&node, &id, options))
        .await
        .expect("it ends");
    assert_eq!(text.as_deref(), Ok("a\nb\n"));
    let none = LogOptions {
        previous: true,
        ..LogOptions::default()
    };
    let error = read_log(&node, &id, none.clone())
        .await
        .expect_err("no previous");
    assert_eq!(
        error,
        "previous terminated container \"c\" in pod \"follow\" not found"
    );
    node.end(&id).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let flag = folder.path().join("flag").display().to_string();
    let text = format!(
        "if test -e {flag}; then echo second; sleep 1000; fi; touch {flag}; echo first; exit 1"
    );
    let again = pod(
        "again",
        json!({"restartPolicy": "Always", "containers": [container("c", &text)]}),
    );
    let id = node.sync(&again).await;
    node.wait(&id, "second run", |one| {
        of(&one.status, "c").restart_count == 1 && of(&one.status, "c").ready
    })
    .await;
    assert_eq!(read_log(&node, &id, none).await.as_deref(), Ok("first\n"));
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_of_this_host_are_forwarded() {
    let node = Node::start().await;
    let id = running(&node, "sleep 1000").await;
    let listener = TcpListener::bind("[::1]:0").await;
    let listener = match listener {
        Ok(listener) => listener,
        Err(_) => TcpListener::bind("127.0.0.1:0").await.expect("a port"),
    };
    let port = listener.local_addr().expect("an address").port();
    let dialer = node
        .runtime
        .port_forward(target(&id).pod)
        .await
        .expect("accepted");
    let mut stream = dialer.dial(port).await.expect("connected");
    let (mut server, _) = listener.accept().await.expect("accepted");
    server.write_all(b"hello").await.expect("write");
    drop(server);
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("read");
    assert_eq!(text, "hello");
    let Err(error) = dialer.dial(1).await else {
        panic!("nothing listens on port 1");
    };
    assert_eq!(
        error.to_string(),
        "dial tcp 127.0.0.1:1: connect: connection refused"
    );
    node.end(&id).await;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_count_what_a_container_uses() {
    for with_cgroups in [true, false] {
        let change = |config: &mut kubevitals_process::ProcessConfig| {
            if !with_cgroups {
                config.cgroup_mount = None;
            }
        };
        let node = Node::with(change, crate::harness::Inputs::default()).await;
        let id = running(&node, "i=0; while :; do i=$((i+1)); done").await;
        let used = async {
            loop {
                let stats = node.runtime.stats(false).await.expect("a sample");
                let pod = stats.pods.first().cloned().expect("the pod");
                let one = pod.containers.first().cloned().expect("the container");
                let cpu = one.usage.cpu.expect("CPU");
                let memory = one
                    .usage
                    .memory
                    .expect("memory")
                    .working_set
                    .expect("a working set");
                assert!(stats.usage.cpu.is_some() && stats.usage.memory.is_some());
                if cpu.total.get() > 50_000_000
                    && cpu.rate.is_some_and(|rate| rate.nanocores() > 0)
                    && memory.count() > 0
                {
                    assert_eq!((pod.uid, pod.process_count), (id.uid.clone(), Some(1)));
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(DEADLINE, used)
            .await
            .expect("it uses CPU");
        node.end(&id).await;
        node.finish().await;
    }
}
