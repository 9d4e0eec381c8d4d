//! `kubevitals transitions` as a process of a test.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use crate::access::Access;
use crate::error::{E2eError, tail};
use crate::manifest::Manifest;
use crate::namespace::TestNamespace;
use crate::wait::DEADLINE;

/// The account of the role in `deploy/transitions.yaml`.
const ACCOUNT: &str = "kubevitals-transitions";

/// Polling interval of a program that is starting.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes of its log that are shown in an error.
const MAX_LOG: usize = 4 << 10;

/// A program that writes records of pods as lines of JSON, and the lines read so far.
#[derive(Debug)]
pub struct RecordReader {
    child: Child,
    admin: SocketAddr,
    log: PathBuf,
    coming: Lines<BufReader<ChildStdout>>,
    lines: Vec<Value>,
}

impl RecordReader {
    /// Starts `kubevitals transitions` for one namespace and waits until it is ready.
    pub async fn start(namespace: &TestNamespace, arguments: &[&str]) -> Result<Self, E2eError> {
        let manifest = Manifest::read("transitions.yaml")?;
        let access = Access::of_manifest(namespace, &manifest, ACCOUNT).await?;
        let kubeconfig = access.kubeconfig(namespace)?.display().to_string();
        let own = [
            "transitions".to_owned(),
            format!("--kubeconfig={kubeconfig}"),
            format!("--namespace={}", namespace.name()),
        ];
        let given = arguments.iter().map(|argument| (*argument).to_owned());
        Self::run(namespace, own.into_iter().chain(given)).await
    }

    /// Starts `kubevitals run` with this role and the server in one process, for the whole cluster,
    /// and waits until both are ready. It serves `metrics.k8s.io` on the loopback, where no client
    /// requests it.
    pub async fn start_with_server(namespace: &TestNamespace) -> Result<Self, E2eError> {
        let server = Manifest::read("server.yaml")?;
        let account = "kubevitals-server";
        Access::of_manifest(namespace, &server, account).await?;
        let own = Manifest::read("transitions.yaml")?.for_account(ACCOUNT, account);
        let access = Access::of_manifest(namespace, &own, account).await?;
        let authority = namespace.cluster().authority().display().to_string();
        let mut arguments = vec![
            "run".to_owned(),
            "--roles=server,transitions".to_owned(),
            format!("--kubeconfig={}", access.kubeconfig(namespace)?.display()),
            "--bind-address=127.0.0.1".to_owned(),
            "--secure-port=0".to_owned(),
            format!("--cert-dir={}", namespace.folder().join("both").display()),
            format!("--kubelet-certificate-authority={authority}"),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            "--metric-resolution=10s".to_owned(),
            "--kubelet-request-timeout=5s".to_owned(),
        ];
        arguments.extend(server.flags_in(namespace.name()));
        Self::run(namespace, arguments.into_iter()).await
    }

    /// Starts a program of ours that writes such lines, and waits until it is ready.
    pub async fn run(
        namespace: &TestNamespace,
        arguments: impl Iterator<Item = String>,
    ) -> Result<Self, E2eError> {
        let program = namespace.cluster().program("kubevitals")?;
        let failed = |source| E2eError::Program {
            program: program.display().to_string(),
            source,
        };
        let free = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let admin = free.local_addr().map_err(failed)?;
        drop(free);
        let log = namespace.folder().join("transitions.log");
        let file = File::create(&log).map_err(|source| E2eError::Write {
            path: log.clone(),
            source,
        })?;
        // The kernel kills it with this thread, so that a killed test process leaves none
        // behind.
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&program)
            .args(arguments)
            .arg(format!("--admin-bind-address={admin}"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let out = child
            .stdout
            .take()
            .ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
        let mut begun = Self {
            child,
            admin,
            log,
            coming: BufReader::new(out).lines(),
            lines: Vec::new(),
        };
        begun.ready().await?;
        Ok(begun)
    }

    /// The address of its admin server.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Its page of metrics.
    pub async fn metrics(&self) -> Result<String, E2eError> {
        let answer = get(self.admin, "/metrics").await;
        let (status, body) = answer.map_err(|error| self.wrong(error.to_string()))?;
        if status == 200 {
            return Ok(body);
        }
        Err(self.wrong(format!("/metrics answers {status}")))
    }

    /// All lines so far.
    pub fn lines(&self) -> &[Value] {
        &self.lines
    }

    /// Reads lines until the predicate holds.
    pub async fn until(
        &mut self,
        what: &str,
        is_wanted: impl Fn(&[Value]) -> bool,
    ) -> Result<(), E2eError> {
        let reading = async {
            while !is_wanted(&self.lines) {
                if !self.read().await? {
                    return Err(self.wrong("it has ended".to_owned()));
                }
            }
            Ok(())
        };
        match timeout(DEADLINE, reading).await {
            Ok(done) => done,
            Err(_) => Err(self.wrong(format!("{what}: not after {DEADLINE:?}"))),
        }
    }

    /// Stops it by SIGTERM, reads its last lines, and fails unless it succeeds.
    pub async fn stop(mut self) -> Result<Vec<Value>, E2eError> {
        let id = self.child.id().unwrap_or_default().to_string();
        let asked = Command::new("kill").args(["-TERM", &id]).status().await;
        asked.map_err(|error| self.wrong(error.to_string()))?;
        let ending = async {
            while self.read().await? {}
            let ended = self.child.wait().await;
            ended.map_err(|error| self.wrong(error.to_string()))
        };
        let status = match timeout(DEADLINE, ending).await {
            Ok(status) => status?,
            Err(_) => return Err(self.wrong("it does not end".to_owned())),
        };
        if !status.success() {
            return Err(self.wrong(status.to_string()));
        }
        Ok(self.lines)
    }

    /// Reads the next line; returns false at the end.
    async fn read(&mut self) -> Result<bool, E2eError> {
        let line = self.coming.next_line().await;
        let Some(line) = line.map_err(|error| self.wrong(error.to_string()))? else {
            return Ok(false);
        };
        let parsed = serde_json::from_str(&line);
        let parsed = parsed.map_err(|error| self.wrong(format!("{error} in {line}")))?;
        self.lines.push(parsed);
        Ok(true)
    }

    async fn ready(&mut self) -> Result<(), E2eError> {
        let admin = self.admin;
        let waiting = async {
            while !matches!(get(admin, "/readyz").await, Ok((200, _))) {
                sleep(POLL_INTERVAL).await;
            }
        };
        let problem = tokio::select! {
            ready = timeout(DEADLINE, waiting) => match ready {
                Ok(()) => return Ok(()),
                Err(_) => "it is not ready".to_owned(),
            },
            ended = self.child.wait() => format!("it has ended: {ended:?}"),
        };
        Err(self.wrong(problem))
    }

    fn wrong(&self, what: String) -> E2eError {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = self.lines.iter().rev().take(5).map(Value::to_string);
        E2eError::Failed {
            command: "kubevitals transitions".to_owned(),
            status: what,
            stderr: format!(
                "{}\nlast lines: {:#?}",
                tail(&log, MAX_LOG),
                last.collect::<Vec<_>>()
            ),
        }
    }
}

/// Sends one request to a server of plain HTTP. The version is 1.0, so that no body is chunked.
pub async fn get(admin: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(admin).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {admin}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Ok((status.unwrap_or_default(), body.to_owned()))
}
