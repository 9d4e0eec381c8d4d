//! `/exec`, `/attach`, `/run` and `/portForward` before the connection is upgraded.

use std::sync::Arc;

use kubevitals_kubelet_api::provider::StreamOptions;

use crate::client::Client;
use crate::support::{Invented, Running, everything};

const UID: &str = "93de724c-696f-48c2-8206-9c069d91751c";

#[tokio::test]
async fn requests_are_checked_before_the_upgrade() {
    let invented = Arc::new(Invented::default());
    let server = Running::open(everything(&invented)).await;
    let client = Client::of(&server);
    for (path, text) in [
        (
            "/exec/ns/pod/app?command=ls",
            "invalid streams: you must specify at least 1 of stdin, stdout, stderr\n",
        ),
        (
            "/exec/ns/pod/app?output=1",
            "invalid command: you must specify the program to run\n",
        ),
        (
            "/attach/ns/pod/app",
            "invalid streams: you must specify at least 1 of stdin, stdout, stderr\n",
        ),
        (
            "/portForward/ns/pod?port=0",
            "invalid port: \"0\" is not a number from 1 to 65535\n",
        ),
    ] {
        for response in [client.get(path).await, client.post(path).await] {
            assert_eq!((response.code, response.text()), (400, text), "{path}");
        }
    }
    assert!(invented.executed.lock().is_none());
    let gone = client.post("/exec/ns/gone/app?output=1&command=ls").await;
    assert_eq!((gone.code, gone.text()), (404, "pod \"gone\" not found\n"));
    let conflict = client.post("/portForward/ns/pod").await;
    assert_eq!(
        (conflict.code, conflict.text()),
        (409, "pod \"pod\" is not running\n")
    );
    server.stop().await;
}

#[tokio::test]
async fn the_provider_learns_the_uid_the_command_and_the_streams() {
    let invented = Arc::new(Invented::default());
    let server = Running::open(everything(&invented)).await;
    let client = Client::of(&server);
    let path =
        format!("/exec/ns/pod/{UID}/app?input=1&output=1&error=1&tty=1&command=sh&command=-c");
    client.post(&path).await;
    let request = invented.executed.lock().take().unwrap();
    assert_eq!(request.command, ["sh", "-c"]);
    assert_eq!(request.target.pod.uid.unwrap().to_string(), UID);
    assert_eq!(request.target.container, "app");
    let streams = StreamOptions {
        stdin: true,
        stdout: true,
        stderr: false,
        tty: true,
    };
    assert_eq!(request.streams, streams);
    client.post("/attach/ns/pod/app?output=1").await;
    let request = invented.executed.lock().take().unwrap();
    assert_eq!(
        (request.target.pod.uid, request.command),
        (None, vec![String::from("attach")])
    );
    server.stop().await;
}

#[tokio::test]
async fn run_returns_the_whole_output_or_an_error() {
    let server = Running::open(everything(&Arc::default())).await;
    let client = Client::of(&server);
    let output = client.post("/run/ns/pod/app?cmd=echo+hello").await;
    assert_eq!((output.code, output.text()), (200, "echo hello"));
    let output = client.post(&format!("/run/ns/pod/{UID}/app?cmd=ls")).await;
    assert_eq!((output.code, output.text()), (200, "ls"));
    let failed = client.post("/run/ns/pod/app?cmd=false").await;
    assert_eq!(
        (failed.code, failed.text()),
        (500, "command terminated with exit code 3: false\n")
    );
    let endless = client.post("/run/ns/pod/app?cmd=yes").await;
    assert_eq!(endless.code, 500);
    assert!(
        endless.text().contains("more than 1048576 bytes"),
        "{}",
        endless.text()
    );
    assert_eq!(client.post("/run/ns/pod/app").await.code, 400);
    server.stop().await;
}
