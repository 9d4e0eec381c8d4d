//! Properties of all recorded pods.

use std::sync::{Arc, LazyLock};

use kubevitals_model::Labels;
use kubevitals_transition_metrics::{
    FAMILIES, FamilyConfig, FamilyKind, LabelChoice, OVERFLOW, Topology,
};
use kubevitals_transitions::{Output, PodRecord};
use proptest::prelude::*;

use crate::support::{Harness, recorded, samples};

static RECORDED: LazyLock<Vec<Output>> = LazyLock::new(recorded);

/// One of the recorded outputs, of another pod.
#[derive(Debug, Clone)]
struct Moved {
    which: usize,
    namespace: u8,
    pool: u8,
    zone: u8,
}

fn moved() -> impl Strategy<Value = Moved> {
    (any::<proptest::sample::Index>(), 0_u8..6, 0_u8..4, 0_u8..3).prop_map(
        |(which, namespace, pool, zone)| Moved {
            which: which.index(RECORDED.len()),
            namespace,
            pool,
            zone,
        },
    )
}

impl Moved {
    fn output(&self) -> Output {
        let elsewhere = |record: &Arc<PodRecord>| {
            let mut record = PodRecord::clone(record);
            let pod = Arc::make_mut(&mut record.pod);
            pod.summary.identity.namespace = format!("ns-{}", self.namespace).into();
            Arc::new(record)
        };
        match &RECORDED[self.which] {
            Output::Startup(record) => Output::Startup(elsewhere(record)),
            Output::Lifecycle(record) => Output::Lifecycle(elsewhere(record)),
            Output::Progress(record) => Output::Progress(elsewhere(record)),
            Output::ImagePull(record, target) => {
                Output::ImagePull(elsewhere(record), target.clone())
            }
        }
    }

    fn record(&self, harness: &Harness) {
        let node = Labels::from_sorted(
            [
                ("agentpool".into(), format!("pool-{}", self.pool).into()),
                (
                    "topology.kubernetes.io/zone".into(),
                    format!("zone-{}", self.zone).into(),
                ),
            ]
            .into(),
        );
        harness
            .metrics
            .record(&self.output(), Topology::of_node(&node));
    }
}

fn choice() -> impl Strategy<Value = LabelChoice> {
    any::<[bool; 4]>().prop_map(|[namespace, workload, node_pool, zone]| LabelChoice {
        namespace,
        workload,
        node_pool,
        zone,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_pod_is_counted_once(stream in proptest::collection::vec(moved(), 0..40), labels in choice(), limit in 0_usize..12) {
        let harness = Harness::with(FamilyConfig { labels, series_limit: limit, ..FamilyConfig::default() });
        for one in &stream {
            one.record(&harness);
        }
        let count = |is: fn(&Output) -> bool| {
            let found = stream.iter().filter(|one| is(&RECORDED[one.which])).count();
            f64::from(u32::try_from(found).unwrap())
        };
        let starts = count(|output| matches!(output, Output::Startup(_)));
        let ready = count(|output| matches!(output, Output::Startup(record) if record.is_complete()));
        let lifecycles = count(|output| matches!(output, Output::Lifecycle(_)));
        let found = harness.samples();
        prop_assert_eq!(found.sum("startups_total"), starts);
        prop_assert_eq!(found.sum("lifecycles_total"), lifecycles);
        let measured = found.sum("startup_duration_seconds_count");
        prop_assert_eq!(measured + found.sum("startups_unmeasured_total"), ready);
        let indicated = found.sum("start_sli_duration_seconds_count");
        prop_assert_eq!(indicated + found.sum("start_sli_excluded_total"), starts);
    }

    #[test]
    fn the_limit_of_label_sets_holds_in_every_family(stream in proptest::collection::vec(moved(), 0..40), labels in choice(), limit in 0_usize..6) {
        let harness = Harness::with(FamilyConfig { labels, series_limit: limit, ..FamilyConfig::default() });
        for one in &stream {
            one.record(&harness);
        }
        let names: Vec<&str> = labels.names().collect();
        let found = harness.samples();
        for family in FAMILIES.iter().filter(|family| family.by_pod) {
            let mut sets: Vec<Vec<&str>> = found
                .0
                .keys()
                .filter(|series| series.split('{').next().unwrap().starts_with(family.name))
                .map(|series| {
                    let inside = series.split_once('{').map_or("", |(_, inside)| inside.trim_end_matches('}'));
                    let is_ours = |pair: &&str| names.contains(&pair.split('=').next().unwrap());
                    inside.split(',').filter(is_ours).collect()
                })
                .collect();
            sets.sort();
            sets.dedup();
            let is_overflow = |set: &Vec<&str>| set.iter().all(|pair| pair.ends_with(OVERFLOW));
            let (others, apart): (Vec<_>, Vec<_>) = sets.iter().partition(|set| is_overflow(set) && !set.is_empty());
            prop_assert!(apart.len() <= limit.max(usize::from(names.is_empty())), "{}: {:?}", family.name, sets);
            prop_assert!(others.len() <= 1);
        }
        let label_sets = found.get("metrics_label_sets");
        prop_assert!(label_sets <= f64::from(u32::try_from(limit).unwrap()));
    }

    #[test]
    fn native_histograms_change_nothing_in_text(stream in proptest::collection::vec(moved(), 0..20)) {
        let (classic, native) = (Harness::with(FamilyConfig::default()), Harness::with(FamilyConfig { native_histograms: true, ..FamilyConfig::default() }));
        for one in &stream {
            one.record(&classic);
            one.record(&native);
        }
        let text = native.text();
        prop_assert_eq!(&text, &classic.text());
        let found = samples(&text);
        for family in FAMILIES {
            if let FamilyKind::Histogram(_) = family.kind {
                let name = family.name.strip_prefix("kubevitals_pod_").unwrap();
                let infinite: f64 = found.0.iter()
                    .filter(|(series, _)| series.starts_with(family.name) && series.contains("le=+Inf"))
                    .fold(0.0, |sum, (_, value)| sum + value);
                prop_assert_eq!(infinite, found.sum(&format!("{name}_count")));
            }
        }
    }
}
