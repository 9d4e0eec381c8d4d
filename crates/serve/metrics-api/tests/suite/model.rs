//! Property tests: after any sequence of publications, lists with any selector equal those of a
//! small model.

use std::collections::BTreeMap;

use kubevitals_model::{LabelSelector, Labels, NodeName};
use kubevitals_usage::{PodUsage, UsagePublisher as _};
use proptest::prelude::*;

use crate::support::*;

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

/// The last publication of each node, and the nodes that claim each pod, the last claim last.
#[derive(Default)]
pub(crate) struct Model {
    nodes: BTreeMap<String, (Option<u64>, Pods)>,
    claims: BTreeMap<(String, String), Vec<(String, u8)>>,
}

pub(crate) fn steps(max: usize) -> impl Strategy<Value = Vec<Step>> {
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
    prop::collection::vec(step, 0..max)
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
    /// Applies the step to the API and to the model.
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

    /// Returns the matching pods as texts.
    pub(crate) fn pods(&self, query: &Query) -> Vec<String> {
        let mut texts = Vec::new();
        for ((namespace, name), claims) in &self.claims {
            let Some((node, labels)) = claims.last() else {
                continue;
            };
            let (_, used) = self.nodes[node].1[&(namespace.clone(), name.clone())];
            let labels = label_set(*labels);
            let fields = kubevitals_model::parse_field_selector(query.fields).unwrap();
            let fields = fields.iter().all(|term| match &*term.field {
                "metadata.name" => term.holds(name),
                "metadata.namespace" => term.holds(namespace),
                _ => term.holds(node),
            });
            let selected = query.labels.matches(|key| labels.get(key).map(|v| &**v));
            if fields && selected && query.namespace.is_none_or(|own| own == namespace) {
                let mut text = format!("{namespace}/{name}{}", labels_text(&labels));
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

fn labels_text(labels: &Labels) -> String {
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

fn queries() -> Vec<Query> {
    let mut queries: Vec<Query> = [
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
    queries.extend(
        queries
            .clone()
            .into_iter()
            .map(|query| query.within("ns-1")),
    );
    queries.extend(
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
    queries.push(
        all(PROTOBUF)
            .with_fields("spec.nodeName=node-2")
            .labelled("app=web")
            .within("ns-0"),
    );
    queries
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn lists_show_the_last_publications(steps in steps(24)) {
        let api = Harness::new();
        let mut model = Model::default();
        for step in &steps {
            step.apply(&api, &mut model);
        }
        for query in queries() {
            let listed = item_texts(&query.list(&api, "pods"));
            prop_assert_eq!(&listed, &model.pods(&query), "{:?}", &query);
            let as_json = Query { representation: JSON, ..query };
            let plain: Vec<&str> = listed.iter().map(|text| text.split(' ').next().unwrap()).collect();
            prop_assert_eq!(names(&as_json.list(&api, "pods")), plain);
        }
        for selector in ["", "app=web", "!app"] {
            let query = all(JSON).labelled(selector);
            prop_assert_eq!(names(&query.list(&api, "nodes")), model.nodes(&query.labels));
        }
        for text in model.pods(&all(PROTOBUF)) {
            let (namespace, rest) = text.split_once('/').unwrap();
            let name = rest.split(' ').next().unwrap();
            let body = get(&api, "pods", (namespace, name), PROTOBUF).unwrap();
            let unknown = decode(body.strip_prefix(b"k8s\0").unwrap());
            prop_assert_eq!(object_text(&bytes_of(&unknown, 2)[0]), text);
        }
    }
}

#[test]
fn an_unchanged_pod_keeps_its_bytes_and_a_duplicate_counts_once() {
    let api = Harness::new();
    let one = pod(
        "a",
        "one",
        labels(&[]),
        vec![container("c", usage(1, 1, 5, 15_000))],
    );
    publish(&api, "n", None, &[one.clone(), one.clone()]);
    let first = all(PROTOBUF).list(&api, "pods");
    assert_eq!(item_texts(&first).len(), 1);
    publish(&api, "n", None, &[one]);
    assert_eq!(all(PROTOBUF).list(&api, "pods"), first);
}

#[test]
fn unsorted_pods_are_sorted_and_pods_without_containers_skipped() {
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
fn a_selector_that_matches_more_pods_than_the_limit_keeps_the_order() {
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
        item_texts(&all(PROTOBUF).labelled("app").list(&api, "pods")).len(),
        6000
    );
}
