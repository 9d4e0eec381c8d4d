//! Scraping has a thread of its own.

use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A thread with a runtime, which ends when this is dropped, and all of its tasks with it.
///
/// Scraping is thousands of short tasks, of which the largest cluster has a small part of one
/// processor. Among several threads each of them would wake another one for nothing, and lists
/// would stand in its way.
pub(super) struct ScrapingThread {
    tasks: Handle,
    _goes_on: oneshot::Sender<()>,
}

impl ScrapingThread {
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let tasks = runtime.handle().clone();
        let (goes_on, ends) = oneshot::channel();
        thread::Builder::new()
            .name("scraping".to_owned())
            .spawn(move || {
                // Nothing is sent: that the sender is dropped is the end.
                let _ = runtime.block_on(ends);
            })?;
        Ok(Self {
            tasks,
            _goes_on: goes_on,
        })
    }

    /// Does something whose tasks, and theirs, are to run on the thread.
    pub(super) fn within<T>(&self, begin: impl FnOnce() -> T) -> T {
        let _entered = self.tasks.enter();
        begin()
    }
}

#[cfg(test)]
mod tests {
    use std::future;

    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn tasks_and_theirs_run_on_the_thread_until_it_is_dropped() {
        let scraping = ScrapingThread::start().unwrap();
        let (told, mut tells) = mpsc::channel(2);
        let name = || thread::current().name().map(str::to_owned);
        scraping.within(|| {
            tokio::spawn(async move {
                told.send(name()).await.unwrap();
                tokio::spawn(async move {
                    told.send(name()).await.unwrap();
                    // Holds what it tells by until it is ended.
                    future::pending::<()>().await;
                    drop(told);
                });
            });
        });
        for _ in 0..2 {
            assert_eq!(tells.recv().await.flatten().as_deref(), Some("scraping"));
        }
        drop(scraping);
        assert_eq!(tells.recv().await, None);
    }
}
