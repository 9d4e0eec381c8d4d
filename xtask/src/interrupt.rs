//! Ctrl-C as an error: whoever waits through [`pause`] comes to its own clean-up, as after any
//! other failure.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{SignalKind, signal};

/// What [`pause`] fails with once a signal has come.
pub(crate) const INTERRUPTED: &str = "interrupted by a signal";

static SIGNALS: OnceLock<Mutex<Receiver<()>>> = OnceLock::new();

/// From now on SIGINT, SIGTERM and SIGHUP no longer end this process: the next [`pause`] fails
/// instead.
pub(crate) fn listen() -> Result<()> {
    if SIGNALS.get().is_some() {
        return Ok(());
    }
    // One signal ends the work that is under way, the second the clean-up after it; more say
    // nothing new.
    let (sender, receiver) = sync_channel(2);
    if SIGNALS.set(Mutex::new(receiver)).is_err() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("starting to listen for signals")?;
    let guard = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    drop(guard);
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                std::future::poll_fn(|context| {
                    let came = [&mut interrupt, &mut terminate, &mut hang_up]
                        .into_iter()
                        .any(|signal| signal.poll_recv(context).is_ready());
                    if came {
                        std::task::Poll::Ready(())
                    } else {
                        std::task::Poll::Pending
                    }
                })
                .await;
                // Full: nobody has looked at the last one yet.
                let _ = sender.try_send(());
            }
        });
    });
    Ok(())
}

/// Waits, unless a signal comes or came: then fails at once.
pub(crate) fn pause(duration: Duration) -> Result<()> {
    listen()?;
    let signals = SIGNALS.get().context("signals are listened for")?;
    let receiver = signals.lock().unwrap_or_else(PoisonError::into_inner);
    match receiver.recv_timeout(duration) {
        Ok(()) | Err(RecvTimeoutError::Disconnected) => bail!(INTERRUPTED),
        Err(RecvTimeoutError::Timeout) => Ok(()),
    }
}

/// Waits for the whole time, whatever signals come: for clean-up.
pub(crate) fn settle(duration: Duration) {
    let (_keep, never) = sync_channel::<()>(1);
    let _ = never.recv_timeout(duration);
}
