//! Bearer tokens. Reviews are cached by a keyed hash of the token: neither a log nor a memory dump
//! shows reviewed tokens.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use kubevitals_telemetry::OutageLog;

use crate::error::ApiServerError;
use crate::metrics::AccessMetrics;
use crate::review_cache::{Key, ReviewCache, ReviewFailure, Source, key_of};
use crate::reviewer::{BearerToken, Reviewer, TokenReviewResult, UserInfo};

/// A bearer token that no authenticator accepts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidToken;

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
        metrics: &AccessMetrics,
        outage: &OutageLog,
    ) -> Result<Self, ApiServerError> {
        let random = aws_lc_rs::rand::SystemRandom::new();
        let key =
            hmac::Key::generate(hmac::HMAC_SHA256, &random).map_err(|_| ApiServerError::Random)?;
        Ok(Self {
            reviewer: Arc::clone(reviewer),
            cache: ReviewCache::new(metrics.token_reviews(), outage),
            ttl,
            key,
        })
    }

    /// Returns the user of a token that was reviewed a moment ago.
    pub(super) fn cached_user(&self, token: &BearerToken) -> Option<UserInfo> {
        match self.cache.cached(&self.key_of(token))? {
            TokenReviewResult::Valid(user) => Some(user),
            TokenReviewResult::Invalid | TokenReviewResult::Failed => None,
        }
    }

    /// Returns the user of a token; `None` if the token is invalid.
    pub(super) async fn user(&self, token: BearerToken) -> Result<Option<UserInfo>, ReviewFailure> {
        let key = self.key_of(&token);
        let ttl = self.ttl;
        let ttl = move |result: &TokenReviewResult| match result {
            TokenReviewResult::Valid(_) | TokenReviewResult::Invalid => ttl,
            // The cause may pass in a moment.
            TokenReviewResult::Failed => Duration::ZERO,
        };
        let reviewer = Arc::clone(&self.reviewer);
        let result = self
            .cache
            .get(key, Source::Authenticated, ttl, move || async move {
                reviewer.review_token(&token).await
            })
            .await?;
        Ok(match result {
            TokenReviewResult::Valid(user) => Some(user),
            TokenReviewResult::Invalid | TokenReviewResult::Failed => None,
        })
    }

    fn key_of(&self, token: &BearerToken) -> Key {
        key_of(hmac::sign(&self.key, token.expose().as_bytes()).as_ref())
    }
}

/// Returns the bearer token of a request. One that is not ASCII is invalid: it is a token
/// nevertheless, and its client is not anonymous.
pub(super) fn bearer(headers: &HeaderMap) -> Option<Result<BearerToken, InvalidToken>> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let mut words = value.trim_ascii().splitn(3, |byte| *byte == b' ');
    let (scheme, token) = (words.next()?, words.next()?);
    if !scheme.eq_ignore_ascii_case(b"bearer") || token.is_empty() {
        return None;
    }
    Some(match str::from_utf8(token) {
        Ok(token) if token.is_ascii() => Ok(BearerToken::new(token)),
        _ => Err(InvalidToken),
    })
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
            bearer(&headers).map(|token| token.unwrap().expose().to_owned())
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

    /// Such a header used to count as none, and the request as anonymous.
    #[test]
    fn a_token_that_is_not_ascii_is_invalid() {
        let find = |value: &[u8]| {
            let value = HeaderValue::from_bytes(value).unwrap();
            bearer(&[(AUTHORIZATION, value)].into_iter().collect())
        };
        for invalid in ["Bearer tök", "bearer \u{202e}x"] {
            assert!(find(invalid.as_bytes()).unwrap().is_err(), "{invalid}");
        }
        assert!(find(b"Bearer \xff\xfe").unwrap().is_err());
        assert!(find(b"B\xff abc").is_none(), "another scheme");
    }

    /// Such a review used to be cached: while an issuer starts, its tokens were invalid for 10 s.
    #[tokio::test]
    async fn a_token_review_with_an_error_is_not_cached() {
        struct Starting(std::sync::atomic::AtomicUsize);

        impl Reviewer for Starting {
            fn review_token<'a>(
                &'a self,
                _: &'a BearerToken,
            ) -> crate::reviewer::ReviewFuture<'a, TokenReviewResult> {
                let reviews = self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let ada = UserInfo {
                    name: String::from("ada"),
                    ..UserInfo::default()
                };
                Box::pin(async move {
                    Ok(match reviews {
                        0 => TokenReviewResult::Failed,
                        _ => TokenReviewResult::Valid(ada),
                    })
                })
            }

            fn review_access<'a>(
                &'a self,
                _: &'a crate::reviewer::AccessReview,
            ) -> crate::reviewer::ReviewFuture<'a, crate::reviewer::AccessDecision> {
                Box::pin(async {
                    Err(crate::reviewer::ReviewError::new(
                        "cannot review access",
                        "none",
                    ))
                })
            }
        }

        let reviewer: Arc<dyn Reviewer> = Arc::new(Starting(0.into()));
        let metrics = AccessMetrics::unregistered();
        let ttl = Duration::from_secs(10);
        let tokens = Tokens::new(&reviewer, ttl, &metrics, &OutageLog::default()).unwrap();
        let user = async || tokens.user(BearerToken::new("x")).await.unwrap();
        assert_eq!(user().await, None);
        assert_eq!(tokens.cached_user(&BearerToken::new("x")), None);
        assert_eq!(user().await.unwrap().name, "ada");
        assert_eq!(
            tokens.cached_user(&BearerToken::new("x")).unwrap().name,
            "ada"
        );
    }
}
