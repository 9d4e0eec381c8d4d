//! Tables for `kubectl get`, with the columns of metrics-server.

use kubevitals_apiserver::IncludeObject;
use kubevitals_model::{Format, GoDuration, Quantity};

use super::json::{self, put_comma, put_text};
use super::layout::{container, object};
use super::reader::{Fields, Object, amounts};
use super::{Kind, TypeMeta};

/// The columns between name and window: the resources of the first object.
#[derive(Debug, Clone, Default)]
pub(crate) struct Columns {
    amounts: Vec<String>,
}

/// The object that is included in each row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowObject {
    pub(crate) include: IncludeObject,
    /// The `apiVersion` of partial metadata.
    pub(crate) meta_version: &'static str,
    /// The type of a whole object.
    pub(crate) object: TypeMeta,
}

impl Columns {
    pub(crate) fn of(kind: Kind, message: &[u8]) -> Self {
        let totals = totals(kind, message);
        Self {
            amounts: totals.into_iter().map(|(name, _)| name).collect(),
        }
    }

    /// Appends the column definitions.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(
            br#"[{"name":"Name","type":"string","format":"name","description":"Name of the resource","priority":0}"#,
        );
        let amounts = self.amounts.iter().map(|name| (name.as_str(), "quantity"));
        for (name, format) in amounts.chain([("Window", "duration")]) {
            out.extend_from_slice(b",{\"name\":");
            put_text(out, name);
            out.extend_from_slice(b",\"type\":\"string\",\"format\":\"");
            out.extend_from_slice(format.as_bytes());
            out.extend_from_slice(b"\",\"description\":\"\",\"priority\":0}");
        }
        out.push(b']');
    }

    /// Appends the row of an object.
    pub(crate) fn put_row(
        &self,
        writer: &mut json::Writer,
        out: &mut Vec<u8>,
        kind: Kind,
        message: &[u8],
        with: RowObject,
        resource_version: &str,
    ) {
        let object = Object::read(message);
        let totals = totals(kind, message);
        out.extend_from_slice(b"{\"cells\":[");
        put_text(out, object.name());
        for name in &self.amounts {
            let total = totals.iter().find(|(own, _)| own == name);
            out.push(b',');
            match total {
                Some((_, total)) => put_text(out, &total.to_string()),
                None => put_text(out, "0"),
            }
        }
        put_comma(out, 1);
        put_text(out, &GoDuration::from_nanos(object.window).to_string());
        out.extend_from_slice(b"],\"object\":");
        match with.include {
            IncludeObject::None => out.extend_from_slice(b"null"),
            IncludeObject::Metadata => {
                writer.put_partial(out, with.meta_version, message, resource_version);
            }
            IncludeObject::Object => {
                writer.put_object(out, kind, Some(with.object), message, resource_version);
            }
        }
        out.push(b'}');
    }
}

/// Returns the sums of an object's resources, by name. A sum that overflows keeps its last value.
fn totals(kind: Kind, message: &[u8]) -> Vec<(String, Quantity)> {
    let rest = Object::read(message).rest;
    let mut totals: Vec<(String, Quantity)> = Vec::new();
    let mut add = |name: &str, text: &str| {
        let Ok(amount) = text.parse::<Quantity>() else {
            return;
        };
        // The text of a number of bytes below 1024 does not show its format.
        let amount = amount.with_format(if name == "cpu" {
            Format::DecimalSi
        } else {
            Format::BinarySi
        });
        match totals.binary_search_by(|(own, _)| own.as_str().cmp(name)) {
            Ok(at) => {
                if let Some((_, total)) = totals.get_mut(at) {
                    *total = total.checked_add(amount).unwrap_or(*total);
                }
            }
            Err(at) => totals.insert(at, (name.to_owned(), amount)),
        }
    };
    match kind {
        Kind::Node => amounts(rest, object::USAGE).for_each(|(name, text)| add(name, text)),
        Kind::Pod => {
            for (_, message) in Fields::new(rest) {
                let message = message.bytes().unwrap_or_default();
                amounts(message, container::USAGE).for_each(|(name, text)| add(name, text));
            }
        }
    }
    totals
}
