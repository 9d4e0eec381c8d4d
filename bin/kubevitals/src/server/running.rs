//! The server at work: the API is bound and served until shutdown.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use kubevitals_apiserver::{ApiServer, ApiServerMetrics, ServerTelemetry};
use kubevitals_cli::{ResultExt as _, RunError, Shutdown};
use kubevitals_metrics_api::MetricsApi;
use kubevitals_model::Clock;
use kubevitals_scrape::Scraper;
use kubevitals_telemetry::Probe;
use kubevitals_tls::{Periodic, Refresh, refresh_loop};
use kubevitals_usage::UsageStore;

use super::checks;
use super::config::Settings;
use super::scraping::ScrapingThread;
use super::serving;
use crate::cluster::Cluster;
use crate::output::Notice;
use crate::role::{RoleContext, RunningRole};

/// Interval at which certificate and token files are read again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// A server that scrapes, and does not listen yet.
pub(super) struct RunningServer {
    pub(super) settings: Settings,
    pub(super) cluster: Arc<Cluster>,
    pub(super) clock: Clock,
    pub(super) api: MetricsApi,
    pub(super) store: Arc<UsageStore>,
    pub(super) api_metrics: ApiServerMetrics,
    pub(super) checks: checks::Sources,
    pub(super) scraper: Arc<Scraper>,
    pub(super) scraping: ScrapingThread,
    pub(super) refreshed: Vec<Arc<dyn Refresh>>,
}

impl RunningRole for RunningServer {
    fn run(self: Box<Self>, context: RoleContext) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(self.serve(context))
    }
}

impl RunningServer {
    async fn serve(self, context: RoleContext) -> Result<(), RunError> {
        let RoleContext {
            shutdown,
            health,
            registry,
            logs,
            profiling,
            tasks,
            admin,
            output,
        } = context;
        let telemetry = ServerTelemetry {
            health: health.clone(),
            registry,
            metrics: self.api_metrics,
            logs,
            profiling,
        };
        let mut serving = serving::configure(
            &self.settings,
            &self.cluster.config,
            &self.cluster.hooks,
            telemetry,
            vec![self.api.group(&self.store)],
        )
        .await?;
        let bundle = serving.bundle.take();
        let server = ApiServer::bind(serving.config)
            .await
            .map_err(RunError::runtime)?;
        self.checks
            .register(&health, &self.store, &self.clock, server.trust_status())?;
        let address = server.local_addr();
        let notice = Notice {
            text: format!("serving metrics.k8s.io on https://{address}"),
            address: Some(address),
            admin,
        };
        output
            .notify(notice)
            .context("cannot write to standard output")?;

        tasks.spawn(
            "refresh-certificates",
            refresh_loop(
                self.refreshed,
                Periodic::new(REFRESH_INTERVAL, requested(shutdown.clone())),
            ),
        );
        if let Some(bundle) = bundle {
            let status = bundle.status();
            health
                .failure_check("ca-bundle", Probe::READINESS, move || status.status())
                .map_err(RunError::runtime)?;
            tasks.spawn("write-ca-bundle", bundle.run());
        }
        let served = server.serve(requested(shutdown.clone())).await;
        served.map_err(RunError::runtime)?;

        if let Ok(scraper) = Arc::try_unwrap(self.scraper).map_err(drop) {
            scraper.shutdown().await;
        }
        drop(self.scraping);
        Ok(())
    }
}

async fn requested(mut shutdown: Shutdown) {
    shutdown.requested().await;
}
