//! Reconciliations and stores of kube-runtime.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ObjectMeta;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::watcher::{self, Event};
use kube_client_metrics::Registry;
use kube_client_metrics::controller::ControllerObserver;
use kube_client_metrics::hooks::ReconcileResult;
use kube_client_metrics::reflector::Informer;
use kubevitals_sim::objects::Resource;
use serde_json::json;

use crate::families::sum;
use crate::sim::start;

#[derive(Debug, thiserror::Error)]
#[error("not today")]
struct NotToday;

#[tokio::test(start_paused = true)]
async fn a_reconciliation_lasts_until_it_returns_fails_panics_or_is_dropped() {
    let registry = Registry::new();
    let observer = ControllerObserver::new("it", &registry.hooks());
    let of = |name: &str| sum(&registry.encode(), name, &[("controller", "it")]);
    // All series but the limit are there from the start, as in controller-runtime.
    assert_eq!(of("controller_runtime_reconcile_total"), 0);
    assert!(!registry.encode().contains("max_concurrent"));
    observer.limit(0);
    assert!(!registry.encode().contains("max_concurrent"));
    observer.limit(3);
    assert_eq!(of("controller_runtime_max_concurrent_reconciles"), 3);

    let mut reconcile = observer.reconciler(|number: Arc<u8>, _: Arc<()>| async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        match *number {
            0 => Ok(Action::await_change()),
            1 => Ok(Action::requeue(Duration::from_secs(9))),
            2 => Err(NotToday),
            _ => panic!("a bug"),
        }
    });
    for number in 0..3 {
        let running = reconcile(Arc::new(number), Arc::new(()));
        assert_eq!(of("controller_runtime_active_workers"), 1);
        let _ = running.await;
        assert_eq!(of("controller_runtime_active_workers"), 0);
    }
    let panicked = tokio::spawn(reconcile(Arc::new(3), Arc::new(())));
    assert!(panicked.await.unwrap_err().is_panic());
    let dropped = reconcile(Arc::new(0), Arc::new(()));
    drop(dropped);
    let by = |result| {
        let labels = [("controller", "it"), ("result", result)];
        sum(
            &registry.encode(),
            "controller_runtime_reconcile_total",
            &labels,
        )
    };
    assert_eq!([by("success"), by("requeue_after"), by("error")], [1, 1, 2]);
    assert_eq!(of("controller_runtime_reconcile_errors_total"), 2);
    assert_eq!(of("controller_runtime_reconcile_panics_total"), 1);
    assert_eq!(of("controller_runtime_active_workers"), 0);
    assert_eq!(of("controller_runtime_reconcile_time_seconds_sum"), 8);
    observer.start().finish(ReconcileResult::Success);
    assert_eq!(by("success"), 2);
}

#[tokio::test]
async fn kubes_own_controller_is_observed() {
    let (api, config) = start().await;
    for name in ["good", "bad"] {
        let map = json!({"metadata": {"name": name, "namespace": "default"}, "data": {}});
        api.writer().create(Resource::ConfigMaps, map).unwrap();
    }
    let registry = Registry::new();
    let client = kube_client_metrics::client(config, &registry).unwrap();
    let observer = ControllerObserver::new("configmaps", &registry.hooks());
    let reconcile = observer.reconciler(async |map: Arc<ConfigMap>, _: Arc<()>| {
        if map.metadata.name.as_deref() == Some("bad") {
            return Err(NotToday);
        }
        Ok(Action::await_change())
    });
    let controller = Controller::new(
        Api::<ConfigMap>::default_namespaced(client),
        watcher::Config::default(),
    )
    .with_config(Config::default().concurrency(2))
    .run(
        reconcile,
        |_, _, _| Action::requeue(Duration::from_secs(600)),
        Arc::new(()),
    );
    let mut controller = std::pin::pin!(controller);
    let (mut good, mut bad) = (0, 0);
    while good == 0 || bad == 0 {
        let next = tokio::time::timeout(Duration::from_secs(60), controller.next());
        match next.await.unwrap().unwrap() {
            Ok(_) => good += 1,
            Err(_) => bad += 1,
        }
    }
    let text = registry.encode();
    let of = |result| {
        let labels = [("controller", "configmaps"), ("result", result)];
        sum(&text, "controller_runtime_reconcile_total", &labels)
    };
    // Others may have ended whose results were not read.
    assert!(of("success") >= good && of("error") >= bad, "{text}");
    assert_eq!(of("requeue_after"), 0);
    assert!(text.contains("controller_runtime_active_workers{controller=\"configmaps\"}"));
    api.shutdown().await;
}

fn object(version: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_has_the_version_of_its_last_event_and_consumers_are_timed() {
    let registry = Registry::new();
    let informer = Informer::new::<ConfigMap>("maps", &(), &registry.hooks());
    let events = [
        Ok(Event::Init),
        Ok(Event::InitApply(object("30"))),
        Ok(Event::InitApply(object("20"))),
        Ok(Event::InitDone),
        Ok(Event::Apply(object("31"))),
        Err(watcher::Error::NoResourceVersion),
        Ok(Event::Delete(object("1000000000000032"))),
        Ok(Event::Apply(object("no number"))),
    ];
    let labels = [
        ("name", "maps"),
        ("group", ""),
        ("version", "v1"),
        ("resource", "configmaps"),
    ];
    let of = |name: &str| sum(&registry.encode(), name, &labels);
    let mut observed = informer.observe(stream::iter(events));
    let mut versions = Vec::new();
    while observed.next().await.is_some() {
        tokio::time::advance(Duration::from_secs(1)).await;
        versions.push(of("informer_store_resource_version"));
    }
    assert_eq!(versions, [0, 0, 0, 30, 31, 31, 32, 32]);
    assert_eq!(of("informer_processing_latency_seconds_count"), 5);
    assert_eq!(of("informer_processing_latency_seconds_sum"), 5);
}
