//! Any sequence of publications, next to a model of a few lines: what is listed is what the model
//! says, whatever is asked.

use std::collections::BTreeMap;

use kubevitals_model::{LabelSelector, Labels, NodeName};
use kubevitals_usage::{PodUsage, UsagePublisher as _};
use proptest::prelude::*;

use crate::support::*;

/// What happens to a node.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Publish {
        node: u8,
        own: Option<u64>,
        /// Namespace, name, labels, usage.
        pods: Vec<(u8, u8, u8, u64)>,
    },
    Withdraw(u8),
}

/// Labels and usage by namespace and name.
type Pods = BTreeMap<(String, String), (u8, u64)>;

/// What was last said of each node, and of each pod by whom it is claimed, the last claim last.
#[derive(Default)]
pub(crate) struct Model {
    nodes: BTreeMap<String, (Option<u64>, Pods)>,
    claims: BTreeMap<(String, String), Vec<(String, u8)>>,
}

pub(crate) fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let pods = prop::collection::btree_map((0..3u8, 0..12u8), (0..5u8, 0..4u64), 0..8);
    let publish =
        (0..4u8, prop::option::weighted(0.8, 0..4u64), pods).prop_map(|(node, own, pods)| {
            Step::Publish {
                node,
                own,
                pods: pods
                    .into_iter()
                    .map(|((namespace, name), (labels, usage))| (namespace, name, labels, usage))
                    .collect(),
            }
        });
    let step = prop_oneof![6 => publish, 1 => (0..4u8).prop_map(Step::Withdraw)];
    prop::collection::vec(step, 0..most)
}

pub(crate) fn label_set(number: u8) -> Labels {
    match number {
        0 => Labels::default(),
        1 => labels(&[("app", "web")]),
        2 => labels(&[("app", "web"), ("tier", "front")]),
        3 => labels(&[("app", "db"), ("n", "7")]),
        _ => labels(&[("n", "3")]),
    }
}

impl Step {
    /// Does it to the API and to the model.
    pub(crate) fn apply(&self, api: &Harness, model: &mut Model) {
        match self {
            Self::Publish { node, own, pods } => {
                let name = format!("node-{node}");
                let made: Vec<PodUsage> = pods
                    .iter()
                    .map(|(namespace, name, labels, used)| {
                        let containers = (0..2)
                            .map(|n| container(&format!("c{n}"), usage(*used, *used, 5, 15_000)));
                        pod(
                            &format!("ns-{namespace}"),
                            &format!("pod-{name}"),
                            label_set(*labels),
                            containers.collect(),
                        )
                    })
                    .collect();
                let own_usage = own.map(|used| usage(used, used, 5, 15_000));
                publish_labelled(api, &name, &label_set(*node), own_usage, &made);
                let pods = pods.iter().map(|(namespace, name, labels, used)| {
                    (
                        (format!("ns-{namespace}"), format!("pod-{name}")),
                        (*labels, *used),
                    )
                });
                model.publish(&name, *own, pods.collect());
            }
            Self::Withdraw(node) => {
                api.publisher
                    .withdraw(&NodeName::new(format!("node-{node}")));
                model.publish(&format!("node-{node}"), None, BTreeMap::new());
                model.nodes.remove(&format!("node-{node}"));
            }
        }
    }
}

impl Model {
    fn publish(&mut self, node: &str, own: Option<u64>, pods: Pods) {
        let (_, before) = self.nodes.remove(node).unwrap_or_default();
        for key in before.keys() {
            let same = pods.get(key).map(|(labels, _)| label_set(*labels))
                == before.get(key).map(|(labels, _)| label_set(*labels));
            if !same {
                let claims = self.claims.get_mut(key).unwrap();
                claims.retain(|(own, _)| own != node);
            }
        }
        for (key, (labels, _)) in &pods {
            let claims = self.claims.entry(key.clone()).or_default();
            if !claims.iter().any(|(own, _)| own == node) {
                claims.push((node.to_owned(), *labels));
            }
        }
        self.nodes.insert(node.to_owned(), (own, pods));
    }

    /// The pods that pass, as texts.
    pub(crate) fn pods(&self, ask: &Ask) -> Vec<String> {
        let mut texts = Vec::new();
        for ((namespace, name), claims) in &self.claims {
            let Some((node, labels)) = claims.last() else {
                continue;
            };
            let (_, used) = self.nodes[node].1[&(namespace.clone(), name.clone())];
            let labels = label_set(*labels);
            let fields = kubevitals_model::parse_field_selector(ask.fields).unwrap();
            let fields = fields.iter().all(|term| match &*term.field {
                "metadata.name" => term.holds(name),
                "metadata.namespace" => term.holds(namespace),
                _ => term.holds(node),
            });
            let selected = ask.labels.matches(|key| labels.get(key).map(|v| &**v));
            if fields && selected && ask.namespace.is_none_or(|own| own == namespace) {
                let mut text = format!("{namespace}/{name}{}", told_labels(&labels));
                for n in 0..2 {
                    text += &format!(" [c{n} cpu:{} memory:{used}]", nanocores(used));
                }
                texts.push(text);
            }
        }
        texts
    }

