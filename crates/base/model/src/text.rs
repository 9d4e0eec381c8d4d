//! A short text on the stack, so that printing allocates nothing.

use std::fmt;

/// Up to `N` bytes of text. Users choose `N` so that their longest text fits; a longer one is a
/// formatting error.
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; N],
            len: 0,
        }
    }

    /// Returns the text that `write` writes.
    pub(crate) fn of(write: impl FnOnce(&mut Self) -> fmt::Result) -> Self {
        let mut text = Self::new();
        let written = write(&mut text);
        debug_assert!(written.is_ok(), "a text of {N} bytes was too small");
        text
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    pub(crate) fn as_str(&self) -> &str {
        str::from_utf8(self.as_bytes()).expect("only whole strings are ever appended")
    }

    /// Appends ASCII characters.
    pub(crate) fn push_ascii<const M: usize>(&mut self, characters: [u8; M]) -> fmt::Result {
        debug_assert!(characters.is_ascii(), "a longer character is a string");
        *self
            .bytes
            .get_mut(self.len..)
            .and_then(<[u8]>::first_chunk_mut)
            .ok_or(fmt::Error)? = characters;
        self.len += M;
        Ok(())
    }

    /// Appends `number`, with zeros in front up to `width` digits.
    pub(crate) fn push_padded(&mut self, mut number: u64, width: usize) -> fmt::Result {
        let end = self
            .len
            .checked_add(width.max(decimal_digits(number)))
            .ok_or(fmt::Error)?;
        // Digit by digit from the last: the numbers here are short, and copying strings costs more.
        for byte in self
            .bytes
            .get_mut(self.len..end)
            .ok_or(fmt::Error)?
            .iter_mut()
            .rev()
        {
            *byte = b'0' + u8::try_from(number % 10).unwrap_or(0);
            number /= 10;
        }
        self.len = end;
        Ok(())
    }
}

/// Returns the number of decimal digits.
fn decimal_digits(number: u64) -> usize {
    const MAX_DIGITS: usize = 20;
    number.checked_ilog10().map_or(1, |log| {
        usize::try_from(log).map_or(MAX_DIGITS, |log| log + 1)
    })
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len.checked_add(text.len()).ok_or(fmt::Error)?;
        self.bytes
            .get_mut(self.len..end)
            .ok_or(fmt::Error)?
            .copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    #[test]
    fn a_string_that_does_not_fit_is_rejected_and_leaves_the_text_unchanged() {
        let mut text = Text::<4>::new();
        assert!(text.write_str("ab").is_ok());
        assert!(text.write_str("cde").is_err());
        assert!(text.push_padded(7, 2).is_ok());
        assert_eq!(text.as_str(), "ab07");
    }
}
