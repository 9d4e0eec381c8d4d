use proptest::prelude::*;

use super::*;

const FIXTURE: &str = include_str!("../../tests/fixtures/kubernetes-1.37/metrics-resource.txt");
const REQUESTED_AT: Timestamp = Timestamp::from_unix_millis(1_794_773_490_000);

fn options() -> DecodeOptions {
    DecodeOptions {
        requested_at: REQUESTED_AT,
        is_complete: true,
        max_containers: 1_000,
    }
}

fn read(body: &str) -> (NodeBatch, DecodeReport) {
    let mut batch = NodeBatch::default();
    let report = decode(
        body.as_bytes(),
        options(),
        &mut batch,
        &mut Decoder::default(),
    );
    (batch, report)
}

fn find<'b>(batch: &'b NodeBatch, pod: &str, container: &str) -> Option<&'b ContainerSample> {
    let mut all = batch.containers();
    all.find(|(key, _)| key.pod.name == pod && key.container == container)
        .map(|(_, sample)| sample)
}

#[test]
fn a_recorded_response_is_decoded_completely() {
    let (batch, report) = read(FIXTURE);
    assert_eq!(batch.len(), 10);
    assert_eq!(report.used, 43);
    assert_eq!(report.rejected, [0; 9]);
    let node = batch.node;
    assert_eq!(node.cpu.unwrap().total, CoreNanos::new(2_361_113_181_372));
    assert_eq!(node.memory.unwrap().bytes, Bytes::new(846_692_352));
    assert_eq!(node.swap.unwrap().bytes, Bytes::new(0));
    let app = find(&batch, "web-fbb586dc9-2phdx", "app").unwrap();
    let cpu = app.cpu.unwrap();
    assert_eq!(cpu.total, CoreNanos::new(3_248_510_285));
    assert_eq!(cpu.at.unix_millis(), 1_794_773_483_261);
    assert_eq!(app.memory.unwrap().bytes, Bytes::new(385_024));
    assert_eq!(app.started.unwrap().unix_millis(), 1_794_773_416_530);
    assert!(app.swap.is_some() && app.cpu_now.is_none() && app.ephemeral_storage.is_none());
    assert_eq!(report.newest.unwrap().unix_millis(), 1_794_773_483_261);
}

#[test]
fn an_invalid_line_does_not_affect_others() {
    let body = "\
container_cpu_usage_seconds_total{container=\"a\",namespace=\"n\",pod=\"p\"} 1 5\n\
container_cpu_usage_seconds_total{container=\"b\",namespace=\"n\",pod=\"p\"} NaN 5\n\
container_cpu_usage_seconds_total{container=\"c\",namespace=\"n\",pod=\"p\"} +Inf 5\n\
container_cpu_usage_seconds_total{container=\"d\",namespace=\"n\",pod=\"p\"} -1 5\n\
container_cpu_usage_seconds_total{container=\"e\",namespace=\"n\",pod=\"p\"} 1e300 5\n\
container_cpu_usage_seconds_total{container=\"f\",namespace=\"n\",pod=\"p\"} 1 -62135596800000\n\
container_cpu_usage_seconds_total{container=\"g\" 1 5\n\
container_cpu_usage_seconds_total 1 5\n\
container_cpu_usage_seconds_total{container=\"\",namespace=\"n\",pod=\"p\"} 1 5\n\
container_memory_working_set_bytes{container=\"b\",namespace=\"n\",pod=\"p\"} 7 5\n\
container_start_time_seconds{container=\"h\",namespace=\"n\",pod=\"p\"} 0\n\
node_memory_working_set_bytes 9\n\
container_cpu_usage_seconds_total{pod=\"z\",namespace=\"n\",container=\"z\"} 0 5\n";
    let (batch, report) = read(body);
    let names: Vec<&str> = batch.containers().map(|(key, _)| key.container).collect();
    assert_eq!(names, ["a", "b", "z"]);
    let counts = Rejection::ALL.map(|reason| (reason.as_str(), report.rejected(reason)));
    assert_eq!(
        counts,
        [
            ("malformed", 1),
            ("nan", 1),
            ("infinite", 1),
            ("negative", 1),
            ("too-large", 1),
            ("no-time", 2),
            ("unlabelled", 2),
            ("invalid-name", 0),
            ("too-many-containers", 0)
        ]
    );
    assert_eq!(batch.node.memory.unwrap().at, REQUESTED_AT, "no timestamp");
    let idle = find(&batch, "z", "z").unwrap().cpu.unwrap();
    assert_eq!(idle.total, CoreNanos::new(0), "zero is a value");
    assert!(find(&batch, "p", "b").unwrap().cpu.is_none());
}

