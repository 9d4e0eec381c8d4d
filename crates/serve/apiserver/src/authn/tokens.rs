//! Bearer tokens. Reviews are cached by a keyed hash of the token: neither a log nor a memory dump
//! shows reviewed tokens.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::error::ApiServerError;
use crate::metrics::ReviewMetrics;
use crate::review_cache::{ReviewCache, key_of};
use crate::reviewer::{BearerToken, ReviewError, Reviewer, TokenReviewResult, UserInfo};

/// Authenticates bearer tokens.
pub(super) struct Tokens {
    reviewer: Arc<dyn Reviewer>,
    cache: ReviewCache<TokenReviewResult>,
    ttl: Duration,
    /// Generated for this process, so that hashes reveal nothing.
    key: hmac::Key,
}

impl Tokens {
    pub(super) fn new(
        reviewer: &Arc<dyn Reviewer>,
        ttl: Duration,
        metrics: ReviewMetrics,
    ) -> Result<Self, ApiServerError> {
        let random = aws_lc_rs::rand::SystemRandom::new();
        let key =
            hmac::Key::generate(hmac::HMAC_SHA256, &random).map_err(|_| ApiServerError::Random)?;
        Ok(Self {
            reviewer: Arc::clone(reviewer),
            cache: ReviewCache::new(metrics),
            ttl,
            key,
        })
    }

    /// Returns the user of a token; `None` if the token is invalid.
    pub(super) async fn user(&self, token: BearerToken) -> Result<Option<UserInfo>, ReviewError> {
        let key = key_of(hmac::sign(&self.key, token.expose().as_bytes()).as_ref());
        let ttl = self.ttl;
        let reviewer = Arc::clone(&self.reviewer);
        let result = self
            .cache
            .get(
                key,
                move |_| ttl,
                move || async move { reviewer.review_token(&token).await },
            )
            .await?;
        Ok(match result {
            TokenReviewResult::Valid(user) => Some(user),
            TokenReviewResult::Invalid => None,
        })
    }
}

/// Returns the bearer token of a request.
pub(super) fn bearer(headers: &HeaderMap) -> Option<BearerToken> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let mut words = value.trim().splitn(3, ' ');
    let (scheme, token) = (words.next()?, words.next()?);
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| BearerToken::new(token))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn tokens_are_parsed_as_in_go() {
        let find = |value: &'static str| {
            let headers = [(AUTHORIZATION, HeaderValue::from_static(value))]
                .into_iter()
                .collect();
            bearer(&headers).map(|token| token.expose().to_owned())
        };
        assert_eq!(find("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(find("  bearer abc ").as_deref(), Some("abc"));
        assert_eq!(find("Bearer abc def").as_deref(), Some("abc"));
        for none in ["Bearer", "Bearer ", "Basic abc", "Bearer  abc", ""] {
            assert_eq!(find(none), None, "{none:?}");
        }
        assert_eq!(
            format!("{:?}", BearerToken::new("secret")),
            "BearerToken(…)"
        );
    }
}
