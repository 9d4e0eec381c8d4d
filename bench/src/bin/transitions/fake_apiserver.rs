//! A fake API server with one purpose: it streams a list of pods, and on a line of input sends
//! changes of them as fast as the client reads.
//!
//! It serves TLS and HTTP/1.1 as an API server does, results every watch of another resource with
//! an empty list, and rejects requests that are no streaming list, so that all clients do the same
//! work.

use std::io::{self, BufRead, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubevitals_tls::{Alpn, PemSource, ReloadingKeyPair, ServerOptions, ServerTls};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::script::Script;

/// Size of a write: a few TLS records.
const BATCH_BYTES: usize = 64 << 10;

/// Maximum size of a request head.
const MAX_HEAD: usize = 16 << 10;

/// Line for the harness once everything was written.
pub(crate) const SENT: &str = "sent";

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Serves until its input ends. It prints its address, starts at a line of input, and prints when
/// it has sent everything.
pub(crate) fn serve(pods: usize, kubeconfig: &Path) -> Result<(), BoxError> {
    kubevitals_tls::install_crypto_provider();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(pods, kubeconfig))
}

async fn run(pods: usize, kubeconfig: &Path) -> Result<(), BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (acceptor, authority) = tls()?;
    std::fs::write(kubeconfig, client_config(address, &authority))?;
    let script = Arc::new(Script::new(pods));
    write_line(&address.to_string())?;
    let (go, start) = watch::channel(false);
    let (ended, mut end) = watch::channel(());
    // The harness stops it by closing the input.
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            if line.is_err() {
                break;
            }
            go.send_replace(true);
        }
        drop(ended);
    });
    loop {
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted?,
            _ = end.changed() => return Ok(()),
        };
        let (acceptor, script, start) = (acceptor.clone(), Arc::clone(&script), start.clone());
        tokio::spawn(async move {
            // A client may disconnect; the harness notices a client that is missing.
            let _ = connection(stream, acceptor, &script, start).await;
        });
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    script: &Script,
    mut start: watch::Receiver<bool>,
) -> Result<(), BoxError> {
    stream.set_nodelay(true)?;
    let mut stream = acceptor.accept(stream).await?;
    loop {
        let Some(target) = request(&mut stream).await? else {
            return Ok(());
        };
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let is_streaming_list = query
            .split('&')
            .any(|pair| pair == "sendInitialEvents=true");
        if !is_streaming_list {
            reject(&mut stream, path).await?;
            continue;
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        if path == "/api/v1/pods" {
            send_pods(&mut stream, script, &mut start).await?;
        } else {
            chunk(&mut stream, bookmark(1).as_bytes()).await?;
        }
        stream.flush().await?;
        // A watch stays open until its client disconnects.
        let mut rest = [0; 256];
        while stream.read(&mut rest).await? > 0 {}
        return Ok(());
    }
}

async fn send_pods(
    stream: &mut (impl AsyncWrite + Unpin),
    script: &Script,
    start: &mut watch::Receiver<bool>,
) -> Result<(), BoxError> {
    let mut version = 1_000;
    let mut batch = Vec::with_capacity(2 * BATCH_BYTES);
    send_step(stream, script, 0, &mut version, &mut batch).await?;
    batch.extend_from_slice(bookmark(version).as_bytes());
    chunk(stream, &batch).await?;
    stream.flush().await?;
    batch.clear();
    start.wait_for(|started| *started).await?;
    for step in 1..script.steps() {
        send_step(stream, script, step, &mut version, &mut batch).await?;
    }
    chunk(stream, &batch).await?;
    stream.flush().await?;
    write_line(SENT)?;
    Ok(())
}

/// Sends one state of every pod that has it. A partial batch stays in `batch`.
async fn send_step(
    stream: &mut (impl AsyncWrite + Unpin),
    script: &Script,
    step: usize,
    version: &mut u64,
    batch: &mut Vec<u8>,
) -> Result<(), BoxError> {
    let mut pod = 0;
    while pod < script.pods() {
        *version += 1;
        script.write(step, pod, *version, batch);
        pod += 1;
        if batch.len() >= BATCH_BYTES {
            chunk(stream, batch).await?;
            batch.clear();
        }
    }
    Ok(())
}

async fn chunk(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let head = format!("{:x}\r\n", bytes.len());
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(bytes).await?;
    stream.write_all(b"\r\n").await
}

/// Reads the target of the next request; none at the end of the stream.
async fn request(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let count = stream.read(&mut piece).await?;
        if count == 0 || head.len() > MAX_HEAD {
            return Ok(None);
        }
        head.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
    let text = String::from_utf8_lossy(&head);
    Ok(text.split(' ').nth(1).map(ToOwned::to_owned))
}

async fn reject(stream: &mut (impl AsyncWrite + Unpin), path: &str) -> io::Result<()> {
    let body = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound",
        "message": format!("{path} is not served here"),
    });
    let body = body.to_string();
    let length = body.len();
    let response = format!(
        "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(response.as_bytes()).await?;
    stream.flush().await
}

fn bookmark(version: u64) -> String {
    format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{{\
         \"resourceVersion\":\"{version}\",\"annotations\":{{\"k8s.io/initial-events-end\":\"true\"}}}}}}}}\n"
    )
}

fn tls() -> Result<(TlsAcceptor, String), BoxError> {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let inline = |label, pem: String| PemSource::Inline {
        label,
        pem: pem.into_bytes().into(),
    };
    let pair = ReloadingKeyPair::load(
        "the serving certificate",
        inline("certificate", own.cert.pem()),
        inline("key", own.signing_key.serialize_pem()),
        SystemTime::now(),
    )?;
    let options = ServerOptions {
        alpn: vec![Alpn::Http11],
        ..ServerOptions::default()
    };
    let tls = ServerTls::new(pair, &options)?;
    Ok((TlsAcceptor::from(tls.config()), own.cert.pem()))
}

fn client_config(address: SocketAddr, authority: &str) -> String {
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "clusters": [{"name": "bench", "cluster": {
            "server": format!("https://{address}"),
            "certificate-authority-data": STANDARD.encode(authority),
        }}],
        "users": [{"name": "bench", "user": {"token": "bench"}}],
    })
    .to_string()
}

fn write_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
