//! Bearer tokens: configured ones, and those that the cluster issues.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::User;
use crate::error::SimError;

/// Limit of tokens; the one that expires first is evicted.
const MAX_TOKENS: usize = 10_000;

#[derive(Default)]
pub(crate) struct Tokens {
    tokens: Mutex<HashMap<String, Token>>,
}

#[derive(Debug, Clone)]
struct Token {
    user: User,
    /// `None` if it does not expire.
    expires: Option<SystemTime>,
}

impl Tokens {
    pub(crate) fn add(&self, token: String, user: User, expires: Option<SystemTime>) {
        let mut tokens = self.tokens.lock();
        if tokens.len() >= MAX_TOKENS {
            let first_to_end = tokens
                .iter()
                .filter_map(|(token, entry)| Some((entry.expires?, token)))
                .min()
                .map(|(_, token)| token.clone());
            if let Some(token) = first_to_end {
                tokens.remove(&token);
            }
        }
        tokens.insert(token, Token { user, expires });
    }

    /// Issues a new token for a user.
    pub(crate) fn issue(
        &self,
        user: User,
        now: SystemTime,
        validity: Option<Duration>,
    ) -> Result<String, SimError> {
        let mut random = [0; 24];
        rustls::crypto::aws_lc_rs::default_provider()
            .secure_random
            .fill(&mut random)
            .map_err(|_| SimError::Random)?;
        let token: String = "sim-"
            .chars()
            .chain(random.iter().flat_map(|byte| hex(*byte)))
            .collect();
        let expires = validity.and_then(|validity| now.checked_add(validity));
        self.add(token.clone(), user, expires);
        Ok(token)
    }

    /// Returns the user of a valid token.
    pub(crate) fn user(&self, token: &str, now: SystemTime) -> Option<User> {
        let tokens = self.tokens.lock();
        let entry = tokens.get(token)?;
        if entry.expires.is_some_and(|expires| expires <= now) {
            return None;
        }
        Some(entry.user.clone().authenticated())
    }
}

fn hex(byte: u8) -> [char; 2] {
    [byte >> 4, byte & 15].map(|digit| char::from_digit(u32::from(digit), 16).unwrap_or('0'))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn issued_tokens_expire() {
        let tokens = Tokens::default();
        let hour = Duration::from_hours(1);
        let token = tokens
            .issue(User::service_account("x", "app"), UNIX_EPOCH, Some(hour))
            .unwrap();
        let user = tokens.user(&token, UNIX_EPOCH).unwrap();
        assert_eq!(user.name, "system:serviceaccount:x:app");
        assert_eq!(
            user.groups,
            [
                "system:serviceaccounts",
                "system:serviceaccounts:x",
                "system:authenticated"
            ]
        );
        assert_eq!(tokens.user(&token, UNIX_EPOCH + hour), None);
        assert_eq!(tokens.user("sim-", UNIX_EPOCH), None);
    }

    #[test]
    fn the_number_of_tokens_is_limited() {
        let tokens = Tokens::default();
        for n in 0..(MAX_TOKENS as u64 + 5) {
            let expires = UNIX_EPOCH + Duration::from_secs(100 + n);
            tokens.add(n.to_string(), User::default(), Some(expires));
        }
        assert_eq!(tokens.tokens.lock().len(), MAX_TOKENS);
        assert_eq!(tokens.user("0", UNIX_EPOCH), None);
        assert!(tokens.user("10004", UNIX_EPOCH).is_some());
    }
}
