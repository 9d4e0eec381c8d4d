//! The configuration of the kubelet server: certificate, authentication, authorization.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use kubevitals_apiserver::{KubeReviewer, ServingCertificate};
use kubevitals_cli::RunError;
use kubevitals_kubelet_api::{
    AccessControl, KubeletConfig, KubeletTelemetry, Provider, TransportConfig,
};
use kubevitals_model::Clock;
use kubevitals_tls::{PemSource, TrustRoots};
use kubevitals_virtual_node::CertificateKeeper;

use super::settings::Settings;
use crate::cluster::Cluster;
use crate::process::{OpenFiles, TaskSet};

/// The folder of the generated certificate below `--root-dir`.
const PKI: &str = "pki";

pub(super) fn configure(
    settings: &Settings,
    cluster: &Cluster,
    provider: Provider,
    telemetry: KubeletTelemetry,
) -> Result<KubeletConfig, RunError> {
    let serving = &settings.serving;
    let now = SystemTime::now();
    let mut config = KubeletConfig::new(
        serving.address,
        settings.node.name.clone(),
        provider,
        TransportConfig::tls(certificate(settings, now)?),
        access(settings, cluster, now)?,
        telemetry,
    );
    config.debug = true;
    config.hidden_metrics = serving.hidden_metrics;
    config.streaming.idle_timeout = serving.stream_idle_timeout;
    config.streaming.creation_timeout = serving.stream_creation_timeout;
    let http = &mut config.limits.http;
    http.connections = http.connections.min(OpenFiles::current().api);
    Ok(config)
}

/// Keeps a certificate that the cluster signs, if `--rotate-server-certificates` is set. Its file
/// has a certificate from now on.
pub(super) fn keep_certificate(
    settings: &Settings,
    cluster: &Cluster,
    clock: &Clock,
    tasks: &TaskSet,
) -> Result<(), RunError> {
    if !settings.serving.rotate {
        return Ok(());
    }
    let keeper = CertificateKeeper {
        client: cluster.client()?,
        node: settings.node.name.clone(),
        names: names(settings),
        file: rotated_file(settings),
        clock: clock.clone(),
    };
    keeper.prepare().map_err(RunError::runtime)?;
    tasks.spawn("serving-certificate", keeper.run());
    Ok(())
}

/// One file for the certificate and its key, so that both change at once.
fn rotated_file(settings: &Settings) -> PathBuf {
    settings
        .root_dir
        .join(PKI)
        .join("kubelet-server-current.pem")
}

/// The names of the certificate.
fn names(settings: &Settings) -> Vec<String> {
    let addresses = settings.addresses.iter().map(ToString::to_string);
    let name = settings.node.name.clone();
    [name].into_iter().chain(addresses).collect()
}

fn certificate(settings: &Settings, now: SystemTime) -> Result<ServingCertificate, RunError> {
    let certificate = if settings.serving.rotate {
        let file = rotated_file(settings);
        ServingCertificate::from_files(file.clone(), file, now)
    } else if let Some((certificate, key)) = &settings.serving.certificate {
        ServingCertificate::from_files(certificate.clone(), key.clone(), now)
    } else {
        let folder = settings.root_dir.join(PKI);
        ServingCertificate::self_signed("kubevitals-node", names(settings), Some(&folder), now)
    };
    certificate.map_err(RunError::runtime)
}

/// Deny by default: a user is known by certificate or token, and needs permissions on the Node.
fn access(
    settings: &Settings,
    cluster: &Cluster,
    now: SystemTime,
) -> Result<AccessControl, RunError> {
    let serving = &settings.serving;
    let client_ca = match &serving.client_ca {
        None => None,
        Some(file) => {
            let roots = TrustRoots::load("client CA", vec![PemSource::File(file.clone())], now);
            Some(roots.map_err(RunError::runtime)?)
        }
    };
    let reviewer = Arc::new(KubeReviewer::new(cluster.client()?));
    let mut access = AccessControl::delegated(&reviewer, client_ca);
    if let AccessControl::Delegated {
        authentication,
        authorization,
    } = &mut access
    {
        authentication.anonymous = serving.anonymous;
        authentication.token_ttl = serving.token_ttl;
        if !serving.tokens {
            authentication.tokens = None;
        }
        authorization.allowed_ttl = serving.allowed_ttl;
        authorization.denied_ttl = serving.denied_ttl;
    }
    Ok(access)
}
