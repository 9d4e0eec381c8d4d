//! Data points as lines.

use std::io::{self, Write};
use std::time::Duration;

use kubevitals_model::{Rfc3339, Timestamp};
use kubevitals_sink::{
    Attributes, DataPoint, Exemplar, Kind, Measurement, Number, SinkCounts, SinkMetrics,
};
use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Serialize, Serializer};

use crate::lines::JsonLines;

/// The JSON Schema (2020-12) of the lines of [`point_line`].
pub const POINT_SCHEMA: &str = include_str!("../../../../docs/schemas/points.schema.json");

/// Queues data points as lines, and writes them on a thread of its own. Clones share the queue.
#[derive(Debug, Clone)]
pub struct PointLines {
    lines: JsonLines,
}

#[derive(Serialize)]
struct Line<'p> {
    time: &'p str,
    name: &'p str,
    unit: &'p str,
    kind: &'static str,
    attributes: Pairs<'p>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<&'p str>,
    #[serde(flatten)]
    value: Value<'p>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Value<'p> {
    Number {
        value: NumberText,
    },
    Distribution {
        count: u64,
        sum: NumberText,
        bounds: &'p [f64],
        counts: &'p [u64],
        #[serde(skip_serializing_if = "Exemplars::is_empty")]
        exemplars: Exemplars<'p>,
    },
}

struct Pairs<'p>(&'p Attributes);

struct Exemplars<'p>(&'p [Exemplar]);

/// JSON has no numbers that are not finite: these are texts, as in the JSON of protobuf.
struct NumberText(Number);

#[derive(Serialize)]
struct ExemplarLine<'p> {
    time: &'p str,
    value: NumberText,
    attributes: Pairs<'p>,
}

/// Returns a data point as a line of JSON, with its line break.
#[expect(clippy::missing_panics_doc, reason = "it cannot happen")]
pub fn point_line(point: &DataPoint) -> Vec<u8> {
    let time = point.timestamp.rfc3339_millis();
    let start = point.start().map(Timestamp::rfc3339_millis);
    let line = Line {
        time: time.as_str(),
        name: &point.name,
        unit: &point.unit,
        kind: match point.kind() {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Distribution => "distribution",
        },
        attributes: Pairs(&point.attributes),
        start: start.as_ref().map(Rfc3339::as_str),
        value: match &point.measurement {
            Measurement::Gauge(number) | Measurement::Counter { total: number, .. } => {
                Value::Number {
                    value: NumberText(*number),
                }
            }
            Measurement::Distribution { value, .. } => Value::Distribution {
                count: value.count(),
                sum: NumberText(Number::Float(value.sum)),
                bounds: value.bounds(),
                counts: value.bucket_counts(),
                exemplars: Exemplars(&value.exemplars),
            },
        },
    };
    let mut out = serde_json::to_vec(&line).expect("all keys are texts, and a vector has room");
    out.push(b'\n');
    out
}

impl PointLines {
    /// Starts a thread that writes to `out`, with a queue of up to `capacity` bytes.
    pub fn start(
        out: impl Write + Send + 'static,
        capacity: usize,
        metrics: SinkMetrics,
    ) -> io::Result<Self> {
        let lines = JsonLines::start(out, capacity, metrics)?;
        Ok(Self { lines })
    }

    /// Queues a data point, and returns whether there was room. Never waits for the output.
    pub fn push(&self, point: &DataPoint) -> bool {
        self.lines.push(point_line(point))
    }

    /// The points so far.
    pub fn counts(&self) -> SinkCounts {
        self.lines.counts()
    }

    /// Accepts no more points, waits up to `grace` for the queued ones to be written, and drops the
    /// rest.
    pub async fn shutdown(&self, grace: Duration) -> SinkCounts {
        self.lines.shutdown(grace).await
    }
}

impl Exemplars<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.iter().len()))?;
        for (name, value) in self.0.iter() {
            map.serialize_entry(&**name, &**value)?;
        }
        map.end()
    }
}

impl Serialize for Exemplars<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for exemplar in self.0 {
            list.serialize_element(&ExemplarLine {
                time: exemplar.timestamp.rfc3339_millis().as_str(),
                value: NumberText(Number::Float(exemplar.value)),
                attributes: Pairs(&exemplar.attributes),
            })?;
        }
        list.end()
    }
}

impl Serialize for NumberText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Number::Integer(number) => serializer.serialize_i64(number),
            Number::Float(number) if number.is_finite() => serializer.serialize_f64(number),
            Number::Float(number) if number.is_nan() => serializer.serialize_str("NaN"),
            Number::Float(number) if number > 0.0 => serializer.serialize_str("Infinity"),
            Number::Float(_) => serializer.serialize_str("-Infinity"),
        }
    }
}
