//! Names of metrics, so that a rename is seen.

use kubevitals_watch::WatchMetrics;
use prometheus_client::registry::Registry;

use crate::fake::{Fake, pass, within};

#[tokio::test(start_paused = true)]
async fn the_state_of_every_watch_is_exposed_until_it_ends() {
    let mut registry = Registry::default();
    let metrics = WatchMetrics::register(registry.sub_registry_with_prefix("kubevitals_watch"));
    let fake = Fake::new();
    fake.put("a");
    let pods = fake.pods();
    metrics.track(&pods);
    within("a first list", pods.synced()).await;
    fake.drop_watches();
    fake.send_all("garbage");
    pass(5).await;

    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    insta::assert_snapshot!(text);

    pods.shutdown().await;
    drop(pods);
    text.clear();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert_eq!(text, "# EOF\n");
}
