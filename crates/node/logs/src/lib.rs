//! Log files of containers, as a kubelet and a container runtime keep them.
//!
//! ```text
//! <folder>/<n>.log                          the log of the n-th instance, being written
//! <folder>/<n>.log.20260102-150405          rotated, the newest one plain
//! <folder>/<n>.log.20260102-140302.gz       rotated and compressed
//! ```
//!
//! [`read`] returns a log as a stream, with the options of `/containerLogs`. It reads rotated files
//! too, which the kubelet does not: a log that was rotated a moment ago is not empty. It follows a
//! file across rotation and truncation until the container has ended.
//!
//! [`LogWriter`] writes and rotates. It is synchronous and has no runtime, for the process that
//! holds the pipes of a container.
//!
//! [`LogLine`] is one stored line, in the format of CRI or of Docker's `json-file` driver.

mod files;
mod follow;
mod line;
mod reader;
mod writer;

pub use files::LogPath;
pub use follow::read;
pub use line::{LogLine, Stream};
pub use writer::{LogLimits, LogWriter};
