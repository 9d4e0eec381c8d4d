//! Content negotiation, by the rules of the Kubernetes API server: where they differ from those of
//! HTTP, clients rely on the former.

use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_ENCODING, USER_AGENT};
use kubevitals_http::accept::{self, MediaRange};
use kubevitals_http::query::Query;

use crate::query::{include_object, pretty};
use crate::resource::{Encoding, IncludeObject, Representation, Shape};
use crate::status::ApiStatus;

pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

const OBJECTS: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const STREAMS: &str =
    "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
const DOCUMENTS: &str = "application/json, application/yaml";

/// The media type of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum MediaType {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Object,
    List,
    Watch,
}

/// The representation of a discovery document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiscoveryRepresentation {
    Legacy(MediaType),
    /// `APIGroupDiscoveryList` in this version of `apidiscovery.k8s.io`.
    Aggregated(&'static str),
}

/// The negotiated media type and shape of an object, a list or a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) media: MediaType,
    pub(crate) shape: Shape,
    pub(crate) pretty: bool,
}

/// A conversion requested by the parameters `as`, `g` and `v`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Conversion<'a> {
    kind: &'a str,
    group: &'a str,
    version: &'a str,
}

impl MediaType {
    const fn subtype(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Yaml => "yaml",
            Self::Protobuf => "vnd.kubernetes.protobuf",
        }
    }
}

impl Choice {
    /// Returns the representation that the resource produces.
    pub(crate) const fn representation(&self) -> Representation {
        let encoding = match self.media {
            MediaType::Protobuf => Encoding::Protobuf,
            MediaType::Json | MediaType::Yaml => Encoding::Json,
        };
        Representation {
            encoding,
            shape: self.shape,
        }
    }
}

/// Returns the first `Accept` header, as Kubernetes does.
pub(crate) fn accept_of(headers: &HeaderMap) -> String {
    headers
        .get(ACCEPT)
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .unwrap_or_default()
}

/// Negotiates an object, a list or a watch.
pub(crate) fn object(accept: &str, wanted: Wanted, query: Query<'_>) -> Result<Choice, ApiStatus> {
    let offers = [MediaType::Json, MediaType::Yaml, MediaType::Protobuf];
    let chosen = choose(accept, &offers, |media, range| {
        if parameter(range, "stream")
            .is_some_and(|stream| stream != "watch" || media == MediaType::Yaml)
            || parameter(range, "sv").is_some()
        {
            return None;
        }
        let pretty = parameter(range, "pretty") == Some("1");
        let Some(conversion) = Conversion::of(range) else {
            return Some((media, Shape::Object, pretty, ""));
        };
        conversion
            .shape()
            .map(|shape| (media, shape, pretty, conversion_kind(conversion.kind)))
    });
    let (media, mut shape, pretty, kind) = match chosen {
        Ok(chosen) => chosen,
        Err(Unmet::MediaType) => {
            return Err(match wanted {
                Wanted::Object => ApiStatus::not_acceptable(OBJECTS),
                Wanted::List | Wanted::Watch => {
                    ApiStatus::not_acceptable(&format!("{OBJECTS}, {STREAMS}"))
                }
            });
        }
        Err(Unmet::Parameters) if wanted == Wanted::Watch => {
            return Err(ApiStatus::only_accepted(STREAMS));
        }
        Err(Unmet::Parameters) => return Err(ApiStatus::only_accepted(OBJECTS)),
    };
    match (wanted, kind) {
        (Wanted::Watch, _) if media == MediaType::Yaml => {
            return Err(ApiStatus::only_accepted(STREAMS));
        }
        (Wanted::List, "PartialObjectMetadata") => {
            return Err(ApiStatus::wrong_shape(
                "you requested PartialObjectMetadata, but the requested object is a list",
            ));
        }
        (Wanted::Object | Wanted::Watch, "PartialObjectMetadataList") => {
            return Err(ApiStatus::wrong_shape(
                "you requested PartialObjectMetadataList, but the requested object is not a list",
            ));
        }
        _ => {}
    }
    if let Shape::Table { include, .. } = &mut shape {
        *include = include_object(query)?;
    }
    Ok(Choice {
        media,
        shape,
        pretty,
    })
}

/// Negotiates a document of the kit: discovery of one group or version, `/version`.
pub(crate) fn document(accept: &str) -> Result<MediaType, ApiStatus> {
    choose(
        accept,
        &[MediaType::Json, MediaType::Yaml],
        |media, range| Conversion::of(range).is_none().then_some(media),
    )
    .map_err(document_error)
}

/// Negotiates `/apis`.
pub(crate) fn discovery(accept: &str) -> Result<DiscoveryRepresentation, ApiStatus> {
    choose(
        accept,
        &[MediaType::Json, MediaType::Yaml],
        |media, range| {
            let Some(conversion) = Conversion::of(range) else {
                return Some(DiscoveryRepresentation::Legacy(media));
            };
            match (conversion.kind, conversion.group, conversion.version) {
                ("APIGroupDiscoveryList", "apidiscovery.k8s.io", version)
                    if media == MediaType::Json =>
                {
                    ["v2", "v2beta1"]
                        .into_iter()
                        .find(|known| *known == version)
                        .map(DiscoveryRepresentation::Aggregated)
                }
                _ => None,
            }
        },
    )
    .map_err(document_error)
}

