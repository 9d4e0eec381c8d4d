//! The workers in Rust.

use std::hint::black_box;
use std::io;
use std::path::Path;

use clap::ValueEnum;
use kubevitals_bench::worker;
use kubevitals_promtext::{Document, Item, Visitor, parse, parse_with};

use crate::snapshot::Snapshot;

/// Operation on the bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Every value and label.
    Parse,
    /// The families that `kubectl top` needs.
    Five,
    /// Into a document.
    Document,
    /// From values to text, in order.
    Encode,
    /// A sorted document.
    EncodeDocument,
    /// A document that must be sorted: it is cloned before, which counts.
    EncodeShuffled,
    /// The peer.
    PrometheusParse,
}

/// Runs a worker.
pub(crate) fn serve(mode: Mode, passes: u32, folder: &Path) -> io::Result<()> {
    let bodies = read(folder)?;
    let mut out = Vec::new();
    let snapshots = || {
        (1..)
            .take(bodies.len())
            .map(Snapshot::random)
            .collect::<Vec<_>>()
    };
    match mode {
        Mode::Parse => worker::serve(passes, || bodies.iter().map(|body| parse_all(body)).sum()),
        Mode::Five => worker::serve(passes, || bodies.iter().map(|body| parse_five(body)).sum()),
        Mode::Document => worker::serve(passes, || {
            for body in &bodies {
                drop(black_box(Document::parse(body)));
            }
            count(bodies.len())
        }),
        Mode::Encode => {
            let snapshots = snapshots();
            worker::serve(passes, || {
                // The bytes that were written: the peer must write as many.
                let encode = |snapshot: &Snapshot| {
                    out.clear();
                    snapshot.encode(&mut out);
                    count(black_box(&out).len())
                };
                snapshots.iter().map(encode).sum()
            })
        }
        Mode::EncodeDocument => {
            let mut documents: Vec<_> = bodies.iter().map(|body| Document::parse(body)).collect();
            worker::serve(passes, || {
                for (document, body) in documents.iter_mut().zip(&bodies) {
                    out.clear();
                    document.encode(&mut out);
                    assert!(out.len() == body.len(), "a body is encoded as it was");
                }
                count(bodies.len())
            })
        }
        Mode::EncodeShuffled => {
            let snapshots = snapshots();
            let documents: Vec<_> = snapshots.iter().map(Snapshot::shuffled).collect();
            worker::serve(passes, || {
                for document in &documents {
                    out.clear();
                    document.clone().encode(&mut out);
                    black_box(&out);
                }
                count(documents.len())
            })
        }
        Mode::PrometheusParse => worker::serve(passes, || {
            bodies.iter().map(|body| parse_theirs(body)).sum()
        }),
    }
}

fn read(folder: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut paths: Vec<_> = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    paths.sort();
    paths.iter().map(std::fs::read).collect()
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn parse_theirs(body: &[u8]) -> u64 {
    let text = str::from_utf8(body).expect("names and numbers are ASCII");
    let lines = text.lines().map(|line| Ok(line.to_owned()));
    let scrape = prometheus_parse::Scrape::parse(lines).expect("the body is valid");
    count(black_box(scrape).samples.len())
}

fn parse_all(body: &[u8]) -> u64 {
    let (mut sum, mut samples) = (0.0, 0);
    let mut lengths = 0;
    let summary = parse(body, |item| {
        if let Item::Sample(sample) = item {
            samples += 1;
            sum += sample.value;
            lengths += sample.timestamp_ms.unwrap_or_default();
            for label in sample.labels {
                lengths +=
                    i64::from(label.escaped) + i64::try_from(label.raw.len()).unwrap_or_default();
            }
        }
    });
    assert_eq!(summary.errors, 0);
    black_box((sum, lengths, summary));
    samples
}

fn parse_five(body: &[u8]) -> u64 {
    let mut five = Five {
        sum: 0.0,
        lengths: 0,
        samples: 0,
    };
    let summary = parse_with(body, &mut five);
    assert_eq!(summary.errors, 0);
    black_box((five.sum, five.lengths, summary));
    five.samples
}

/// The families that `kubectl top` needs.
struct Five {
    sum: f64,
    lengths: usize,
    samples: u64,
}

impl<'a> Visitor<'a> for Five {
    fn wants(&mut self, name: &'a str) -> bool {
        matches!(
            name,
            "node_cpu_usage_seconds_total"
                | "node_memory_working_set_bytes"
                | "container_cpu_usage_seconds_total"
                | "container_memory_working_set_bytes"
                | "container_start_time_seconds"
        )
    }

    fn item(&mut self, item: Item<'a, '_>) {
        if let Item::Sample(sample) = item {
            self.samples += 1;
            self.sum += sample.value;
            for label in sample
                .pick(["namespace", "pod", "container"])
                .into_iter()
                .flatten()
            {
                self.lengths += label.raw.len();
            }
        }
    }
}
