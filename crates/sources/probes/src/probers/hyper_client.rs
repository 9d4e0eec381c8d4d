//! HTTP connections of one run. Nothing is pooled, and nothing outlives the run.

use std::error::Error;
use std::future::Future;
use std::io;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::connect::with_causes;
use crate::run::Run;
use crate::{Failure, Reason};

/// The tasks of a connection. Dropped, they are aborted.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Arc<Mutex<JoinSet<()>>>);

/// Starts tasks of a connection, as long as there are [`Tasks`] to hold them.
#[derive(Debug, Clone)]
pub(crate) struct Spawner(Weak<Mutex<JoinSet<()>>>);

impl Tasks {
    pub(crate) fn spawner(&self) -> Spawner {
        Spawner(Arc::downgrade(&self.0))
    }

    /// Drives a connection. Its errors are also those of its requests.
    pub(crate) fn drive<C>(&self, connection: C)
    where
        C: Future + Send + 'static,
    {
        self.0.lock().spawn(async move {
            let _also_an_error_of_the_request = connection.await;
        });
    }
}

impl<F> hyper::rt::Executor<F> for Spawner
where
    F: Future + Send + 'static,
{
    fn execute(&self, future: F) {
        if let Some(tasks) = self.0.upgrade() {
            tasks.lock().spawn(async move {
                let _output = future.await;
            });
        }
    }
}

/// The failure of a request, or of reading its response.
pub(crate) fn hyper_failure(run: &Run<'_>, error: &hyper::Error) -> Failure {
    let message = with_causes(error);
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(error) = inner.downcast_ref::<io::Error>() {
            return run.fail_io(error);
        }
        cause = inner.source();
    }
    let reason = if error.is_parse() {
        // Not HTTP at all, or not as it should be.
        Reason::HttpVersion
    } else if error.is_incomplete_message() {
        Reason::ReadEof
    } else if error.is_timeout() {
        Reason::ReadTimeout
    } else if message.contains("protocol error") || message.contains("frame") {
        // HTTP/2 was expected and something else came.
        Reason::HttpVersion
    } else {
        Reason::ConnectReset
    };
    run.fail(reason, message)
}
