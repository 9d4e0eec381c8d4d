//! Reads the files of a log, one after another, and shows their lines.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};

use flate2::read::MultiGzDecoder;
use kubevitals_kubelet_api::provider::{LogOptions, LogStream};
use kubevitals_model::Timestamp;
use memchr::{memchr, memchr_iter};

use crate::files::{FileId, LogPath, open_regular};
use crate::line::{LogLine, Stream};

/// The bytes that are read at once.
const BLOCK: usize = 64 << 10;

/// The bytes that a step reads at most, so that a long file does not occupy a thread.
const STEP: usize = 1 << 20;

/// The maximum length of a stored line. Runtimes split at 16 KiB; the rest of a longer one is left
/// out.
const MAX_LINE: usize = 1 << 20;

/// The maximum size of a compressed file once it is decompressed.
const MAX_DECOMPRESSED: u64 = 1 << 30;

/// Reads a log, step by step.
pub(crate) struct Reader {
    path: LogPath,
    /// The files that are still to be read, the current one last.
    sources: VecDeque<Source>,
    follow: bool,
    carry: Carry,
    /// Whether the file was rotated, and its last lines are still to be read.
    is_rotated: bool,
    is_done: bool,
    show: Show,
    block: Vec<u8>,
}

/// An incomplete line.
#[derive(Default)]
struct Carry {
    line: Vec<u8>,
    /// Whether the rest of an overlong line is skipped.
    skips_rest: bool,
}

/// What a step of a [`Reader`] found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Text to show; empty if all that was read is filtered out.
    Data(Vec<u8>),
    /// Nothing more for now.
    Idle,
    /// Nothing more at all.
    Done,
}

struct Source {
    content: Content,
    id: FileId,
    /// The bytes to read, if the end is fixed: a log that grows faster than it is read would never
    /// end.
    remaining: Option<u64>,
    /// Lines before the first one that is shown.
    skip_lines: u64,
}

enum Content {
    Plain(File),
    Compressed(Box<MultiGzDecoder<File>>),
}

/// Selects lines and writes their texts.
struct Show {
    timestamps: bool,
    since: Option<Timestamp>,
    stream: Option<Stream>,
    bytes_left: Option<u64>,
    lines_left: Option<u64>,
    is_line_start: bool,
    format: Format,
}

/// Whether lines are in a known format.
#[derive(PartialEq, Eq)]
enum Format {
    /// There was no line yet.
    Unknown,
    /// At least one is.
    Known,
    /// None is.
    Other,
}

impl Reader {
    pub(crate) fn open(path: LogPath, options: &LogOptions) -> io::Result<Self> {
        let mut sources = open_sources(&path, options)?;
        if let Some(lines) = options.tail_lines {
            seek_tail(&mut sources, lines)?;
        }
        Ok(Self {
            path,
            sources,
            follow: options.follow,
            carry: Carry::default(),
            is_rotated: false,
            is_done: false,
            show: Show::new(options),
            block: vec![0; BLOCK],
        })
    }

    /// Reads on. A reader that follows returns [`Step::Idle`] at the end of the file.
    pub(crate) fn step(&mut self) -> io::Result<Step> {
        let mut out = Vec::new();
        let mut read = 0;
        loop {
            if self.is_done || self.show.is_done() {
                self.is_done = true;
                return self.finished(out);
            }
            if out.len() >= BLOCK || read >= STEP {
                return Ok(Step::Data(out));
            }
            let count = self.fill()?;
            read += count;
            if count > 0 {
                self.split(count, &mut out);
            } else if self.sources.len() > 1 {
                self.end_line(&mut out);
                self.sources.pop_front();
            } else if !self.follow {
                self.end_line(&mut out);
                self.is_done = true;
            } else if !out.is_empty() {
                return Ok(Step::Data(out));
            } else if !self.advance()? {
                return Ok(Step::Idle);
            }
        }
    }

