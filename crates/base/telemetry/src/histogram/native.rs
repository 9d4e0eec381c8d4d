//! Native histograms: exponential buckets, of which only the non-empty ones are stored.
//!
//! Bucket `k` of schema `s` counts values in `(2^((k-1)/2^s), 2^(k/2^s)]`. When more buckets are in
//! use than allowed, neighbours are merged in pairs and the schema decreases by one, as in Go's
//! client: the factor is squared and only resolution is lost.

use std::sync::LazyLock;

/// The finest schema that Prometheus supports, in which indexes are computed.
const MAX_SCHEMA: u8 = 8;

/// The coarsest schema that Prometheus supports.
const MIN_SCHEMA: i8 = -4;

/// The bounds of the buckets of the finest schema from one half to one.
static BOUNDS: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let parts = 1_u32 << MAX_SCHEMA;
    (0..parts)
        .map(|part| 0.5 * (f64::from(part) / f64::from(parts)).exp2())
        .collect()
});

/// The initial resolution of native buckets and their limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NativeOptions {
    /// Each power of two is divided into `2^schema` buckets; at most 8.
    pub schema: u8,
    /// Values up to this one are counted in the zero bucket.
    pub zero_threshold: f64,
    /// The maximum number of buckets of a series.
    pub max_buckets: usize,
}

/// The native buckets of one series.
#[derive(Debug, Clone, PartialEq)]
pub struct NativeBuckets {
    schema: i8,
    zero_threshold: f64,
    max_buckets: usize,
    zero_count: u64,
    /// Indexes and counts, by index.
    positive: Vec<(i32, u64)>,
}

/// Consecutive buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The gap to the previous span; for the first span, its index.
    pub offset: i32,
    /// The number of buckets.
    pub length: u32,
}

impl Default for NativeOptions {
    /// Eight buckets for each power of two, a factor of 1.09; zero threshold and limit as in Go's
    /// client and its documentation.
    fn default() -> Self {
        Self {
            schema: 3,
            zero_threshold: 2.0_f64.powi(-128),
            max_buckets: 160,
        }
    }
}

impl NativeBuckets {
    pub(super) fn new(options: NativeOptions) -> Self {
        let schema = options.schema.min(MAX_SCHEMA);
        Self {
            schema: schema.cast_signed(),
            zero_threshold: options.zero_threshold,
            max_buckets: options.max_buckets.max(1),
            zero_count: 0,
            positive: Vec::new(),
        }
    }

    /// Returns the current schema.
    pub fn schema(&self) -> i8 {
        self.schema
    }

    /// Returns the upper bound of the zero bucket.
    pub fn zero_threshold(&self) -> f64 {
        self.zero_threshold
    }

    /// Returns the count of the zero bucket.
    pub fn zero_count(&self) -> u64 {
        self.zero_count
    }

    /// Returns indexes and counts of the buckets in use, by index.
    pub fn positive(&self) -> &[(i32, u64)] {
        &self.positive
    }

    /// Returns the buckets in use as spans, and the count of each bucket as the difference to the
    /// one before.
    ///
    /// Gaps of one or two are filled with empty buckets, which takes less space than another span.
    pub fn spans(&self) -> (Vec<Span>, Vec<i64>) {
        let mut spans: Vec<Span> = Vec::new();
        let mut deltas = Vec::with_capacity(self.positive.len());
        let (mut next, mut before) = (0_i32, 0_i64);
        for (index, count) in &self.positive {
            let gap = index - next;
            match spans.last_mut() {
                Some(span) if gap <= 2 => {
                    for _ in 0..gap {
                        deltas.push(-before);
                        before = 0;
                    }
                    span.length += gap.unsigned_abs() + 1;
                }
                _ => spans.push(Span {
                    offset: gap,
                    length: 1,
                }),
            }
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            deltas.push(count - before);
            before = count;
            next = index + 1;
        }
        (spans, deltas)
    }

    /// Records a value that is neither negative nor infinite.
    pub(super) fn add(&mut self, value: f64, times: u64) {
        if value <= self.zero_threshold {
            self.zero_count = self.zero_count.saturating_add(times);
            return;
        }
        self.put(index(value, self.schema), times);
        while self.positive.len() > self.max_buckets && self.schema > MIN_SCHEMA {
            self.widen();
        }
    }

    fn put(&mut self, index: i32, times: u64) {
        let at = self.positive.partition_point(|(used, _)| *used < index);
        match self.positive.get_mut(at) {
            Some((used, count)) if *used == index => *count = count.saturating_add(times),
            _ => self.positive.insert(at, (index, times)),
        }
    }

    /// Merges each bucket that ends where the wider one ends with the one before.
    fn widen(&mut self) {
        self.schema -= 1;
        let finer = std::mem::take(&mut self.positive);
        for (index, count) in finer {
            self.put(coarser(index), count);
        }
    }
}

/// Returns the bucket index of a positive number that is not subnormal.
fn index(value: f64, schema: i8) -> i32 {
    // The number is a fraction from one half to one times a power of two.
    let bits = value.to_bits();
    let exponent = i32::try_from(bits >> 52 & 0x7ff).unwrap_or_default() - 1022;
    let fraction = f64::from_bits(bits & !(0x7ff << 52) | 1022 << 52);
    let part = BOUNDS.partition_point(|bound| *bound < fraction);
    let parts = 1_i32 << MAX_SCHEMA;
    let mut index = i32::try_from(part).unwrap_or(parts) + (exponent - 1) * parts;
    for _ in schema..MAX_SCHEMA.cast_signed() {
        index = coarser(index);
    }
    index
}

