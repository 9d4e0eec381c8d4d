//! Reads `ExportMetricsServiceRequest`, by the field numbers of opentelemetry-proto.

use std::collections::BTreeMap;

use kubevitals_protobuf::{Field, Value, fields};
use serde_json::Value as Json;

use super::decode::{attributes, fixed, messages, number, of, text};

/// A data point as a receiver sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedPoint {
    pub resource: BTreeMap<String, Json>,
    pub scope: String,
    pub name: String,
    pub unit: String,
    /// Zero for a gauge.
    pub start_unix_nano: u64,
    pub time_unix_nano: u64,
    pub attributes: BTreeMap<String, Json>,
    pub value: ReceivedValue,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ReceivedValue {
    Gauge(Json),
    /// Monotonic and cumulative.
    Sum(Json),
    /// Cumulative.
    Histogram {
        count: u64,
        sum: f64,
        bucket_counts: Vec<u64>,
        bounds: Vec<f64>,
        exemplars: Vec<ReceivedExemplar>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedExemplar {
    pub value: f64,
    pub time_unix_nano: u64,
    pub attributes: BTreeMap<String, Json>,
}

/// The form of a metric.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Gauge,
    Sum,
    Histogram,
}

/// Returns the data points of a request; `None` if it is malformed, or not what a backend takes:
/// cumulative, monotonic, with a start before the end and one count more than bounds.
pub fn decode_metrics(message: &[u8]) -> Option<Vec<ReceivedPoint>> {
    let mut points = Vec::new();
    for resource_metrics in messages(message, 1)? {
        let resource = match messages(resource_metrics, 1)?.last() {
            Some(resource) => attributes(&fields(resource)?, 1)?,
            None => BTreeMap::new(),
        };
        for scope_metrics in messages(resource_metrics, 2)? {
            let scope = match messages(scope_metrics, 1)?.last() {
                Some(scope) => text(&fields(scope)?, 1)?,
                None => String::new(),
            };
            for metric in messages(scope_metrics, 2)? {
                decode_metric(metric, &resource, &scope, &mut points)?;
            }
        }
    }
    Some(points)
}

fn decode_metric(
    message: &[u8],
    resource: &BTreeMap<String, Json>,
    scope: &str,
    points: &mut Vec<ReceivedPoint>,
) -> Option<()> {
    let all = fields(message)?;
    let name = text(&all, 1)?;
    let forms = [(5, Form::Gauge), (7, Form::Sum), (9, Form::Histogram)];
    let (data, form) = forms.iter().find_map(|(number, form)| {
        let data = of(&all, *number).last()?.bytes()?;
        Some((data, *form))
    })?;
    let fields_of_data = fields(data)?;
    let is_cumulative = number(&fields_of_data, 2)? == 2;
    let is_monotonic = number(&fields_of_data, 3)? == 1;
    let is_sound = match form {
        Form::Gauge => true,
        Form::Sum => is_cumulative && is_monotonic,
        Form::Histogram => is_cumulative,
    };
    let found = messages(data, 1)?;
    if name.is_empty() || found.is_empty() || !is_sound {
        return None;
    }
    for point in found {
        let point = fields(point)?;
        let (start, time) = (fixed(&point, 2)?, fixed(&point, 3)?);
        if time == 0 || (form != Form::Gauge && start > time) {
            return None;
        }
        let attributes_field = if form == Form::Histogram { 9 } else { 7 };
        points.push(ReceivedPoint {
            resource: resource.clone(),
            scope: scope.to_owned(),
            name: name.clone(),
            unit: text(&all, 3)?,
            start_unix_nano: start,
            time_unix_nano: time,
            attributes: attributes(&point, attributes_field)?,
            value: match form {
                Form::Gauge => ReceivedValue::Gauge(decode_number(&point)?),
                Form::Sum => ReceivedValue::Sum(decode_number(&point)?),
                Form::Histogram => decode_histogram(&point)?,
            },
        });
    }
    Some(())
}

fn decode_number(point: &[Field<'_>]) -> Option<Json> {
    if let Some(Value::Fixed64(bits)) = of(point, 4).last() {
        // JSON has no name for values that are not finite.
        let number = f64::from_bits(bits);
        let text = || Json::from(number.to_string());
        return Some(serde_json::Number::from_f64(number).map_or_else(text, Json::from));
    }
    match of(point, 6).last()? {
        Value::Fixed64(bits) => Some(Json::from(bits.cast_signed())),
        _ => None,
    }
}

fn decode_histogram(point: &[Field<'_>]) -> Option<ReceivedValue> {
    let bucket_counts: Vec<u64> = packed(point, 6)?.map(u64::from_le_bytes).collect();
    let bounds: Vec<f64> = packed(point, 7)?.map(f64::from_le_bytes).collect();
    let count = fixed(point, 4)?;
    let sum: u64 = bucket_counts.iter().sum();
    if bucket_counts.len() != bounds.len() + 1 || sum != count {
        return None;
    }
    let exemplars = of(point, 8).map(|exemplar| {
        let exemplar = fields(exemplar.bytes()?)?;
        Some(ReceivedExemplar {
            value: f64::from_bits(fixed(&exemplar, 3)?),
            time_unix_nano: fixed(&exemplar, 2)?,
            attributes: attributes(&exemplar, 7)?,
        })
    });
    Some(ReceivedValue::Histogram {
        count,
        sum: f64::from_bits(fixed(point, 5)?),
        bucket_counts,
        bounds,
        exemplars: exemplars.collect::<Option<_>>()?,
    })
}

/// A packed field of numbers of eight bytes.
fn packed<'m>(all: &[Field<'m>], number: u32) -> Option<impl Iterator<Item = [u8; 8]> + 'm> {
    let bytes = match of(all, number).last() {
        Some(value) => value.bytes()?,
        None => &[],
    };
    let (numbers, rest) = bytes.as_chunks::<8>();
    rest.is_empty().then(|| numbers.iter().copied())
}
