//! The configuration of the API server: certificate, authentication, authorization.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use kube_client_metrics::Hooks;
use kubevitals_apiserver::{
    ApiGroup, AuthenticationConfig, AuthorizationConfig, CaBundleWriter, FrontProxyConfig,
    KubeReviewer, Lookup, ServerConfig, ServerTelemetry, ServingCertificate, VersionInfo,
    service_names,
};
use kubevitals_cli::RunError;
use kubevitals_tls::{PemSource, TrustRoots};

use super::config::{Certificate, Settings};
use crate::cluster::client;
use crate::kubeconfig;
use crate::process::OpenFiles;

/// The APIServices of this server.
const API_SERVICES: [&str; 2] = ["v1.metrics.k8s.io", "v1beta1.metrics.k8s.io"];

/// The DNS domain of nearly all clusters.
const CLUSTER_DOMAIN: &str = "cluster.local";

/// The configuration of a server, and the writer of its CA bundle.
pub(super) struct Serving {
    pub(super) config: ServerConfig,
    /// Writes the CA into the APIServices, with `--manage-apiservices`.
    pub(super) bundle: Option<CaBundleWriter>,
}

pub(super) async fn configure(
    settings: &Settings,
    cluster: &kube::Config,
    hooks: &Hooks,
    telemetry: ServerTelemetry,
    groups: Vec<ApiGroup>,
) -> Result<Serving, RunError> {
    let serving = &settings.serving;
    let now = SystemTime::now();
    let certificate = certificate(&serving.certificate, now)?;
    let bundle = if serving.manage_apiservices {
        let writer = bundle_writer(serving, cluster, hooks, &certificate)?;
        writer.map(|writer| writer.with_telemetry(&telemetry))
    } else {
        None
    };
    let mut config = ServerConfig::new(
        serving.address,
        certificate,
        authentication(settings, cluster, hooks, now).await?,
        authorization(settings, cluster, hooks).await?,
        telemetry,
    );
    config.tls = serving.tls.clone();
    config.http2 = serving.http2;
    "Kubernetes metrics-server".clone_into(&mut config.title);
    config.version = version();
    config.groups = groups;
    config.limits.in_flight = serving.in_flight;
    let http = &mut config.limits.http;
    http.connections = http.connections.min(OpenFiles::current().api);
    if let Some(streams) = serving.streams {
        config.limits.http.streams_per_connection = streams.get();
    }
    config.limits.request_timeout = serving.request_timeout;
    config.shutdown_delay = serving.shutdown_delay;
    config.goaway_chance = serving.goaway_chance;
    Ok(Serving { config, bundle })
}

/// A writer for the APIServices that refer to our own Service.
fn bundle_writer(
    serving: &super::config::Serving,
    cluster: &kube::Config,
    hooks: &Hooks,
    certificate: &ServingCertificate,
) -> Result<Option<CaBundleWriter>, RunError> {
    let Certificate::SelfSigned {
        namespace, service, ..
    } = &serving.certificate
    else {
        return Ok(None);
    };
    let names = API_SERVICES.map(str::to_owned).into();
    let writer = CaBundleWriter::new(client(cluster.clone(), hooks)?, certificate.clone(), names);
    Ok(Some(writer.of_service(namespace, service)))
}

fn certificate(wanted: &Certificate, now: SystemTime) -> Result<ServingCertificate, RunError> {
    match wanted {
        Certificate::Files { certificate, key } => {
            ServingCertificate::from_files(certificate.clone(), key.clone(), now)
        }
        Certificate::SelfSigned {
            namespace,
            service,
            folder,
        } => {
            let names = service_names(service, namespace, CLUSTER_DOMAIN);
            ServingCertificate::self_signed("kubevitals", names, Some(folder), now)
        }
    }
    .map_err(RunError::runtime)
}

async fn authentication(
    settings: &Settings,
    cluster: &kube::Config,
    hooks: &Hooks,
    now: SystemTime,
) -> Result<AuthenticationConfig, RunError> {
    let flags = &settings.authentication;
    let reviewer = reviewer(
        "authentication-kubeconfig",
        flags.kubeconfig.as_ref(),
        cluster,
        hooks,
    )
    .await?;
    let mut config = AuthenticationConfig::delegated(&reviewer);
    config.token_ttl = flags.token_ttl;
    config.lookup = (!flags.skip_lookup).then(|| {
        let mut lookup = Lookup::new(reviewer);
        lookup.tolerate_failure = flags.tolerate_lookup_failure;
        lookup
    });
    let roots = |what, file: &PathBuf| {
        TrustRoots::load(what, vec![PemSource::File(file.clone())], now).map_err(RunError::runtime)
    };
    if let Some(file) = &flags.client_ca {
        config.client_ca = Some(roots("client CA", file)?);
    }
    if let Some(file) = &flags.front_proxy_ca {
        config.front_proxy = Some(FrontProxyConfig {
            ca: roots("front proxy CA", file)?,
            headers: flags.headers.clone(),
        });
    }
    Ok(config)
}

async fn authorization(
    settings: &Settings,
    cluster: &kube::Config,
    hooks: &Hooks,
) -> Result<AuthorizationConfig, RunError> {
    let flags = &settings.authorization;
    let reviewer = reviewer(
        "authorization-kubeconfig",
        flags.kubeconfig.as_ref(),
        cluster,
        hooks,
    )
    .await?;
    let mut config = AuthorizationConfig::delegated(reviewer);
    config.allowed_ttl = flags.allowed_ttl;
    config.denied_ttl = flags.denied_ttl;
    config
        .always_allow_paths
        .clone_from(&flags.always_allow_paths);
    Ok(config)
}

/// A reviewer on the API server of its own kubeconfig, or on the one of the role.
async fn reviewer(
    flag: &'static str,
    kubeconfig: Option<&PathBuf>,
    cluster: &kube::Config,
    hooks: &Hooks,
) -> Result<Arc<KubeReviewer>, RunError> {
    let config = match kubeconfig {
        Some(file) => kubeconfig::load(flag, Some(file)).await?,
        None => cluster.clone(),
    };
    Ok(Arc::new(KubeReviewer::new(client(config, hooks)?)))
}

fn version() -> VersionInfo {
    VersionInfo {
        major: env!("CARGO_PKG_VERSION_MAJOR").to_owned(),
        minor: env!("CARGO_PKG_VERSION_MINOR").to_owned(),
        git_version: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
        git_commit: option_env!("KUBEVITALS_REVISION")
            .unwrap_or_default()
            .to_owned(),
        compiler: "rustc".to_owned(),
        platform: format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
        ..VersionInfo::default()
    }
}
