//! Objects as rows and columns, as `kubectl get` prints them.

mod cells;
mod columns;
mod workloads;

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Value, json};

use super::request::Parameters;
use super::resources::ResourceInfo;
use super::status::ApiError;
use crate::store::{Form, Record};

/// The part of each object that a row includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    /// `string`, `integer`, `boolean` or `date`.
    pub(crate) kind: &'static str,
    /// Printed only by `-o wide`.
    pub(crate) wide: bool,
}

impl Include {
    pub(crate) fn parse(parameters: &Parameters) -> Result<Self, ApiError> {
        match parameters.get("includeObject") {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(ApiError::bad_request(format!(
                "unrecognized includeObject value: {other:?}"
            ))),
        }
    }
}

/// Builds a `Table` of objects.
pub(crate) fn document(
    info: &'static ResourceInfo,
    records: &[Arc<Record>],
    include: Include,
    now: SystemTime,
    metadata: &Value,
    with_columns: bool,
) -> Value {
    let rows: Vec<Value> = records
        .iter()
        .map(|record| {
            let object = record.value(info);
            let cells = cells::cells(info.resource, &object, now);
            let shown = match include {
                Include::None => Value::Null,
                Include::Object => object,
                Include::Metadata => {
                    let mut text = Vec::new();
                    record.write(&mut text, info, Form::Metadata);
                    serde_json::from_slice(&text).unwrap_or_default()
                }
            };
            json!({"cells": cells, "object": shown})
        })
        .collect();
    table(info, metadata, with_columns, &rows)
}

/// Builds a bookmark in a watch of tables: a row of empty cells with the bookmark's object.
pub(crate) fn bookmark(
    info: &'static ResourceInfo,
    partial: &Value,
    metadata: &Value,
    with_columns: bool,
) -> Value {
    let cells: Vec<Value> = columns::columns(info.resource)
        .iter()
        .map(|_| json!(""))
        .collect();
    let metadata = json!({"resourceVersion": metadata["resourceVersion"]});
    table(
        info,
        &metadata,
        with_columns,
        &[json!({"cells": cells, "object": partial})],
    )
}

fn table(
    info: &'static ResourceInfo,
    metadata: &Value,
    with_columns: bool,
    rows: &[Value],
) -> Value {
    let definitions: Value = if with_columns {
        columns::columns(info.resource)
            .iter()
            .map(definition)
            .collect()
    } else {
        Value::Null
    };
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

fn definition(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type": column.kind,
        "format": if column.name == "Name" { "name" } else { "" },
        "description": "",
        "priority": i32::from(column.wide),
    })
}
