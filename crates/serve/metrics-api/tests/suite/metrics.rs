//! Metrics of the API.

use kubevitals_telemetry::Metrics;

use crate::support::*;

pub(crate) fn exposition(api: &Harness) -> String {
    let mut metrics = Metrics::new();
    api.api.register(&mut metrics);
    let format = kubevitals_telemetry::exposition::Format::Prometheus;
    String::from_utf8(metrics.freeze().encode(format).unwrap()).unwrap()
}

#[test]
fn requests_are_counted_with_the_age_of_the_samples_served() {
    let api = Harness::new();
    let seconds = NOW / 1000;
    let some = |name, age| {
        pod(
            "a",
            name,
            labels(&[]),
            vec![container("c", usage(1, 1, seconds - age, 15_000))],
        )
    };
    publish(
        &api,
        "n",
        Some(usage(1, 1, seconds - 2, 1)),
        &[some("one", 7), some("two", 900)],
    );
    all(JSON).list(&api, "pods");
    all(PROTOBUF).list(&api, "nodes");
    get(&api, "pods", ("a", "one"), JSON).unwrap();
    insta::assert_snapshot!(exposition(&api));
}
