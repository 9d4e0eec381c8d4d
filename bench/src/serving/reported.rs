//! Values that a server reports: the age of its samples, and its scrape counters.

use std::time::Duration;

use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};

use super::reads::API;
use crate::BenchError;
use crate::histogram::Histogram;
use crate::https::Client;

/// metrics-server's counter of requests to kubelets, which kubevitals has too.
const SCRAPES: &str = "metrics_server_kubelet_request_total";

/// Ages of the node samples in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ages {
    pub median: Duration,
    pub oldest: Duration,
    /// Number of listed nodes.
    pub nodes: usize,
}

/// Requests to kubelets since the start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scrapes {
    /// Successful ones.
    pub good: f64,
    pub failed: f64,
}

#[derive(Deserialize)]
struct NodeList {
    items: Vec<NodeItem>,
}

#[derive(Deserialize)]
struct NodeItem {
    timestamp: Timestamp,
}

/// Number of lists over one resolution.
const LISTS: u32 = 15;

/// Lists the nodes once and returns the ages of their samples.
pub async fn ages(client: &Client) -> Result<Option<Ages>, BenchError> {
    let mut ages = Histogram::default();
    look(client, &mut ages).await?;
    Ok(Ages::of(&ages))
}

/// Lists the nodes repeatedly over a whole resolution: a server that scrapes all nodes at once
/// serves old samples at one moment and new ones at the next, and a single list would depend on the
/// moment.
pub async fn ages_over(client: &Client, resolution: Duration) -> Result<Option<Ages>, BenchError> {
    let mut ages = Histogram::default();
    let started = Instant::now();
    for at in 0..LISTS {
        sleep_until(started + resolution * at / LISTS).await;
        look(client, &mut ages).await?;
    }
    Ok(Ages::of(&ages))
}

async fn look(client: &Client, ages: &mut Histogram) -> Result<(), BenchError> {
    let (status, list) = client.json(&format!("{API}/nodes")).await?;
    if status == StatusCode::OK {
        let list: NodeList = serde_json::from_value(list)?;
        let taken = list.items.iter().map(|item| item.timestamp);
        record(ages, taken, Timestamp::now());
    }
    Ok(())
}

fn record(ages: &mut Histogram, taken: impl Iterator<Item = Timestamp>, now: Timestamp) {
    for taken in taken {
        let age = now.duration_since(taken);
        ages.record(age.try_into().unwrap_or_default());
    }
}

/// Reads the server's metrics. Called once, after everything else: with thousands of nodes the
/// response is long, and would count as memory that serving needs.
pub async fn scrapes(client: &Client) -> Result<Option<Scrapes>, BenchError> {
    let (status, text) = client.text("/metrics").await?;
    Ok((status == StatusCode::OK).then(|| Scrapes::of(&text)))
}

/// Sums all series of a family whose labels contain a text.
pub fn sum(text: &str, family: &str, label: &str) -> f64 {
    let value = |line: &str| {
        let rest = line.strip_prefix(family)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.split_once('}')?,
            None => ("", rest),
        };
        let value = value.strip_prefix(' ')?.split(' ').next()?;
        labels.contains(label).then(|| value.parse::<f64>().ok())?
    };
    // `Iterator::sum` of no floats is -0.
    text.lines()
        .filter_map(value)
        .fold(0.0, |sum, value| sum + value)
}

impl Ages {
    fn of(ages: &Histogram) -> Option<Self> {
        let quantiles = ages.quantiles();
        Some(Self {
            median: quantiles.at(0.5)?,
            oldest: quantiles.at(1.0)?,
            nodes: ages.count(),
        })
    }
}

impl Scrapes {
    fn of(text: &str) -> Self {
        Self {
            good: sum(text, SCRAPES, r#"success="true""#),
            failed: sum(text, SCRAPES, r#"success="false""#),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_one_family_are_summed_by_label() {
        let text = "# TYPE a counter\na_total{x=\"1\",y=\"2\"} 3\na_total{x=\"1\"} 4 1700000000\na_total{x=\"2\"} 8\na_totals{x=\"1\"} 50\nb 7\n";
        assert_eq!(sum(text, "a_total", "x=\"1\"").to_bits(), 7.0_f64.to_bits());
        assert_eq!(sum(text, "b", "").to_bits(), 7.0_f64.to_bits());
        assert_eq!(sum(text, "c", "").to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn a_sample_from_the_future_has_age_zero() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let mut ages = Histogram::default();
        record(&mut ages, [at(90), at(100), at(70)].into_iter(), at(95));
        let ages = Ages::of(&ages).unwrap();
        assert_eq!(
            (ages.median.as_secs(), ages.oldest.as_secs(), ages.nodes),
            (5, 25, 3)
        );
        assert_eq!(Ages::of(&Histogram::default()), None);
    }
}
