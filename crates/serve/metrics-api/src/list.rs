//! Lists, encoded chunk by chunk as the socket accepts them.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use kubevitals_apiserver::{Body, BodyError, Encoding, Representation, Shape};

use crate::api::Snapshots;
use crate::metrics::ResponseAges;
use crate::readers::Reader;
use crate::render::table::{Columns, RowObject};
use crate::render::{Kind, TypeMeta, json, proto};
use crate::select::Cursor;

/// The chunks of a list response.
pub(crate) struct ListChunks {
    reader: Reader,
    encoder: Encoder,
}

/// Encodes the objects of a cursor.
struct Encoder {
    style: Style,
    kind: Kind,
    step: Step,
    chunk_bytes: usize,
    ages: ResponseAges,
    writer: json::Writer,
    items: proto::ItemWriter,
    /// A buffer for assembled messages.
    message: Vec<u8>,
    snapshots: Arc<Snapshots>,
}

/// The encoding of items and of the list around them.
#[derive(Clone)]
enum Style {
    Json(TypeMeta),
    Protobuf(TypeMeta),
    Partial(TypeMeta, &'static str),
    PartialProtobuf(TypeMeta),
    Table(Columns, RowObject),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Head,
    Items { written: usize },
    Done,
}

/// The kind, version and representation of a response.
#[derive(Clone, Copy)]
pub(crate) struct ResponseFormat {
    pub(crate) kind: Kind,
    pub(crate) api_version: &'static str,
    pub(crate) representation: Representation,
}

impl ListChunks {
    /// Returns the body of a list. One that fits into a chunk is complete, and holds nothing.
    pub(crate) fn body(snapshots: &Arc<Snapshots>, reader: Reader, of: ResponseFormat) -> Body {
        let encoder = Encoder::new(snapshots, of);
        let mut chunks = Self { reader, encoder };
        match chunks.next() {
            Some(Ok(all)) if chunks.encoder.step == Step::Done => Body::full(all),
            first => Body::fallible(stream::iter(first.into_iter().chain(chunks))),
        }
    }
}

impl Encoder {
    fn new(snapshots: &Arc<Snapshots>, of: ResponseFormat) -> Self {
        let partial = |version| TypeMeta {
            api_version: meta_version(version),
            kind: "PartialObjectMetadataList",
        };
        let style = match (of.representation.shape, of.representation.encoding) {
            (Shape::Object, Encoding::Json) => Style::Json(of.kind.list(of.api_version)),
            (Shape::Object, Encoding::Protobuf) => Style::Protobuf(of.kind.list(of.api_version)),
            (Shape::Metadata { version }, Encoding::Json) => {
                Style::Partial(partial(version), meta_version(version))
            }
            (Shape::Metadata { version }, Encoding::Protobuf) => {
                Style::PartialProtobuf(partial(version))
            }
            (Shape::Table { version, include }, _) => Style::Table(
                Columns::default(),
                RowObject {
                    include,
                    meta_version: meta_version(version),
                    object: of.kind.object(of.api_version),
                },
            ),
        };
        Self {
            style,
            kind: of.kind,
            step: Step::Head,
            chunk_bytes: snapshots.config.limits.chunk_bytes,
            ages: ResponseAges::new(snapshots.config.clock.now()),
            writer: json::Writer::new(),
            items: proto::ItemWriter::default(),
            message: Vec::new(),
            snapshots: Arc::clone(snapshots),
        }
    }

