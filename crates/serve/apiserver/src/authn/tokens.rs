//! Bearer tokens. They are known by a keyed hash: neither a log nor a dump of memory shows those
//! that were reviewed.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::error::ApiServerError;
use crate::metrics::ReviewMetrics;
use crate::review::{BearerToken, ReviewError, Reviewer, TokenVerdict, UserInfo};
use crate::reviews::{Reviews, key_of};

/// Whose tokens are whose.
pub(super) struct Tokens {
    reviewer: Arc<dyn Reviewer>,
    reviews: Reviews<TokenVerdict>,
    ttl: Duration,
    /// Made for this process alone: hashes of known tokens tell nothing.
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
            reviews: Reviews::new(metrics),
            ttl,
            key,
        })
    }

    /// The user of a token, if it is anybody's.
    pub(super) async fn user(&self, token: BearerToken) -> Result<Option<UserInfo>, ReviewError> {
        let key = key_of(hmac::sign(&self.key, token.expose().as_bytes()).as_ref());
        let ttl = self.ttl;
        let reviewer = Arc::clone(&self.reviewer);
        let verdict = self
            .reviews
            .ask(
                key,
                move |_| ttl,
                move || async move { reviewer.review_token(&token).await },
            )
            .await?;
        Ok(match verdict {
            TokenVerdict::Valid(user) => Some(user),
            TokenVerdict::Invalid => None,
        })
    }
}

/// The token that a request carries.
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
    fn tokens_are_found_where_go_finds_them() {
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
