use super::*;
use crate::fixture::{daemon_set, deployment, labels, owner, pod};

fn name(rules: &AddonRules, pod: &Pod) -> Option<String> {
    rules.of_pod(pod).map(|addon| addon.name.to_string())
}

#[test]
fn annotations_of_gke_come_before_labels() {
    let rules = AddonRules::default();
    let mut annotated = pod("fluentbit-x", &[("k8s-app", "fluentbit-gke")]);
    annotated.meta.annotations = labels(&[
        ("components.gke.io/component-name", "fluentbit"),
        ("components.gke.io/component-version", "1.3.2"),
    ]);
    let addon = rules.of_pod(&annotated).unwrap();
    assert_eq!(
        (&*addon.name, &*addon.version, &*addon.controller),
        ("fluentbit", "1.3.2", "DaemonSet")
    );
    // A name alone is not enough for gke-prober.
    annotated.meta.annotations = labels(&[("components.gke.io/component-name", "x")]);
    let strict = AddonRules {
        apply: ApplyTo::Annotated,
        ..AddonRules::default()
    };
    assert_eq!(rules.of_pod(&annotated).unwrap().name, "fluentbit".into());
    assert_eq!(strict.of_pod(&annotated), None);
}

#[test]
fn the_catalogue_knows_the_addons_of_all_providers() {
    let rules = AddonRules {
        apply: ApplyTo::Known,
        ..AddonRules::default()
    };
    for (pairs, known) in [
        // GKE
        (&[("k8s-app", "kube-dns")][..], "kube-dns"),
        (
            &[("component", "kube-proxy"), ("tier", "node")],
            "kube-proxy",
        ),
        (&[("component", "fluentbit-gke")], "fluentbit"),
        (&[("k8s-app", "gke-metadata-server")], "gke-metadata-server"),
        (&[("k8s-app", "netd")], "netd"),
        // EKS
        (
            &[
                ("eks.amazonaws.com/component", "coredns"),
                ("k8s-app", "kube-dns"),
            ],
            "kube-dns",
        ),
        (&[("app.kubernetes.io/name", "aws-node")], "aws-node"),
        (
            &[("app.kubernetes.io/name", "eks-pod-identity-agent")],
            "eks-pod-identity-agent",
        ),
        // AKS
        (&[("k8s-app", "azure-cns")], "azure-cns"),
        (&[("component", "kube-proxy")], "kube-proxy"),
        (&[("k8s-app", "metrics-server")], "metrics-server"),
        // kubeadm and others
        (&[("k8s-app", "cilium")], "cilium"),
        (&[("app", "flannel")], "flannel"),
        (&[("app.kubernetes.io/name", "kubevitals")], "kubevitals"),
    ] {
        let found = name(&rules, &pod("x", pairs));
        assert_eq!(found.as_deref(), Some(known), "{pairs:?}");
    }
    assert_eq!(name(&rules, &pod("x", &[("k8s-app", "mine")])), None);
}

#[test]
fn common_labels_name_addons_of_the_namespaces() {
    let rules = AddonRules::default();
    assert_eq!(
        name(&rules, &pod("x", &[("k8s-app", "mine"), ("app", "other")])).as_deref(),
        Some("mine")
    );
    assert_eq!(name(&rules, &pod("x", &[])), None);
    let mut elsewhere = pod("x", &[("k8s-app", "kube-dns")]);
    elsewhere.summary.identity.namespace = "shop".into();
    assert_eq!(name(&rules, &elsewhere), None);
    let everywhere = AddonRules {
        namespaces: Vec::new(),
        ..AddonRules::default()
    };
    assert_eq!(name(&everywhere, &elsewhere).as_deref(), Some("kube-dns"));
}

#[test]
fn selectors_of_the_configuration_come_first_and_have_namespaces_of_their_own() {
    let rule = |namespace: Option<&str>| AddonRules {
        selectors: vec![SelectorRule {
            name: "web".into(),
            namespace: namespace.map(str::to_owned),
            selector: LabelSelector::parse("app=web,tier!=cache").unwrap(),
        }],
        ..AddonRules::default()
    };
    let mut web = pod("x", &[("app", "web"), ("k8s-app", "kube-dns")]);
    assert_eq!(name(&rule(None), &web).as_deref(), Some("web"));
    assert_eq!(rule(None).only_namespace(), Some("kube-system"));
    web.summary.identity.namespace = "shop".into();
    assert_eq!(name(&rule(None), &web), None);
    assert_eq!(name(&rule(Some("shop")), &web).as_deref(), Some("web"));
    assert_eq!(rule(Some("shop")).only_namespace(), None);
}

/// gke-prober finds neither of these.
#[test]
fn static_pods_are_addons() {
    let mut mirror = pod("kube-proxy-a", &[]);
    mirror.static_uid = Some(Box::new("1".into()));
    mirror.meta.owners = [owner("Node", "a")].into();
    let addon = AddonRules::default().of_pod(&mirror).unwrap();
    assert_eq!(
        (&*addon.name, &*addon.controller),
        ("kube-proxy", "StaticPod")
    );
}

#[test]
fn a_replica_set_stands_for_its_deployment() {
    let mut dns = pod("x", &[("k8s-app", "kube-dns")]);
    let rules = AddonRules::default();
    let controller = |pod: &Pod| rules.of_pod(pod).unwrap().controller.to_string();
    dns.meta.owners = [owner("ReplicaSet", "dns-1")].into();
    assert_eq!(controller(&dns), "Deployment");
    // A reference without `controller` makes gke-prober panic.
    dns.meta.owners = [OwnerReference {
        controller: false,
        ..owner("ReplicaSet", "dns-1")
    }]
    .into();
    assert_eq!(controller(&dns), "Pod");
}

/// Expected and available pods are compared by their labels.
#[test]
fn a_pod_and_its_workload_are_the_same_addon() {
    let rules = AddonRules::default();
    let pairs = &[("k8s-app", "agent")][..];
    let set = daemon_set("agent", pairs, 3);
    assert_eq!(
        rules.of_workload(&set.workload, "DaemonSet"),
        rules.of_pod(&pod("agent-x", pairs))
    );
    let deployment = deployment("agent", pairs, 3);
    let addon = rules
        .of_workload(&deployment.workload, "Deployment")
        .unwrap();
    assert_eq!(
        (&*addon.version, &*addon.controller),
        ("v1.2", "Deployment")
    );
}

#[test]
fn versions_come_from_labels_or_tags_of_images() {
    for (image, tag) in [
        ("registry.k8s.io/coredns/coredns:v1.12.0", Some("v1.12.0")),
        ("localhost:5000/coredns", None),
        ("localhost:5000/coredns:1@sha256:00", Some("1")),
        ("coredns@sha256:00", None),
        ("coredns:", None),
        ("", None),
    ] {
        assert_eq!(image_tag(image), tag, "{image}");
    }
    let labelled = pod("x", &[("k8s-app", "a"), (VERSION_LABEL, "2")]);
    let addon = AddonRules::default().of_pod(&labelled).unwrap();
    assert_eq!(&*addon.version, "2");
    let mut unknown = pod("x", &[("k8s-app", "a")]);
    unknown.containers = [].into();
    let addon = AddonRules::default().of_pod(&unknown).unwrap();
    assert_eq!(&*addon.version, "Unknown");
}

#[test]
fn names_are_bounded() {
    let long = "é".repeat(1_000);
    let addon = AddonRules::default()
        .of_pod(&pod("x", &[("k8s-app", &long)]))
        .unwrap();
    assert_eq!(addon.name.chars().count(), MAX_TEXT);
}
