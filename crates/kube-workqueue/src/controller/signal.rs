//! Shutdown on signals.

use std::fmt::Debug;
use std::hash::Hash;

use futures_util::future::{self, Either};
use kube::Resource;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::Controller;

impl<K> Controller<K>
where
    K: Clone + Resource + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// Starts no further reconciliation after ctrl+c or SIGTERM, and ends the stream after a second
    /// one without waiting for those that run.
    ///
    /// It installs handlers of these signals for the whole process, as kube's does.
    pub fn shutdown_on_signal(self) -> Self {
        self.shutdown_on(signal)
    }

    fn shutdown_on<S>(self, signal: impl Fn() -> S + Send + Sync + 'static) -> Self
    where
        S: Future<Output = ()> + Send,
    {
        let (graceful, requested) = oneshot::channel();
        self.graceful_shutdown_on(async {
            let _ = requested.await;
        })
        .forced_shutdown_on(async move {
            signal().await;
            tracing::info!("shutting down, a second signal does so at once");
            // It fails if the stream has ended already.
            let _ = graceful.send(());
            signal().await;
            tracing::info!("shutting down at once");
        })
    }
}

/// Waits for ctrl+c or SIGTERM; forever for one that cannot be handled.
async fn signal() {
    let interrupt = std::pin::pin!(async {
        if tokio::signal::ctrl_c().await.is_err() {
            future::pending::<()>().await;
        }
    });
    let terminate = std::pin::pin!(async {
        #[cfg(unix)]
        if let Ok(mut signal) =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        {
            signal.recv().await;
            return;
        }
        future::pending::<()>().await;
    });
    match future::select(interrupt, terminate).await {
        Either::Left(((), _)) | Either::Right(((), _)) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::{StreamExt as _, stream};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::ObjectMeta;
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher::Event;
    use kube_client_metrics::Hooks;
    use tokio::sync::Notify;

    use super::*;
    use crate::Action;

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_does_not_wait_for_a_reconciliation() {
        let object = ConfigMap {
            metadata: ObjectMeta {
                name: Some("it".to_owned()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        let mut writer = Writer::new(());
        writer.apply_watcher_event(&Event::Init);
        writer.apply_watcher_event(&Event::InitApply(object.clone()));
        writer.apply_watcher_event(&Event::InitDone);
        let signals = Arc::new(Notify::new());
        let sent = Arc::clone(&signals);
        let objects = stream::iter([Ok(object)]).chain(stream::pending());
        let controller =
            Controller::for_stream("it", &Hooks::default(), objects, writer.as_reader())
                .shutdown_on(move || {
                    let signals = Arc::clone(&signals);
                    async move { signals.notified().await }
                })
                .run(
                    |_: Arc<ConfigMap>, _| future::pending::<Result<Action, Infallible>>(),
                    |_, _, _| Action::await_change(),
                    Arc::new(()),
                );
        let mut ended = std::pin::pin!(controller.for_each(|_| future::ready(())));
        let second = Duration::from_secs(1);
        assert!(tokio::time::timeout(second, ended.as_mut()).await.is_err());
        sent.notify_one();
        assert!(tokio::time::timeout(second, ended.as_mut()).await.is_err());
        sent.notify_one();
        assert!(tokio::time::timeout(second, ended).await.is_ok());
    }
}
