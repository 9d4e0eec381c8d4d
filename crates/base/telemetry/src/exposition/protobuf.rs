//! Writes `io.prometheus.client.MetricFamily` messages, each after its length: the only format with
//! native histograms.
//!
//! Field numbers are those of `metrics.proto` of Prometheus' `client_model`.

use kubevitals_promtext::MetricType;
use kubevitals_protobuf::{
    put_delimited, put_double, put_int, put_message, put_sint, put_str, put_uint,
};

use super::model::{Metric, MetricFamily, Value};
use crate::histogram::NativeBuckets;

pub(super) fn write(family: &dyn MetricFamily, out: &mut Vec<u8>) {
    let descriptor = family.descriptor();
    // The number of the type, and the field of a series that holds its value.
    let (kind, field) = match descriptor.kind {
        MetricType::Counter => (0, 3),
        MetricType::Gauge => (1, 2),
        MetricType::Summary => (2, 4),
        MetricType::Untyped => (3, 5),
        MetricType::Histogram => (4, 7),
    };
    put_delimited(out, |out| {
        put_str(out, 1, &descriptor.name);
        if let Some(help) = &descriptor.help {
            put_str(out, 2, help);
        }
        put_uint(out, 3, kind);
        family.visit(&mut |metric| put_message(out, 4, |out| put_metric(out, field, metric)));
    });
}

fn put_metric(out: &mut Vec<u8>, field: u32, metric: &Metric<'_>) {
    for (name, value) in metric.labels {
        put_message(out, 1, |out| {
            put_str(out, 1, name);
            put_str(out, 2, value);
        });
    }
    put_message(out, field, |out| put_value(out, &metric.value));
    if let Some(timestamp) = metric.timestamp_ms {
        put_int(out, 6, timestamp);
    }
}

fn put_value(out: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        Value::Number(number) => put_double(out, 1, *number),
        Value::Histogram {
            count,
            sum,
            buckets,
            native,
        } => {
            put_uint(out, 1, *count);
            put_double(out, 2, *sum);
            // The bucket `+Inf` is implied, as in Go.
            for (bound, below) in *buckets {
                put_message(out, 3, |out| {
                    put_uint(out, 1, *below);
                    put_double(out, 2, *bound);
                });
            }
            if let Some(native) = native {
                put_native(out, native);
            }
        }
        Value::Summary {
            count,
            sum,
            quantiles,
        } => {
            put_uint(out, 1, *count);
            put_double(out, 2, *sum);
            for (quantile, value) in *quantiles {
                put_message(out, 3, |out| {
                    put_double(out, 1, *quantile);
                    put_double(out, 2, *value);
                });
            }
        }
    }
}

fn put_native(out: &mut Vec<u8>, native: &NativeBuckets) {
    put_sint(out, 5, native.schema().into());
    put_double(out, 6, native.zero_threshold());
    put_uint(out, 7, native.zero_count());
    let (spans, deltas) = native.spans();
    for span in &spans {
        put_message(out, 12, |out| {
            put_sint(out, 1, span.offset.into());
            put_uint(out, 2, span.length.into());
        });
    }
    // Not packed: the schema is proto2, which does not pack by default.
    for delta in deltas {
        put_sint(out, 13, delta);
    }
}
