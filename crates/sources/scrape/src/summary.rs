//! From the bytes of `/stats/summary` to a [`NodeBatch`].
//!
//! The kubelet's older and much larger answer (JSON, about 1.5 KiB for each container). It has what
//! `/metrics/resource` lacks, and serves in its place where a node has no such endpoint. Its times
//! are in whole seconds, so that a rate from it may be off by a tenth.
//!
//! A pod, a container or a number that cannot be read costs only itself. A document that breaks off
//! is of no use: where a container of it ends cannot be told.

mod wire;

use kubevitals_model::{
    Bytes, BytesSample, ContainerKeyRef, CoreNanos, CpuSample, CpuUsage, NodeBatch, PodKeyRef,
    Timestamp,
};

use self::wire::{ContainerStats, NodeStats, PodReference, PodStats, Summary, Value};
use crate::decode::{DecodeReport, Decoder, Reading, Rejection};

/// What is taken from a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// All of it: there is nothing else. The batch is cleared first.
    Everything,
    /// What `/metrics/resource` does not have, added to what was read from there.
    Extras,
}

struct Filling {
    take: Take,
    reading: Reading,
    report: DecodeReport,
}

/// Reads a summary into a batch. An error says that the body is no such document.
pub fn decode_summary(
    body: &[u8],
    take: Take,
    reading: Reading,
    batch: &mut NodeBatch,
    decoder: &mut Decoder,
) -> Result<DecodeReport, serde_json::Error> {
    let summary: Summary<'_> = serde_json::from_slice(body)?;
    if take == Take::Everything {
        batch.clear();
        decoder.start_over();
    }
    let mut filling = Filling {
        take,
        reading,
        report: DecodeReport::default(),
    };
    if let Some(node) = summary.node {
        match serde_json::from_str::<NodeStats>(node.get()) {
            Ok(stats) => filling.node(&stats, batch),
            Err(_) => filling.report.reject(Rejection::Malformed),
        }
    }
    for pod in &summary.pods.items {
        match serde_json::from_str::<PodStats<'_>>(pod.get()) {
            Ok(stats) => filling.pod(&stats, batch, decoder),
            Err(_) => filling.report.reject(Rejection::Malformed),
        }
    }
    for _ in 0..summary.pods.more {
        filling.report.reject(Rejection::TooMany);
    }
    if let (None, Some(cpu)) = (filling.report.times.newest, batch.node.cpu) {
        filling.report.times.add(cpu.at);
    }
    Ok(filling.report)
}

impl Filling {
    fn node(&mut self, stats: &NodeStats, batch: &mut NodeBatch) {
        let node = &mut batch.node;
        let cpu = &stats.cpu.0;
        if let Some(now) = self.count(cpu.now) {
            node.cpu_now = Some(CpuUsage::from_nanocores(now));
        }
        if let Some(stored) = self.bytes(stats.fs.0.used, stats.fs.0.time) {
            node.ephemeral_storage = Some(stored);
        }
        if self.take == Take::Extras {
            return;
        }
        if let Some((total, at)) = self.timed(cpu.total, cpu.time) {
            node.cpu = Some(CpuSample {
                at,
                total: CoreNanos::new(total),
            });
        }
        let memory = &stats.memory.0;
        node.memory = self.bytes(memory.working_set, memory.time).or(node.memory);
        node.swap = self
            .bytes(stats.swap.0.usage, stats.swap.0.time)
            .or(node.swap);
    }

