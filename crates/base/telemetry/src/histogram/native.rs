//! Native histograms: buckets that grow by a constant factor, of which only those that hold
//! something exist.
//!
//! Bucket `k` of schema `s` holds what is above `2^((k-1)/2^s)` and not above `2^(k/2^s)`. When
//! more buckets are in use than allowed, neighbours are joined in pairs and the schema goes down by
//! one, as in Go's client: the factor is squared and nothing is lost but resolution.

use std::sync::LazyLock;

/// The finest schema that is supported, in which positions are computed.
const FINEST: u8 = 8;

/// The coarsest schema that Prometheus knows.
const COARSEST: i8 = -4;

/// Where the buckets of the finest schema end between one half and one.
static BOUNDS: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let parts = 1_u32 << FINEST;
    (0..parts)
        .map(|part| 0.5 * (f64::from(part) / f64::from(parts)).exp2())
        .collect()
});

/// How fine native buckets are at first, and how many there may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NativeOptions {
    /// Each power of two is divided into `2^schema` buckets; at most 8.
    pub schema: u8,
    /// What is not above this counts as zero.
    pub zero_threshold: f64,
    /// How many buckets a series may use.
    pub most_buckets: usize,
}

/// The native buckets of one series.
#[derive(Debug, Clone, PartialEq)]
pub struct NativeBuckets {
    schema: i8,
    zero_threshold: f64,
    most_buckets: usize,
    zeros: u64,
    /// Positions and counts, by position.
    positive: Vec<(i32, u64)>,
}

/// Buckets that follow one another without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// How many positions are left out since the last span; of the first span, its position.
    pub offset: i32,
    /// How many buckets it has.
    pub length: u32,
}

impl Default for NativeOptions {
    /// Eight buckets for each power of two, a factor of 1.09; a zero and a bound as in Go's client
    /// and its documentation.
    fn default() -> Self {
        Self {
            schema: 3,
            zero_threshold: 2.0_f64.powi(-128),
            most_buckets: 160,
        }
    }
}

impl NativeBuckets {
    pub(super) fn new(options: NativeOptions) -> Self {
        let schema = options.schema.min(FINEST);
        Self {
            schema: schema.cast_signed(),
            zero_threshold: options.zero_threshold,
            most_buckets: options.most_buckets.max(1),
            zeros: 0,
            positive: Vec::new(),
        }
    }

    /// How fine the buckets are now.
    pub fn schema(&self) -> i8 {
        self.schema
    }

    /// What is not above this counts as zero.
    pub fn zero_threshold(&self) -> f64 {
        self.zero_threshold
    }

    /// How many counted as zero.
    pub fn zeros(&self) -> u64 {
        self.zeros
    }

    /// Positions and counts of the buckets in use, by position.
    pub fn positive(&self) -> &[(i32, u64)] {
        &self.positive
    }

    /// The buckets in use as spans, and of each bucket in them how much more it holds than the one
    /// before.
    ///
    /// Gaps of one or two are filled with empty buckets, which takes less room than another span.
    pub fn spans(&self) -> (Vec<Span>, Vec<i64>) {
        let mut spans: Vec<Span> = Vec::new();
        let mut deltas = Vec::with_capacity(self.positive.len());
        let (mut next, mut before) = (0_i32, 0_i64);
        for (position, count) in &self.positive {
            let gap = position - next;
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
            next = position + 1;
        }
        (spans, deltas)
    }

    /// Takes in a value that is neither negative nor without end.
    pub(super) fn add(&mut self, value: f64, times: u64) {
        if value <= self.zero_threshold {
            self.zeros = self.zeros.saturating_add(times);
            return;
        }
        self.put(position(value, self.schema), times);
        while self.positive.len() > self.most_buckets && self.schema > COARSEST {
            self.widen();
        }
    }

    fn put(&mut self, position: i32, times: u64) {
        let at = self
            .positive
            .partition_point(|(known, _)| *known < position);
        match self.positive.get_mut(at) {
            Some((known, count)) if *known == position => *count = count.saturating_add(times),
            _ => self.positive.insert(at, (position, times)),
        }
    }

    /// Joins neighbours: the bucket that ends where the wider one ends, and the one before.
    fn widen(&mut self) {
        self.schema -= 1;
        let finer = std::mem::take(&mut self.positive);
        for (position, count) in finer {
            self.put(coarser(position), count);
        }
    }
}

