//! Commands in containers.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use kubevitals_kubelet_api::ProviderError;
use kubevitals_kubelet_api::provider::{
    Exec, ExecRequest, ExitStatus, ProviderFuture, Session, Streams, TerminalSize,
};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::command::{CommandStreams, ContainerCommand};
use crate::instance::Instance;
use crate::runtime::ProcessRuntime;
use crate::shim::open_terminal;

/// Bytes that are copied at once.
const BUFFER: usize = 32 << 10;

impl Exec for ProcessRuntime {
    fn exec(&self, request: ExecRequest) -> ProviderFuture<'_, Session> {
        Box::pin(async move {
            self.inner.metrics.session("exec");
            if request.command.is_empty() {
                return Err(ProviderError::InvalidInput(
                    "you must specify a command".to_owned(),
                ));
            }
            let instance = self.running(&request.target)?;
            let session: Session = Box::new(move |streams| {
                Box::pin(async move {
                    let result = if request.streams.tty {
                        in_terminal(&instance, request.command, streams).await
                    } else {
                        with_pipes(&instance, request.command, streams).await
                    };
                    let failed = |error| ProviderError::Internal(format!("exec: {error}"));
                    result.map(|code| ExitStatus { code }).map_err(failed)
                })
            });
            Ok(session)
        })
    }
}

/// Runs a command over pipes. The command is killed if this is dropped.
async fn with_pipes(
    instance: &Arc<Instance>,
    command: Vec<String>,
    streams: Streams,
) -> io::Result<u8> {
    let options = CommandStreams {
        stdin: streams.stdin.is_some(),
        output: true,
        terminal: None,
    };
    let mut command = ContainerCommand::start(instance, command, &options)?;
    let stdin = command.child.stdin.take();
    let stdout = command.child.stdout.take();
    let stderr = command.child.stderr.take();
    let input = async {
        if let (Some(mut from), Some(mut to)) = (streams.stdin, stdin) {
            // The command may end before its input, and its end then closes the pipe.
            let _ = tokio::io::copy(&mut from, &mut to).await;
            let _ = to.shutdown().await;
        }
        std::future::pending::<()>().await;
    };
    let work = async {
        let outputs =
            async { tokio::join!(copy(stdout, streams.stdout), copy(stderr, streams.stderr)) };
        let (code, _) = tokio::join!(command.wait(), outputs);
        code
    };
    tokio::select! {
        code = work => code,
        () = input => Err(io::Error::other("the input ended the session")),
    }
}

/// Copies until the end; what nobody wants is read and dropped.
async fn copy(
    from: Option<impl AsyncRead + Unpin>,
    to: Option<Box<dyn AsyncWrite + Send + Unpin>>,
) -> io::Result<()> {
    let (Some(mut from), mut to) = (from, to) else {
        return Ok(());
    };
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            break;
        }
        if let Some(writer) = &mut to {
            let data = buffer.get(..count).unwrap_or_default();
            if writer.write_all(data).await.is_err() {
                // The client does not read any more; the command must not block.
                to = None;
            }
        }
    }
    if let Some(mut to) = to {
        to.flush().await?;
        let _ = to.shutdown().await;
    }
    Ok(())
}

/// Runs a command in a new terminal. The command is killed if this is dropped.
async fn in_terminal(
    instance: &Arc<Instance>,
    command: Vec<String>,
    streams: Streams,
) -> io::Result<u8> {
    let (terminal, path) = open_terminal()?;
    // Keeps the terminal open until the command has opened it, and no longer than it runs.
    let held = File::options().read(true).write(true).open(&path)?;
    #[expect(
        deprecated,
        reason = "its successor is unsafe for types whose descriptor may change, and that of a \
                  `File` does not"
    )]
    let terminal = AsyncFd::new(terminal)?;
    let options = CommandStreams {
        terminal: Some(path),
        ..CommandStreams::default()
    };
    let mut resize = streams.resize;
    // A size that is there already is set before the program asks for it.
    while let Ok(size) = resize.try_recv() {
        set_size(&terminal, size);
    }
    let mut command = ContainerCommand::start(instance, command, &options)?;
    let input = async {
        if let Some(mut from) = streams.stdin {
            let mut buffer = vec![0; BUFFER];
            while let Ok(count) = from.read(&mut buffer).await {
                if count == 0
                    || write_all(&terminal, buffer.get(..count).unwrap_or_default())
                        .await
                        .is_err()
                {
                    break;
                }
            }
        }
        std::future::pending::<()>().await;
    };
    let sizes = async {
        while let Some(size) = resize.recv().await {
            set_size(&terminal, size);
        }
        std::future::pending::<()>().await;
    };
    let work = async {
        let output = read_terminal(&terminal, streams.stdout);
        let ended = async {
            let code = command.wait().await;
            drop(held);
            code
        };
        let (code, ()) = tokio::join!(ended, output);
        code
    };
    tokio::select! {
        code = work => code,
        () = input => Err(io::Error::other("the input ended the session")),
        () = sizes => Err(io::Error::other("the sizes ended the session")),
    }
}

async fn write_all(terminal: &AsyncFd<File>, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        let mut guard = terminal.writable().await?;
        if let Ok(result) = guard.try_io(|one| one.get_ref().write(data)) {
            data = data.get(result?..).unwrap_or_default();
        }
    }
    Ok(())
}

/// Copies the output of a terminal until nobody has it open.
async fn read_terminal(
    terminal: &AsyncFd<File>,
    mut to: Option<Box<dyn AsyncWrite + Send + Unpin>>,
) {
    let mut buffer = vec![0; BUFFER];
    loop {
        let Ok(mut guard) = terminal.readable().await else {
            break;
        };
        let Ok(result) = guard.try_io(|one| one.get_ref().read(&mut buffer)) else {
            continue;
        };
        // A terminal that nobody has open fails instead of ending.
        let Ok(count @ 1..) = result else {
            break;
        };
        if let Some(writer) = &mut to
            && writer
                .write_all(buffer.get(..count).unwrap_or_default())
                .await
                .is_err()
        {
            to = None;
        }
    }
    if let Some(mut to) = to {
        let _ = to.flush().await;
        let _ = to.shutdown().await;
    }
}

fn set_size(terminal: &AsyncFd<File>, size: TerminalSize) {
    let size = Winsize {
        ws_row: size.height,
        ws_col: size.width,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let _ = tcsetwinsize(terminal.get_ref(), size);
}
