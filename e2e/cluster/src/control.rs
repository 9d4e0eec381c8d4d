//! How a cluster's holder is spoken to: one line of JSON each way over a socket in the cluster's
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

/// What the holder is asked to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Only the answer is wanted.
    List,
    /// Start a component that does not run.
    Start(Launch),
    /// Start one that has ended, as it was started before.
    Again(String),
    /// Ask it to end; gently, or at once.
    Stop { name: String, at_once: bool },
    /// Stay when the one who started the cluster goes.
    Release,
}

/// A component to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// All of it: nothing is taken over from whoever called.
    pub(crate) environment: Vec<(String, String)>,
    /// Where its output is appended.
    pub(crate) log: PathBuf,
}

/// The answer to every request: how things stand after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// Why the request was not carried out.
    pub(crate) error: Option<String>,
    pub(crate) components: Vec<ComponentState>,
}

/// A component as the holder sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ComponentState {
    pub(crate) name: String,
    /// In the cluster's PID namespace.
    pub(crate) pid: u32,
    /// How it ended; absent while it runs.
    pub(crate) ended: Option<String>,
    pub(crate) log: PathBuf,
}

/// More than any message needs.
const MAX_LINE: u64 = 1 << 20;

/// A holder that does not answer within this is broken.
const PATIENCE: Duration = Duration::from_secs(10);

const SOCKET: &str = "control.sock";

/// Sends one request. An answer with an error is an error.
pub(crate) fn ask(folder: &Path, request: &Request) -> Result<Reply> {
    let (_folder, path) = socket(folder)?;
    let mut stream = UnixStream::connect(path)
        .with_context(|| format!("no holder answers in {}", folder.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    send(&mut stream, request)?;
    let reply: Reply = receive(&mut stream).context("reading the holder's answer")?;
    match reply.error {
        Some(error) => bail!(error),
        None => Ok(reply),
    }
}

/// Where the holder listens.
pub(crate) fn listen(folder: &Path) -> Result<UnixListener> {
    let (_folder, path) = socket(folder)?;
    UnixListener::bind(path).context("listening for requests")
}

/// Takes one request from a caller and answers it. A caller that says nothing must not hold up the
/// holder for long.
pub(crate) fn serve(mut stream: UnixStream, answer: impl FnOnce(Request) -> Reply) -> Result<()> {
    let patience = Duration::from_secs(2);
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let request = receive(&mut stream)?;
    send(&mut stream, &answer(request))
}

/// A socket's path may have 107 bytes, a folder's more: the socket is reached through the open
/// folder.
fn socket(folder: &Path) -> Result<(File, PathBuf)> {
    let open = File::open(folder).with_context(|| format!("there is no {}", folder.display()))?;
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
    fn a_request_is_answered_from_a_folder_with_a_very_long_name() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("a".repeat(200));
        std::fs::create_dir(&folder).unwrap();
        let listener = listen(&folder).unwrap();
        let asked = Request::Stop {
            name: "etcd".to_owned(),
            at_once: true,
        };
        let expected = asked.clone();
        let holder = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            serve(stream, |request| {
                assert_eq!(request, expected);
                Reply {
                    error: Some("etcd does not run".to_owned()),
                    components: Vec::new(),
                }
            })
            .unwrap();
        });
        assert_eq!(
            ask(&folder, &asked).unwrap_err().to_string(),
            "etcd does not run"
        );
        holder.join().unwrap();
    }

    #[test]
    fn a_folder_without_a_holder_says_so() {
        let folder = tempfile::tempdir().unwrap();
        assert!(
            ask(folder.path(), &Request::List)
                .unwrap_err()
                .to_string()
                .contains("no holder answers")
        );
    }
}
