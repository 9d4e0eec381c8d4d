//! `/metrics/resource`, byte for byte as a kubelet writes it: the same families, help texts and
//! order.

use kubevitals_model::Timestamp;
use kubevitals_promtext::{Encoder, LabelName, MetricName, MetricType};

use super::NodeSnapshot;
use super::usage::{self, ContainerUsage};
use crate::faults::Fault;
use crate::workload::Pod;

/// Content type of a kubelet of Kubernetes 1.37.
pub(crate) const CONTENT_TYPE: &str =
    "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

const CONTAINER: LabelName<'_> = LabelName::from_static("container");
const NAMESPACE: LabelName<'_> = LabelName::from_static("namespace");
const POD: LabelName<'_> = LabelName::from_static("pod");

/// The series of one container.
struct ContainerSeries<'a> {
    name: &'a str,
    pod: &'a Pod,
    usage: ContainerUsage,
    /// `None` before the first sample: only the start time is exposed.
    sample: Option<Timestamp>,
    /// Series removed by a fault.
    zero_cpu: bool,
    missing: bool,
    /// Whether the series occur a second time with other values.
    double: bool,
}

/// The series of one pod.
struct PodSeries<'a> {
    pod: &'a Pod,
    sample: Timestamp,
}

/// Name, help text and type of a family.
struct FamilyInfo {
    name: MetricName<'static>,
    help: &'static str,
    kind: MetricType,
}

macro_rules! families {
    ($($constant:ident = $name:literal, $kind:ident, $help:literal;)*) => {
        $(const $constant: FamilyInfo = FamilyInfo {
            name: MetricName::from_static($name),
            help: $help,
            kind: MetricType::$kind,
        };)*
    };
}

families! {
    CONTAINER_CPU = "container_cpu_usage_seconds_total", Counter,
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds";
    CONTAINER_MEMORY = "container_memory_working_set_bytes", Gauge,
        "[STABLE] Current working set of the container in bytes";
    CONTAINER_START = "container_start_time_seconds", Gauge,
        "[STABLE] Start time of the container since unix epoch in seconds";
    CONTAINER_SWAP_LIMIT = "container_swap_limit_bytes", Gauge,
        "[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems";
    CONTAINER_SWAP = "container_swap_usage_bytes", Gauge,
        "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems";
    NODE_CPU = "node_cpu_usage_seconds_total", Counter,
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds";
    NODE_MEMORY = "node_memory_working_set_bytes", Gauge,
        "[STABLE] Current working set of the node in bytes";
    NODE_SWAP = "node_swap_usage_bytes", Gauge,
        "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems";
    POD_CPU = "pod_cpu_usage_seconds_total", Counter,
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds";
    POD_MEMORY = "pod_memory_working_set_bytes", Gauge,
        "[STABLE] Current working set of the pod in bytes";
    POD_SWAP = "pod_swap_usage_bytes", Gauge,
        "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems";
    SCRAPE_ERROR = "resource_scrape_error", Gauge,
        "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise";
}

