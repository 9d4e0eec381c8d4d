//! Tables, for `kubectl get`: the columns that metrics-server has.

use kubevitals_apiserver::IncludeObject;
use kubevitals_model::{Format, GoDuration, Quantity};

use super::json::{self, put_comma, put_text};
use super::message::{Fields, Object, amounts};
use super::{Kind, TypeMeta};

/// The columns of a table between the name and the window: what the first object uses.
#[derive(Debug, Clone, Default)]
pub(crate) struct Columns {
    amounts: Vec<String>,
}

/// What goes with each row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowObject {
    pub(crate) include: IncludeObject,
    /// Of the table.
    pub(crate) meta_version: &'static str,
    /// Of a whole object.
    pub(crate) object: TypeMeta,
}

impl Columns {
    /// Those of the first object.
    pub(crate) fn of(kind: Kind, message: &[u8]) -> Self {
        let totals = totals(kind, message);
        Self {
            amounts: totals.into_iter().map(|(name, _)| name).collect(),
        }
    }

    /// Appends their definitions.
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

/// What an object uses in all, by name. A sum that is too large for a quantity stays at what it
/// was.
fn totals(kind: Kind, message: &[u8]) -> Vec<(String, Quantity)> {
    let rest = Object::read(message).rest;
    let mut totals: Vec<(String, Quantity)> = Vec::new();
    let mut add = |name: &str, text: &str| {
        let Ok(amount) = text.parse::<Quantity>() else {
            return;
        };
        // A number of bytes below 1024 does not show in its text that it is one.
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
        Kind::Node => amounts(rest, 4).for_each(|(name, text)| add(name, text)),
        Kind::Pod => {
            for (_, container) in Fields::new(rest) {
                let container = container.bytes().unwrap_or_default();
                amounts(container, 2).for_each(|(name, text)| add(name, text));
            }
        }
    }
    totals
}
