//! The metric families of a program's `/metrics`, and their shape.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use http::StatusCode;
use kubevitals_promtext::{Document, MetricType, Suffix};
use kubevitals_tls::{Alpn, ClientOptions, ClientTls};

use crate::access::Access;
use crate::error::E2eError;
use crate::kubelet::get_once;

/// The label of a bucket's upper bound.
const BOUND: &str = "le";

/// The families of one response, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exposition {
    /// Each family with at least one series.
    pub families: BTreeMap<String, Shape>,
}

/// The properties of a family that dashboards rely on.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Its type.
    pub kind: MetricType,
    /// The names of its labels.
    pub labels: BTreeSet<String>,
    /// The upper bounds of its buckets, if it has buckets.
    pub buckets: Vec<f64>,
}

impl Exposition {
    /// Scrapes a program in the cluster's network, on the loopback or at the node's address.
    ///
    /// Control plane programs serve it with self-signed certificates that nobody
    /// can verify. The token is sent nevertheless: use an account that may read metrics and
    /// nothing else.
    pub async fn of(address: SocketAddr, access: &Access) -> Result<Self, E2eError> {
        let options = ClientOptions {
            alpn: vec![Alpn::Http11],
            ..ClientOptions::default()
        };
        let tls = ClientTls::dangerous_without_verification(&options)?;
        let url = format!("https://{address}/metrics");
        let answer = get_once(address, &tls, Some(access.token()), &url).await?;
        if answer.status != StatusCode::OK {
            let body = String::from_utf8_lossy(&answer.body);
            let reason = format!("{}: {body}", answer.status);
            return Err(E2eError::Get { url, reason });
        }
        Self::parse(&answer.body)
    }

    /// Parses the text format; fails on an invalid line.
    pub fn parse(body: &[u8]) -> Result<Self, E2eError> {
        let document = Document::parse(body);
        if let Some(error) = document.errors().first() {
            return Err(E2eError::Metrics {
                first: error.to_string(),
            });
        }
        let mut exposition = Self::default();
        for family in document.families() {
            let mut shape = Shape {
                kind: family.kind().unwrap_or(MetricType::Untyped),
                labels: BTreeSet::new(),
                buckets: Vec::new(),
            };
            let mut is_empty = true;
            for series in family.series() {
                is_empty = false;
                for (name, value) in series.labels {
                    if name.as_str() == BOUND && series.suffix == Suffix::Bucket {
                        shape.buckets.extend(value.parse::<f64>());
                    } else {
                        shape.labels.insert(name.as_str().to_owned());
                    }
                }
            }
            shape.buckets.sort_by(f64::total_cmp);
            shape.buckets.dedup();
            if !is_empty {
                let name = family.name().as_str().to_owned();
                exposition.families.insert(name, shape);
            }
        }
        Ok(exposition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_of_a_family_is_that_of_all_its_series() {
        let body = b"# TYPE a_seconds histogram\n\
            a_seconds_bucket{host=\"x\",le=\"0.5\"} 1\n\
            a_seconds_bucket{host=\"x\",le=\"+Inf\"} 1\n\
            a_seconds_sum{host=\"x\"} 1\n\
            a_seconds_count{host=\"x\"} 1\n\
            a_seconds_bucket{host=\"y\",le=\"0.5\"} 1\n\
            # TYPE unused_total counter\n\
            # TYPE b_total counter\n\
            b_total{code=\"200\"} 1\n";
        let exposition = Exposition::parse(body).unwrap();
        let names: Vec<&str> = exposition.families.keys().map(String::as_str).collect();
        assert_eq!(names, ["a_seconds", "b_total"]);
        let seconds = &exposition.families["a_seconds"];
        assert_eq!(seconds.kind, MetricType::Histogram);
        assert_eq!(seconds.labels, BTreeSet::from(["host".to_owned()]));
        assert_eq!(seconds.buckets, [0.5, f64::INFINITY]);
    }

    #[test]
    fn a_bad_line_is_an_error() {
        assert!(Exposition::parse(b"a{ 1\n").is_err());
    }
}
