//! Lists, written piece by piece as the socket takes them.

use std::sync::Arc;

use bytes::Bytes;
use kubevitals_apiserver::{Encoding, Representation, Shape};

use crate::api::State;
use crate::metrics::Tally;
use crate::render::table::{Columns, RowObject};
use crate::render::{Kind, TypeMeta, json, proto};
use crate::select::Cursor;

/// The pieces of a list.
pub(crate) struct ListPieces {
    cursor: Cursor,
    style: Style,
    kind: Kind,
    step: Step,
    piece_bytes: usize,
    tally: Tally,
    writer: json::Writer,
    items: proto::Items,
    /// What messages are put together in.
    message: Vec<u8>,
    state: Arc<State>,
}

/// How items are written, and what stands around them.
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

/// What a list is made in.
#[derive(Clone, Copy)]
pub(crate) struct ListForm {
    pub(crate) kind: Kind,
    /// Of the group.
    pub(crate) api_version: &'static str,
    pub(crate) representation: Representation,
}

impl ListPieces {
    pub(crate) fn new(state: &Arc<State>, cursor: Cursor, of: ListForm) -> Self {
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
            cursor,
            style,
            kind: of.kind,
            step: Step::Head,
            piece_bytes: state.config.limits.piece_bytes,
            tally: Tally::new(state.config.clock.now()),
            writer: json::Writer::new(),
            items: proto::Items::default(),
            message: Vec::new(),
            state: Arc::clone(state),
        }
    }

    fn head(&mut self, out: &mut Vec<u8>) {
        let version = self.cursor.version();
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
                proto::put_envelope(out, *kind, meta.len() + self.cursor.total());
                out.extend_from_slice(&meta);
            }
            Style::PartialProtobuf(kind) => {
                let meta = proto::list_meta(version);
                let mut total = meta.len();
                let mut ahead = self.cursor.ahead();
                while let Some(found) = ahead.next() {
                    total += proto::partial_item_len(found.meta);
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
                if let Some(first) = self.cursor.ahead().next() {
                    *columns = Columns::of(self.kind, first.message(&mut self.message));
                    columns.put(out);
                    out.extend_from_slice(b",\"rows\":[");
                } else {
                    // As Go writes lists that were never made.
                    out.extend_from_slice(b"null,\"rows\":null");
                }
            }
        }
    }

    /// Appends items until there are enough bytes; says how many, and whether all are written.
    fn items(&mut self, out: &mut Vec<u8>, before: usize) -> (usize, bool) {
        let mut written = before;
        while out.len() < self.piece_bytes {
            let Some(found) = self.cursor.next() else {
                return (written, true);
            };
            self.tally.add(found.measured);
            match &self.style {
                Style::Json(_) => {
                    json::put_comma(out, written);
                    self.writer
                        .put_listed(out, self.kind, found.meta, found.body);
                }
                Style::Protobuf(_) => self.items.put(out, found.meta, found.body),
                Style::Partial(_, version) => {
                    json::put_comma(out, written);
                    let message = found.message(&mut self.message);
                    self.writer.put_partial(out, version, message, "");
                }
                Style::PartialProtobuf(_) => {
                    self.items.put(out, found.meta, &[]);
                }
                Style::Table(columns, with) => {
                    json::put_comma(out, written);
                    let message = found.message(&mut self.message);
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

impl Iterator for ListPieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.step == Step::Done {
            return None;
        }
        // A piece ends with the item that makes it full.
        let mut out = Vec::with_capacity(match self.step {
            Step::Head => 4 << 10,
            _ => self.piece_bytes + (4 << 10),
        });
        let before = match self.step {
            Step::Head => {
                self.head(&mut out);
                0
            }
            Step::Items { written } => written,
            Step::Done => return None,
        };
        let (written, all) = self.items(&mut out, before);
        self.step = Step::Items { written };
        if all {
            self.tail(&mut out, written);
            self.step = Step::Done;
        }
        Some(Bytes::from(out))
    }
}

impl Drop for ListPieces {
    fn drop(&mut self) {
        self.state.counts.freshness.add(&self.tally);
    }
}

/// `meta.k8s.io` in one of its versions.
pub(crate) fn meta_version(version: &str) -> &'static str {
    match version {
        "v1beta1" => "meta.k8s.io/v1beta1",
        _ => "meta.k8s.io/v1",
    }
}
