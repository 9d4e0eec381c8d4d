//! A dialogue with a server: lines and bytes are expected, lines are sent.

use std::io;

use regex::bytes::Regex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::super::connect::handshake;
use super::QueryResponse;
use crate::run::{Run, printable};
use crate::{Failure, ProbeTls, Reason};

/// A connection, and what was received and not yet read.
pub(super) struct Dialogue {
    stream: Box<dyn Stream>,
    received: Vec<u8>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Maximum length of a line.
const MAX_LINE: usize = 64 * 1024;
/// How much is read in search of a line that matches.
const MAX_SEARCH: usize = 1024 * 1024;
/// Maximum number of labels, and of characters of a value.
const MAX_LABELS: usize = 16;
const MAX_LABEL: usize = 128;

impl Dialogue {
    pub(super) fn new(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            received: Vec::new(),
        }
    }

    /// Expects, and then sends.
    pub(super) async fn step(
        &mut self,
        run: &mut Run<'_>,
        step: &QueryResponse,
    ) -> Result<(), Failure> {
        let mut send = step.send.as_ref().map(|text| text.clone().into_bytes());
        if let Some(expect) = &step.expect {
            let line = self.search(run, expect).await?;
            if let Some(captures) = expect.captures(&line) {
                let expanded = |template: &str| {
                    let mut text = Vec::new();
                    captures.expand(template.as_bytes(), &mut text);
                    text
                };
                send = step.send.as_deref().map(expanded);
                let labels = step.labels.iter().map(|(name, template)| {
                    let value = expanded(template);
                    let value = printable(&String::from_utf8_lossy(&value));
                    (name.clone(), value.chars().take(MAX_LABEL).collect())
                });
                let room = MAX_LABELS.saturating_sub(run.facts.expect_labels.len());
                run.facts.expect_labels.extend(labels.take(room));
            }
        }
        if let Some(bytes) = &step.expect_bytes {
            self.expect_bytes(run, bytes).await?;
        }
        if let Some(mut line) = send.filter(|line| !line.is_empty()) {
            line.push(b'\n');
            let written = async {
                self.stream.write_all(&line).await?;
                self.stream.flush().await
            };
            written.await.map_err(|error| run.fail_io(&error))?;
        }
        Ok(())
    }

    /// Continues with TLS. What was received in plain text after the last step could be from
    /// anyone: it is not read as if it had come by TLS.
    pub(super) async fn start_tls(
        self,
        run: &mut Run<'_>,
        name: &str,
        tls: &ProbeTls,
    ) -> Result<Self, Failure> {
        if !self.received.is_empty() {
            let message = "the server sent more before TLS was started";
            return Err(run.fail(Reason::TlsProtocol, message));
        }
        Ok(Self::new(
            handshake(run, self.stream, name, tls, &[]).await?,
        ))
    }

    /// Reads lines until one matches, and returns it.
    async fn search(&mut self, run: &Run<'_>, expect: &Regex) -> Result<Vec<u8>, Failure> {
        let mut searched = 0_usize;
        loop {
            let line = self.line().await.map_err(|error| run.fail_io(&error))?;
            let Some(line) = line else {
                let (reason, message) = if searched == 0 {
                    (Reason::ReadEof, "the server closed the connection")
                } else {
                    (
                        Reason::ExpectMismatch,
                        "no line matched before the connection was closed",
                    )
                };
                return Err(run.fail(reason, message));
            };
            if expect.is_match(&line) {
                return Ok(line);
            }
            searched = searched.saturating_add(line.len()).saturating_add(1);
            if line.len() >= MAX_LINE || searched > MAX_SEARCH {
                let message = format!("no match in {searched} bytes");
                return Err(run.fail(Reason::ExpectMismatch, message));
            }
        }
    }

    /// Reads a line, without its end; `None` at the end of the stream. A line that is too long is
    /// cut.
    async fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut scanned = 0;
        loop {
            let unseen = self.received.get(scanned..).unwrap_or_default();
            let end = unseen.iter().position(|byte| *byte == b'\n');
            if let Some(end) = end.map(|end| end.saturating_add(scanned)) {
                let mut line: Vec<u8> = self.received.drain(..=end).collect();
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(Some(line));
            }
            scanned = self.received.len();
            if scanned >= MAX_LINE || self.receive().await? == 0 {
                let rest = std::mem::take(&mut self.received);
                return Ok(Some(rest).filter(|rest| !rest.is_empty()));
            }
        }
    }

    async fn expect_bytes(&mut self, run: &Run<'_>, bytes: &[u8]) -> Result<(), Failure> {
        while self.received.len() < bytes.len() {
            let received = self.receive().await.map_err(|error| run.fail_io(&error))?;
            if received == 0 {
                let message = "the server closed the connection before all expected bytes";
                return Err(run.fail(Reason::ReadEof, message));
            }
        }
        let is_match = self.received.starts_with(bytes);
        self.received.drain(..bytes.len());
        if is_match {
            Ok(())
        } else {
            Err(run.fail(Reason::ExpectMismatch, "other bytes than the expected ones"))
        }
    }

    async fn receive(&mut self) -> io::Result<usize> {
        let mut chunk = [0; 4096];
        let length = self.stream.read(&mut chunk).await?;
        let chunk = chunk.get(..length).unwrap_or_default();
        self.received.extend_from_slice(chunk);
        Ok(length)
    }
}
