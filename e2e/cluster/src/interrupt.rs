//! Ctrl-C as an error: a caller of [`pause`] cleans up as after any other failure.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};

/// The error of [`pause`] after a signal.
pub(crate) const INTERRUPTED: &str = "interrupted by a signal";

static SIGNALS: OnceLock<Mutex<Receiver<()>>> = OnceLock::new();

/// Makes SIGINT, SIGTERM and SIGHUP fail the next [`pause`] instead of ending this process.
pub(crate) fn listen() -> Result<()> {
    if SIGNALS.get().is_some() {
        return Ok(());
    }
    // The first signal ends the work, the second the clean-up after it; more change nothing.
    let (sender, receiver) = sync_channel(2);
    if SIGNALS.set(Mutex::new(receiver)).is_err() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("starting the signal handler")?;
    let guard = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    drop(guard);
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                std::future::poll_fn(|context| {
                    let received = [&mut interrupt, &mut terminate, &mut hang_up]
                        .into_iter()
                        .any(|signal| signal.poll_recv(context).is_ready());
                    if received {
                        std::task::Poll::Ready(())
                    } else {
                        std::task::Poll::Pending
                    }
                })
                .await;
                // Full: two signals are pending already.
                let _ = sender.try_send(());
            }
        });
    });
    Ok(())
}

/// Waits. Fails at once on a signal, also on one that came before.
pub(crate) fn pause(duration: Duration) -> Result<()> {
    listen()?;
    let signals = SIGNALS.get().context("the signal handler is installed")?;
    match signals.lock().recv_timeout(duration) {
        Ok(()) | Err(RecvTimeoutError::Disconnected) => bail!(INTERRUPTED),
        Err(RecvTimeoutError::Timeout) => Ok(()),
    }
}

/// Waits regardless of signals: for clean-up.
pub(crate) fn settle(duration: Duration) {
    let (_keep, never) = sync_channel::<()>(1);
    let _ = never.recv_timeout(duration);
}
