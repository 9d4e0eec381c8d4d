//! The certificates of a cluster, like those of a careful installer: two authorities, a client
//! certificate for each component, serving certificates that clients can verify.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};

use crate::layout::{Addresses, Layout};

/// The folder with all certificates and keys.
#[derive(Debug, Clone)]
pub(crate) struct Pki {
    folder: PathBuf,
}

/// The subject and the names of a certificate to sign.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct CertificateRequest {
    file: &'static str,
    common_name: String,
    organisation: Option<&'static str>,
    /// DNS names; empty for a client certificate.
    names: Vec<String>,
    addresses: Vec<Ipv4Addr>,
}

/// Clients of the API server, by the name of their certificate and kubeconfig.
pub(crate) const CLIENTS: [&str; 5] = [
    "admin",
    "controller-manager",
    "scheduler",
    "kubelet",
    "kube-proxy",
];

impl Pki {
    pub(crate) fn new(layout: &Layout) -> Self {
        Self {
            folder: layout.path("pki"),
        }
    }

    pub(crate) fn certificate(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.crt"))
    }

    pub(crate) fn key(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.key"))
    }

    /// The public key of service account tokens.
    pub(crate) fn service_account_public(&self) -> PathBuf {
        self.folder.join("service-account.pub")
    }

    /// Creates all keys and certificates.
    pub(crate) fn make(&self, layout: &Layout, addresses: Addresses) -> Result<()> {
        fs::create_dir_all(&self.folder)
            .with_context(|| format!("making {}", self.folder.display()))?;
        let authority = self.authority("ca", "kubernetes")?;
        for request in cluster_certificates(&layout.node_name(), addresses) {
            self.sign(&authority, &request)?;
        }
        // An authority of its own: its certificates may impersonate any user.
        let front = self.authority("front-proxy-ca", "front-proxy")?;
        let client = CertificateRequest {
            file: "front-proxy-client",
            common_name: FRONT_PROXY_CLIENT.to_owned(),
            ..CertificateRequest::default()
        };
        self.sign(&front, &client)?;
        let accounts = KeyPair::generate()?;
        write_secret(&self.key("service-account"), &accounts.serialize_pem())?;
        fs::write(self.service_account_public(), accounts.public_key_pem())?;
        Ok(())
    }

    fn authority(&self, file: &str, common_name: &str) -> Result<Issuer<'static, KeyPair>> {
        let mut params = long_lived();
        params.distinguished_name = subject(common_name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
        let key = KeyPair::generate()?;
        self.write(file, &params.self_signed(&key)?.pem(), &key)?;
        Ok(Issuer::new(params, key))
    }

    fn sign(
        &self,
        authority: &Issuer<'static, KeyPair>,
        request: &CertificateRequest,
    ) -> Result<()> {
        let key = KeyPair::generate()?;
        let certificate = request.params()?.signed_by(&key, authority)?;
        self.write(request.file, &certificate.pem(), &key)
    }

    fn write(&self, file: &str, certificate: &str, key: &KeyPair) -> Result<()> {
        fs::write(self.certificate(file), certificate)?;
        write_secret(&self.key(file), &key.serialize_pem())
    }
}

/// The common name of the API server's aggregator.
pub(crate) const FRONT_PROXY_CLIENT: &str = "front-proxy-client";

impl CertificateRequest {
    fn params(&self) -> Result<CertificateParams> {
        let mut params = long_lived();
        params.distinguished_name = subject(&self.common_name, self.organisation);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        params.extended_key_usages = vec![if self.names.is_empty() {
            ExtendedKeyUsagePurpose::ClientAuth
        } else {
            ExtendedKeyUsagePurpose::ServerAuth
        }];
        for name in &self.names {
            params
                .subject_alt_names
                .push(SanType::DnsName(name.as_str().try_into()?));
        }
        for address in &self.addresses {
            params
                .subject_alt_names
                .push(SanType::IpAddress(IpAddr::V4(*address)));
        }
        Ok(params)
    }
}

fn cluster_certificates(node: &str, addresses: Addresses) -> Vec<CertificateRequest> {
    let owned = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    let client = |file, common_name: &str, organisation| CertificateRequest {
        file,
        common_name: common_name.to_owned(),
        organisation,
        ..CertificateRequest::default()
    };
    vec![
        CertificateRequest {
            file: "apiserver",
            common_name: "kube-apiserver".to_owned(),
            names: owned(&[
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "kubernetes.default.svc.cluster.local",
                "localhost",
                node,
            ]),
            addresses: vec![
                addresses.node(),
                addresses.api_service(),
                Ipv4Addr::LOCALHOST,
            ],
            ..CertificateRequest::default()
        },
        CertificateRequest {
            file: "kubelet-serving",
            common_name: format!("system:node:{node}"),
            organisation: Some("system:nodes"),
            names: owned(&[node, "localhost"]),
            addresses: vec![addresses.node(), Ipv4Addr::LOCALHOST],
        },
        client(
            "apiserver-kubelet-client",
            "kube-apiserver-kubelet-client",
            Some("system:masters"),
        ),
        client("admin", "kubernetes-admin", Some("system:masters")),
        client("controller-manager", "system:kube-controller-manager", None),
        client("scheduler", "system:kube-scheduler", None),
        client("kube-proxy", "system:kube-proxy", None),
        client(
            "kubelet",
            &format!("system:node:{node}"),
            Some("system:nodes"),
        ),
    ]
}

/// Returns parameters with a validity that no clock skew of a test leaves.
fn long_lived() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2099, 1, 1);
    params
}

fn subject(common_name: &str, organisation: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organisation) = organisation {
        name.push(DnType::OrganizationName, organisation);
    }
    name.push(DnType::CommonName, common_name);
    name
}

fn write_secret(path: &Path, text: &str) -> Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("writing {}", path.display()))?;
    std::io::Write::write_all(&mut file, text.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_certificates_and_servers_name_their_addresses() {
        let addresses = Addresses::new(9);
        let all = cluster_certificates("dev-node", addresses);
        for client in CLIENTS {
            let found = all.iter().find(|request| request.file == client).unwrap();
            assert!(
                found.names.is_empty() && found.addresses.is_empty(),
                "{client} serves nothing"
            );
        }
        for server in ["apiserver", "kubelet-serving"] {
            let found = all.iter().find(|request| request.file == server).unwrap();
            assert!(found.addresses.contains(&addresses.node()), "{server}");
            assert!(found.names.contains(&"dev-node".to_owned()), "{server}");
        }
        // The node authorizer and NodeRestriction identify a node by exactly these.
        let kubelet = all
            .iter()
            .find(|request| request.file == "kubelet")
            .unwrap();
        assert_eq!(kubelet.common_name, "system:node:dev-node");
        assert_eq!(kubelet.organisation, Some("system:nodes"));
    }

    #[test]
    fn keys_are_readable_by_their_owner_only() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let layout = Layout {
            name: "dev".to_owned(),
            folder: folder.path().to_owned(),
        };
        let pki = Pki::new(&layout);
        pki.make(&layout, Addresses::new(1)).unwrap();
        for name in CLIENTS
            .iter()
            .chain(&["ca", "service-account", "front-proxy-client"])
        {
            let mode = fs::metadata(pki.key(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{name}");
        }
        assert!(
            fs::read_to_string(pki.service_account_public())
                .unwrap()
                .contains("PUBLIC KEY")
        );
    }
}
