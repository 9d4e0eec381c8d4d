//! The thread of the scrape loops.

use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A thread with a runtime of its own. Dropping this ends the thread and its tasks.
///
/// Scraping consists of thousands of short tasks that need a small part of one processor, even in
/// the largest cluster. On a shared runtime, each of them would wake another worker for nothing and
/// wait behind lists.
pub(super) struct ScrapingThread {
    handle: Handle,
    _stop: oneshot::Sender<()>,
}

impl ScrapingThread {
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        thread::Builder::new()
            .name("scraping".to_owned())
            .spawn(move || {
                // Returns once the sender is dropped; nothing is sent.
                let _ = runtime.block_on(stopped);
            })?;
        Ok(Self {
            handle,
            _stop: stop,
        })
    }

    /// Calls `start`. The tasks that it spawns, and their tasks, run on the thread.
    pub(super) fn enter<T>(&self, start: impl FnOnce() -> T) -> T {
        let _entered = self.handle.enter();
        start()
    }
}

#[cfg(test)]
mod tests {
    use std::future;

    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn spawned_tasks_run_on_the_thread_until_it_is_dropped() {
        let scraping = ScrapingThread::start().unwrap();
        let (sender, mut names) = mpsc::channel(2);
        let name = || thread::current().name().map(str::to_owned);
        scraping.enter(|| {
            tokio::spawn(async move {
                sender.send(name()).await.unwrap();
                tokio::spawn(async move {
                    sender.send(name()).await.unwrap();
                    // Keeps the channel open until the task is dropped.
                    future::pending::<()>().await;
                    drop(sender);
                });
            });
        });
        for _ in 0..2 {
            assert_eq!(names.recv().await.flatten().as_deref(), Some("scraping"));
        }
        drop(scraping);
        assert_eq!(names.recv().await, None);
    }
}