    /// Returns what is left once nothing more will be written.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.show.is_done() {
            self.end_line(&mut out);
        }
        self.is_done = true;
        out
    }

    fn finished(&self, out: Vec<u8>) -> io::Result<Step> {
        if !out.is_empty() {
            return Ok(Step::Data(out));
        }
        if self.show.format == Format::Other {
            let message = format!(
                "{} is not in a known log format",
                self.path.current().display()
            );
            return Err(io::Error::new(ErrorKind::InvalidData, message));
        }
        Ok(Step::Done)
    }

    /// Reads a block of the first source.
    fn fill(&mut self) -> io::Result<usize> {
        let Some(source) = self.sources.front_mut() else {
            return Ok(0);
        };
        let most = source.remaining.unwrap_or(u64::MAX).min(BLOCK as u64);
        let most = usize::try_from(most).unwrap_or(BLOCK);
        let block = self.block.get_mut(..most).unwrap_or_default();
        let count = loop {
            match source.content.read(block) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if let Some(remaining) = &mut source.remaining {
            *remaining = remaining.saturating_sub(count as u64);
        }
        Ok(count)
    }

    /// Shows the complete lines of the block, and keeps the rest.
    fn split(&mut self, count: usize, out: &mut Vec<u8>) {
        let block = std::mem::take(&mut self.block);
        let mut rest = block.get(..count).unwrap_or_default();
        while let Some(end) = memchr(b'\n', rest) {
            let (line, next) = rest.split_at(end);
            rest = next.get(1..).unwrap_or_default();
            if self.carry.line.is_empty() && !self.carry.skips_rest {
                self.line(line, out);
            } else {
                self.keep(line, out);
                self.end_line(out);
            }
        }
        self.keep(rest, out);
        self.block = block;
    }

    /// Keeps a part of an incomplete line, within the limit.
    fn keep(&mut self, part: &[u8], out: &mut Vec<u8>) {
        if self.carry.skips_rest {
            return;
        }
        let room = MAX_LINE - self.carry.line.len();
        self.carry
            .line
            .extend_from_slice(part.get(..room).unwrap_or(part));
        if part.len() >= room {
            self.end_line(out);
            self.carry.skips_rest = true;
        }
    }

    /// Shows the incomplete line, if there is one.
    fn end_line(&mut self, out: &mut Vec<u8>) {
        self.carry.skips_rest = false;
        if !self.carry.line.is_empty() {
            let mut line = std::mem::take(&mut self.carry.line);
            self.line(&line, out);
            line.clear();
            self.carry.line = line;
        }
    }

    fn line(&mut self, line: &[u8], out: &mut Vec<u8>) {
        match self.sources.front_mut() {
            Some(source) if source.skip_lines > 0 => source.skip_lines -= 1,
            _ => self.show.line(line, out),
        }
    }

    /// At the end of the current file: starts again if it was truncated, goes on to the next if it
    /// was rotated. Returns whether there may be more.
    fn advance(&mut self) -> io::Result<bool> {
        let Some(source) = self.sources.front_mut() else {
            return Ok(false);
        };
        let old = source.id;
        if let Content::Plain(file) = &mut source.content
            && file.metadata()?.len() < file.stream_position()?
        {
            file.rewind()?;
            self.carry = Carry::default();
            return Ok(true);
        }
        let next = match self.path.open_current() {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // Between the two steps of a rotation, or removed with its pod.
                self.is_done = !self.path.folder().exists();
                return Ok(self.is_done);
            }
            Err(error) => return Err(error),
        };
        let next = Source::plain(next)?;
        if next.id == old {
            return Ok(false);
        }
        if !self.is_rotated {
            // The writer may have added lines between our last read and the rotation.
            self.is_rotated = true;
            return Ok(true);
        }
        self.is_rotated = false;
        // Files that were rotated since, if the reader was too slow to see them.
        let mut rotated = Vec::new();
        for file in self.path.rotated()? {
            rotated.extend(Source::open(&file.path, file.is_compressed)?);
        }
        if let Some(at) = rotated.iter().position(|file| file.id == old) {
            let between = rotated.drain(at + 1..).filter(|file| file.id != next.id);
            self.sources.extend(between);
        }
        self.sources.push_back(next);
        Ok(true)
    }
}

impl Source {
    fn plain(file: File) -> io::Result<Self> {
        Ok(Self {
            id: FileId::of(&file)?,
            content: Content::Plain(file),
            remaining: None,
            skip_lines: 0,
        })
    }

    fn compressed(file: File) -> io::Result<Self> {
        Ok(Self {
            id: FileId::of(&file)?,
            content: Content::Compressed(Box::new(MultiGzDecoder::new(file))),
            remaining: Some(MAX_DECOMPRESSED),
            skip_lines: 0,
        })
    }

    /// Opens a rotated file; `None` if it is gone.
    fn open(path: &std::path::Path, is_compressed: bool) -> io::Result<Option<Self>> {
        let file = match open_regular(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if is_compressed {
            Self::compressed(file).map(Some)
        } else {
            Self::plain(file).map(Some)
        }
    }

    /// Moves the start to the last `lines` lines. Returns how many there are, if they are fewer.
    fn seek_tail(&mut self, lines: u64) -> io::Result<u64> {
        match &mut self.content {
            Content::Plain(file) => {
                let end = self.remaining.unwrap_or(file.metadata()?.len());
                let (start, found) = tail_start(file, end, lines)?;
                file.seek(SeekFrom::Start(start))?;
                self.remaining = self.remaining.map(|_| end - start);
                Ok(found)
            }
            Content::Compressed(decoder) => {
                let found = count_lines(decoder)?;
                let mut file = decoder.get_ref().try_clone()?;
                file.rewind()?;
                **decoder = MultiGzDecoder::new(file);
                self.skip_lines = found.saturating_sub(lines);
                Ok(found.min(lines))
            }
        }
    }
}

impl Content {
    fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read(block),
            Self::Compressed(decoder) => decoder.read(block),
        }
    }
}

