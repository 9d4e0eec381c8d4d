//! The protocol of a cluster's holder: one line of JSON each way over a socket in the cluster's
//! folder.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A request to the holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Lists the components.
    List,
    /// Starts a component that is not running.
    Start(Launch),
    /// Starts a component that has ended, with the command of its last start.
    Restart(String),
    /// Stops a component, by SIGTERM or by SIGKILL.
    Stop { name: String, kill: bool },
    /// Stops a component's threads (SIGSTOP): it keeps its connections and answers nothing.
    Pause(String),
    /// Continues a paused component.
    Resume(String),
    /// Keeps the cluster when the process that started it ends.
    Release,
}

/// A component to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// The whole environment: nothing is inherited.
    pub(crate) environment: Vec<(String, String)>,
    /// The file that its output is appended to.
    pub(crate) log: PathBuf,
}

/// The response to every request: the components after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// The reason why the request failed.
    pub(crate) error: Option<String>,
    pub(crate) components: Vec<ComponentState>,
}

/// The state of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ComponentState {
    pub(crate) name: String,
    /// In the cluster's PID namespace.
    pub(crate) pid: u32,
    /// Its exit; absent while it runs.
    pub(crate) ended: Option<String>,
    pub(crate) log: PathBuf,
}

/// Limit of a message in bytes, larger than any needs.
const MAX_LINE: u64 = 1 << 20;

/// A holder that does not respond within this is broken.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

const SOCKET: &str = "control.sock";

/// Sends one request. A response with an error is an error.
pub(crate) fn send_request(folder: &Path, request: &Request) -> Result<Reply> {
    let (_folder, path) = socket(folder)?;
    let mut stream = UnixStream::connect(path)
        .with_context(|| format!("no holder listens in {}", folder.display()))?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    stream.set_write_timeout(Some(RESPONSE_TIMEOUT))?;
    send(&mut stream, request)?;
    let reply: Reply = receive(&mut stream).context("reading the holder's response")?;
    match reply.error {
        Some(error) => bail!(error),
        None => Ok(reply),
    }
}

/// Listens for requests.
pub(crate) fn listen(folder: &Path) -> Result<UnixListener> {
    let (_folder, path) = socket(folder)?;
    UnixListener::bind(path).context("listening for requests")
}

/// Handles one request. A client that sends nothing must not block the holder for long.
pub(crate) fn serve(mut stream: UnixStream, handle: impl FnOnce(Request) -> Reply) -> Result<()> {
    let timeout = Duration::from_secs(2);
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let request = receive(&mut stream)?;
    send(&mut stream, &handle(request))
}

/// Opens the folder and returns the socket's path through it: a socket's path is limited to 107
/// bytes, which the folder's may exceed.
fn socket(folder: &Path) -> Result<(File, PathBuf)> {
    let open =
        File::open(folder).with_context(|| format!("{} does not exist", folder.display()))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", open.as_raw_fd()));
    Ok((open, path))
}

fn send(stream: &mut UnixStream, message: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    Ok(())
}

fn receive<T: DeserializeOwned>(stream: &mut UnixStream) -> Result<T> {
    let mut line = String::new();
    BufReader::new(stream.take(MAX_LINE)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_a_very_long_name_has_a_socket() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("a".repeat(200));
        std::fs::create_dir(&folder).unwrap();
        let listener = listen(&folder).unwrap();
        let request = Request::Stop {
            name: "etcd".to_owned(),
            kill: true,
        };
        let expected = request.clone();
        let holder = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            serve(stream, |received| {
                assert_eq!(received, expected);
                Reply {
                    error: Some("etcd is not running".to_owned()),
                    components: Vec::new(),
                }
            })
            .unwrap();
        });
        assert_eq!(
            send_request(&folder, &request).unwrap_err().to_string(),
            "etcd is not running"
        );
        holder.join().unwrap();
    }

    #[test]
    fn a_folder_without_a_holder_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(
            send_request(folder.path(), &Request::List)
                .unwrap_err()
                .to_string()
                .contains("no holder listens")
        );
    }
}
