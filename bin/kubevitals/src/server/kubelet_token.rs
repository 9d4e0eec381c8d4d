//! The token that is sent to kubelets: whose it is, and how it is requested.
//!
//! Every node sees the token of a scrape and can use it against the API server. So it should belong
//! to a `ServiceAccount` that may do nothing but read metrics of nodes.

use std::path::PathBuf;
use std::time::Duration;

use kubevitals_cli::InvalidSetting;
use kubevitals_scrape::{Bearer, IssueError, IssueFailure, IssueFuture, IssuedToken, TokenIssuer};
use serde_json::json;

use super::flags::KubeletFlags;

/// The requested lifetime of a token. A node that is lost has it for that long.
const LIFETIME: Duration = Duration::from_hours(1);

/// Maximum length of an error message of the API server, in characters.
const MAX_MESSAGE: usize = 300;

/// Whose token is sent to kubelets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenSource {
    /// That of another `ServiceAccount`, requested from the API server.
    ServiceAccount(ServiceAccountName),
    File(PathBuf),
    /// The client certificate of the flags is used, and no token.
    ClientCertificate,
    /// The credentials for the API server, as in metrics-server.
    Inherited,
}

/// `NAMESPACE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServiceAccountName {
    namespace: String,
    name: String,
}

/// Requests tokens of a `ServiceAccount`.
pub(super) struct TokenRequests {
    client: kube::Client,
    account: ServiceAccountName,
}

/// The part of a `TokenRequest` that is read.
#[derive(serde::Deserialize)]
struct Response {
    spec: ResponseSpec,
    status: ResponseStatus,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResponseSpec {
    expiration_seconds: u64,
}

#[derive(serde::Deserialize)]
struct ResponseStatus {
    token: String,
}

impl TokenSource {
    /// Reads the flags; those that name different identities contradict each other.
    pub(super) fn new(flags: &KubeletFlags) -> Result<Self, InvalidSetting> {
        let identities = [
            (
                "kubelet-service-account",
                flags.kubelet_service_account.clone(),
            ),
            (
                "kubelet-token-file",
                text(flags.kubelet_token_file.as_ref()),
            ),
            (
                "kubelet-client-certificate",
                text(flags.kubelet_client_certificate.as_ref()),
            ),
            (
                "deprecated-kubelet-completely-insecure",
                flags
                    .deprecated_kubelet_completely_insecure
                    .then(|| "true".to_owned()),
            ),
        ];
        let mut set = identities
            .into_iter()
            .filter_map(|(flag, value)| Some((flag, value?)));
        let first = set.next();
        if let (Some((flag, value)), Some((other, _))) = (&first, set.next()) {
            return Err(InvalidSetting {
                flag,
                value: value.clone(),
                problem: format!("it contradicts --{other}"),
                advice: "leave one of them out".to_owned(),
            });
        }
        Ok(match first {
            Some(("kubelet-service-account", value)) => {
                Self::ServiceAccount(ServiceAccountName::parse(&value)?)
            }
            Some(("kubelet-token-file", value)) => Self::File(value.into()),
            Some(("kubelet-client-certificate", _)) => Self::ClientCertificate,
            _ => Self::Inherited,
        })
    }
}

fn text(path: Option<&PathBuf>) -> Option<String> {
    path.map(|path| path.display().to_string())
}

impl ServiceAccountName {
    fn parse(value: &str) -> Result<Self, InvalidSetting> {
        // As DNS subdomains: the names go into the path of a request.
        let is_name = |text: &str| {
            let good = |byte: u8| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte)
            };
            (1..=253).contains(&text.len())
                && text.bytes().all(good)
                && text.starts_with(|first: char| first.is_ascii_alphanumeric())
                && !text.contains("..")
        };
        match value.split_once('/') {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(InvalidSetting {
                flag: "kubelet-service-account",
                value: value.to_owned(),
                problem: "not the name of a ServiceAccount".to_owned(),
                advice: "write NAMESPACE/NAME, such as kube-system/kubevitals-kubelet-reader"
                    .to_owned(),
            }),
        }
    }
}

impl TokenRequests {
    pub(super) fn new(client: kube::Client, account: ServiceAccountName) -> Self {
        Self { client, account }
    }

    async fn request(&self) -> Result<IssuedToken, IssueError> {
        let ServiceAccountName { namespace, name } = &self.account;
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        // Without audiences the token is for the API server, which is whom kubelets ask about it.
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [], "expirationSeconds": LIFETIME.as_secs()},
        });
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes())
            .map_err(|error| rejected(error.to_string()))?;
        // Not the typed call of kube, which logs a response that it cannot decode, token and all.
        let text = self.client.request_text(request).await;
        let text = text.map_err(|error| self.failure(&error))?;
        // The message of the decoder could quote the response.
        let response: Response = serde_json::from_str(&text)
            .map_err(|_| rejected("the response is not a TokenRequest with a token".to_owned()))?;
        let token =
            Bearer::new(&response.status.token).map_err(|error| rejected(error.to_string()))?;
        Ok(IssuedToken {
            token,
            lifetime: Duration::from_secs(response.spec.expiration_seconds),
        })
    }

    fn failure(&self, error: &kube::Error) -> IssueError {
        let ServiceAccountName { namespace, name } = &self.account;
        let (failure, detail) = match error {
            kube::Error::Api(status) => {
                (IssueFailure::of_status(status.code), status.message.clone())
            }
            error => (
                IssueFailure::Unreachable,
                kubevitals_cli::error_chain(error),
            ),
        };
        let detail: String = detail.chars().take(MAX_MESSAGE).collect();
        IssueError {
            failure,
            message: format!(
                "cannot request a token of ServiceAccount {namespace}/{name}: {detail}"
            ),
        }
    }
}

impl TokenIssuer for TokenRequests {
    fn issue(&self) -> IssueFuture<'_> {
        Box::pin(self.request())
    }
}

fn rejected(message: String) -> IssueError {
    IssueError {
        failure: IssueFailure::Rejected,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_account_has_a_namespace_and_a_name() {
        let parsed = ServiceAccountName::parse("kube-system/reader.v1").unwrap();
        assert_eq!(
            (&*parsed.namespace, &*parsed.name),
            ("kube-system", "reader.v1")
        );
        for bad in [
            "", "reader", "/reader", "a/", "a/b/c", "a/../b", "A/b", "a/b?x", "a/-b", "a/..",
        ] {
            let error = ServiceAccountName::parse(bad).unwrap_err();
            assert_eq!(error.flag, "kubelet-service-account", "{bad}");
        }
    }
}
