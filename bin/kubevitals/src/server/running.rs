//! The server at work: the API is bound and served until shutdown.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use kubevitals_apiserver::{ApiServer, ApiServerMetrics, CaBundleWriter, ServerTelemetry};
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
use crate::process::TaskSet;
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
            outage: self.cluster.outage.clone(),
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
        let mut server = ApiServer::bind(serving.config)
            .await
            .map_err(RunError::runtime)?;
        self.checks.register(
            &health,
            &self.store,
            &self.clock,
            server.trust_status(),
            bundle.as_ref().map(CaBundleWriter::status),
        )?;
        let address = server.local_addr();
        let notice = Notice {
            text: format!("serving metrics.k8s.io on https://{address}"),
            address: Some(address),
            admin,
        };
        output
            .notify(notice)
            .context("cannot write to standard output")?;

        spawn_tasks(&mut server, &tasks);
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
        server.serve(requested(shutdown.clone())).await;

        if let Ok(scraper) = Arc::try_unwrap(self.scraper).map_err(drop) {
            scraper.shutdown().await;
        }
        drop(self.scraping);
        Ok(())
    }
}

/// Supervises the tasks of the API server like those of the role.
fn spawn_tasks(server: &mut ApiServer, tasks: &TaskSet) {
    for (name, task) in server.take_tasks() {
        tasks.spawn(name, task);
    }
}

async fn requested(mut shutdown: Shutdown) {
    shutdown.requested().await;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::SocketAddr;
    use std::time::SystemTime;

    use kubevitals_apiserver::{
        AccessDecision, AccessReview, AuthenticationConfig, AuthenticationSource,
        AuthorizationConfig, BearerToken, ReviewFuture, Reviewer, ServerConfig, ServingCertificate,
        TokenReviewResult,
    };
    use kubevitals_cli::shutdown_channel;
    use kubevitals_telemetry::{Health, Metrics, OutageLog};

    use super::*;

    /// A cluster whose authentication configuration makes the lookup panic.
    struct Broken;

    impl AuthenticationSource for Broken {
        fn authentication(&self) -> ReviewFuture<'_, Option<BTreeMap<String, String>>> {
            Box::pin(async { panic!("no such key") })
        }
    }

    impl Reviewer for Broken {
        fn review_token<'a>(&'a self, _: &'a BearerToken) -> ReviewFuture<'a, TokenReviewResult> {
            Box::pin(std::future::pending())
        }

        fn review_access<'a>(&'a self, _: &'a AccessReview) -> ReviewFuture<'a, AccessDecision> {
            Box::pin(std::future::pending())
        }
    }

    /// Unsupervised, a lookup that panicked left old authorities in force, with all checks passing.
    #[tokio::test]
    async fn a_lookup_that_panics_fails_livez_with_its_name_and_ends_the_process() {
        kubevitals_tls::install_crypto_provider();
        let names = vec!["localhost".to_owned()];
        let certificate = ServingCertificate::self_signed("test", names, None, SystemTime::now());
        let (mut metrics, health) = (Metrics::new(), Health::new());
        let telemetry = ServerTelemetry {
            health: health.clone(),
            metrics: ApiServerMetrics::register(&mut metrics),
            registry: metrics.freeze(),
            logs: None,
            profiling: false,
            outage: OutageLog::default(),
        };
        let reviewer = Arc::new(Broken);
        let config = ServerConfig::new(
            SocketAddr::from(([127, 0, 0, 1], 0)),
            certificate.unwrap(),
            AuthenticationConfig::delegated(&reviewer),
            AuthorizationConfig::delegated(reviewer),
            telemetry,
        );
        let mut server = ApiServer::bind(config).await.unwrap();
        let (_trigger, shutdown) = shutdown_channel();
        let tasks = TaskSet::new(&health, shutdown).unwrap();
        spawn_tasks(&mut server, &tasks);
        let failure = tasks.expect_failure().await.to_string();
        assert_eq!(failure, "task look-up-authentication panicked: no such key");
        let alive = health.report(Probe::Livez, &[]);
        assert!(alive.body(true).contains(&failure), "{}", alive.body(true));
    }
}
