//! The errors of this crate.

use kubevitals_watch::DecodeError;

/// An error in a recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    #[error("{length} bytes are not a JSON object{}", hint(*.looks_like_utf16))]
    NoObject {
        length: u64,
        /// Whether every other byte is zero.
        looks_like_utf16: bool,
    },
    /// An object without an end before the next object or the end of the file.
    #[error("object is truncated after {length} bytes")]
    CutOff { length: u64 },
    #[error("object of {length} bytes exceeds the limit of {limit} bytes")]
    TooLarge { length: u64, limit: usize },
    #[error(transparent)]
    Object(#[from] DecodeError),
    #[error("failed to read: {0}")]
    Read(#[from] std::io::Error),
}

fn hint(looks_like_utf16: bool) -> &'static str {
    if looks_like_utf16 {
        "; the text seems to be UTF-16: write it as UTF-8"
    } else {
        ""
    }
}
