//! Reads recorded watches: the output of `kubectl get --watch --output-watch-events -o json`, and
//! responses of the API server.
//!
//! Objects may be one per line, printed over many lines, or follow each other without a break; pods
//! and events may be mixed. Only one object is in memory at a time, up to a maximum size.
//!
//! ```text
//!  bytes ──► Splitter: the bounds of each object ──► Recording: decodes it ──► Pod, Event, …
//! ```
//!
//! **Errors are isolated.** An object without an end is cut off where the next one starts at the
//! beginning of a line, which no line inside a printed object does. Each error is an item with its
//! offset in the file.
//!
//! **Times.** A recording has no times of receipt. Where an object has `managedFields`, the newest
//! of their times is when the server wrote that state ([`Recorded::written`]), to the second.
//!
//! # Limits
//!
//! - A list (`kubectl get -o json` without `--watch`) is read as one object and must not exceed the
//!   maximum size.
//! - Text is UTF-8. PowerShell's `>` writes UTF-16; the error message says so.

mod error;
mod reader;
mod splitter;

pub use error::RecordingError;
pub use reader::{Item, Recorded, RecordedObject, Recording};
pub use splitter::{Piece, Splitter};

/// The default maximum size of an object: ten times what the API server stores, since an object
/// printed over many lines is mostly blanks.
pub const MAX_OBJECT: usize = 16 << 20;