/// Renders the body at `now`, with the faults that change its content.
pub(crate) fn body(node: &NodeSnapshot<'_>, now: Timestamp, faults: &[Fault]) -> Vec<u8> {
    let skew = skew(faults);
    let stamp = |at: Timestamp| Some(at.unix_millis().saturating_add(skew));
    let containers = containers(&node.view.present, now, faults);
    let pods = pods(&node.view.present, now);
    let mut out = Vec::with_capacity(1_024 + 640 * containers.len() + 360 * pods.len());
    let mut encoder = Encoder::new(&mut out);

    let sampled = || containers.iter().filter(|line| line.sample.is_some());
    container_family(&mut encoder, &CONTAINER_CPU, sampled(), |line, extra| {
        let at = line.sample.filter(|_| !line.missing)?;
        let nanos = if line.zero_cpu {
            0
        } else {
            line.usage.cpu_nanos(at)
        };
        Some((seconds(nanos) + extra, stamp(at)))
    });
    container_family(&mut encoder, &CONTAINER_MEMORY, sampled(), |line, extra| {
        let at = line.sample.filter(|_| !line.missing)?;
        Some((float(line.usage.memory_bytes(at)) + extra, stamp(at)))
    });
    container_family(
        &mut encoder,
        &CONTAINER_START,
        containers.iter(),
        |line, _| {
            let millis = line.usage.started().unix_millis().saturating_add(skew);
            Some((float(millis.max(0).cast_unsigned()) / 1_000.0, None))
        },
    );
    for family in [&CONTAINER_SWAP_LIMIT, &CONTAINER_SWAP] {
        container_family(&mut encoder, family, sampled(), |_, _| {
            Some((0.0, stamp(now)))
        });
    }
    let sample = usage::last_sample(node.seed, now);
    let cpu = usage::node_cpu(&node.view, node.seed, node.booted, sample);
    let memory = usage::node_memory(&node.view, node.seed, node.booted, sample);
    for (family, value) in [
        (&NODE_CPU, seconds(cpu)),
        (&NODE_MEMORY, float(memory)),
        (&NODE_SWAP, 0.0),
    ] {
        start(&mut encoder, family).sample::<&str>(&[], value, stamp(sample));
    }
    for (family, value) in [
        (
            &POD_CPU,
            (|line| seconds(usage::pod_cpu(line.pod, line.sample))) as fn(&PodSeries<'_>) -> f64,
        ),
        (&POD_MEMORY, |line| {
            float(usage::pod_memory(line.pod, line.sample))
        }),
        (&POD_SWAP, |_| 0.0),
    ] {
        if pods.is_empty() {
            continue;
        }
        let mut family = start(&mut encoder, family);
        for line in &pods {
            let labels = [(NAMESPACE, line.pod.namespace()), (POD, line.pod.name())];
            family.sample(&labels, value(line), stamp(line.sample));
        }
    }
    start(&mut encoder, &SCRAPE_ERROR).sample::<&str>(&[], 0.0, None);
    insert_bad_lines(&mut out, faults, stamp(now));
    out
}

/// Renders further valid series for a response that is too large, of containers that no API server
/// has. `count` is the number of series so far.
pub(crate) fn further_series(count: u64, at_least: usize) -> (Vec<u8>, u64) {
    let mut out = Vec::with_capacity(at_least + 256);
    let mut count = count;
    let mut encoder = Encoder::new(&mut out);
    // One chunk at a time without starting a new family, so the text stays valid.
    let mut family = encoder.family(CONTAINER_CPU.name, None, None);
    let line_bytes = 150;
    for _ in 0..=at_least / line_bytes {
        let name = format!("filler-{count:020}");
        let labels = [(CONTAINER, "filler"), (NAMESPACE, "filler"), (POD, &name)];
        family.sample(&labels, 1.0, None);
        count = count.wrapping_add(1);
    }
    (out, count)
}

fn skew(faults: &[Fault]) -> i64 {
    faults
        .iter()
        .map(|fault| match fault {
            Fault::ClockSkew(by) => *by,
            _ => 0,
        })
        .sum()
}

fn start<'e>(
    encoder: &'e mut Encoder<'_>,
    family: &FamilyInfo,
) -> kubevitals_promtext::FamilyEncoder<'e, 'static> {
    encoder.family(family.name, Some(family.help), Some(family.kind))
}

fn container_family<'a, 'p: 'a>(
    encoder: &mut Encoder<'_>,
    family: &FamilyInfo,
    lines: impl Iterator<Item = &'a ContainerSeries<'p>>,
    value: impl Fn(&ContainerSeries<'_>, f64) -> Option<(f64, Option<i64>)>,
) {
    let mut started = false;
    for line in lines {
        for extra in [Some(0.0), line.double.then_some(1.0)]
            .into_iter()
            .flatten()
        {
            let Some((value, stamp)) = value(line, extra) else {
                continue;
            };
            let labels = [
                (CONTAINER, line.name),
                (NAMESPACE, line.pod.namespace()),
                (POD, line.pod.name()),
            ];
            // A family without series is omitted.
            if !std::mem::replace(&mut started, true) {
                start(encoder, family);
            }
            encoder
                .family(family.name, None, None)
                .sample(&labels, value, stamp);
        }
    }
}

