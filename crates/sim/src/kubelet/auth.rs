//! Authentication and authorization of requests to kubelets.

use rustls_pki_types::CertificateDer;

/// The request and the credentials of a client.
#[derive(Debug, Clone, Copy)]
pub struct Credentials<'a> {
    /// The node that the request is for.
    pub node: &'a str,
    /// The path of the request, without the query.
    pub path: &'a str,
    /// `Authorization: Bearer …`.
    pub bearer: Option<&'a str>,
    /// The client's certificate chain; empty if it presented none. Possession of the key is
    /// verified, trust in the certificate is not.
    pub certificates: &'a [CertificateDer<'static>],
}

/// The outcome of authentication and authorization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The request is served.
    Allow,
    /// 401: the client has no valid identity.
    Unauthorized,
    /// 403: the client lacks the permission.
    Forbidden,
}

/// Decides about each request, as a kubelet's webhook authentication and authorization do.
///
/// It runs on the runtime's threads, so it must not block.
pub trait KubeletAuth: Send + Sync {
    fn authorize(&self, credentials: &Credentials<'_>) -> Decision;
}

/// Allows all requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllowAll;

impl KubeletAuth for AllowAll {
    fn authorize(&self, _: &Credentials<'_>) -> Decision {
        Decision::Allow
    }
}

impl<F> KubeletAuth for F
where
    F: Fn(&Credentials<'_>) -> Decision + Send + Sync,
{
    fn authorize(&self, credentials: &Credentials<'_>) -> Decision {
        self(credentials)
    }
}
