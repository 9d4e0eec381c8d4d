//! Content negotiation.

use http::HeaderMap;
use http::header::ACCEPT;

use super::status::ApiError;

/// The representation of objects. All of them are JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Object,
    /// `PartialObjectMetadata`, and its list.
    Metadata,
    /// Rows and columns.
    Table,
}

/// The representation of a discovery document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiscoveryView {
    Legacy,
    /// `APIGroupDiscoveryList` in this version.
    Aggregated(&'static str),
}

#[derive(Debug)]
struct MediaRange<'a> {
    kind: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    /// In thousandths.
    quality: u16,
}

impl MediaRange<'_> {
    fn parameter(&self, name: &str) -> &str {
        self.parameters
            .iter()
            .find(|(found, _)| *found == name)
            .map_or("", |(_, value)| value)
    }

    fn is_json(&self) -> bool {
        matches!(self.kind, "application/json" | "application/*" | "*/*")
    }
}

/// Negotiates the representation of a resource.
pub(crate) fn view(headers: &HeaderMap) -> Result<View, ApiError> {
    choose(headers, |range| {
        if !range.is_json() {
            return None;
        }
        match (
            range.parameter("as"),
            range.parameter("g"),
            range.parameter("v"),
        ) {
            ("", _, _) => Some(View::Object),
            ("Table", "meta.k8s.io", "v1") => Some(View::Table),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => {
                Some(View::Metadata)
            }
            _ => None,
        }
    })
}

/// Negotiates the representation of a discovery document.
pub(crate) fn discovery_view(headers: &HeaderMap) -> Result<DiscoveryView, ApiError> {
    choose(headers, |range| {
        if !range.is_json() {
            return None;
        }
        match (
            range.parameter("as"),
            range.parameter("g"),
            range.parameter("v"),
        ) {
            ("", _, _) => Some(DiscoveryView::Legacy),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => {
                Some(DiscoveryView::Aggregated("v2"))
            }
            _ => None,
        }
    })
}

/// Fails if the client does not accept plain JSON.
pub(crate) fn accepts_json(headers: &HeaderMap) -> Result<(), ApiError> {
    choose(headers, |range| range.is_json().then_some(()))
}

/// Whether a media type is accepted by name.
pub(crate) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    choose(headers, |range| (range.kind == media_type).then_some(())).is_ok()
}

fn choose<T>(
    headers: &HeaderMap,
    accept: impl Fn(&MediaRange<'_>) -> Option<T>,
) -> Result<T, ApiError> {
    let mut text = String::new();
    for value in headers.get_all(ACCEPT) {
        text.push_str(value.to_str().unwrap_or_default());
        text.push(',');
    }
    let mut ranges: Vec<MediaRange<'_>> = text
        .split(',')
        .filter(|range| !range.trim().is_empty())
        .map(parse)
        .collect();
    if ranges.is_empty() {
        ranges.push(parse("*/*"));
    }
    // The sort is stable: among equal qualities the first one wins.
    ranges.sort_by_key(|range| u16::MAX - range.quality);
    ranges
        .iter()
        .filter(|range| range.quality > 0)
        .find_map(accept)
        .ok_or_else(ApiError::not_acceptable)
}

fn parse(range: &str) -> MediaRange<'_> {
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    let parameters: Vec<(&str, &str)> = parts
        .filter_map(|part| part.split_once('='))
        .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
        .collect();
    let quality = parameters
        .iter()
        .find(|(name, _)| *name == "q")
        .map_or(1000, |(_, value)| thousandths(value));
    MediaRange {
        kind,
        parameters,
        quality,
    }
}

fn thousandths(quality: &str) -> u16 {
    let (whole, part) = quality.split_once('.').unwrap_or((quality, ""));
    if whole != "0" {
        return 1000;
    }
    let digits: String = part.chars().chain("000".chars()).take(3).collect();
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(accept: &'static str) -> HeaderMap {
        [(ACCEPT, HeaderValue::from_static(accept))]
            .into_iter()
            .collect()
    }

    #[test]
    fn the_first_supported_representation_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let cases = [
            ("", Ok(View::Object)),
            ("*/*", Ok(View::Object)),
            ("application/json", Ok(View::Object)),
            ("application/json;stream=watch", Ok(View::Object)),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Ok(View::Object),
            ),
            ("application/vnd.kubernetes.protobuf", Err(())),
            ("application/yaml", Err(())),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", Err(())),
            (
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                Ok(View::Object),
            ),
            (table, Ok(View::Table)),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
                Ok(View::Metadata),
            ),
            (
                "application/json;q=0.5,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                Ok(View::Metadata),
            ),
            ("application/json;q=0", Err(())),
        ];
        for (accept, expected) in cases {
            assert_eq!(view(&headers(accept)).map_err(drop), expected, "{accept}");
        }
    }

    #[test]
    fn discovery_falls_back() {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert_eq!(
            discovery_view(&headers(accept)),
            Ok(DiscoveryView::Aggregated("v2"))
        );
        let old = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert_eq!(discovery_view(&headers(old)), Ok(DiscoveryView::Legacy));
    }
}