/// The bucket of a positive number that is not subnormal.
fn position(value: f64, schema: i8) -> i32 {
    // The number is a fraction from one half to one, times a power of two.
    let bits = value.to_bits();
    let exponent = i32::try_from(bits >> 52 & 0x7ff).unwrap_or_default() - 1022;
    let fraction = f64::from_bits(bits & !(0x7ff << 52) | 1022 << 52);
    let part = BOUNDS.partition_point(|bound| *bound < fraction);
    let parts = 1_i32 << FINEST;
    let mut position = i32::try_from(part).unwrap_or(parts) + (exponent - 1) * parts;
    for _ in schema..FINEST.cast_signed() {
        position = coarser(position);
    }
    position
}

/// Half of a position, upwards: the wider bucket ends where the second of its two does.
fn coarser(position: i32) -> i32 {
    (position + 1).div_euclid(2)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn buckets(schema: u8, most_buckets: usize, values: &[f64]) -> NativeBuckets {
        let mut buckets = NativeBuckets::new(NativeOptions {
            schema,
            most_buckets,
            ..NativeOptions::default()
        });
        for value in values {
            buckets.add(*value, 1);
        }
        buckets
    }

    /// Where bucket `position` ends.
    fn bound(position: i32, schema: i8) -> f64 {
        (f64::from(position) * (-f64::from(schema)).exp2()).exp2()
    }

    #[test]
    fn powers_of_two_end_their_bucket() {
        for (value, position) in [(0.25, -16), (0.5, -8), (1.0, 0), (2.0, 8), (1024.0, 80)] {
            let found = buckets(3, 160, &[value]);
            assert_eq!(found.positive(), [(position, 1)], "{value}");
            let above = buckets(3, 160, &[value * (1.0 + f64::EPSILON)]);
            assert_eq!(above.positive(), [(position + 1, 1)], "just above {value}");
        }
        assert_eq!(buckets(3, 160, &[0.0, 1e-39]).zeros(), 2);
    }

    #[test]
    fn small_gaps_are_filled_and_large_ones_begin_a_span() {
        let mut found = buckets(0, 160, &[]);
        for (position, count) in [(-3, 5), (-2, 1), (1, 4), (5, 2)] {
            found.put(position, count);
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

    /// Written by `e2e/vectors/telemetry` with Go's client.
    #[test]
    fn buckets_are_those_of_gos_client() {
        let mut cases = 0;
        for line in include_str!("../../tests/vectors/native.txt").lines() {
            let [most, observed, schema, zeros, spans, deltas]: [&str; 6] =
                line.split(';').collect::<Vec<_>>().try_into().unwrap();
            let values: Vec<f64> = observed
                .split(' ')
                .map(|nanos| Duration::from_nanos(nanos.parse().unwrap()).as_secs_f64())
                .collect();
            let found = buckets(3, most.parse().unwrap(), &values);
            assert_eq!(found.schema().to_string(), schema, "{line}");
            assert_eq!(found.zeros().to_string(), zeros, "{line}");
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
            let (position, _) = found.positive()[0];
            let schema = found.schema();
            prop_assert!(value <= bound(position, schema) * (1.0 + 1e-12));
            prop_assert!(value > bound(position - 1, schema) * (1.0 - 1e-12));
        }

        #[test]
        fn the_bound_on_buckets_holds_and_nothing_is_lost(
            values in proptest::collection::vec(prop_oneof![Just(0.0), 1e-6..1e-3, 0.0..1e7], 0..200),
            most in 1_usize..20,
        ) {
            let found = buckets(5, most, &values);
            prop_assert!(found.positive().len() <= most.max(4), "{:?}", found);
            let count: u64 = found.positive().iter().map(|(_, count)| count).sum();
            prop_assert_eq!(count + found.zeros(), values.len() as u64);
            // As if it had been so coarse from the beginning.
            let mut coarse = buckets(0, 1_000_000, &[]);
            coarse.schema = found.schema();
            for value in &values {
                coarse.add(*value, 1);
            }
            prop_assert_eq!(coarse.positive(), found.positive());
        }

        #[test]
        fn spans_say_what_the_buckets_hold(values in proptest::collection::vec(1e-3..1e4, 0..60)) {
            let found = buckets(3, 160, &values);
            let (spans, deltas) = found.spans();
            let mut deltas = deltas.into_iter();
            let (mut position, mut count, mut read) = (0, 0, Vec::new());
            for (at, span) in spans.iter().enumerate() {
                prop_assert!(at == 0 || span.offset > 2);
                position += span.offset;
                for _ in 0..span.length {
                    count += deltas.next().unwrap();
                    if count > 0 {
                        read.push((position, count.unsigned_abs()));
                    }
                    position += 1;
                }
            }
            prop_assert_eq!(deltas.next(), None);
            prop_assert_eq!(&read, found.positive());
        }
    }
}
