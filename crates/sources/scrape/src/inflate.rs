//! Decompression of bodies, once they are received.

use flate2::{Decompress, FlushDecompress, Status};

/// Largest window of the format.
const WINDOW_BITS: u8 = 15;
const MAGIC: [u8; 2] = [0x1f, 0x8b];
/// The shortest body: header and trailer of ten and eight bytes, and two of data.
const MIN_LENGTH: usize = 20;

/// The body is not a single gzip stream of the length that it states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InflateError;

/// Returns the length that a compressed body states in its trailer. It is as untrusted as the rest.
pub fn inflated_length(body: &[u8]) -> Option<usize> {
    let trailer = body.last_chunk::<4>()?;
    let is_gzip = body.len() >= MIN_LENGTH && body.starts_with(&MAGIC);
    is_gzip.then(|| u32::from_le_bytes(*trailer) as usize)
}

/// Decompresses a body into `output`, which is cleared first, up to `limit` bytes. Returns whether
/// the body is complete; a part of one gives what can be decompressed of it.
pub fn inflate(body: &[u8], limit: usize, output: &mut Vec<u8>) -> Result<bool, InflateError> {
    output.clear();
    // A byte more, by which a longer body is told from one that just fits.
    output.reserve_exact(limit.saturating_add(1));
    let mut stream = Decompress::new_gzip(WINDOW_BITS);
    loop {
        let before = (stream.total_in(), output.len());
        let consumed = usize::try_from(stream.total_in()).map_err(|_| InflateError)?;
        let rest = body.get(consumed..).ok_or(InflateError)?;
        let status = stream.decompress_vec(rest, output, FlushDecompress::None);
        let is_long = output.len() > limit;
        output.truncate(limit);
        let status = status.map_err(|_| InflateError)?;
        if is_long {
            return Err(InflateError);
        }
        let is_consumed = u64::try_from(body.len()) == Ok(stream.total_in());
        match status {
            Status::StreamEnd if is_consumed => return Ok(true),
            Status::StreamEnd => return Err(InflateError),
            _ if (stream.total_in(), output.len()) == before => return Ok(false),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_body_is_decompressed_within_its_limit() {
        let body = b"container_cpu_usage_seconds_total 12\n".repeat(1_000);
        let compressed = gzip(&body);
        assert_eq!(inflated_length(&compressed), Some(body.len()));
        let mut output = b"of another response".to_vec();
        assert_eq!(inflate(&compressed, body.len(), &mut output), Ok(true));
        assert_eq!(output, body);
        let short = inflate(&compressed, body.len() - 1, &mut output);
        assert_eq!(short, Err(InflateError));
        assert!(output.len() < body.len());
    }

    /// 8 MiB of zeros in 8 KiB: its trailer may lie.
    #[test]
    fn a_bomb_costs_no_more_than_the_limit() {
        let bomb = gzip(&vec![0; 8 << 20]);
        let mut output = Vec::new();
        assert_eq!(inflate(&bomb, 1 << 20, &mut output), Err(InflateError));
        assert!(output.capacity() <= (1 << 20) + 64, "{}", output.capacity());
        let mut lie = bomb.clone();
        let trailer = lie.last_chunk_mut::<4>().unwrap();
        *trailer = 100_u32.to_le_bytes();
        let limit = inflated_length(&lie).unwrap();
        assert_eq!(inflate(&lie, limit, &mut output), Err(InflateError));
    }

    #[test]
    fn a_part_of_a_body_gives_its_beginning() {
        let lines = (0..5_000).map(|n| format!("a{n} {n}\n"));
        let body = lines.collect::<Vec<_>>().concat();
        let compressed = gzip(body.as_bytes());
        let (part, _) = compressed.split_at(compressed.len() / 2);
        let mut output = Vec::new();
        assert_eq!(inflate(part, 1 << 20, &mut output), Ok(false));
        assert!(output.len() > 1_000 && body.as_bytes().starts_with(&output));
    }

    #[test]
    fn other_bytes_are_rejected() {
        let good = gzip(b"a 1\n");
        let twice = [good.clone(), good.clone()].concat();
        let mut damaged = good.clone();
        let checksum = damaged.len() - 6;
        *damaged.get_mut(checksum).unwrap() ^= 1;
        for bad in [
            b"node_cpu_usage_seconds_total 12\n".as_slice(),
            &twice,
            &damaged,
        ] {
            assert_eq!(inflate(bad, 100, &mut Vec::new()), Err(InflateError));
        }
        for empty in [b"".as_slice(), b"\x1f"] {
            assert_eq!(inflate(empty, 100, &mut Vec::new()), Ok(false));
            assert_eq!(inflated_length(empty), None);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_was_compressed_is_decompressed(body in prop::collection::vec(any::<u8>(), 0..5_000)) {
            let compressed = gzip(&body);
            let mut output = Vec::new();
            let length = inflated_length(&compressed).unwrap();
            prop_assert_eq!(inflate(&compressed, length, &mut output), Ok(true));
            prop_assert_eq!(output, body);
        }
    }
}
