//! Attaching to the main process of a container.

use kubevitals_kubelet_api::ProviderError;
use kubevitals_kubelet_api::provider::{
    Attach, AttachRequest, ExitStatus, ProviderFuture, Session, Streams,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::link::{Link, LinkReader};
use crate::runtime::ProcessRuntime;
use crate::shim::protocol::Kind;

const BUFFER: usize = 16 << 10;

impl Attach for ProcessRuntime {
    fn attach(&self, request: AttachRequest) -> ProviderFuture<'_, Session> {
        Box::pin(async move {
            self.inner.metrics.session("attach");
            let instance = self.running(&request.target)?;
            let gone = |error| {
                ProviderError::Conflict(format!(
                    "attach to container {:?}: {error}",
                    request.target.container
                ))
            };
            let mut link = Link::connect(&instance.folder).await.map_err(gone)?;
            let wanted = [
                u8::from(request.streams.stdout),
                u8::from(request.streams.stderr),
            ];
            link.writer
                .send(Kind::Attach, &wanted)
                .await
                .map_err(gone)?;
            let takes_input = instance.launch.stdin;
            let session: Session = Box::new(move |streams| {
                Box::pin(async move {
                    copy(link, streams, takes_input).await;
                    Ok(ExitStatus { code: 0 })
                })
            });
            Ok(session)
        })
    }
}

/// Copies until the container ends or the client leaves.
async fn copy(link: Link, streams: Streams, takes_input: bool) {
    let Link { reader, mut writer } = link;
    let Streams {
        stdin,
        stdout,
        stderr,
        mut resize,
    } = streams;
    let mut stdin = stdin.filter(|_| takes_input);
    let output = read_frames(reader, stdout, stderr);
    let input = async {
        let mut buffer = vec![0; BUFFER];
        let mut has_sizes = true;
        while has_sizes || stdin.is_some() {
            let read = async {
                match &mut stdin {
                    Some(stdin) => stdin.read(&mut buffer).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                count = read => {
                    let data = count.ok().and_then(|count| buffer.get(..count)).unwrap_or_default();
                    let sent = if data.is_empty() {
                        stdin = None;
                        writer.send(Kind::StdinEnd, &[]).await
                    } else {
                        writer.send(Kind::Stdin, data).await
                    };
                    if sent.is_err() {
                        break;
                    }
                }
                size = resize.recv(), if has_sizes => match size {
                    Some(size) => {
                        let [w0, w1] = size.width.to_be_bytes();
                        let [h0, h1] = size.height.to_be_bytes();
                        if writer.send(Kind::Resize, &[w0, w1, h0, h1]).await.is_err() {
                            break;
                        }
                    }
                    None => has_sizes = false,
                },
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = output => {}
        () = input => {}
    }
}

async fn read_frames(
    mut reader: LinkReader,
    mut stdout: Option<Box<dyn tokio::io::AsyncWrite + Send + Unpin>>,
    mut stderr: Option<Box<dyn tokio::io::AsyncWrite + Send + Unpin>>,
) {
    while let Ok(Some((kind, data))) = reader.next().await {
        let writer = match kind {
            Kind::Stdout => &mut stdout,
            Kind::Stderr => &mut stderr,
            _ => continue,
        };
        if let Some(writer) = writer
            && (writer.write_all(&data).await.is_err() || writer.flush().await.is_err())
        {
            return;
        }
    }
    for mut writer in [stdout, stderr].into_iter().flatten() {
        let _ = writer.shutdown().await;
    }
}
