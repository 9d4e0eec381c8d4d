//! A log as a stream.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use kubevitals_kubelet_api::provider::LogOptions;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use crate::files::LogPath;
use crate::reader::{Reader, Step};

/// How often a file is looked at without a notification. Network file systems and links have none.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

struct Follower {
    reader: Reader,
    ended: watch::Receiver<bool>,
    changes: Changes,
}

/// Notifications of changes in a folder. Without them, polling alone remains: a user has few
/// inotify instances.
struct Changes(Option<AsyncFd<OwnedFd>>);

/// Opens a log and reads it as `options` say; `previous` is the caller's choice of the path. A
/// stream that follows ends once `ended` is true, or its sender is gone, and all lines are read.
/// Files are read on threads for blocking work, none is held while the stream waits.
pub async fn read(
    path: LogPath,
    options: LogOptions,
    ended: watch::Receiver<bool>,
) -> io::Result<BoxStream<'static, io::Result<Bytes>>> {
    // Before the first read, so that no change is missed.
    let changes = if options.follow {
        Changes::of(path.folder())
    } else {
        Changes(None)
    };
    let reader = blocking(move || Reader::open(path, &options)).await??;
    let follower = Follower {
        reader,
        ended,
        changes,
    };
    Ok(stream::unfold(Some(follower), next).boxed())
}

/// Returns the next text, and `None` instead of the follower after the last or after an error.
async fn next(follower: Option<Follower>) -> Option<(io::Result<Bytes>, Option<Follower>)> {
    let mut follower = follower?;
    loop {
        // Before the step: what is written before the end must be read after it.
        let has_ended = *follower.ended.borrow() || follower.ended.has_changed().is_err();
        let (returned, step) = match blocking(move || {
            let step = follower.reader.step();
            (follower, step)
        })
        .await
        {
            Ok(stepped) => stepped,
            Err(error) => return Some((Err(error), None)),
        };
        follower = returned;
        match step {
            Ok(Step::Data(text)) if text.is_empty() => {}
            Ok(Step::Data(text)) => return Some((Ok(text.into()), Some(follower))),
            Ok(Step::Done) => return None,
            Ok(Step::Idle) if has_ended => {
                let rest = follower.reader.finish();
                return (!rest.is_empty()).then(|| (Ok(rest.into()), None));
            }
            Ok(Step::Idle) => {
                tokio::select! {
                    _ = follower.ended.changed() => {}
                    () = follower.changes.wait() => {}
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                }
            }
            Err(error) => return Some((Err(error), None)),
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)
}

impl Changes {
    fn of(folder: &Path) -> Self {
        let open = || -> io::Result<AsyncFd<OwnedFd>> {
            let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            let flags = WatchFlags::MODIFY
                | WatchFlags::CREATE
                | WatchFlags::MOVED_TO
                | WatchFlags::DELETE_SELF;
            inotify::add_watch(&inotify, folder, flags)?;
            #[expect(
                deprecated,
                reason = "the other constructor is unsafe, for types that lie about their file; \
                          `OwnedFd` does not"
            )]
            AsyncFd::new(inotify)
        };
        Self(open().ok())
    }

    /// Waits for changes, and forgets them.
    async fn wait(&self) {
        let Some(inotify) = &self.0 else {
            return std::future::pending().await;
        };
        let Ok(mut ready) = inotify.readable().await else {
            return std::future::pending().await;
        };
        let mut events = [0; 4096];
        while rustix::io::read(inotify.get_ref(), &mut events).is_ok_and(|count| count > 0) {}
        ready.clear_ready();
    }
}