    fn head(&mut self, cursor: &Cursor, out: &mut Vec<u8>) {
        let version = self.snapshots.versions.version(cursor.version());
        let mut digits = itoa::Buffer::new();
        let version = digits.format(version);
        match &mut self.style {
            Style::Json(kind) | Style::Partial(kind, _) => {
                out.push(b'{');
                json::put_type_meta(out, *kind);
                out.extend_from_slice(b",\"metadata\":");
                json::put_list_meta(out, version);
                out.extend_from_slice(b",\"items\":[");
            }
            Style::Protobuf(kind) => {
                let meta = proto::list_meta(version);
                proto::put_envelope(out, *kind, meta.len() + cursor.total_bytes());
                out.extend_from_slice(&meta);
            }
            Style::PartialProtobuf(kind) => {
                let meta = proto::list_meta(version);
                let mut total = meta.len();
                let mut ahead = cursor.lookahead();
                while let Some(object) = ahead.next() {
                    total += proto::partial_item_len(object.meta);
                }
                proto::put_envelope(out, *kind, total);
                out.extend_from_slice(&meta);
            }
            Style::Table(columns, with) => {
                out.push(b'{');
                let api_version = with.meta_version;
                let kind = "Table";
                json::put_type_meta(out, TypeMeta { api_version, kind });
                out.extend_from_slice(b",\"metadata\":");
                json::put_list_meta(out, version);
                out.extend_from_slice(b",\"columnDefinitions\":");
                if let Some(first) = cursor.lookahead().next() {
                    *columns = Columns::of(self.kind, first.message(&mut self.message));
                    columns.put(out);
                    out.extend_from_slice(b",\"rows\":[");
                } else {
                    // As Go encodes nil slices.
                    out.extend_from_slice(b"null,\"rows\":null");
                }
            }
        }
    }

    /// Appends items until the chunk is full. Returns the number written so far, and whether these
    /// are all.
    fn items(&mut self, cursor: &mut Cursor, out: &mut Vec<u8>, before: usize) -> (usize, bool) {
        let mut written = before;
        while out.len() < self.chunk_bytes {
            let Some(object) = cursor.next() else {
                return (written, true);
            };
            self.ages.add(object.sampled);
            match &self.style {
                Style::Json(_) => {
                    json::put_comma(out, written);
                    self.writer
                        .put_list_item(out, self.kind, object.meta, object.body);
                }
                Style::Protobuf(_) => self.items.put(out, object.meta, object.body),
                Style::Partial(_, version) => {
                    json::put_comma(out, written);
                    let message = object.message(&mut self.message);
                    self.writer.put_partial(out, version, message, "");
                }
                Style::PartialProtobuf(_) => {
                    self.items.put(out, object.meta, &[]);
                }
                Style::Table(columns, with) => {
                    json::put_comma(out, written);
                    let message = object.message(&mut self.message);
                    columns.put_row(&mut self.writer, out, self.kind, message, *with, "");
                }
            }
            written += 1;
        }
        (written, false)
    }

    fn tail(&self, out: &mut Vec<u8>, written: usize) {
        match &self.style {
            Style::Table(..) if written == 0 => out.extend_from_slice(b"}\n"),
            Style::Json(_) | Style::Partial(..) | Style::Table(..) => {
                out.extend_from_slice(b"]}\n");
            }
            Style::Protobuf(_) | Style::PartialProtobuf(_) => proto::put_envelope_end(out),
        }
    }
}

impl Encoder {
    /// Encodes the next chunk; there is one.
    fn chunk(&mut self, cursor: &mut Cursor) -> Bytes {
        // A chunk ends with the item that fills it.
        let mut out = Vec::with_capacity(match self.step {
            Step::Head => 4 << 10,
            _ => self.chunk_bytes + (4 << 10),
        });
        let before = match self.step {
            Step::Items { written } => written,
            Step::Head | Step::Done => {
                self.head(cursor, &mut out);
                0
            }
        };
        let (written, all) = self.items(cursor, &mut out, before);
        self.step = Step::Items { written };
        if all {
            self.tail(&mut out, written);
            self.step = Step::Done;
        }
        Bytes::from(out)
    }
}

impl Iterator for ListChunks {
    type Item = Result<Bytes, BodyError>;

    fn next(&mut self) -> Option<Self::Item> {
        let encoder = &mut self.encoder;
        if encoder.step == Step::Done {
            return None;
        }
        let chunk = self.reader.read(|cursor| encoder.chunk(cursor));
        if chunk.is_err() {
            encoder.step = Step::Done;
        }
        if encoder.step == Step::Done {
            // The last chunk may wait for its client for long.
            self.reader.finish();
        }
        Some(chunk)
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        self.snapshots.counters.freshness.add(&self.ages);
    }
}

/// Returns the `apiVersion` of `meta.k8s.io` in this version.
pub(crate) fn meta_version(version: &str) -> &'static str {
    match version {
        "v1beta1" => "meta.k8s.io/v1beta1",
        _ => "meta.k8s.io/v1",
    }
}