#[test]
fn the_last_duplicate_counts_and_order_does_not_matter() {
    let body = "\
container_cpu_usage_seconds_total{container=\"a\",namespace=\"n\",pod=\"p\"} 1 5\n\
container_cpu_usage_seconds_total{container=\"b\",namespace=\"n\",pod=\"p\"} 2 5\n\
container_memory_working_set_bytes{container=\"b\",namespace=\"n\",pod=\"p\"} 20 5\n\
container_memory_working_set_bytes{container=\"a\",namespace=\"n\",pod=\"p\"} 10 5\n\
container_cpu_usage_seconds_total{container=\"a\",namespace=\"n\",pod=\"p\"} 3 6\n";
    let (batch, _) = read(body);
    assert_eq!(batch.len(), 2);
    let a = find(&batch, "p", "a").unwrap();
    assert_eq!(a.cpu.unwrap().total, CoreNanos::new(3_000_000_000));
    assert_eq!(a.memory.unwrap().bytes, Bytes::new(10));
}

#[test]
fn the_last_line_of_a_truncated_body_is_ignored() {
    let cut = "node_memory_working_set_bytes 9 5\nnode_cpu_usage_seconds_total 12";
    let mut batch = NodeBatch::default();
    let partial = DecodeOptions {
        is_complete: false,
        ..options()
    };
    decode(cut.as_bytes(), partial, &mut batch, &mut Decoder::default());
    assert!(batch.node.memory.is_some() && batch.node.cpu.is_none());
    let (whole, _) = read(cut);
    assert!(whole.node.cpu.is_some());
}

