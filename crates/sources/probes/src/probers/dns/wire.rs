//! Reading of DNS messages.

use super::message::DecodeError;

/// A position in a message. All reads are checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'m> {
    message: &'m [u8],
    position: usize,
}

impl<'m> Reader<'m> {
    pub(crate) fn new(message: &'m [u8]) -> Self {
        Self {
            message,
            position: 0,
        }
    }

    /// A reader elsewhere in the same message.
    pub(crate) fn at(&self, position: usize) -> Result<Self, DecodeError> {
        if position < self.message.len() {
            Ok(Self {
                message: self.message,
                position,
            })
        } else {
            Err(DecodeError::Short)
        }
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'m [u8], DecodeError> {
        let end = self
            .position
            .checked_add(length)
            .ok_or(DecodeError::Short)?;
        let taken = self.message.get(self.position..end);
        let taken = taken.ok_or(DecodeError::Short)?;
        self.position = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| DecodeError::Short)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, DecodeError> {
        self.array().map(u128::from_be_bytes)
    }
}