/// Returns the media type of an error response; JSON if nothing else is acceptable.
pub(crate) fn media_of_error(accept: &str) -> MediaType {
    let offers = [MediaType::Json, MediaType::Yaml, MediaType::Protobuf];
    choose(accept, &offers, |media, range| {
        Conversion::of(range).is_none().then_some(media)
    })
    .unwrap_or(MediaType::Json)
}

/// Whether to indent JSON: on request, and by default for curl, Wget and browsers.
pub(crate) fn wants_pretty(headers: &HeaderMap, query: Query<'_>) -> bool {
    pretty(query).unwrap_or_else(|| {
        headers.get(USER_AGENT).is_some_and(|agent| {
            [b"curl".as_slice(), b"Wget", b"Mozilla/5.0"]
                .iter()
                .any(|tool| agent.as_bytes().starts_with(tool))
        })
    })
}

/// Whether the client accepts gzip. Kubernetes ignores weights here.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers
        .get(ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.split(',').any(|token| token.trim() == "gzip"))
}

/// The reason why an `Accept` header cannot be met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unmet {
    /// None of its media types is offered.
    MediaType,
    /// A media type is offered, but not with these parameters.
    Parameters,
}

/// Returns the first match of a range with an offer, in the order of preference.
fn choose<T>(
    accept: &str,
    offers: &[MediaType],
    meet: impl Fn(MediaType, &MediaRange<'_>) -> Option<T>,
) -> Result<T, Unmet> {
    let accept = if accept.trim().is_empty() {
        "*/*"
    } else {
        accept
    };
    let mut unmet = Unmet::MediaType;
    for range in by_preference(accept) {
        for offer in offers {
            if !matches(&range, offer.subtype()) {
                continue;
            }
            unmet = Unmet::Parameters;
            if let Some(met) = meet(*offer, &range) {
                return Ok(met);
            }
        }
    }
    Err(unmet)
}

/// Whether JSON is acceptable, whatever the preference.
pub(crate) fn accepts_json(accept: &str) -> bool {
    accept.trim().is_empty() || accept::parse(accept).any(|range| matches(&range, "json"))
}

/// Parses an `Accept` header and sorts its ranges by preference, as Kubernetes does.
fn by_preference(header: &str) -> Vec<MediaRange<'_>> {
    let mut ranges: Vec<(f32, MediaRange<'_>)> = Vec::new();
    for range in accept::parse(header) {
        let weight = weight(&range);
        // An insertion sort, since the result depends on the algorithm: the relation is not an
        // order.
        let mut index = ranges.len();
        while index > 0
            && ranges
                .get(index - 1)
                .is_some_and(|(other, before)| precedes((weight, &range), (*other, before)))
        {
            index -= 1;
        }
        ranges.insert(index, (weight, range));
    }
    ranges.into_iter().map(|(_, range)| range).collect()
}

/// Whether a range goes before another. A named type goes before a wildcard even if its weight is
/// lower.
fn precedes(range: (f32, &MediaRange<'_>), other: (f32, &MediaRange<'_>)) -> bool {
    range.0 > other.0
        || (range.1.kind != "*" && other.1.kind == "*")
        || (range.1.subtype != "*" && other.1.subtype == "*")
}

/// Kubernetes accepts any number as a weight, and reads others as zero.
fn weight(range: &MediaRange<'_>) -> f32 {
    parameter(range, "q").map_or(1.0, |weight| {
        weight
            .parse()
            .ok()
            .filter(|weight: &f32| !weight.is_nan())
            .unwrap_or_default()
    })
}

/// Returns a parameter. Kubernetes ignores those without a value, or with more than one `=`.
fn parameter<'a>(range: &MediaRange<'a>, name: &str) -> Option<&'a str> {
    range
        .parameter(name)
        .filter(|value| !value.is_empty() && !value.contains('='))
}

/// Whether a subtype of `application` is in the range.
fn matches(range: &MediaRange<'_>, subtype: &str) -> bool {
    (range.kind == "application" && (range.subtype == subtype || range.subtype == "*"))
        || (range.kind == "*" && range.subtype == "*")
}

fn document_error(unmet: Unmet) -> ApiStatus {
    match unmet {
        Unmet::MediaType => ApiStatus::not_acceptable(DOCUMENTS),
        Unmet::Parameters => ApiStatus::only_accepted(DOCUMENTS),
    }
}

impl<'a> Conversion<'a> {
    fn of(range: &MediaRange<'a>) -> Option<Self> {
        let (kind, group, version) = (
            parameter(range, "as"),
            parameter(range, "g"),
            parameter(range, "v"),
        );
        if kind.is_none() && group.is_none() && version.is_none() {
            return None;
        }
        Some(Self {
            kind: kind.unwrap_or_default(),
            group: group.unwrap_or_default(),
            version: version.unwrap_or_default(),
        })
    }

    fn shape(&self) -> Option<Shape> {
        let version = ["v1", "v1beta1"]
            .into_iter()
            .find(|known| *known == self.version)?;
        match (self.kind, self.group) {
            ("Table", "meta.k8s.io") => Some(Shape::Table {
                version,
                include: IncludeObject::Metadata,
            }),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io") => {
                Some(Shape::Metadata { version })
            }
            _ => None,
        }
    }
}

fn conversion_kind(kind: &str) -> &'static str {
    match kind {
        "PartialObjectMetadata" => "PartialObjectMetadata",
        "PartialObjectMetadataList" => "PartialObjectMetadataList",
        _ => "",
    }
}

#[cfg(test)]
mod tests;
