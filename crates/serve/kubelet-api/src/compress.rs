//! Compression of metrics, negotiated as Prometheus' `promhttp` does.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderMap;
use http::header::ACCEPT_ENCODING;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

/// Bytes that are compressed before other tasks have a turn.
const STEP: usize = 64 << 10;
/// Larger bodies are compressed on a thread of their own by zstd, which has no steps.
const MAX_INLINE: usize = 256 << 10;

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Identity,
    Gzip,
    Zstd,
}

impl Coding {
    /// Chooses by `Accept-Encoding`: the highest weight wins, and at equal weights the simpler
    /// coding. A wildcard means identity.
    pub(crate) fn negotiate(headers: &HeaderMap) -> Self {
        let mut best = (Self::Identity, None);
        for offer in [Self::Identity, Self::Gzip, Self::Zstd] {
            for value in headers.get_all(ACCEPT_ENCODING) {
                let Ok(value) = value.to_str() else {
                    continue;
                };
                for (name, weight) in value.split(',').map(coding_and_weight) {
                    let matches = name == "*" || name.eq_ignore_ascii_case(offer.name());
                    if matches && best.1.is_none_or(|known| weight > known) {
                        best = (offer, Some(weight));
                    }
                }
            }
        }
        match best {
            (_, None | Some(0)) => Self::Identity,
            (coding, Some(_)) => coding,
        }
    }

    /// The name in headers.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// Compresses a body; `None` if that failed.
    pub(crate) async fn compress(self, body: Vec<u8>) -> Option<Vec<u8>> {
        match self {
            Self::Identity => Some(body),
            Self::Gzip => {
                let capacity = body.len() / 8 + 64;
                let mut encoder = GzEncoder::new(Vec::with_capacity(capacity), Compression::fast());
                for step in body.chunks(STEP) {
                    encoder.write_all(step).ok()?;
                    if body.len() > STEP {
                        tokio::task::yield_now().await;
                    }
                }
                encoder.finish().ok()
            }
            Self::Zstd if body.len() <= MAX_INLINE => Some(zstd(&body)),
            Self::Zstd => tokio::task::spawn_blocking(move || zstd(&body)).await.ok(),
        }
    }
}

fn zstd(body: &[u8]) -> Vec<u8> {
    compress_to_vec(body, CompressionLevel::Fastest)
}

/// Parses one coding; a malformed weight is zero, as in Go.
fn coding_and_weight(text: &str) -> (&str, u32) {
    let (name, parameters) = text.split_once(';').unwrap_or((text, ""));
    let weight = match parameters.trim().strip_prefix("q=") {
        None => 1000,
        Some(weight) => match weight.trim().parse::<f32>() {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the value is within the range"
            )]
            Ok(weight) if (0.0..=1.0).contains(&weight) => (weight * 1000.0) as u32,
            _ => 0,
        },
    };
    (name.trim(), weight)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn chosen(header: &str) -> Coding {
        let value = HeaderValue::from_str(header).unwrap();
        Coding::negotiate(&[(ACCEPT_ENCODING, value)].into_iter().collect())
    }

    #[test]
    fn codings_are_chosen_as_in_go() {
        assert_eq!(Coding::negotiate(&HeaderMap::new()), Coding::Identity);
        for (header, coding) in [
            ("gzip", Coding::Gzip),
            ("GZIP", Coding::Gzip),
            ("gzip;q=1.0, *;q=0.5", Coding::Gzip),
            ("zstd", Coding::Zstd),
            ("gzip, zstd", Coding::Gzip),
            ("gzip;q=0.5, zstd", Coding::Zstd),
            ("identity, gzip", Coding::Identity),
            ("*", Coding::Identity),
            ("br", Coding::Identity),
            ("gzip;q=0", Coding::Identity),
            ("gzip;q=2", Coding::Identity),
            ("gzip;q=NaN", Coding::Identity),
            ("", Coding::Identity),
        ] {
            assert_eq!(chosen(header), coding, "{header}");
        }
    }

    fn restored(coding: Coding, body: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        match coding {
            Coding::Identity => plain.extend_from_slice(body),
            Coding::Gzip => {
                flate2::read::GzDecoder::new(body)
                    .read_to_end(&mut plain)
                    .unwrap();
            }
            Coding::Zstd => {
                let mut decoder = ruzstd::decoding::StreamingDecoder::new(body).unwrap();
                decoder.read_to_end(&mut plain).unwrap();
            }
        }
        plain
    }

    #[tokio::test]
    async fn large_bodies_survive_a_round_trip() {
        let lines: Vec<String> = (0..20_000)
            .map(|at| format!("pod_{at} {}", at * 7))
            .collect();
        let text = lines.join("\n");
        assert!(text.len() > MAX_INLINE);
        for coding in [Coding::Identity, Coding::Gzip, Coding::Zstd] {
            let body = coding.compress(text.clone().into_bytes()).await.unwrap();
            assert_eq!(body.len() < text.len(), coding != Coding::Identity);
            assert_eq!(restored(coding, &body), text.as_bytes());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn any_body_survives_zstd(body in proptest::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(restored(Coding::Zstd, &zstd(&body)), body);
        }

        #[test]
        fn any_header_is_negotiated(header in "[ -~]{0,40}") {
            let _ = chosen(&header);
        }
    }
}
