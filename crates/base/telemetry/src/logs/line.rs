//! Keeps one text event on one line.

use std::io::{self, Write};

use tracing::Metadata;
use tracing_subscriber::fmt::{MakeWriter, writer::BoxMakeWriter};

/// Creates writers that escape every line break of a write but the last.
///
/// The formatter passes each event in a single `write_all`, line break included.
#[derive(Debug)]
pub(super) struct OneLine(pub(super) BoxMakeWriter);

pub(super) struct OneLineWriter<W>(W);

impl<'w> MakeWriter<'w> for OneLine {
    type Writer = OneLineWriter<<BoxMakeWriter as MakeWriter<'w>>::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        OneLineWriter(self.0.make_writer())
    }

    fn make_writer_for(&'w self, metadata: &Metadata<'_>) -> Self::Writer {
        OneLineWriter(self.0.make_writer_for(metadata))
    }
}

impl<W: Write> Write for OneLineWriter<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let body = event.strip_suffix(b"\n").unwrap_or(event);
        if !body.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
            self.0.write_all(event)?;
            return Ok(event.len());
        }
        let mut escaped = Vec::with_capacity(event.len() + 8);
        for byte in body {
            match byte {
                b'\n' => escaped.extend_from_slice(b"\\n"),
                b'\r' => escaped.extend_from_slice(b"\\r"),
                other => escaped.push(*other),
            }
        }
        escaped.extend_from_slice(event.get(body.len()..).unwrap_or_default());
        self.0.write_all(&escaped)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_line_breaks_are_escaped() {
        for (event, want) in [
            ("plain\n", "plain\n"),
            ("two\nlines\n", "two\\nlines\n"),
            ("carriage\rreturn\r\n", "carriage\\rreturn\\r\n"),
            ("\n\n", "\\n\n"),
            ("", ""),
            ("unfinished\n and more", "unfinished\\n and more"),
        ] {
            let mut out = Vec::new();
            OneLineWriter(&mut out).write_all(event.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }
}
