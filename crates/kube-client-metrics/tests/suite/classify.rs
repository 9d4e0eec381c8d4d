//! Classification of requests: as in the API server and client-go, and without names.

use std::collections::BTreeSet;

use http::{Method, Uri};
use kube_client_metrics::{Call, Classifier};
use proptest::prelude::*;

/// The results of Go's code, see `e2e/vectors/kube-client-metrics`.
const VECTORS: &str = include_str!("../vectors/request_info.tsv");

fn call(method: &str, uri: &str) -> Call {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    Classifier::new("cluster").call(&method, &uri.parse::<Uri>().unwrap())
}

fn texts(call: &Call) -> [&str; 5] {
    let endpoint = &call.endpoint;
    [
        endpoint.group(),
        endpoint.version(),
        endpoint.resource(),
        endpoint.subresource(),
        endpoint.template(),
    ]
}

#[test]
fn resources_and_verbs_are_those_of_the_api_server() {
    let mut compared = 0;
    for line in VECTORS.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let call = call(fields[0], fields[1]);
        let [group, version, resource, subresource, _] = texts(&call);
        assert_eq!(
            [group, version, resource, subresource],
            fields[4..8],
            "{line}"
        );
        // Go has no verb for methods that no resource supports.
        let verb = match fields[3] {
            "" => "other",
            verb => verb,
        };
        assert_eq!(call.verb.as_str(), verb, "{line}");
        compared += 1;
    }
    assert!(compared > 300, "{compared}");
}

/// client-go counts segments and keeps unknown ones.
#[test]
fn templates_are_those_of_client_go_except_for_its_errors() {
    let mut differ = BTreeSet::new();
    for line in VECTORS.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let call = call(fields[0], fields[1]);
        if call.endpoint.template() != fields[8] {
            differ.insert(format!("{} is {}", fields[8], call.endpoint.template()));
        }
    }
    insta::assert_snapshot!(differ.into_iter().collect::<Vec<_>>().join("\n"));
}

#[test]
fn connections_have_their_own_verb() {
    for (uri, template) in [
        (
            "/api/v1/namespaces/space/pods/object/exec?command=sh",
            "/api/v1/namespaces/{namespace}/pods/{name}/exec",
        ),
        (
            "/api/v1/nodes/object/proxy/metrics/cadvisor",
            "/api/v1/nodes/{name}/proxy",
        ),
        (
            "/api/v1/namespaces/space/services/object:http/proxy/a/b",
            "/api/v1/namespaces/{namespace}/services/{name}/proxy",
        ),
        (
            "/api/v1/proxy/namespaces/space/services/object/a/b",
            "/api/v1/proxy/namespaces/{namespace}/services/{name}",
        ),
    ] {
        let call = call("GET", uri);
        assert_eq!(call.verb.as_str(), "connect", "{uri}");
        assert_eq!(call.endpoint.template(), template);
    }
    assert_eq!(
        call(
            "GET",
            "/apis/example.com/v1/namespaces/space/pods/object/proxy"
        )
        .verb
        .as_str(),
        "get"
    );
}

#[test]
fn what_does_not_look_like_a_resource_is_other() {
    for uri in [
        "/api/v1//pods/secret",
        "/api//v1/namespaces/secret",
        "/api/namespaces/secret/pods",
        "/apis//v1/secret",
        "/apis/apps/secret/v1/deployments",
        "/api/v1/Secret",
        "/api/v1/se%63ret",
        "/api/v1/secret.name",
        "/api/v1/namespaces/secret/Upper/x",
        "/apis/Secret/v1/pods",
        "/api/v1/nodes/object/SECRET",
        "/api/v1beta/secret",
        "/api/v/secret",
        "/api/v1gamma1/secret",
    ] {
        let call = call("GET", uri);
        assert_eq!(
            texts(&call),
            ["other", "other", "other", "", "/{prefix}"],
            "{uri}"
        );
    }
}

#[test]
fn an_unknown_subresource_is_other() {
    let uri = "/apis/subresources.kubevirt.io/v1/namespaces/space/virtualmachines/object/restart";
    let other = call("PUT", uri);
    assert_eq!(other.endpoint.subresource(), "other");
    let classifier = Classifier::new("cluster").with_subresources(["restart"]);
    let known = classifier.call(&Method::PUT, &uri.parse().unwrap());
    assert_eq!(known.endpoint.subresource(), "restart");
}

#[test]
fn endpoints_beyond_the_limit_are_other_and_known_ones_stay() {
    let classifier = Classifier::new("cluster").with_limit(2);
    let resource = |path: &str| {
        let call = classifier.call(&Method::GET, &path.parse().unwrap());
        call.endpoint.resource().to_owned()
    };
    assert_eq!(resource("/api/v1/pods"), "pods");
    assert_eq!(resource("/api/v1/nodes"), "nodes");
    assert_eq!(resource("/api/v1/secrets"), "other");
    assert_eq!(resource("/api/v1/pods"), "pods");
    assert_eq!(
        classifier
            .call(&Method::GET, &"/healthz".parse().unwrap())
            .endpoint
            .template(),
        "/healthz"
    );
}

/// Recognizable names, namespaces and tails, with all characters that names may have.
fn name() -> impl Strategy<Value = String> {
    "[a-z0-9]{0,3}[-.:]?zz(status|pods|v1|watch|log)?[a-z0-9]{0,2}"
        .prop_filter("not a resource", |name| name.contains("zz"))
}

fn prefix() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("/api/v1".to_owned()),
        "/apis/[a-y]{1,5}(\\.[a-y]{1,5}){0,2}/v[1-9]((alpha|beta)[1-9])?",
        Just("/api/v1/watch".to_owned()),
        Just("/api/v1/proxy".to_owned()),
    ]
}

fn resource() -> impl Strategy<Value = String> {
    prop_oneof!["pods|nodes|namespaces|services", "[a-y][a-y0-9]{0,8}"]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_value_contains_a_name_a_namespace_or_a_tail(
        method in "GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|LINK",
        prefix in prefix(),
        namespace in proptest::option::of(name()),
        resource in resource(),
        name in proptest::option::of(name()),
        tail in proptest::collection::vec(name(), 0..4),
        subresource in proptest::option::of("status|log|exec|proxy|scale"),
        query in proptest::option::of("(watch|follow|labelSelector)=zz[a-z]{0,3}"),
        doubled in any::<Option<prop::sample::Index>>(),
        slash in any::<bool>(),
    ) {
        let mut path = prefix;
        if let Some(namespace) = namespace {
            path = format!("{path}/namespaces/{namespace}");
        }
        path = format!("{path}/{resource}");
        if let Some(name) = name {
            path = format!("{path}/{name}");
            if let Some(subresource) = subresource {
                path = format!("{path}/{subresource}/{}", tail.join("/"));
            } else if resource != "namespaces" {
                // The segment after the name of a namespace is a resource in any case.
                path = format!("{path}/{}", tail.join("/"));
            }
        }
        if let Some(index) = doubled {
            let slashes: Vec<usize> = path.match_indices('/').map(|(at, _)| at).collect();
            path.insert(slashes[index.index(slashes.len())], '/');
        }
        if slash {
            path.push('/');
        }
        let uri = query.map_or(path.clone(), |query| format!("{path}?{query}"));
        let Ok(uri) = uri.parse::<Uri>() else { return Ok(()) };
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let call = Classifier::new("cluster").call(&method, &uri);
        for text in texts(&call) {
            prop_assert!(!text.contains("zz"), "{uri}: {:?}", texts(&call));
        }
    }
}