/// Returns the index in the next coarser schema.
fn coarser(index: i32) -> i32 {
    (index + 1).div_euclid(2)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn buckets(schema: u8, max_buckets: usize, values: &[f64]) -> NativeBuckets {
        let mut buckets = NativeBuckets::new(NativeOptions {
            schema,
            max_buckets,
            ..NativeOptions::default()
        });
        for value in values {
            buckets.add(*value, 1);
        }
        buckets
    }

    /// Returns the upper bound of a bucket.
    fn bound(index: i32, schema: i8) -> f64 {
        (f64::from(index) * (-f64::from(schema)).exp2()).exp2()
    }

    #[test]
    fn powers_of_two_end_their_bucket() {
        for (value, index) in [(0.25, -16), (0.5, -8), (1.0, 0), (2.0, 8), (1024.0, 80)] {
            let found = buckets(3, 160, &[value]);
            assert_eq!(found.positive(), [(index, 1)], "{value}");
            let above = buckets(3, 160, &[value * (1.0 + f64::EPSILON)]);
            assert_eq!(above.positive(), [(index + 1, 1)], "just above {value}");
        }
        assert_eq!(buckets(3, 160, &[0.0, 1e-39]).zero_count(), 2);
    }

    #[test]
    fn small_gaps_are_filled_and_large_ones_start_a_span() {
        let mut found = buckets(0, 160, &[]);
        for (index, count) in [(-3, 5), (-2, 1), (1, 4), (5, 2)] {
            found.put(index, count);
        }
        let (spans, deltas) = found.spans();
        let (first, second) = (
            Span {
                offset: -3,
                length: 5,
            },
            Span {
                offset: 3,
                length: 1,
            },
        );
        assert_eq!(spans, [first, second]);
        assert_eq!(deltas, [5, -4, -1, 0, 4, -2]);
        assert_eq!(buckets(3, 160, &[]).spans(), (vec![], vec![]));
    }

    /// The vectors are written by `e2e/vectors/telemetry` with Go's client.
    #[test]
    fn buckets_are_those_of_gos_client() {
        let mut cases = 0;
        for line in include_str!("../../tests/vectors/native.txt").lines() {
            let [max_buckets, observed, schema, zeros, spans, deltas]: [&str; 6] =
                line.split(';').collect::<Vec<_>>().try_into().unwrap();
            let values: Vec<f64> = observed
                .split(' ')
                .map(|nanos| Duration::from_nanos(nanos.parse().unwrap()).as_secs_f64())
                .collect();
            let found = buckets(3, max_buckets.parse().unwrap(), &values);
            assert_eq!(found.schema().to_string(), schema, "{line}");
            assert_eq!(found.zero_count().to_string(), zeros, "{line}");
            let (found_spans, found_deltas) = found.spans();
            let shown = found_spans
                .iter()
                .map(|span| format!("{}:{}", span.offset, span.length));
            assert_eq!(shown.collect::<Vec<_>>().join(" "), spans, "{line}");
            let shown = found_deltas.iter().map(ToString::to_string);
            assert_eq!(shown.collect::<Vec<_>>().join(" "), deltas, "{line}");
            cases += 1;
        }
        assert_eq!(cases, 64);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_value_lies_within_its_bucket(value in 1e-9..1e9, schema in 0_u8..=8) {
            let found = buckets(schema, 160, &[value]);
            let (index, _) = found.positive()[0];
            let schema = found.schema();
            prop_assert!(value <= bound(index, schema) * (1.0 + 1e-12));
            prop_assert!(value > bound(index - 1, schema) * (1.0 - 1e-12));
        }

        #[test]
        fn the_limit_on_buckets_holds_and_nothing_is_lost(
            values in proptest::collection::vec(prop_oneof![Just(0.0), 1e-6..1e-3, 0.0..1e7], 0..200),
            max_buckets in 1_usize..20,
        ) {
            let found = buckets(5, max_buckets, &values);
            prop_assert!(found.positive().len() <= max_buckets.max(4), "{:?}", found);
            let count: u64 = found.positive().iter().map(|(_, count)| count).sum();
            prop_assert_eq!(count + found.zero_count(), values.len() as u64);
            // The same as with the coarser schema from the start.
            let mut coarse = buckets(0, 1_000_000, &[]);
            coarse.schema = found.schema();
            for value in &values {
                coarse.add(*value, 1);
            }
            prop_assert_eq!(coarse.positive(), found.positive());
        }

        #[test]
        fn spans_and_deltas_decode_to_the_buckets(values in proptest::collection::vec(1e-3..1e4, 0..60)) {
            let found = buckets(3, 160, &values);
            let (spans, deltas) = found.spans();
            let mut deltas = deltas.into_iter();
            let (mut index, mut count, mut read) = (0, 0, Vec::new());
            for (at, span) in spans.iter().enumerate() {
                prop_assert!(at == 0 || span.offset > 2);
                index += span.offset;
                for _ in 0..span.length {
                    count += deltas.next().unwrap();
                    if count > 0 {
                        read.push((index, count.unsigned_abs()));
                    }
                    index += 1;
                }
            }
            prop_assert_eq!(deltas.next(), None);
            prop_assert_eq!(&read, found.positive());
        }
    }
}