    fn pod(&mut self, pod: &PodStats<'_>, batch: &mut NodeBatch, decoder: &mut Decoder) {
        for container in &pod.containers.items {
            match serde_json::from_str::<ContainerStats<'_>>(container.get()) {
                Ok(stats) => self.container(&pod.reference, &stats, batch, decoder),
                Err(_) => self.report.reject(Rejection::Malformed),
            }
        }
        for _ in 0..pod.containers.more {
            self.report.reject(Rejection::TooMany);
        }
    }

    fn container(
        &mut self,
        pod: &PodReference<'_>,
        stats: &ContainerStats<'_>,
        batch: &mut NodeBatch,
        decoder: &mut Decoder,
    ) {
        if stats.name.is_empty() || pod.name.is_empty() || pod.namespace.is_empty() {
            return self.report.reject(Rejection::Unlabelled);
        }
        let key = ContainerKeyRef {
            pod: PodKeyRef {
                namespace: &pod.namespace,
                name: &pod.name,
            },
            container: &stats.name,
        };
        let place = decoder.place(batch, key, self.reading.max_containers);
        let Some(sample) = place.and_then(|place| batch.sample_mut(place)) else {
            return self.report.reject(Rejection::TooMany);
        };
        let cpu = &stats.cpu.0;
        if let Some(now) = self.count(cpu.now) {
            sample.cpu_now = Some(CpuUsage::from_nanocores(now));
        }
        sample.ephemeral_storage = self.stored(stats).or(sample.ephemeral_storage);
        if self.take == Take::Extras {
            return;
        }
        if let Some((total, at)) = self.timed(cpu.total, cpu.time) {
            self.report.times.add(at);
            sample.cpu = Some(CpuSample {
                at,
                total: CoreNanos::new(total),
            });
        }
        let memory = &stats.memory.0;
        sample.memory = self.bytes(memory.working_set, memory.time);
        sample.swap = self.bytes(stats.swap.0.usage, stats.swap.0.time);
        if let Value::Is(started) = stats.started {
            sample.started = Some(started);
            self.report.used += 1;
        }
    }

    /// What a container has written: its layer and its logs, or the one of them that is known.
    fn stored(&mut self, stats: &ContainerStats<'_>) -> Option<BytesSample> {
        let layer = self.bytes(stats.rootfs.0.used, stats.rootfs.0.time);
        let logs = self.bytes(stats.logs.0.used, stats.logs.0.time);
        match (layer, logs) {
            (Some(layer), Some(logs)) => Some(BytesSample {
                at: layer.at.max(logs.at),
                bytes: layer.bytes.checked_add(logs.bytes)?,
            }),
            (one, other) => one.or(other),
        }
    }

    fn bytes(&mut self, count: Value<u64>, time: Value<Timestamp>) -> Option<BytesSample> {
        let (count, at) = self.timed(count, time)?;
        Some(BytesSample {
            at,
            bytes: Bytes::new(count),
        })
    }

    fn timed(&mut self, count: Value<u64>, time: Value<Timestamp>) -> Option<(u64, Timestamp)> {
        let count = self.count(count)?;
        let at = match time {
            Value::Is(at) if at.unix_millis() > 0 => at,
            Value::Absent => self.reading.asked,
            Value::Is(_) | Value::Unreadable => {
                self.report.reject(Rejection::NoTime);
                return None;
            }
        };
        Some((count, at))
    }

    fn count(&mut self, count: Value<u64>) -> Option<u64> {
        match count {
            Value::Is(count) => {
                self.report.used += 1;
                Some(count)
            }
            Value::Absent => None,
            Value::Unreadable => {
                self.report.reject(Rejection::NotANumber);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;

    const SUMMARY: &str = include_str!("../tests/fixtures/kubernetes-1.37/stats-summary.json");
    const METRICS: &str = include_str!("../tests/fixtures/kubernetes-1.37/metrics-resource.txt");

    fn reading() -> Reading {
        Reading {
            asked: Timestamp::from_unix_millis(1_794_773_490_000),
            is_complete: true,
            max_containers: 1_000,
        }
    }

    fn read(body: &str) -> (NodeBatch, DecodeReport) {
        let (mut batch, mut decoder) = (NodeBatch::default(), Decoder::default());
        let read = decode_summary(
            body.as_bytes(),
            Take::Everything,
            reading(),
            &mut batch,
            &mut decoder,
        );
        (batch, read.unwrap())
    }

    #[test]
    fn a_recorded_summary_agrees_with_the_metrics_of_the_same_moment() {
        let (summary, report) = read(SUMMARY);
        assert_eq!(report.rejected, [0; 8]);
        let (mut metrics, mut decoder) = (NodeBatch::default(), Decoder::default());
        decode(METRICS.as_bytes(), reading(), &mut metrics, &mut decoder);
        assert_eq!(summary.len(), metrics.len());
        assert_eq!(
            summary.node.cpu.unwrap().total,
            metrics.node.cpu.unwrap().total
        );
        assert!(summary.node.cpu_now.is_some() && summary.node.ephemeral_storage.is_some());
        for (key, sample) in summary.containers() {
            let mut others = metrics.containers();
            let (_, other) = others.find(|(other, _)| *other == key).unwrap();
            let seconds = |at: Option<Timestamp>| at.unwrap().unix_seconds();
            assert!(seconds(sample.started).abs_diff(seconds(other.started)) <= 1);
            assert!(sample.cpu.is_some() && sample.memory.is_some());
            assert!(sample.ephemeral_storage.is_some());
        }
    }

    #[test]
    fn extras_join_what_metrics_said_and_change_none_of_it() {
        let (mut batch, mut decoder) = (NodeBatch::default(), Decoder::default());
        decode(METRICS.as_bytes(), reading(), &mut batch, &mut decoder);
        let before = batch.clone();
        let body = SUMMARY.as_bytes();
        decode_summary(body, Take::Extras, reading(), &mut batch, &mut decoder).unwrap();
        assert_eq!(batch.len(), before.len());
        for ((_, old), (_, new)) in before.containers().zip(batch.containers()) {
            assert_eq!(
                (old.cpu, old.memory, old.started),
                (new.cpu, new.memory, new.started)
            );
            assert!(new.ephemeral_storage.is_some());
        }
        assert_eq!(batch.node.cpu, before.node.cpu);
        assert!(batch.node.cpu_now.is_some());
    }

    #[test]
    fn what_cannot_be_read_costs_only_itself() {
        let container = |name: &str, cpu: &str| {
            format!(
                r#"{{"name":"{name}","cpu":{cpu},"memory":{{"time":"2026-11-15T20:11:21Z","workingSetBytes":7}}}}"#
            )
        };
        let good = r#"{"time":"2026-11-15T20:11:21Z","usageCoreNanoSeconds":9}"#;
        let body = format!(
            r#"{{"node":7,"pods":[3,{{"podRef":{{"name":"p","namespace":"n"}},"containers":["x",{},{},{},{},{}]}}]}}"#,
            container("good", good),
            container(
                "negative",
                r#"{"time":"2026-11-15T20:11:21Z","usageCoreNanoSeconds":-9}"#
            ),
            container("text", r#"{"time":"yesterday","usageCoreNanoSeconds":"9"}"#),
            container(
                "huge",
                r#"{"usageCoreNanoSeconds":1e300,"usageNanoCores":{"a":[1]}}"#
            ),
            container("none", "null"),
        );
        let (batch, report) = read(&body);
        let with_cpu: Vec<&str> = batch
            .containers()
            .filter(|(_, sample)| sample.cpu.is_some())
            .map(|(key, _)| key.container)
            .collect();
        assert_eq!((batch.len(), with_cpu), (5, vec!["good"]));
        assert!(
            batch
                .containers()
                .all(|(_, sample)| sample.memory.is_some())
        );
        assert_eq!(report.rejected(Rejection::Malformed), 3);
        assert_eq!(report.rejected(Rejection::NotANumber), 4);
    }

    #[test]
    fn what_is_no_summary_is_an_error() {
        let (mut batch, mut decoder) = (NodeBatch::default(), Decoder::default());
        let cut = SUMMARY.as_bytes().split_at(5_000).0;
        for body in [b"".as_slice(), b"404 page not found", cut] {
            let read = decode_summary(body, Take::Everything, reading(), &mut batch, &mut decoder);
            assert!(read.is_err());
        }
    }
}
