//! Decodes `/metrics/resource` into a [`NodeBatch`].
//!
//! Invalid lines, values and series are ignored one by one and counted by reason. Of a series that
//! occurs twice the last counts, as in metrics-server.

use std::borrow::Cow;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use kubevitals_model::{
    Bytes, BytesSample, ContainerKeyRef, ContainerSample, CoreNanos, CpuSample, ModelError,
    NodeBatch, PodKeyRef, Timestamp,
};
use kubevitals_promtext::{Item, Label, Sample, Visitor, parse_with};

/// Maximum number of bytes of all names of one node. The most containers that are allowed have
/// names of half the length that Kubernetes allows.
const MAX_NAME_BYTES: usize = 2 << 20;

/// The reason why a value was ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rejection {
    /// The line is not valid in the exposition format.
    Malformed,
    NotANumber,
    Infinite,
    Negative,
    /// The value does not fit its type.
    TooLarge,
    /// The timestamp is zero or invalid: kubelets report that for what they have not sampled yet.
    NoTime,
    /// The series lacks the labels of its container.
    Unlabelled,
    /// Kubernetes does not allow the name of the container, pod or namespace.
    InvalidName,
    /// The node has more containers than the limit.
    TooMany,
}

/// The outcome of decoding a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DecodeReport {
    /// Number of values that were used.
    pub used: u64,
    /// Number of values that were ignored, in the order of [`Rejection::ALL`].
    pub rejected: [u64; Rejection::ALL.len()],
    /// The timestamp of the newest CPU sample: of a container, or of the node if it has none.
    pub newest: Option<Timestamp>,
    /// Whether the kubelet reports that it failed to read its own statistics.
    pub kubelet_failed: bool,
}

/// Options for decoding a body.
#[derive(Debug, Clone, Copy)]
pub struct DecodeOptions {
    /// The time just before the request, for samples without a timestamp.
    pub requested_at: Timestamp,
    /// Whether this is the whole body. If not, the last line is ignored.
    pub is_complete: bool,
    pub max_containers: usize,
}

/// Memory of a decoder for reuse: once it has grown, no line allocates.
#[derive(Debug, Default)]
pub struct Decoder {
    hasher: DefaultHashBuilder,
    /// Indices of containers in the batch.
    indices: HashTable<u32>,
    /// The index after the one found last: kubelets repeat the same order in each family.
    guess: usize,
}

/// The series of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Series {
    NodeCpu,
    NodeMemory,
    NodeSwap,
    Cpu,
    Memory,
    Swap,
    Start,
    ScrapeError,
}

struct BatchBuilder<'d, 'b> {
    decoder: &'d mut Decoder,
    batch: &'b mut NodeBatch,
    options: DecodeOptions,
    report: DecodeReport,
    node_cpu_at: Option<Timestamp>,
    series: Series,
}

impl Rejection {
    pub const ALL: [Self; 9] = [
        Self::Malformed,
        Self::NotANumber,
        Self::Infinite,
        Self::Negative,
        Self::TooLarge,
        Self::NoTime,
        Self::Unlabelled,
        Self::InvalidName,
        Self::TooMany,
    ];

    /// Returns the value of a metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::NotANumber => "nan",
            Self::Infinite => "infinite",
            Self::Negative => "negative",
            Self::TooLarge => "too-large",
            Self::NoTime => "no-time",
            Self::Unlabelled => "unlabelled",
            Self::InvalidName => "invalid-name",
            Self::TooMany => "too-many-containers",
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

impl DecodeReport {
    /// Returns the number of values that were ignored for a reason.
    pub fn rejected(&self, rejection: Rejection) -> u64 {
        self.rejected.get(rejection.index()).copied().unwrap_or(0)
    }

    pub(crate) fn reject(&mut self, rejection: Rejection) {
        if let Some(count) = self.rejected.get_mut(rejection.index()) {
            *count += 1;
        }
    }

    /// Records the timestamp of a CPU sample.
    #[inline]
    pub(crate) fn observe(&mut self, at: Timestamp) {
        // `None` is less than any timestamp.
        self.newest = self.newest.max(Some(at));
    }
}

/// Decodes a body of `/metrics/resource` into a batch, which is cleared first.
pub fn decode(
    body: &[u8],
    options: DecodeOptions,
    batch: &mut NodeBatch,
    decoder: &mut Decoder,
) -> DecodeReport {
    batch.clear();
    decoder.clear();
    let mut builder = BatchBuilder {
        decoder,
        batch,
        options,
        report: DecodeReport::default(),
        node_cpu_at: None,
        series: Series::ScrapeError,
    };
    parse_with(body, &mut builder);
    let BatchBuilder {
        mut report,
        node_cpu_at,
        ..
    } = builder;
    report.newest = report.newest.or(node_cpu_at);
    report
}

impl Decoder {
    /// Forgets the indices of a batch that was cleared.
    pub(crate) fn clear(&mut self) {
        self.indices.clear();
        self.guess = 0;
    }