impl Show {
    fn new(options: &LogOptions) -> Self {
        Self {
            timestamps: options.timestamps,
            since: options.since,
            stream: match options.stream {
                LogStream::All => None,
                LogStream::Stdout => Some(Stream::Stdout),
                LogStream::Stderr => Some(Stream::Stderr),
            },
            bytes_left: options.limit_bytes,
            // A reader that follows shows more than the tail.
            lines_left: options.tail_lines.filter(|_| !options.follow),
            is_line_start: true,
            format: Format::Unknown,
        }
    }

    fn is_done(&self) -> bool {
        self.bytes_left == Some(0) || self.lines_left == Some(0)
    }

    fn line(&mut self, line: &[u8], out: &mut Vec<u8>) {
        if self.is_done() {
            return;
        }
        let Some(line) = LogLine::parse(line) else {
            if self.format == Format::Unknown {
                self.format = Format::Other;
            }
            return;
        };
        self.format = Format::Known;
        if let Some(left) = &mut self.lines_left {
            *left -= 1;
        }
        let is_early = self.since.is_some_and(|since| line.at < since);
        let is_other = self.stream.is_some_and(|stream| line.stream != stream);
        if is_early || is_other {
            return;
        }
        let start = out.len();
        if self.timestamps && self.is_line_start {
            line.write_time(out);
            out.push(b' ');
        }
        out.extend_from_slice(&line.text);
        if !line.is_partial {
            out.push(b'\n');
        }
        self.is_line_start = !line.is_partial || (self.is_line_start && line.text.is_empty());
        if let Some(left) = &mut self.bytes_left {
            let most = usize::try_from(*left).unwrap_or(usize::MAX);
            out.truncate(start.saturating_add(most));
            *left = left.saturating_sub((out.len() - start) as u64);
        }
    }
}

/// Opens the files of a log, the oldest first. The current one must exist.
fn open_sources(path: &LogPath, options: &LogOptions) -> io::Result<VecDeque<Source>> {
    // First, so that a file that is rotated meanwhile is not missed, but found twice.
    let mut current = Source::plain(path.open_current()?)?;
    if let (Content::Plain(file), false) = (&current.content, options.follow) {
        current.remaining = Some(file.metadata()?.len());
    }
    let mut sources = VecDeque::new();
    for rotated in path.rotated()? {
        let Some(source) = Source::open(&rotated.path, rotated.is_compressed)? else {
            continue;
        };
        let is_old = options
            .since
            .is_some_and(|since| source.modified().is_some_and(|time| time < since));
        if source.id != current.id && !is_old {
            sources.push_back(source);
        }
    }
    sources.push_back(current);
    Ok(sources)
}

impl Source {
    /// The time of the last line at the latest.
    fn modified(&self) -> Option<Timestamp> {
        let file = match &self.content {
            Content::Plain(file) => file,
            Content::Compressed(decoder) => decoder.get_ref(),
        };
        let time = file.metadata().ok()?.modified().ok()?;
        Some(Timestamp::from_system_time(time))
    }
}

/// Leaves the last `lines` lines of all files.
fn seek_tail(sources: &mut VecDeque<Source>, lines: u64) -> io::Result<()> {
    let mut left = lines;
    let mut first = 0;
    for (index, source) in sources.iter_mut().enumerate().rev() {
        left -= source.seek_tail(left)?.min(left);
        first = index;
        if left == 0 {
            break;
        }
    }
    sources.drain(..first);
    Ok(())
}

/// Returns where the last `lines` lines before `end` start, and how many there are.
fn tail_start(file: &mut File, end: u64, lines: u64) -> io::Result<(u64, u64)> {
    let mut block = vec![0; BLOCK];
    let mut found = 0;
    let mut right = end;
    while right > 0 {
        let left = right.saturating_sub(BLOCK as u64);
        let length = usize::try_from(right - left).unwrap_or(BLOCK);
        let part = block.get_mut(..length).unwrap_or_default();
        file.seek(SeekFrom::Start(left))?;
        file.read_exact(part)?;
        for at in memchr::memrchr_iter(b'\n', part) {
            if found == lines {
                return Ok((left + at as u64 + 1, found));
            }
            found += 1;
        }
        right = left;
    }
    Ok((0, found))
}

fn count_lines(content: &mut impl Read) -> io::Result<u64> {
    let mut block = vec![0; BLOCK];
    let mut lines = 0;
    let mut content = content.take(MAX_DECOMPRESSED);
    loop {
        let count = content.read(&mut block)?;
        if count == 0 {
            return Ok(lines);
        }
        let part = block.get(..count).unwrap_or_default();
        lines += memchr_iter(b'\n', part).count() as u64;
    }
}
