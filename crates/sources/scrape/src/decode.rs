//! From the bytes of `/metrics/resource` to a [`NodeBatch`].
//!
//! What cannot be used costs only itself: a bad line, a value that is no amount, a series without
//! its labels. All of it is counted by reason. Of a series that occurs twice the last counts, as
//! with metrics-server.

use std::borrow::Cow;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use kubevitals_model::{
    Bytes, BytesSample, ContainerKeyRef, ContainerSample, CoreNanos, CpuSample, ModelError,
    NodeBatch, PodKeyRef, Timestamp,
};
use kubevitals_promtext::{Item, Label, Sample, Visitor, parse_with};

use crate::cadence::SampleTimes;

/// Why a value was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rejection {
    /// The line is not of the format.
    Malformed,
    /// The value is not a number.
    NotANumber,
    /// The value is infinite.
    Infinite,
    /// The value is negative.
    Negative,
    /// The value is larger than any such amount can be.
    TooLarge,
    /// The time at which it was taken is not given as one: kubelets say so of what they never
    /// sampled.
    NoTime,
    /// The series does not say whose it is.
    Unlabelled,
    /// The node has more containers than are taken.
    TooMany,
}

/// What became of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DecodeReport {
    /// Values that were used.
    pub used: u64,
    /// Values that were left out, in the order of [`Rejection::ALL`].
    pub rejected: [u64; Rejection::ALL.len()],
    /// When the CPU samples were taken: those of containers, or of the node if there are none.
    pub times: SampleTimes,
    /// Whether the kubelet says that it could not read its own statistics.
    pub kubelet_failed: bool,
}

/// How a body is to be read.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// Stands for the time of samples that have none: just before the request.
    pub asked: Timestamp,
    /// Whether this is the whole body. If not, its last line is no line.
    pub is_complete: bool,
    /// The most containers that are taken.
    pub max_containers: usize,
}

/// The memory of a decoder, which is used again: once it has grown, no line allocates.
#[derive(Debug, Default)]
pub struct Decoder {
    hasher: DefaultHashBuilder,
    /// Places in the batch.
    places: HashTable<u32>,
    /// The place after the one found last: a kubelet repeats the same order in each family.
    guess: usize,
}

/// Which series a line is of.
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

struct Filling<'d, 'b> {
    decoder: &'d mut Decoder,
    batch: &'b mut NodeBatch,
    reading: Reading,
    report: DecodeReport,
    node_cpu_at: Option<Timestamp>,
    series: Series,
}

impl Rejection {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Malformed,
        Self::NotANumber,
        Self::Infinite,
        Self::Negative,
        Self::TooLarge,
        Self::NoTime,
        Self::Unlabelled,
        Self::TooMany,
    ];

    /// As the value of a metric's label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::NotANumber => "nan",
            Self::Infinite => "infinite",
            Self::Negative => "negative",
            Self::TooLarge => "too-large",
            Self::NoTime => "no-time",
            Self::Unlabelled => "unlabelled",
            Self::TooMany => "too-many-containers",
        }
    }

    const fn place(self) -> usize {
        self as usize
    }
}

impl DecodeReport {
    /// How many values were left out for a reason.
    pub fn rejected(&self, why: Rejection) -> u64 {
        self.rejected.get(why.place()).copied().unwrap_or(0)
    }

    pub(crate) fn reject(&mut self, why: Rejection) {
        if let Some(count) = self.rejected.get_mut(why.place()) {
            *count += 1;
        }
    }
}

/// Reads a body of `/metrics/resource` into a batch, which is cleared first.
pub fn decode(
    body: &[u8],
    reading: Reading,
    batch: &mut NodeBatch,
    decoder: &mut Decoder,
) -> DecodeReport {
    batch.clear();
    decoder.start_over();
    let mut filling = Filling {
        decoder,
        batch,
        reading,
        report: DecodeReport::default(),
        node_cpu_at: None,
        series: Series::ScrapeError,
    };
    parse_with(body, &mut filling);
    let Filling {
        mut report,
        node_cpu_at,
        ..
    } = filling;
    if let (None, Some(at)) = (report.times.newest, node_cpu_at) {
        report.times.add(at);
    }
    report
}

