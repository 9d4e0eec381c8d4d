use super::*;

fn gauge(label: usize) -> Json {
    json!({
        "metric": {"type": "custom.googleapis.com/a", "labels": {"n": label.to_string()}},
        "resource": {"type": "k8s_cluster", "labels": {"project_id": "p", "location": "l",
            "cluster_name": "c"}},
        "metricKind": "GAUGE", "valueType": "INT64",
        "points": [{"interval": {"endTime": Timestamp::from_unix_millis(0).rfc3339_millis().as_str()},
            "value": {"int64Value": "7"}}],
    })
}

async fn fake() -> CloudMonitoring {
    let clock = kubevitals_model::SteppedClock::new(Timestamp::from_unix_millis(1_000));
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    CloudMonitoring::start(address, None, "p", clock.clock())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_call_has_1_to_200_series() {
    let fake = fake().await;
    let many: Vec<Json> = (0..201).map(gauge).collect();
    assert_eq!(fake.state.write(&many, &[], true).0, 400);
    assert_eq!(fake.state.write(&[], &[], true).0, 400);
    assert_eq!(fake.received().points, []);
    assert_eq!(fake.state.write(&many[1..], &[], true).0, 200);
    assert_eq!(fake.received().points.len(), 200);
}

#[tokio::test]
async fn good_series_are_written_although_the_call_fails() {
    let fake = fake().await;
    let series = [gauge(0), gauge(1), gauge(0), gauge(2)];
    assert_eq!(fake.state.write(&series, &[3], true).0, 400);
    assert_eq!(fake.received().points.len(), 2);
    // Only what failed inside is the fault of the backend.
    assert_eq!(fake.state.write(&series[3..], &[0], true).0, 500);
    assert_eq!(fake.state.write(&series[3..], &[], true).0, 200);
}

#[tokio::test]
async fn the_first_point_decides_what_a_metric_is() {
    let fake = fake().await;
    assert_eq!(fake.state.write(&[gauge(0)], &[], true).0, 200);
    let mut other = gauge(1);
    other["valueType"] = json!("DOUBLE");
    other["points"][0]["value"] = json!({"doubleValue": 0.5});
    assert_eq!(fake.state.write(&[other], &[], true).0, 400);
}

#[test]
fn positions_are_written_as_ranges() {
    let refused: Vec<Refused> = [0, 1, 2, 5].map(|at| (at, 3, "no".to_owned())).into();
    let text = message(MessageStyle::Ranges, &refused);
    assert!(text.ends_with(": no: timeSeries[0-2,5]"), "{text}");
}
