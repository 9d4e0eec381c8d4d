//! What the errors of the API server mean.

/// The status code of a response; `None` if there was none.
pub(crate) fn status_code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}
