//! `kubevitals demo`: one simulated kubelet, scraped over TLS as a metrics server would, and shown.

mod kubelet;
mod metrics;
mod scrape;
mod table;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use kubevitals_cli::{InvalidSetting, RunError};
use kubevitals_model::{GoDuration, Timestamp};
use kubevitals_telemetry::{Probe, Status};
use kubevitals_tls::{SelfSigned, SelfSignedOptions, TlsError};
use tokio::time::MissedTickBehavior;

use self::kubelet::{Kubelet, Workload};
use self::metrics::DemoMetrics;
use self::scrape::{ScrapeError, Scraper};
use crate::process::{Context, ProcessFlags};

/// The name of the simulated node. Its certificate holds this name alone, so that dialling the address works only
/// because the certificate is checked against all names of the node.
const NODE_NAME: &str = "demo-node";

/// How long the pods have been running when the demo starts.
const AGE: Duration = Duration::from_mins(10);

/// Flags of the demo.
#[derive(Debug, Clone, Args)]
pub struct DemoFlags {
    /// Pods on the simulated node, of two containers each
    #[arg(long, value_name = "N", default_value_t = 12,
          value_parser = clap::value_parser!(u16).range(1..=500))]
    pub pods: u16,

    /// Time from one scrape to the next
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pub scrape_interval: GoDuration,

    /// Stop after the table instead of serving until Ctrl-C
    #[arg(long)]
    pub once: bool,

    #[command(flatten)]
    pub(crate) process: ProcessFlags,
}

/// A demo that is configured and has opened nothing yet.
#[derive(Debug)]
pub struct Demo {
    pods: u16,
    interval: Duration,
    once: bool,
}

/// Why the demo could not go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    #[error("cannot open a port on loopback")]
    Bind(#[source] std::io::Error),
    #[error("cannot prepare TLS")]
    Tls(#[from] TlsError),
    #[error("cannot scrape the simulated kubelet")]
    Scrape(#[from] ScrapeError),
    #[error("cannot write to standard output")]
    Output(#[source] std::io::Error),
}

impl Demo {
    /// Checks what the flags ask for.
    pub fn configure(flags: &DemoFlags) -> Result<Self, InvalidSetting> {
        let interval = Duration::try_from(flags.scrape_interval)
            .ok()
            .filter(|i| !i.is_zero());
        let Some(interval) = interval else {
            return Err(InvalidSetting {
                flag: "scrape-interval",
                value: flags.scrape_interval.to_string(),
                problem: "there must be some time between two scrapes".to_owned(),
                advice: "write a duration such as 1s".to_owned(),
            });
        };
        Ok(Self {
            pods: flags.pods,
            interval,
            once: flags.once,
        })
    }

    /// Runs until the end is asked for, or to the end of the table with `--once`.
    pub async fn run(self, context: Context, out: &mut (dyn Write + Send)) -> Result<(), RunError> {
        self.show(context, out).await
    }

    async fn show(
        self,
        mut context: Context,
        out: &mut (dyn Write + Send),
    ) -> Result<(), RunError> {
        let now = SystemTime::now();
        let started = Timestamp::from_system_time(now - AGE);
        let names = SelfSignedOptions::new("kubevitals demo", vec![NODE_NAME.to_owned()]);
        let certificate = SelfSigned::start(names, now).map_err(failed)?;
        let kubelet = Kubelet::bind(Workload::new(self.pods, started), Arc::clone(&certificate));
        let kubelet = kubelet.await.map_err(failed)?;
        let address = kubelet.address().map_err(failed)?;

        let metrics = DemoMetrics::register(context.metrics.sub("kubevitals_demo"));
        let waiting = Status::warming_up("the second scrape: a rate needs two samples");
        let fresh = context.health.cell("scrape", Probe::READINESS, waiting);
        let fresh = fresh.map_err(RunError::runtime)?;
        let names = [
            NODE_NAME.to_owned(),
            IpAddr::V4(Ipv4Addr::LOCALHOST).to_string(),
        ];
        let mut scraper = Scraper::new(address, &certificate, &names, metrics).map_err(failed)?;

        let mut shutdown = context.shutdown.clone();
        let admin = context.admin().await?;
        let admin_address = admin.local_addr();
        let served = tokio::spawn(kubelet.serve(shutdown.clone()));
        let mut admin_shutdown = shutdown.clone();
        let administered =
            tokio::spawn(admin.serve(async move { admin_shutdown.requested().await }));

        write!(
            out,
            "node {NODE_NAME} answers at https://{address}/metrics/resource\n\
                     taking two samples, {:?} apart\n\n",
            self.interval
        )
        .and_then(|()| out.flush())
        .map_err(|error| failed(DemoError::Output(error)))?;

        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut shown = false;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = shutdown.requested() => break,
            }
            match scraper.scrape().await {
                Ok(()) if scraper.usage().is_empty() => continue,
                Ok(()) => fresh.set_ok(),
                // Before the first table there is nothing to fall back on.
                Err(error) if !shown => return Err(failed(DemoError::Scrape(error))),
                Err(error) => {
                    fresh.set_failing(error.to_string());
                    continue;
                }
            }
            if !shown {
                shown = true;
                table::write(out, scraper.usage())
                    .map_err(|error| failed(DemoError::Output(error)))?;
                if self.once {
                    break;
                }
                write!(
                    out,
                    "\nthe same every {:?}, counted and checked here:\n  \
                             curl http://{admin_address}/metrics\n  \
                             curl 'http://{admin_address}/readyz?verbose'\n\
                             stop with Ctrl-C\n",
                    self.interval
                )
                .and_then(|()| out.flush())
                .map_err(|error| failed(DemoError::Output(error)))?;
            }
        }
        if self.once {
            served.abort();
            administered.abort();
        }
        // Both end by themselves once the end is asked for; a task that was aborted has nothing to say.
        let _ = served.await;
        let _ = administered.await;
        Ok(())
    }
}

fn failed(error: impl Into<DemoError>) -> RunError {
    RunError::runtime(error.into())
}