impl Decoder {
    /// Forgets the places of a batch that was cleared.
    pub(crate) fn start_over(&mut self) {
        self.places.clear();
        self.guess = 0;
    }

    /// The place of a container in the batch, which it is added to if it is new and there is room.
    pub(crate) fn place(
        &mut self,
        batch: &mut NodeBatch,
        key: ContainerKeyRef<'_>,
        most: usize,
    ) -> Option<usize> {
        let guess = self.guess;
        if batch.get(guess).is_some_and(|(known, _)| known == key) {
            self.guess = guess + 1;
            return Some(guess);
        }
        let hash = self.hasher.hash_one(key);
        let is_same = |place: &u32| {
            let known = batch.get(*place as usize);
            known.is_some_and(|(known, _)| known == key)
        };
        if let Some(place) = self.places.find(hash, is_same) {
            let place = *place as usize;
            self.guess = place + 1;
            return Some(place);
        }
        if batch.len() >= most {
            return None;
        }
        let place = batch.push(key, ContainerSample::default())?;
        let (hasher, rows) = (&self.hasher, &*batch);
        let rehash = |place: &u32| {
            let known = rows.get(*place as usize);
            known.map_or(0, |(known, _)| hasher.hash_one(known))
        };
        self.places
            .insert_unique(hash, u32::try_from(place).ok()?, rehash);
        self.guess = place + 1;
        Some(place)
    }
}

impl<'a> Visitor<'a> for Filling<'_, '_> {
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
            // About the answer, not an amount in it.
            Item::Sample(sample) if self.series == Series::ScrapeError => {
                self.report.kubelet_failed |= sample.value > 0.0;
                return;
            }
            // A value of `12` may be what is left of `123456`.
            Item::Sample(sample) if sample.terminated || self.reading.is_complete => {
                self.sample(&sample)
            }
            Item::Error(_) => Err(Rejection::Malformed),
            _ => return,
        };
        match outcome {
            Ok(()) => self.report.used += 1,
            Err(why) => self.report.reject(why),
        }
    }
}

impl Filling<'_, '_> {
    #[inline]
    fn sample(&mut self, sample: &Sample<'_, '_>) -> Result<(), Rejection> {
        match self.series {
            // Seen to before.
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
                    self.report.times.add(cpu.at);
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
                let started = Timestamp::from_unix_seconds(sample.value).map_err(|e| why(&e))?;
                // A kubelet that does not know leaves it out; who does not, means the same.
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
            total: CoreNanos::from_seconds(sample.value).map_err(|e| why(&e))?,
        })
    }

    fn bytes(&self, sample: &Sample<'_, '_>) -> Result<BytesSample, Rejection> {
        Ok(BytesSample {
            at: self.at(sample)?,
            bytes: Bytes::from_f64(sample.value).map_err(|e| why(&e))?,
        })
    }

    fn at(&self, sample: &Sample<'_, '_>) -> Result<Timestamp, Rejection> {
        match sample.timestamp_ms {
            None => Ok(self.reading.asked),
            // Go's zero time, or the epoch: nobody looked at it yet.
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

    /// No name that Kubernetes allows needs escapes.
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
        let most = self.reading.max_containers;
        let place = self.decoder.place(self.batch, key, most);
        place
            .and_then(|place| self.batch.sample_mut(place))
            .ok_or(Rejection::TooMany)
    }
}

fn why(error: &ModelError) -> Rejection {
    match error {
        ModelError::ValueNotFinite { value, .. } if value.is_nan() => Rejection::NotANumber,
        ModelError::ValueNotFinite { .. } => Rejection::Infinite,
        ModelError::ValueNegative { .. } => Rejection::Negative,
        _ => Rejection::TooLarge,
    }
}

#[cfg(test)]
mod tests;
