//! `/containerLogs`: a log as the provider streams it.

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::StatusCode;
use kubevitals_apiserver::{Body, BodyError};
use kubevitals_http::query::Query;

use super::{KubeletHandler, Reply};
use crate::options::log_options;
use crate::provider::ContainerTarget;
use crate::response::{Failure, typed};

impl KubeletHandler {
    /// Responds with the log, piece by piece as the client reads it. An error of the provider is a
    /// response; one of its stream cuts the body off, so that nobody takes it for complete.
    pub(super) async fn container_logs(
        &self,
        target: ContainerTarget,
        query: Option<&str>,
    ) -> Result<Reply, Failure> {
        let logs = self.provider.logs.as_deref();
        let logs = logs.ok_or_else(|| Failure::not_implemented("logs"))?;
        let options = log_options(Query::new(query), self.clock.now())?;
        let limit = options.limit_bytes;
        let pieces = logs.logs(target, options).await?;

        let mut draining = self.draining.clone();
        let drained = async move {
            // An error means that the server is gone, which is an end too.
            let _changed = draining.wait_for(|draining| *draining).await;
        };
        let pieces = pieces
            .scan(limit, |remaining, piece| {
                std::future::ready(limited(remaining, piece))
            })
            .take_until(Box::pin(drained))
            .map(|piece| {
                piece.map_err(|error| {
                    tracing::debug!(%error, "log ended early");
                    BodyError::Broken(error.to_string())
                })
            });
        Ok(Reply {
            response: typed(StatusCode::OK, "text/plain", Body::fallible(pieces)),
            is_stream: true,
            permit: None,
        })
    }
}

/// Cuts a piece off at the limit, and ends after it.
fn limited(
    remaining: &mut Option<u64>,
    piece: std::io::Result<Bytes>,
) -> Option<std::io::Result<Bytes>> {
    let (Some(remaining), Ok(bytes)) = (remaining, &piece) else {
        return Some(piece);
    };
    if *remaining == 0 {
        return None;
    }
    let allowed = usize::try_from(*remaining).unwrap_or(usize::MAX);
    let bytes = bytes.slice(..bytes.len().min(allowed));
    *remaining = remaining.saturating_sub(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    Some(Ok(bytes))
}
