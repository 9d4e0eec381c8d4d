//! The data of the ConfigMap `kube-system/extension-apiserver-authentication`.
//!
//! Whoever can edit it decides whom this server believes, and mistakes happen. An entry that cannot
//! be read is an error, never an empty list: an empty list of allowed names allows all names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use kubevitals_tls::{ClientAuthority, PemSource, TrustRoots};

use crate::config::RequestHeaders;
use crate::error::ApiServerError;

pub(super) const NAME: &str = "kube-system/extension-apiserver-authentication";
pub(super) const CLIENT_CA: &str = "client-ca-file";
pub(super) const FRONT_PROXY_CA: &str = "requestheader-client-ca-file";

type Data = BTreeMap<String, String>;

/// Reads an authority; `None` if there is no such entry.
pub(super) fn authority(
    data: &Data,
    key: &'static str,
) -> Result<Option<ClientAuthority>, ApiServerError> {
    let Some(pem) = data.get(key).filter(|pem| !pem.trim().is_empty()) else {
        return Ok(None);
    };
    let source = PemSource::Inline {
        label: key,
        pem: Arc::from(pem.as_bytes()),
    };
    let roots = TrustRoots::load(key, vec![source], SystemTime::now())?;
    Ok(Some(ClientAuthority::new(&roots)?))
}

/// Reads the lists, which are JSON in strings. A missing one is empty, as in Go.
pub(super) fn request_headers(data: &Data) -> Result<RequestHeaders, ApiServerError> {
    let list = |key: &'static str| -> Result<Vec<String>, ApiServerError> {
        let Some(text) = data.get(key).filter(|text| !text.is_empty()) else {
            return Ok(Vec::new());
        };
        serde_json::from_str(text)
            .map_err(|source| ApiServerError::AuthenticationEntry { key, source })
    };
    Ok(RequestHeaders {
        username: list("requestheader-username-headers")?,
        uid: list("requestheader-uid-headers")?,
        group: list("requestheader-group-headers")?,
        extra_prefix: list("requestheader-extra-headers-prefix")?,
        allowed_names: list("requestheader-allowed-names")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_config_map_are_json() {
        let mut data = Data::from([
            (
                String::from("requestheader-username-headers"),
                String::from(r#"["X-Remote-User"]"#),
            ),
            (
                String::from("requestheader-allowed-names"),
                String::from(r#"["front-proxy-client"]"#),
            ),
            (String::from("requestheader-group-headers"), String::new()),
        ]);
        let headers = request_headers(&data).unwrap();
        assert_eq!(headers.username, ["X-Remote-User"]);
        assert_eq!(headers.allowed_names, ["front-proxy-client"]);
        assert!(headers.group.is_empty() && headers.uid.is_empty());
        data.insert(
            String::from("requestheader-group-headers"),
            String::from("nonsense"),
        );
        let error = request_headers(&data).unwrap_err();
        assert_eq!(
            error.to_string(),
            "entry requestheader-group-headers of the ConfigMap \
             kube-system/extension-apiserver-authentication is not a JSON list of strings"
        );
    }
}