#[test]
fn containers_are_limited_and_a_failed_kubelet_is_reported() {
    let line = |n| {
        format!(
            "container_memory_working_set_bytes{{container=\"c{n}\",namespace=\"n\",pod=\"p\"}} 1 5\n"
        )
    };
    let body = (0..50).map(line).collect::<Vec<_>>().concat();
    let mut batch = NodeBatch::default();
    let bounded = DecodeOptions {
        max_containers: 10,
        ..options()
    };
    let report = decode(
        body.as_bytes(),
        bounded,
        &mut batch,
        &mut Decoder::default(),
    );
    assert_eq!((batch.len(), report.rejected(Rejection::TooMany)), (10, 40));
    let (_, failed) = read("resource_scrape_error 1\n");
    assert!(failed.kubelet_failed && failed.used == 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The order of lines does not matter, nor whether the decoder was used before.
    #[test]
    fn decoded_values_equal_encoded_ones(
        rows in prop::collection::btree_map(0_u32..60, (0_u64..1 << 50, 0_u64..1 << 50, 1_i64..1 << 41), 0..40),
        order in any::<u64>(),
    ) {
        let mut lines = Vec::new();
        for (row, (cpu, memory, at)) in &rows {
            let labels = format!("{{container=\"c{}\",namespace=\"n\",pod=\"p{row}\"}}", row % 3);
            #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
            let seconds = *cpu as f64 / 1e9;
            lines.push(format!("container_cpu_usage_seconds_total{labels} {seconds} {at}\n"));
            lines.push(format!("container_memory_working_set_bytes{labels} {memory} {at}\n"));
        }
        if !lines.is_empty() {
            let shift = usize::try_from(order % 1_000).unwrap() % lines.len();
            lines.rotate_left(shift);
            if order % 2 == 0 { lines.sort(); }
        }
        let body = lines.concat();
        let (mut batch, mut decoder) = (NodeBatch::default(), Decoder::default());
        decode(FIXTURE.as_bytes(), options(), &mut batch, &mut decoder);
        let report = decode(body.as_bytes(), options(), &mut batch, &mut decoder);
        let (fresh, same) = read(&body);
        prop_assert_eq!((&batch, report), (&fresh, same));
        prop_assert_eq!(batch.len(), rows.len());
        for (row, (cpu, memory, at)) in rows {
            let sample = find(&batch, &format!("p{row}"), &format!("c{}", row % 3)).unwrap();
            let read = sample.cpu.unwrap();
            prop_assert!(read.total.get().abs_diff(cpu) <= 1);
            prop_assert_eq!(read.at.unix_millis(), at);
            prop_assert_eq!(sample.memory.unwrap().bytes.count(), memory);
        }
    }
}

/// Names of any length were once kept for minutes, and served.
#[test]
fn names_that_kubernetes_does_not_allow_are_rejected() {
    let line = |container: &str, namespace: &str, pod: &str| {
        format!(
            "container_cpu_usage_seconds_total{{container=\"{container}\",namespace=\"{namespace}\",pod=\"{pod}\"}} 1 5\n"
        )
    };
    let label = "a".repeat(63);
    let pod = format!("{label}.{label}.{label}.{}", "0".repeat(61));
    assert_eq!(pod.len(), 253);
    let (batch, report) = read(&line(&label, &label, &pod));
    assert_eq!((batch.len(), report.used), (1, 1));
    let long = "a".repeat(64);
    for (container, namespace, name) in [
        (long.as_str(), "n", "p"),
        ("c", long.as_str(), "p"),
        ("c", "n", format!("{pod}a").as_str()),
        ("C", "n", "p"),
        ("c.d", "n", "p"),
        ("c", "n", "-p"),
        ("c", "n", "p."),
        ("c", "n n", "p"),
        ("c", "n", "pöd"),
        ("c", "n", "p\\\"q"),
    ] {
        let (batch, report) = read(&line(container, namespace, name));
        assert_eq!(
            (batch.len(), report.used),
            (0, 0),
            "{container} {namespace} {name}"
        );
        assert_eq!(report.rejected(Rejection::InvalidName), 1);
    }
}

#[test]
fn the_names_of_a_node_are_bounded_together() {
    let pod = "a".repeat(250);
    let lines = (0..9_000).map(|n| {
        format!("container_memory_working_set_bytes{{container=\"c{n:060}\",namespace=\"n\",pod=\"{pod}\"}} 1 5\n")
    });
    let body: String = lines.collect();
    let mut batch = NodeBatch::default();
    let options = DecodeOptions {
        max_containers: 10_000,
        ..options()
    };
    let report = decode(
        body.as_bytes(),
        options,
        &mut batch,
        &mut Decoder::default(),
    );
    assert!(batch.name_bytes() <= MAX_NAME_BYTES + 379);
    let kept = u64::try_from(batch.len()).unwrap();
    assert_eq!(report.rejected(Rejection::TooMany), 9_000 - kept);
    assert!((6_000..7_000).contains(&kept), "{kept}");
}

#[test]
fn bodies_of_other_kubelets_are_decoded() {
    let windows = include_str!("../../tests/fixtures/constructed/windows.txt");
    let (batch, report) = read(windows);
    assert_eq!((batch.len(), report.used, report.rejected), (2, 8, [0; 9]));
    let iis = find(&batch, "win-webserver-7d9c8b5c4-x2x7q", "iis").unwrap();
    assert_eq!(iis.cpu.unwrap().total, CoreNanos::new(12_281_250_000));
    assert_eq!(iis.memory.unwrap().bytes, Bytes::new(163_299_328));
    assert!(iis.started.is_some() && iis.swap.is_none() && batch.node.swap.is_none());

    let old = include_str!("../../tests/fixtures/constructed/kubernetes-1.20.txt");
    let (batch, report) = read(old);
    assert_eq!((batch.len(), report.used, report.rejected), (1, 4, [0; 9]));
    let dns = find(&batch, "coredns-74ff55c5b-5fdqc", "coredns").unwrap();
    assert!(dns.cpu.is_some() && dns.memory.is_some() && dns.started.is_none());
}

#[test]
fn bodies_of_virtual_kubelets_are_decoded() {
    let mock = include_str!("../../tests/fixtures/constructed/virtual-kubelet.txt");
    let (batch, report) = read(mock);
    // Whose pods these are is unknown; the node is not in doubt.
    assert_eq!((batch.len(), report.used), (0, 2));
    assert_eq!(report.rejected(Rejection::Unlabelled), 2);
    assert_eq!(batch.node.memory.unwrap().bytes, Bytes::new(100));

    let provider = include_str!("../../tests/fixtures/constructed/virtual-kubelet-provider.txt");
    let (batch, report) = read(provider);
    assert_eq!((batch.len(), report.used, report.rejected), (1, 4, [0; 9]));
    let nginx = find(&batch, "nginx", "nginx").unwrap();
    assert_eq!(nginx.cpu.unwrap().at, REQUESTED_AT, "no timestamp");
    assert_eq!(report.newest, None);
}
