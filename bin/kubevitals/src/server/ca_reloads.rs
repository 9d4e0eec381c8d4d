//! Checks of the CA bundle for kubelets, counted as client-go counts those of its transports.

use std::sync::Arc;
use std::time::SystemTime;

use kube_client_metrics::Hooks;
use kube_client_metrics::hooks::CaReload;
use kubevitals_tls::{PemProblem, Refresh, RefreshStatus, Refreshed, TlsError};

/// A bundle whose refreshes are reported.
pub(super) struct CountedReloads {
    pub(super) roots: Arc<dyn Refresh>,
    pub(super) hooks: Hooks,
}

impl Refresh for CountedReloads {
    fn name(&self) -> &'static str {
        self.roots.name()
    }

    fn refresh(&self, now: SystemTime) -> Result<Refreshed, TlsError> {
        let result = self.roots.refresh(now);
        let reload = reload_of(&result);
        self.hooks.transport_ca_reloads.increment(reload);
        result
    }

    fn status(&self) -> Arc<RefreshStatus> {
        self.roots.status()
    }
}

fn reload_of(result: &Result<Refreshed, TlsError>) -> CaReload {
    match result {
        Ok(Refreshed::Unchanged) => CaReload::Unchanged,
        Ok(Refreshed::Replaced) => CaReload::Updated,
        Err(TlsError::Pem {
            problem: PemProblem::Empty,
            ..
        }) => CaReload::Empty,
        Err(TlsError::Pem { .. } | TlsError::Certificate { .. }) => CaReload::ParseError,
        Err(_) => CaReload::ReadError,
    }
}

#[cfg(test)]
mod tests {
    use kube_client_metrics::Registry;
    use kubevitals_tls::{PemSource, SelfSigned, SelfSignedOptions, TrustRoots};

    use super::*;

    #[test]
    fn checks_of_a_bundle_are_counted_by_their_result() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.crt");
        let write = |text: &str| std::fs::write(&file, text).unwrap();
        let now = SystemTime::now();
        let certificate = || {
            let options = SelfSignedOptions::new("kubelet", vec!["kubelet".to_owned()]);
            SelfSigned::start(options, now).unwrap().ca_bundle_pem()
        };
        write(&certificate());
        let roots = TrustRoots::load("kubelet CA", vec![PemSource::File(file.clone())], now);
        let registry = Registry::new();
        let counted = CountedReloads {
            roots: roots.unwrap(),
            hooks: registry.hooks(),
        };
        counted.refresh(now).unwrap();
        write(&certificate());
        counted.refresh(now).unwrap();
        for text in ["", "not a certificate"] {
            write(text);
            assert!(counted.refresh(now).is_err());
        }
        std::fs::remove_file(&file).unwrap();
        assert!(counted.refresh(now).is_err());
        let text = registry.encode();
        for labels in [
            "result=\"success\",reason=\"unchanged\"",
            "result=\"success\",reason=\"updated\"",
            "result=\"failure\",reason=\"empty\"",
            "result=\"failure\",reason=\"ca_parse_error\"",
            "result=\"failure\",reason=\"read_error\"",
        ] {
            let line = format!("rest_client_transport_ca_reload_total{{{labels}}} 1");
            assert!(text.contains(&line), "{line}\n{text}");
        }
    }
}