    pub(crate) fn nodes(&self, labels: &LabelSelector) -> Vec<String> {
        let known = self.nodes.iter().filter(|(_, (own, _))| own.is_some());
        known
            .filter(|(name, _)| {
                let own = label_set(name.strip_prefix("node-").unwrap().parse().unwrap());
                labels.matches(|key| own.get(key).map(|v| &**v))
            })
            .map(|(name, _)| format!("/{name}"))
            .collect()
    }
}

fn told_labels(labels: &Labels) -> String {
    labels
        .iter()
        .map(|(key, value)| format!(" {key}={value}"))
        .collect()
}

fn nanocores(count: u64) -> String {
    if count == 0 {
        "0".to_owned()
    } else {
        format!("{count}n")
    }
}

fn asks() -> Vec<Ask> {
    let mut asks: Vec<Ask> = [
        "",
        "app=web",
        "app in (web,db),tier!=front",
        "!app",
        "n>4",
        "app=web,tier",
        "app,app in (db,db)",
    ]
    .iter()
    .map(|selector| all(PROTOBUF).labelled(selector))
    .collect();
    asks.extend(asks.clone().into_iter().map(|ask| ask.within("ns-1")));
    asks.extend(
        [
            "metadata.name=pod-3",
            "metadata.namespace=ns-2",
            "metadata.namespace!=ns-2",
            "spec.nodeName=node-1",
            "spec.nodeName!=node-1",
            "spec.nodeName=none",
            "metadata.name=pod-3,metadata.namespace=ns-0",
            "metadata.name=pod-3,metadata.name=pod-4",
        ]
        .map(|fields| all(PROTOBUF).with_fields(fields)),
    );
    asks.push(
        all(PROTOBUF)
            .with_fields("spec.nodeName=node-2")
            .labelled("app=web")
            .within("ns-0"),
    );
    asks
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn lists_are_what_was_published_last(steps in steps(24)) {
        let api = Harness::new();
        let mut model = Model::default();
        for step in &steps {
            step.apply(&api, &mut model);
        }
        for ask in asks() {
            let listed = told_list(&ask.list(&api, "pods"));
            prop_assert_eq!(&listed, &model.pods(&ask), "{:?}", &ask);
            let as_json = Ask { representation: JSON, ..ask };
            let plain: Vec<&str> = listed.iter().map(|text| text.split(' ').next().unwrap()).collect();
            prop_assert_eq!(names(&as_json.list(&api, "pods")), plain);
        }
        for selector in ["", "app=web", "!app"] {
            let ask = all(JSON).labelled(selector);
            prop_assert_eq!(names(&ask.list(&api, "nodes")), model.nodes(&ask.labels));
        }
        for text in model.pods(&all(PROTOBUF)) {
            let (namespace, rest) = text.split_once('/').unwrap();
            let name = rest.split(' ').next().unwrap();
            let body = get(&api, "pods", (namespace, name), PROTOBUF).unwrap();
            let unknown = decode(body.strip_prefix(b"k8s\0").unwrap());
            prop_assert_eq!(told(&bytes_of(&unknown, 2)[0]), text);
        }
    }
}

#[test]
fn an_unchanged_pod_keeps_its_bytes_and_a_repeated_one_counts_once() {
    let api = Harness::new();
    let one = pod(
        "a",
        "one",
        labels(&[]),
        vec![container("c", usage(1, 1, 5, 15_000))],
    );
    publish(&api, "n", None, &[one.clone(), one.clone()]);
    let first = all(PROTOBUF).list(&api, "pods");
    assert_eq!(told_list(&first).len(), 1);
    publish(&api, "n", None, &[one]);
    assert_eq!(all(PROTOBUF).list(&api, "pods"), first);
}

#[test]
fn pods_out_of_order_or_without_containers_do_no_harm() {
    let api = Harness::new();
    let some = |name: &str| {
        pod(
            "a",
            name,
            labels(&[]),
            vec![container("c", usage(1, 1, 5, 15_000))],
        )
    };
    publish(
        &api,
        "n",
        None,
        &[some("z"), pod("a", "empty", labels(&[]), vec![]), some("b")],
    );
    assert_eq!(names(&all(JSON).list(&api, "pods")), ["a/b", "a/z"]);
    let gone = pod("a", "z", labels(&[]), vec![]);
    publish(&api, "n", None, &[gone, some("b")]);
    assert_eq!(names(&all(JSON).list(&api, "pods")), ["a/b"]);
}

#[test]
fn more_pods_than_are_gathered_are_still_selected_in_order() {
    let api = Harness::new();
    let web = labels(&[("app", "web")]);
    for node in 0..60 {
        let pods: Vec<PodUsage> = (0..100)
            .map(|n| {
                pod(
                    "a",
                    &format!("p-{:05}", n * 60 + node),
                    web.clone(),
                    vec![container("c", usage(1, 1, 5, 15_000))],
                )
            })
            .collect();
        publish(&api, &format!("node-{node}"), None, &pods);
    }
    let expected: Vec<String> = (0..6000).map(|n| format!("a/p-{n:05}")).collect();
    assert_eq!(
        names(&all(JSON).labelled("app=web").list(&api, "pods")),
        expected
    );
    assert_eq!(
        names(&all(JSON).labelled("app=web").within("b").list(&api, "pods")),
        [""; 0]
    );
    assert_eq!(
        told_list(&all(PROTOBUF).labelled("app").list(&api, "pods")).len(),
        6000
    );
}
