//! Recorded watch streams: what `kubectl get --watch --output-watch-events -o json` writes, and
//! what the API server sends.
//!
//! Objects may stand one on a line, be printed over many lines or follow one another without a
//! break; pods and events may be mixed. A file is read as a stream: no more than one object of it
//! is held, and no object larger than a bound.
//!
//! ```text
//!  bytes ──► Splitter: where each object begins and ends ──► Recording: what it is ──► Pod, Event, …
//! ```
//!
//! **What is bad costs only itself.** An object that does not close ends where the next begins at
//! the start of a line, which no line inside of a printed object does. Each failure is an item with
//! its place in the file.
//!
//! **When it was.** A recording has no times of receipt. Where an object has `managedFields`, the
//! newest of their times says when the server made that state ([`Seen::written`]), to the second.
//!
//! # Limits
//!
//! - A list as a whole (`kubectl get -o json` without `--watch`) is read as one object, and so must
//!   fit the bound.
//! - Text is UTF-8. PowerShell's `>` writes UTF-16; the error says so.

mod error;
mod reader;
mod splitter;

pub use error::RecordingError;
pub use reader::{Item, Recording, Seen, What};
pub use splitter::{Piece, Splitter};

/// The largest object that is read unless another bound is set: ten times what the API server
/// stores, since printing over many lines makes much of it blanks.
pub const MAX_OBJECT: usize = 16 << 20;