fn containers<'a>(
    pods: &'a [std::sync::Arc<Pod>],
    now: Timestamp,
    faults: &[Fault],
) -> Vec<ContainerSeries<'a>> {
    let mut lines = Vec::new();
    for pod in pods {
        for part in pod.parts() {
            let Some(usage) = usage::running(pod, part.index) else {
                continue;
            };
            lines.push(ContainerSeries {
                name: part.name,
                pod,
                usage,
                sample: usage::container_sample(pod, part.index, now),
                zero_cpu: false,
                missing: false,
                double: false,
            });
        }
    }
    lines.sort_by(|a, b| {
        let key = |line: &ContainerSeries<'a>| (line.name, line.pod.namespace(), line.pod.name());
        key(a).cmp(&key(b))
    });
    let first = lines
        .iter()
        .find(|line| line.sample.is_some())
        .map(|line| line.pod.uid());
    let sibling = lines
        .iter()
        .find(|line| {
            lines
                .iter()
                .filter(|other| other.pod.uid() == line.pod.uid())
                .count()
                > 1
        })
        .map(|line| (line.name.to_owned(), line.pod.uid()));
    for fault in faults {
        match fault {
            Fault::ZeroCpu => {
                if let Some(line) = lines.iter_mut().find(|line| line.sample.is_some()) {
                    line.zero_cpu = true;
                }
            }
            Fault::Duplicate => lines
                .iter_mut()
                .for_each(|line| line.double |= Some(line.pod.uid()) == first),
            Fault::MissingSibling => lines.iter_mut().for_each(|line| {
                line.missing |= sibling
                    .as_ref()
                    .is_some_and(|(name, uid)| name == line.name && *uid == line.pod.uid());
            }),
            _ => {}
        }
    }
    lines
}

fn pods(pods: &[std::sync::Arc<Pod>], now: Timestamp) -> Vec<PodSeries<'_>> {
    let mut lines: Vec<_> = pods
        .iter()
        .filter(|pod| (0..pod.containers.len()).any(|i| usage::running(pod, i).is_some()))
        .filter_map(|pod| {
            let sample = usage::pod_sample(pod, now)?;
            Some(PodSeries { pod, sample })
        })
        .collect();
    lines.sort_by(|a, b| (a.pod.namespace(), a.pod.name()).cmp(&(b.pod.namespace(), b.pod.name())));
    lines
}

/// Inserts bad lines into the middle of the container's series, where a reader that gives up loses
/// the most.
fn insert_bad_lines(out: &mut Vec<u8>, faults: &[Fault], stamp: Option<i64>) {
    let name = CONTAINER_CPU.name.as_str();
    let stamp = stamp.unwrap_or_default();
    for fault in faults {
        let line = match fault {
            Fault::MalformedLine => {
                format!("{name}{{container=\"broken\",pod= -1 -62135596800000\n")
            }
            Fault::UnlabelledSeries => format!("{name} 12.5 {stamp}\n"),
            _ => continue,
        };
        let end_of_line = |from: usize| {
            out.iter()
                .enumerate()
                .skip(from)
                .find(|(_, byte)| **byte == b'\n')
                .map(|(at, _)| at + 1)
        };
        // After the HELP and TYPE lines of the first family.
        let offset = end_of_line(0).and_then(end_of_line).unwrap_or(out.len());
        out.splice(offset..offset, line.into_bytes());
    }
}

fn seconds(nanos: u64) -> f64 {
    float(nanos) / 1e9
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the format knows nothing but f64, nor does a kubelet"
)]
fn float(number: u64) -> f64 {
    number as f64
}
