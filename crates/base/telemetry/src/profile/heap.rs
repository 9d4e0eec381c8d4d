//! Parses the heap profiles of jemalloc.
//!
//! ```text
//! heap_v2/524288
//!   t*: 12: 131072 [0: 0]
//! @ 0x55d0c8a1 0x55d0c8b2
//!   t*: 3: 98304 [0: 0]
//!   t1: 3: 98304 [0: 0]
//!
//! MAPPED_LIBRARIES:
//! ```

use thiserror::Error;

/// Maximum number of frames of a stack; jemalloc itself has fewer.
const MAX_DEPTH: usize = 256;

/// Allocations that are not freed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeapProfile {
    /// Bytes between two samples, on average.
    pub sample_period: u64,
    pub samples: Vec<HeapSample>,
}

/// The allocations of one stack, as far as they were sampled, scaled to all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeapSample {
    /// Return addresses, innermost first.
    pub addresses: Vec<u64>,
    pub objects: u64,
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HeapProfileError {
    #[error("it is not a heap profile of jemalloc")]
    Format,
    #[error("line {0} is malformed")]
    Line(usize),
}

impl HeapProfile {
    pub fn parse(dump: &[u8]) -> Result<Self, HeapProfileError> {
        let text = std::str::from_utf8(dump).map_err(|_| HeapProfileError::Format)?;
        let mut lines = text.lines().enumerate();
        let header = lines.next().map(|(_, line)| line);
        let period = header.and_then(|line| line.strip_prefix("heap_v2/"));
        let sample_period = period
            .and_then(|period| period.parse().ok())
            .filter(|period| *period > 0)
            .ok_or(HeapProfileError::Format)?;
        let mut samples = Vec::new();
        let mut stack: Option<Vec<u64>> = None;
        for (at, line) in lines {
            let malformed = || HeapProfileError::Line(at + 1);
            // The rest are the mappings of the process.
            if line.is_empty() {
                break;
            }
            if let Some(addresses) = line.strip_prefix("@") {
                stack = Some(addresses_of(addresses).ok_or_else(malformed)?);
            } else if let Some(counts) = line.trim_start().strip_prefix("t*: ") {
                let (objects, bytes) = counts_of(counts).ok_or_else(malformed)?;
                // The first line has the sum.
                if let Some(addresses) = stack.take() {
                    let (objects, bytes) = scaled(objects, bytes, sample_period);
                    samples.push(HeapSample {
                        addresses,
                        objects,
                        bytes,
                    });
                }
            } else if !line.trim_start().starts_with('t') {
                return Err(malformed());
            }
        }
        samples.retain(|sample| sample.bytes > 0);
        Ok(Self {
            sample_period,
            samples,
        })
    }
}

fn addresses_of(text: &str) -> Option<Vec<u64>> {
    let addresses = text.split_ascii_whitespace().take(MAX_DEPTH);
    addresses
        .map(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok())
        .collect()
}

fn counts_of(text: &str) -> Option<(u64, u64)> {
    let (objects, rest) = text.split_once(": ")?;
    let (bytes, _accumulated) = rest.split_once(' ').unwrap_or((rest, ""));
    Some((objects.parse().ok()?, bytes.parse().ok()?))
}

/// An allocation is sampled with a probability that grows with its size: what was sampled stands
/// for more. The formula is that of `jeprof`, by the average size.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate, which saturates"
)]
fn scaled(objects: u64, bytes: u64, period: u64) -> (u64, u64) {
    if objects == 0 {
        return (0, 0);
    }
    let average = bytes as f64 / objects as f64;
    let probability = 1.0 - (-average / period as f64).exp();
    if probability <= 0.0 {
        return (objects, bytes);
    }
    let scale = |number: u64| (number as f64 / probability).round() as u64;
    (scale(objects), scale(bytes))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;

    const DUMP: &str = "\
heap_v2/524288
  t*: 4: 1114112 [0: 0]
  t0: 4: 1114112 [0: 0]
@ 0x55aa 0x55bb 0xffffffffffffffff
  t*: 1: 524288 [0: 0]
  t0: 1: 524288 [0: 0]
@ 0x55aa
  t*: 3: 300 [12: 1200]
  t0: 2: 200 [0: 0]
  t1: 1: 100 [0: 0]
@ 0x1
  t*: 0: 0 [0: 0]

MAPPED_LIBRARIES:
5581a000-5581b000 r-xp 00000000 00:00 0 [heap]
";

    #[test]
    fn stacks_stand_for_what_was_not_sampled() {
        let profile = HeapProfile::parse(DUMP.as_bytes()).unwrap();
        assert_eq!(profile.sample_period, 524_288);
        let [large, small] = &profile.samples[..] else {
            panic!("{profile:?}");
        };
        assert_eq!(large.addresses, [0x55aa, 0x55bb, u64::MAX]);
        // A sampled object of the size of the period stands for 1 / (1 - 1/e).
        assert_eq!((large.objects, large.bytes), (2, 829_411));
        assert_eq!(small.addresses, [0x55aa]);
        // Of 100 bytes, one in some five thousand is sampled.
        assert_eq!((small.objects, small.bytes), (15_730, 1_573_014));
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in [
            "",
            "heap_v2/",
            "heap_v2/0\n",
            "heap_v2/x",
            "heap profile: 1",
            "\u{fffd}",
        ] {
            let error = HeapProfile::parse(text.as_bytes());
            assert_eq!(error, Err(HeapProfileError::Format), "{text:?}");
        }
        for text in [
            "@ 12",
            "@ 0xg",
            "@ 0x1\n  t*: 1",
            "@ 0x1\n  t*: a: 1 [0: 0]",
            "garbage",
        ] {
            let text = format!("heap_v2/1\n{text}\n");
            let error = HeapProfile::parse(text.as_bytes()).unwrap_err();
            assert!(matches!(error, HeapProfileError::Line(2 | 3)), "{text:?}");
        }
        assert!(
            HeapProfile::parse(b"heap_v2/1\n")
                .unwrap()
                .samples
                .is_empty()
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_was_written_is_read(
            period in 1_u64..1 << 40,
            stacks in proptest::collection::vec(
                (proptest::collection::vec(any::<u64>(), 0..20), 0_u64..1 << 30, 0_u64..1 << 50),
                0..20,
            ),
        ) {
            let mut text = format!("heap_v2/{period}\n  t*: 1: 2 [0: 0]\n");
            for (addresses, objects, bytes) in &stacks {
                text.push('@');
                for address in addresses {
                    let _ = write!(text, " {address:#x}");
                }
                let _ = write!(text, "\n  t*: {objects}: {bytes} [0: 0]\n  t7: 0: 0 [0: 0]\n");
            }
            text += "\nMAPPED_LIBRARIES:\n@ junk\n";
            let read = HeapProfile::parse(text.as_bytes()).unwrap();
            let live: Vec<_> = stacks.iter().filter(|(_, objects, bytes)| *objects > 0 && *bytes > 0).collect();
            prop_assert_eq!(read.samples.len(), live.len());
            for (sample, (addresses, objects, bytes)) in read.samples.iter().zip(live) {
                prop_assert_eq!(&sample.addresses, addresses);
                prop_assert!(sample.objects >= *objects && sample.bytes >= bytes - bytes / 1_000_000);
            }
        }
    }
}
