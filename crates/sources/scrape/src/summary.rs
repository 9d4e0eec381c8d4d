//! Decodes `/stats/summary` into a [`NodeBatch`].
//!
//! The kubelet's older and much larger response (JSON, about 1.5 KiB per container). It has fields
//! that `/metrics/resource` lacks, and is the fallback for nodes without that endpoint. Its
//! timestamps are whole seconds, so that a rate from it may be off by a tenth.
//!
//! Invalid pods, containers and numbers are ignored one by one. A truncated document is useless,
//! since the end of its last container is unknown.

mod wire;

use kubevitals_model::{
    Bytes, BytesSample, ContainerKeyRef, CoreNanos, CpuSample, CpuUsage, NodeBatch, PodKeyRef,
    Timestamp,
};

use self::wire::{ContainerStats, NodeStats, PodReference, PodStats, Summary, Value};
use crate::decode::{DecodeOptions, DecodeReport, Decoder, Rejection};

/// The fields that are decoded from a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SummaryFields {
    /// All fields. The batch is cleared first.
    All,
    /// Those that `/metrics/resource` lacks, added to the samples from there.
    Extras,
}

struct BatchBuilder {
    fields: SummaryFields,
    options: DecodeOptions,
    report: DecodeReport,
}

/// Decodes a summary into a batch. Fails if the body is not such a document.
pub fn decode_summary(
    body: &[u8],
    fields: SummaryFields,
    options: DecodeOptions,
    batch: &mut NodeBatch,
    decoder: &mut Decoder,
) -> Result<DecodeReport, serde_json::Error> {
    let summary: Summary<'_> = serde_json::from_slice(body)?;
    if fields == SummaryFields::All {
        batch.clear();
        decoder.clear();
    }
    let mut builder = BatchBuilder {
        fields,
        options,
        report: DecodeReport::default(),
    };
    if let Some(node) = summary.node {
        match serde_json::from_str::<NodeStats>(node.get()) {
            Ok(stats) => builder.node(&stats, batch),
            Err(_) => builder.report.reject(Rejection::Malformed),
        }
    }
    for pod in &summary.pods.items {
        match serde_json::from_str::<PodStats<'_>>(pod.get()) {
            Ok(stats) => builder.pod(&stats, batch, decoder),
            Err(_) => builder.report.reject(Rejection::Malformed),
        }
    }
    for _ in 0..summary.pods.more {
        builder.report.reject(Rejection::TooMany);
    }
    let mut report = builder.report;
    report.newest = report.newest.or(batch.node.cpu.map(|cpu| cpu.at));
    Ok(report)
}

impl BatchBuilder {
    fn node(&mut self, stats: &NodeStats, batch: &mut NodeBatch) {
        let node = &mut batch.node;
        let cpu = &stats.cpu.0;
        if let Some(now) = self.count(cpu.now) {
            node.cpu_now = Some(CpuUsage::from_nanocores(now));
        }
        if let Some(stored) = self.bytes(stats.fs.0.used, stats.fs.0.time) {
            node.ephemeral_storage = Some(stored);
        }
        if self.fields == SummaryFields::Extras {
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
        let index = match decoder.index(batch, key, self.options.max_containers) {
            Ok(index) => index,
            Err(rejection) => return self.report.reject(rejection),
        };
        let Some(sample) = batch.sample_mut(index) else {
            return self.report.reject(Rejection::TooMany);
        };
        let cpu = &stats.cpu.0;
        if let Some(now) = self.count(cpu.now) {
            sample.cpu_now = Some(CpuUsage::from_nanocores(now));
        }
        sample.ephemeral_storage = self.ephemeral_storage(stats).or(sample.ephemeral_storage);
        if self.fields == SummaryFields::Extras {
            return;
        }
        if let Some((total, at)) = self.timed(cpu.total, cpu.time) {
            self.report.observe(at);
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

    /// Returns the size of a container's writable layer and logs, or of the one that is reported.
    fn ephemeral_storage(&mut self, stats: &ContainerStats<'_>) -> Option<BytesSample> {
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
            Value::Absent => self.options.requested_at,
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

    fn options() -> DecodeOptions {
        DecodeOptions {
            requested_at: Timestamp::from_unix_millis(1_794_773_490_000),
            is_complete: true,
            max_containers: 1_000,
        }
    }

    fn read(body: &str) -> (NodeBatch, DecodeReport) {
        let (mut batch, mut decoder) = (NodeBatch::default(), Decoder::default());
        let read = decode_summary(
            body.as_bytes(),
            SummaryFields::All,
            options(),
            &mut batch,
            &mut decoder,
        );
        (batch, read.unwrap())
    }

    #[test]
    fn a_recorded_summary_equals_the_metrics_of_the_same_time() {
        let (summary, report) = read(SUMMARY);
        assert_eq!(report.rejected, [0; 9]);
        let (mut metrics, mut decoder) = (NodeBatch::default(), Decoder::default());
        decode(METRICS.as_bytes(), options(), &mut metrics, &mut decoder);
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
    fn extras_do_not_change_samples_of_metrics() {
        let (mut batch, mut decoder) = (NodeBatch::default(), Decoder::default());
        decode(METRICS.as_bytes(), options(), &mut batch, &mut decoder);
        let before = batch.clone();
        let body = SUMMARY.as_bytes();
        decode_summary(
            body,
            SummaryFields::Extras,
            options(),
            &mut batch,
            &mut decoder,
        )
        .unwrap();
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
    fn an_invalid_value_does_not_affect_others() {
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
    fn names_that_kubernetes_does_not_allow_are_rejected() {
        let body = |container: &str, pod: &str| {
            format!(
                r#"{{"pods":[{{"podRef":{{"name":"{pod}","namespace":"n"}},"containers":[{{"name":"{container}","memory":{{"workingSetBytes":7}}}}]}}]}}"#
            )
        };
        assert_eq!(read(&body("c", "p.q")).0.len(), 1);
        for (container, pod) in [
            (&*"c".repeat(64), "p"),
            ("c", &*"p".repeat(254)),
            ("c d", "p"),
        ] {
            let (batch, report) = read(&body(container, pod));
            assert_eq!((batch.len(), report.used), (0, 0));
            assert_eq!(report.rejected(Rejection::InvalidName), 1);
        }
    }

    #[test]
    fn a_body_that_is_no_summary_is_an_error() {
        let (mut batch, mut decoder) = (NodeBatch::default(), Decoder::default());
        let cut = SUMMARY.as_bytes().split_at(5_000).0;
        for body in [b"".as_slice(), b"404 page not found", cut] {
            let read = decode_summary(
                body,
                SummaryFields::All,
                options(),
                &mut batch,
                &mut decoder,
            );
            assert!(read.is_err());
        }
    }
}
