//! The usage of a container on a real kubelet, by our parser and our rates, is its limit.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubevitals_e2e::{Burner, Cluster, Kubelet, Rule, is_ready};
use kubevitals_model::{BytesSample, ContainerKey, CpuSample, rate_between};

use crate::{MIN_WINDOW, assert_within_a_tenth};

/// The rights of a scraper.
const MAY_SCRAPE: &[Rule] = &[Rule::get(&["nodes/metrics"])];

/// Time without growth after which memory is complete.
const SETTLING: Duration = Duration::from_secs(5);

const MILLICORE: u64 = 1_000_000;
const MEBIBYTE: u64 = 1 << 20;

#[tokio::test]
async fn a_pod_limited_to_200m_uses_200m() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("cpu").await?;
    let burner = Burner::new("burner").cpu_millicores(200);
    namespace.apply(&burner.pod()).await?;
    let access = namespace.access("scraper", MAY_SCRAPE).await?;
    let kubelet = Kubelet::of(&cluster, Some(&access))?;
    namespace.wait_for::<Pod>("burner", is_ready).await?;

    let key = ContainerKey::new(namespace.name(), "burner", "burner");
    let mut first: Option<CpuSample> = None;
    let rate = kubelet
        .watch_metrics("two distinct samples of the burner", |metrics| {
            let now = metrics.container(&key)?.cpu?;
            let before = *first.get_or_insert(now);
            let rate = rate_between(before, now).ok()?;
            (rate.window >= MIN_WINDOW).then_some(rate)
        })
        .await?;
    assert_within_a_tenth("nanocores", rate.usage.nanocores(), 200 * MILLICORE, &rate);
    Ok(namespace.finish().await?)
}

#[tokio::test]
async fn a_pod_that_holds_64_mebibytes_uses_them() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("memory").await?;
    let burner = Burner::new("holder").memory_mebibytes(64);
    namespace.apply(&burner.pod()).await?;
    let access = namespace.access("scraper", MAY_SCRAPE).await?;
    let kubelet = Kubelet::of(&cluster, Some(&access))?;
    namespace.wait_for::<Pod>("holder", is_ready).await?;

    // The pod does not announce that all pages are written: they are once the usage stops growing.
    let key = ContainerKey::new(namespace.name(), "holder", "burner");
    let mut earlier: Option<BytesSample> = None;
    let memory = kubelet
        .watch_metrics("a settled memory of the holder", |metrics| {
            let now = metrics.container(&key)?.memory?;
            let before = *earlier.get_or_insert(now);
            if now.at.since(before.at)? < SETTLING {
                return None;
            }
            earlier = Some(now);
            let grown = now.bytes.count().abs_diff(before.bytes.count());
            (grown < now.bytes.count() / 100).then_some(now)
        })
        .await?;
    assert_within_a_tenth("bytes", memory.bytes.count(), 64 * MEBIBYTE, &memory);
    Ok(namespace.finish().await?)
}