    /// Reduces the memory to that of some containers. Called after [`Decoder::clear`].
    pub(crate) fn shrink_to(&mut self, containers: usize) {
        self.clear();
        // The table is empty.
        self.indices.shrink_to(containers, |_| 0);
    }

    /// Returns the number of containers that fit without growing.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.indices.capacity()
    }

    /// Returns the index of a container in the batch. A new one is added if its names are valid,
    /// unless a limit is reached.
    pub(crate) fn index(
        &mut self,
        batch: &mut NodeBatch,
        key: ContainerKeyRef<'_>,
        limit: usize,
    ) -> Result<usize, Rejection> {
        let guess = self.guess;
        if batch.get(guess).is_some_and(|(known, _)| known == key) {
            self.guess = guess + 1;
            return Ok(guess);
        }
        let hash = self.hasher.hash_one(key);
        let is_same = |index: &u32| {
            let known = batch.get(*index as usize);
            known.is_some_and(|(known, _)| known == key)
        };
        if let Some(index) = self.indices.find(hash, is_same) {
            let index = *index as usize;
            self.guess = index + 1;
            return Ok(index);
        }
        // Only new names need a check: known ones have passed it.
        if !is_valid(key) {
            return Err(Rejection::InvalidName);
        }
        if batch.len() >= limit || batch.name_bytes() >= MAX_NAME_BYTES {
            return Err(Rejection::TooMany);
        }
        let added = batch.push(key, ContainerSample::default());
        let (Some(index), Some(number)) = (added, added.and_then(|index| index.try_into().ok()))
        else {
            return Err(Rejection::TooMany);
        };
        let (hasher, rows) = (&self.hasher, &*batch);
        let rehash = |index: &u32| {
            let known = rows.get(*index as usize);
            known.map_or(0, |(known, _)| hasher.hash_one(known))
        };
        self.indices.insert_unique(hash, number, rehash);
        self.guess = index + 1;
        Ok(index)
    }
}

impl<'a> Visitor<'a> for BatchBuilder<'_, '_> {
    fn wants(&mut self, name: &'a str) -> bool {
        self.series = match name {
            "node_cpu_usage_seconds_total" => Series::NodeCpu,
            "node_memory_working_set_bytes" => Series::NodeMemory,
            "node_swap_usage_bytes" => Series::NodeSwap,
            "container_cpu_usage_seconds_total" => Series::Cpu,
            "container_memory_working_set_bytes" => Series::Memory,
            "container_swap_usage_bytes" => Series::Swap,
            "container_start_time_seconds" => Series::Start,
            "resource_scrape_error" => Series::ScrapeError,
            _ => return false,
        };
        true
    }

    #[inline]
    fn item(&mut self, item: Item<'a, '_>) {
        let outcome = match item {
            // This concerns the response, not a value in it.
            Item::Sample(sample) if self.series == Series::ScrapeError => {
                self.report.kubelet_failed |= sample.value > 0.0;
                return;
            }
            // A value of `12` may be the beginning of `123456`.
            Item::Sample(sample) if sample.terminated || self.options.is_complete => {
                self.sample(&sample)
            }
            Item::Error(_) => Err(Rejection::Malformed),
            _ => return,
        };
        match outcome {
            Ok(()) => self.report.used += 1,
            Err(rejection) => self.report.reject(rejection),
        }
    }
}

