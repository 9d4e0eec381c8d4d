//! `/metrics/cadvisor`: the part of cAdvisor's families that the statistics of a node have, with
//! cAdvisor's names, labels and help texts, so that dashboards of kubelets work.
//!
//! The root cgroup has the id `/`, pods have a pod and a namespace, containers have everything.
//! Network counters belong to the pod, as those of its sandbox do in cAdvisor.

mod families;

use std::collections::HashSet;

use kubevitals_model::Timestamp;
use kubevitals_model::node_stats::{
    CgroupStats, ContainerStats, FsStats, NetworkStats, NodeStats, PressureLine,
};
use kubevitals_promtext::{Document, LabelName, MetricName, MetricType};

use self::families::{CGROUP, FS, INTERFACE, IO};

/// The name, the type and the help of a family.
struct Head {
    name: MetricName<'static>,
    kind: MetricType,
    help: &'static str,
}

/// A family with one series for each cgroup.
struct CgroupFamily {
    head: Head,
    /// A label of cAdvisor that is constant here, such as `cpu="total"`.
    label: Option<(LabelName<'static>, &'static str)>,
    value: fn(&CgroupStats) -> Value,
}

/// A family of what a cgroup has several of.
struct PartFamily<T> {
    head: Head,
    value: fn(&T) -> Value,
}

/// A value and the time at which it was taken, if that is stated.
type Value = Option<(f64, Option<Timestamp>)>;

/// The labels of a cgroup, in the order of their names.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Labels<'a> {
    container: &'a str,
    id: &'a str,
    image: &'a str,
    name: &'a str,
    namespace: &'a str,
    pod: &'a str,
}

const CONTAINER: LabelName<'_> = LabelName::from_static("container");
const DEVICE: LabelName<'_> = LabelName::from_static("device");
const ID: LabelName<'_> = LabelName::from_static("id");
const IMAGE: LabelName<'_> = LabelName::from_static("image");
const INTERFACE_LABEL: LabelName<'_> = LabelName::from_static("interface");
const NAME: LabelName<'_> = LabelName::from_static("name");
const NAMESPACE: LabelName<'_> = LabelName::from_static("namespace");
const POD: LabelName<'_> = LabelName::from_static("pod");

/// Encodes the statistics of a node.
pub fn encode(stats: &NodeStats) -> Vec<u8> {
    let mut document = Document::new();
    let node = Labels::cgroup(if stats.usage.path.is_empty() {
        "/"
    } else {
        &stats.usage.path
    });
    cgroup(&mut document, node, &stats.usage);
    started(&mut document, node, stats.started);
    network(&mut document, node, stats.network.as_ref());
    fs(&mut document, node, stats.fs.as_ref());
    // Two instances of a container whose cgroups are not known have the same labels, and a series
    // must not occur twice: the first is kept.
    let mut seen = HashSet::from([node]);
    for container in &stats.system_containers {
        let labels = Labels::cgroup(&container.usage.path);
        if seen.insert(labels) {
            self::container(&mut document, labels, container);
        }
    }
    for pod in &stats.pods {
        let labels = Labels {
            namespace: pod.key.namespace(),
            pod: pod.key.name(),
            ..Labels::cgroup(&pod.usage.path)
        };
        if seen.insert(labels) {
            cgroup(&mut document, labels, &pod.usage);
            started(&mut document, labels, pod.started);
            network(&mut document, labels, pod.network.as_ref());
        }
        for container in &pod.containers {
            let labels = Labels {
                container: &container.name,
                id: &container.usage.path,
                image: &container.image,
                name: &container.id,
                ..labels
            };
            if seen.insert(labels) {
                self::container(&mut document, labels, container);
            }
        }
    }
    families::machine(&mut document, &stats.machine);
    let mut out = Vec::with_capacity(64 << 10);
    document.encode(&mut out);
    out
}

impl<'a> Labels<'a> {
    const fn cgroup(id: &'a str) -> Self {
        Self {
            container: "",
            id,
            image: "",
            name: "",
            namespace: "",
            pod: "",
        }
    }

    const fn pairs(self) -> [(LabelName<'static>, &'a str); 6] {
        [
            (CONTAINER, self.container),
            (ID, self.id),
            (IMAGE, self.image),
            (NAME, self.name),
            (NAMESPACE, self.namespace),
            (POD, self.pod),
        ]
    }
}

fn container<'a>(document: &mut Document<'a>, labels: Labels<'a>, container: &'a ContainerStats) {
    cgroup(document, labels, &container.usage);
    started(document, labels, container.started);
    fs(document, labels, container.rootfs.as_ref());
}

fn cgroup<'a>(document: &mut Document<'a>, labels: Labels<'a>, usage: &'a CgroupStats) {
    for family in CGROUP {
        let extra = family.label;
        add(document, &family.head, labels, extra, (family.value)(usage));
    }
    families::memory_failures(document, labels, usage.memory.as_ref());
    let Some(io) = &usage.io else {
        return;
    };
    for device in &io.devices {
        let name = format!("{}:{}", device.major, device.minor);
        for family in IO {
            let value = (family.value)(device).map(|(value, _)| (value, Some(io.at)));
            add(
                document,
                &family.head,
                labels,
                Some((DEVICE, name.clone())),
                value,
            );
        }
    }
}

fn started<'a>(document: &mut Document<'a>, labels: Labels<'a>, started: Option<Timestamp>) {
    let value = started.map(|at| (families::unix_seconds(at), None));
    add(document, &families::START_TIME, labels, NO_LABEL, value);
}

fn network<'a>(document: &mut Document<'a>, labels: Labels<'a>, network: Option<&'a NetworkStats>) {
    let Some(network) = network else {
        return;
    };
    for interface in &network.interfaces {
        for family in INTERFACE {
            let value = (family.value)(interface).map(|(value, _)| (value, Some(network.at)));
            let label = Some((INTERFACE_LABEL, interface.name.as_str()));
            add(document, &family.head, labels, label, value);
        }
    }
}

/// The device is not known: cAdvisor leaves the label empty then, too.
fn fs<'a>(document: &mut Document<'a>, labels: Labels<'a>, fs: Option<&'a FsStats>) {
    let Some(fs) = fs else {
        return;
    };
    for family in FS {
        add(
            document,
            &family.head,
            labels,
            Some((DEVICE, "")),
            (family.value)(fs),
        );
    }
}

const NO_LABEL: Option<(LabelName<'static>, &str)> = None;

fn add<'a, V: Into<std::borrow::Cow<'a, str>>>(
    document: &mut Document<'a>,
    head: &Head,
    labels: Labels<'a>,
    extra: impl IntoIterator<Item = (LabelName<'static>, V)>,
    value: Value,
) {
    let Some((value, at)) = value else {
        return;
    };
    let extra = extra.into_iter().map(|(name, value)| (name, value.into()));
    let labels = labels
        .pairs()
        .into_iter()
        .map(|(name, value)| (name, std::borrow::Cow::Borrowed(value)))
        .chain(extra);
    // The names are constants, and no two are equal.
    let _added = document
        .family(head.name)
        .set_help(head.help)
        .set_kind(head.kind)
        .add(labels, value, at.map(Timestamp::unix_millis))
        .is_ok();
}

#[expect(clippy::cast_precision_loss, reason = "a sample is a float")]
const fn float(number: u64) -> f64 {
    number as f64
}

fn pressure_seconds(line: PressureLine) -> f64 {
    float(line.total_micros) / 1e6
}
