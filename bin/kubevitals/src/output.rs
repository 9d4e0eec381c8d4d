//! The output of a process to its user.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;

/// Notices that wait for the receiver; each role sends one.
const MAX_NOTICES: usize = 16;

/// The output of a process. Clones share it.
#[derive(Clone)]
pub struct Output {
    notices: Arc<Mutex<Notices>>,
    data: Arc<Mutex<Option<Box<dyn Write + Send>>>>,
}

/// A role has begun to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The activity of the role: `serving metrics.k8s.io on https://127.0.0.1:10250`.
    pub text: String,
    /// The address that the role listens on, besides the admin server's.
    pub address: Option<SocketAddr>,
    /// The address of the admin server.
    pub admin: SocketAddr,
}

enum Notices {
    Lines(Box<dyn Write + Send>),
    Channel(mpsc::Sender<Notice>),
}

impl Output {
    /// Notices as lines of text to `notices`, and the data of a role to `data`.
    pub fn new(notices: impl Write + Send + 'static, data: Option<Box<dyn Write + Send>>) -> Self {
        Self::with(Notices::Lines(Box::new(notices)), data)
    }

    /// Notices to the program itself, and no data.
    pub fn channel() -> (Self, mpsc::Receiver<Notice>) {
        let (sender, receiver) = mpsc::channel(MAX_NOTICES);
        (Self::with(Notices::Channel(sender), None), receiver)
    }

    fn with(notices: Notices, data: Option<Box<dyn Write + Send>>) -> Self {
        Self {
            notices: Arc::new(Mutex::new(notices)),
            data: Arc::new(Mutex::new(data)),
        }
    }

    /// Reports that a role has begun to serve.
    pub(crate) fn notify(&self, notice: Notice) -> io::Result<()> {
        match &mut *self.notices.lock() {
            Notices::Lines(lines) => {
                let line = format!("{}, admin on http://{}\n", notice.text, notice.admin);
                lines.write_all(line.as_bytes())
            }
            // The receiver may be gone.
            Notices::Channel(channel) => {
                let _ = channel.try_send(notice);
                Ok(())
            }
        }
    }

    /// The writer of data, for the one role that owns it.
    pub(crate) fn take_data(&self) -> Option<Box<dyn Write + Send>> {
        self.data.lock().take()
    }
}

/// Standard output without the buffer of the standard library: a write that succeeds has left the
/// process.
pub(crate) fn unbuffered_stdout() -> io::Result<File> {
    let owned = io::stdout().as_fd().try_clone_to_owned();
    owned.map(File::from)
}