impl BatchBuilder<'_, '_> {
    #[inline]
    fn sample(&mut self, sample: &Sample<'_, '_>) -> Result<(), Rejection> {
        match self.series {
            // Handled before.
            Series::ScrapeError => {}
            Series::NodeCpu => {
                let cpu = self.cpu(sample)?;
                self.node_cpu_at = sample.timestamp_ms.map(|_| cpu.at);
                self.batch.node.cpu = Some(cpu);
            }
            Series::NodeMemory => self.batch.node.memory = Some(self.bytes(sample)?),
            Series::NodeSwap => self.batch.node.swap = Some(self.bytes(sample)?),
            Series::Cpu => {
                let cpu = self.cpu(sample)?;
                self.container(sample)?.cpu = Some(cpu);
                if sample.timestamp_ms.is_some() {
                    self.report.observe(cpu.at);
                }
            }
            Series::Memory => {
                let memory = self.bytes(sample)?;
                self.container(sample)?.memory = Some(memory);
            }
            Series::Swap => {
                let swap = self.bytes(sample)?;
                self.container(sample)?.swap = Some(swap);
            }
            Series::Start => {
                let started =
                    Timestamp::from_unix_seconds(sample.value).map_err(|e| rejection(&e))?;
                // A kubelet that does not know the time leaves it out, or reports zero.
                if started.unix_millis() == 0 {
                    return Err(Rejection::NoTime);
                }
                self.container(sample)?.started = Some(started);
            }
        }
        Ok(())
    }

    fn cpu(&self, sample: &Sample<'_, '_>) -> Result<CpuSample, Rejection> {
        Ok(CpuSample {
            at: self.at(sample)?,
            total: CoreNanos::from_seconds(sample.value).map_err(|e| rejection(&e))?,
        })
    }

    fn bytes(&self, sample: &Sample<'_, '_>) -> Result<BytesSample, Rejection> {
        Ok(BytesSample {
            at: self.at(sample)?,
            bytes: Bytes::from_f64(sample.value).map_err(|e| rejection(&e))?,
        })
    }

    fn at(&self, sample: &Sample<'_, '_>) -> Result<Timestamp, Rejection> {
        match sample.timestamp_ms {
            None => Ok(self.options.requested_at),
            // Go's zero time, or the epoch: not sampled yet.
            Some(..=0) => Err(Rejection::NoTime),
            Some(at) => Ok(Timestamp::from_unix_millis(at)),
        }
    }

    #[inline]
    fn container(&mut self, sample: &Sample<'_, '_>) -> Result<&mut ContainerSample, Rejection> {
        let [Some(container), Some(namespace), Some(pod)] =
            sample.pick(["container", "namespace", "pod"])
        else {
            return Err(Rejection::Unlabelled);
        };
        if container.escaped | namespace.escaped | pod.escaped {
            return self.escaped([container, namespace, pod]);
        }
        self.row(container.raw, namespace.raw, pod.raw)
    }

    /// Handles escaped labels, which no name that Kubernetes allows needs.
    #[cold]
    fn escaped(&mut self, labels: [&Label<'_>; 3]) -> Result<&mut ContainerSample, Rejection> {
        let [container, namespace, pod]: [Cow<'_, str>; 3] = labels.map(Label::value);
        self.row(&container, &namespace, &pod)
    }

    #[inline]
    fn row(
        &mut self,
        container: &str,
        namespace: &str,
        pod: &str,
    ) -> Result<&mut ContainerSample, Rejection> {
        if container.is_empty() || namespace.is_empty() || pod.is_empty() {
            return Err(Rejection::Unlabelled);
        }
        let key = ContainerKeyRef {
            pod: PodKeyRef {
                namespace,
                name: pod,
            },
            container,
        };
        let limit = self.options.max_containers;
        let index = self.decoder.index(self.batch, key, limit)?;
        self.batch.sample_mut(index).ok_or(Rejection::TooMany)
    }
}

/// Returns whether Kubernetes allows these names: DNS labels of at most 63 bytes, and for pods DNS
/// subdomains of at most 253.
fn is_valid(key: ContainerKeyRef<'_>) -> bool {
    is_name(key.container, 63, false)
        && is_name(key.pod.namespace, 63, false)
        && is_name(key.pod.name, 253, true)
}

fn is_name(name: &str, max: usize, allows_dots: bool) -> bool {
    let is_inner = |byte: u8| {
        byte.is_ascii_lowercase()
            || byte.is_ascii_digit()
            || byte == b'-'
            || (allows_dots && byte == b'.')
    };
    let is_outer = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    name.len() <= max
        && name.bytes().all(is_inner)
        && is_outer(name.bytes().next())
        && is_outer(name.bytes().next_back())
}

fn rejection(error: &ModelError) -> Rejection {
    match error {
        ModelError::ValueNotFinite { value, .. } if value.is_nan() => Rejection::NotANumber,
        ModelError::ValueNotFinite { .. } => Rejection::Infinite,
        ModelError::ValueNegative { .. } => Rejection::Negative,
        _ => Rejection::TooLarge,
    }
}

#[cfg(test)]
mod tests;
