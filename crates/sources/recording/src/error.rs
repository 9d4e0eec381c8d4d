//! What can be wrong with a recording.

use kubevitals_watch::DecodeError;

/// What is wrong with a piece of a recording, or with reading it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// Something stands where an object should begin.
    #[error("{length} bytes are no JSON object{}", hint(*.looks_like_utf16))]
    NoObject {
        /// How much of it there is.
        length: u64,
        /// Whether every other byte is zero.
        looks_like_utf16: bool,
    },
    /// An object does not end before the next begins, or before the end of the file.
    #[error("object does not end; it was cut off after {length} bytes")]
    CutOff {
        /// How much of it there is.
        length: u64,
    },
    /// An object is larger than the bound.
    #[error("object of {length} bytes is larger than the {limit} bytes allowed")]
    TooLarge {
        /// Its length.
        length: u64,
        /// The bound.
        limit: usize,
    },
    /// An object cannot be read as what it says it is.
    #[error(transparent)]
    Object(#[from] DecodeError),
    /// The file cannot be read any further.
    #[error("cannot be read: {0}")]
    Read(#[from] std::io::Error),
}

fn hint(looks_like_utf16: bool) -> &'static str {
    if looks_like_utf16 {
        "; the text seems to be UTF-16: write it as UTF-8"
    } else {
        ""
    }
}
