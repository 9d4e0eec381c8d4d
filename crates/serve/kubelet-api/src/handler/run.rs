//! `/run`: a command without input, whose whole output is the response.

use http::{Response, StatusCode};
use kubevitals_apiserver::Body;
use kubevitals_http::query::Query;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::mpsc;

use super::KubeletHandler;
use crate::options::run_command;
use crate::provider::{ContainerTarget, ExecRequest, StreamOptions, Streams};
use crate::response::{Failure, text};

/// Maximum size of the output.
const MAX_OUTPUT_BYTES: usize = 1 << 20;
/// Bytes that the command may write before they are read.
const PIPE_BYTES: usize = 16 << 10;

impl KubeletHandler {
    /// The output is complete or an error: it is not known before the end whether the command
    /// succeeds.
    pub(super) async fn run(
        &self,
        target: ContainerTarget,
        query: Option<&str>,
    ) -> Result<Response<Body>, Failure> {
        let exec = self.provider.exec.as_deref();
        let exec = exec.ok_or_else(|| Failure::not_implemented("run"))?;
        let command = run_command(Query::new(query))?;
        let session = exec
            .exec(ExecRequest {
                target,
                command,
                streams: StreamOptions {
                    stdin: false,
                    stdout: true,
                    stderr: true,
                    tty: false,
                },
            })
            .await?;
        let (stdout, stdout_writer) = tokio::io::duplex(PIPE_BYTES);
        let (stderr, stderr_writer) = tokio::io::duplex(PIPE_BYTES);
        let (_no_terminal, resize) = mpsc::channel(1);
        let ended = session(Streams {
            stdin: None,
            stdout: Some(Box::new(stdout_writer)),
            stderr: Some(Box::new(stderr_writer)),
            resize,
        });
        let output = Mutex::new(Vec::new());
        let collected =
            async { tokio::try_join!(collect(stdout, &output), collect(stderr, &output)) };
        // A reader that fails cancels the command.
        let ended = async { ended.await.map_err(Failure::from) };
        let (status, _) = tokio::try_join!(ended, collected)?;
        let output = output.into_inner();
        if status.code != 0 {
            let code = status.code;
            let output = String::from_utf8_lossy(&output);
            let message = format!("command terminated with exit code {code}: {output}");
            return Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, message));
        }
        Ok(text(StatusCode::OK, output))
    }
}

async fn collect(
    mut reader: impl AsyncRead + Unpin,
    output: &Mutex<Vec<u8>>,
) -> Result<(), Failure> {
    let mut buffer = vec![0; PIPE_BYTES];
    loop {
        // A pipe does not fail.
        let count = reader.read(&mut buffer).await.unwrap_or_default();
        if count == 0 {
            return Ok(());
        }
        let mut output = output.lock();
        if output.len() + count > MAX_OUTPUT_BYTES {
            let message = format!("the command wrote more than {MAX_OUTPUT_BYTES} bytes; use exec");
            return Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, message));
        }
        output.extend_from_slice(buffer.get(..count).unwrap_or_default());
    }
}
