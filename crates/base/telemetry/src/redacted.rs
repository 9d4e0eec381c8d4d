//! A value that logs must not show.

use std::fmt;

/// Wraps a secret so that `{}` and `{:?}`, and with them every log field, print `[redacted]`.
///
/// It protects against accidental printing, not against code that needs the secret: that calls
/// [`Redacted::expose`], which is easy to find in review.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Redacted<T>(T);

impl<T> Redacted<T> {
    pub const fn new(secret: T) -> Self {
        Self(secret)
    }

    /// Returns the secret to code that needs it.
    pub const fn expose(&self) -> &T {
        &self.0
    }

    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> From<T> for Redacted<T> {
    fn from(secret: T) -> Self {
        Self(secret)
    }
}

impl<T> fmt::Debug for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl<T> fmt::Display for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_formatting_shows_the_secret() {
        let token = Redacted::new("s3cret");
        assert_eq!(
            format!("{token} {token:?} {:#?}", Some(&token))
                .matches("s3cret")
                .count(),
            0
        );
        assert_eq!(*token.expose(), "s3cret");
    }
}
