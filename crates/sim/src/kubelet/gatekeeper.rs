//! Who may ask a kubelet.

use rustls_pki_types::CertificateDer;

/// What a client showed.
#[derive(Debug, Clone, Copy)]
pub struct Credentials<'a> {
    /// The node that is asked.
    pub node: &'a str,
    /// The path that is asked for, without the query.
    pub path: &'a str,
    /// `Authorization: Bearer …`.
    pub bearer: Option<&'a str>,
    /// The client's certificate and what came with it; empty if it showed none. That the client
    /// holds the key is proven, that anybody trusts the certificate is not.
    pub certificates: &'a [CertificateDer<'static>],
}

/// What a kubelet makes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The request is answered.
    Allow,
    /// 401: nobody knows who this is.
    Unauthorized,
    /// 403: this one may not.
    Forbidden,
}

/// Judges each request, as a kubelet's webhook authentication and authorization do.
///
/// It is called on the runtime's threads, so it must not block.
pub trait Gatekeeper: Send + Sync {
    /// Decides about one request.
    fn judge(&self, credentials: &Credentials<'_>) -> Verdict;
}

/// Lets everybody in.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenDoor;

impl Gatekeeper for OpenDoor {
    fn judge(&self, _: &Credentials<'_>) -> Verdict {
        Verdict::Allow
    }
}

impl<F> Gatekeeper for F
where
    F: Fn(&Credentials<'_>) -> Verdict + Send + Sync,
{
    fn judge(&self, credentials: &Credentials<'_>) -> Verdict {
        self(credentials)
    }
}
