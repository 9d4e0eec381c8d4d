//! Where to write, and as what.

use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use kubevitals_http_client::ConnectError;
use thiserror::Error;

use crate::credentials::{Credentials, CredentialsError};
use crate::descriptor::Description;
use crate::metadata::{MetadataError, MetadataServer};

/// The location of what runs nowhere in particular.
const NOWHERE: &str = "global";

/// Where and how to write.
#[derive(Debug, Clone)]
pub struct GcmSettings {
    /// The base of URLs; another one is for tests and private endpoints.
    pub endpoint: Uri,
    /// The authorities of the endpoint; `None` for those of the system.
    pub certificate: Option<PathBuf>,
    /// What precedes the names of metrics: `workload.googleapis.com/kubevitals`.
    pub prefix: String,
    pub place: Place,
    /// The interval at which each series is recorded. Points that are nearer than nine tenths of
    /// it, or than five seconds, are left out.
    pub interval: Duration,
    /// Time within which a call must be answered.
    pub timeout: Duration,
    /// Delay of the next attempt after a permission was denied, which a person must grant.
    pub denied_delay: Duration,
    /// The texts of metrics.
    pub descriptions: Vec<Description>,
}

/// The place that series are about, unless their attributes say more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub project: String,
    /// The location of the cluster: a region or a zone.
    pub location: String,
    /// `None` off Google: series are then of a `generic_node` or a `generic_task`.
    pub cluster: Option<String>,
    /// The instance of this program, for a `generic_task`.
    pub instance: String,
}

/// Settings that a [`Place`] is made of; `None` where one is not given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlaceSource {
    pub project: Option<String>,
    pub location: Option<String>,
    pub cluster: Option<String>,
}

/// A place that is not known.
#[derive(Debug, Error)]
pub enum PlaceError {
    #[error(
        "the Google Cloud project is not known: name it, or set GOOGLE_CLOUD_PROJECT; {metadata}"
    )]
    Project { metadata: MetadataError },
    #[error("the cluster is not known, because the metadata server is away")]
    Metadata(#[source] MetadataError),
}

/// An error of [`GcmExporter::new`](crate::GcmExporter::new).
#[derive(Debug, Error)]
pub enum GcmError {
    #[error("cannot connect to Cloud Monitoring")]
    Connect(#[from] ConnectError),
    #[error("the credentials of Google Cloud cannot be used")]
    Credentials(#[from] CredentialsError),
    #[error("{0:?} is no URL of Cloud Monitoring; write https://HOST")]
    Endpoint(String),
}

impl GcmSettings {
    /// The defaults: once a minute, to Google.
    pub fn new(prefix: impl Into<String>, place: Place) -> Self {
        Self {
            endpoint: Uri::from_static("https://monitoring.googleapis.com"),
            certificate: None,
            prefix: prefix.into(),
            place,
            interval: Duration::from_mins(1),
            timeout: Duration::from_secs(30),
            denied_delay: Duration::from_mins(1),
            descriptions: Vec::new(),
        }
    }

    /// The least distance of two points of a series. Below the interval, because ticks are not
    /// exact; never below the sampling period of the backend.
    pub(crate) fn distance(&self) -> Duration {
        let sampling_period = Duration::from_secs(5);
        self.interval.mul_f64(0.9).max(sampling_period)
    }
}

impl Place {
    /// Finds out where this program runs: by settings, by the variables `GOOGLE_CLOUD_PROJECT`,
    /// `CLUSTER_LOCATION` and `CLUSTER_NAME` that `get` returns, by the credentials, and by the
    /// metadata server, which is only asked for what nobody else knows. Where the credentials are
    /// those of the machine, a server that is away is an error: try again, it may start later than
    /// this program.
    pub async fn detect(
        source: &PlaceSource,
        get: impl Fn(&str) -> Option<String>,
        credentials: &Credentials,
        metadata: &MetadataServer,
        instance: &str,
    ) -> Result<Self, PlaceError> {
        let given = |setting: &Option<String>, variable: &str| {
            let setting = setting.clone().or_else(|| get(variable));
            setting.filter(|value| !value.is_empty())
        };
        let project = given(&source.project, "GOOGLE_CLOUD_PROJECT")
            .or_else(|| credentials.project().map(str::to_owned));
        let project = match project {
            Some(project) => project,
            None => metadata
                .project()
                .await
                .map_err(|metadata| PlaceError::Project { metadata })?,
        };
        // Where credentials come from the server, it is only late: a wrong place would last.
        let is_google = matches!(credentials, Credentials::Metadata);
        let optional = |found: Result<String, MetadataError>| match found {
            Ok(value) => Ok(Some(value)),
            Err(error @ MetadataError::Unavailable { .. }) if is_google => {
                Err(PlaceError::Metadata(error))
            }
            Err(_) => Ok(None),
        };
        let cluster = match given(&source.cluster, "CLUSTER_NAME") {
            Some(cluster) => Some(cluster),
            None => optional(metadata.cluster_name().await)?,
        };
        let location = match given(&source.location, "CLUSTER_LOCATION") {
            Some(location) => Some(location),
            None => optional(metadata.cluster_location().await)?,
        };
        Ok(Self {
            project,
            location: location.unwrap_or_else(|| NOWHERE.to_owned()),
            cluster,
            instance: instance.to_owned(),
        })
    }
}

/// Whether secrets may be sent to a URL: it is encrypted, or on this machine.
pub(crate) fn is_secure(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let address: Result<std::net::IpAddr, _> = host.parse();
    let is_local = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    match url.scheme_str() {
        Some("https") => !host.is_empty(),
        Some("http") => is_local,
        _ => false,
    }
}
