//! Graceful shutdown: a signal requests it, the role drains within a grace period.

use std::future::Future;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

/// Requests the shutdown of everything that holds the matching [`Shutdown`].
#[derive(Debug, Clone)]
pub struct ShutdownTrigger(watch::Sender<bool>);

/// Waits for a shutdown request. Clones wait for the same request.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<bool>);

/// A signal that requests a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT, from a terminal.
    Interrupt,
    /// SIGTERM, from the kubelet or an init system.
    Terminate,
    /// SIGHUP, from a terminal that is closed. Files are read again without it.
    Hangup,
}

/// The result of [`supervise`].
#[derive(Debug, PartialEq, Eq)]
pub enum Ending<T> {
    /// The role ended by itself, or after a signal within the grace period.
    Finished(T),
    /// The grace period expired, and the role was dropped.
    GraceExpired,
    /// A second signal arrived during the grace period, and the role was dropped.
    Forced(Signal),
}

/// Creates a trigger and the request that it triggers.
pub fn shutdown_channel() -> (ShutdownTrigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (ShutdownTrigger(sender), Shutdown(receiver))
}

/// Runs `work` to its end. The first signal requests a shutdown and starts the grace period; a
/// second ends it.
pub async fn supervise<T>(
    work: impl Future<Output = T>,
    mut signals: mpsc::Receiver<Signal>,
    trigger: ShutdownTrigger,
    grace: Duration,
) -> Ending<T> {
    tokio::pin!(work);
    let signal = tokio::select! {
        done = &mut work => return Ending::Finished(done),
        signal = next(&mut signals) => signal,
    };
    info!(
        signal = signal.name(),
        grace_seconds = grace.as_secs_f64(),
        "shutting down"
    );
    trigger.trigger();
    tokio::select! {
        done = work => Ending::Finished(done),
        () = tokio::time::sleep(grace) => {
            warn!("grace period expired, aborting");
            Ending::GraceExpired
        }
        signal = next(&mut signals) => {
            warn!(signal = signal.name(), "received a second signal, aborting");
            Ending::Forced(signal)
        }
    }
}

/// Turns SIGINT, SIGTERM and SIGHUP into [`Signal`]s. Call it inside a runtime.
pub fn forward_signals() -> std::io::Result<mpsc::Receiver<Signal>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let (sender, receiver) = mpsc::channel(2);
    tokio::spawn(async move {
        loop {
            let received = tokio::select! {
                _ = interrupt.recv() => Signal::Interrupt,
                _ = terminate.recv() => Signal::Terminate,
                _ = hangup.recv() => Signal::Hangup,
                () = sender.closed() => return,
            };
            // A full queue has all the signals that matter: one to drain, one to abort.
            let _ = sender.try_send(received);
        }
    });
    Ok(receiver)
}

impl ShutdownTrigger {
    /// Requests a shutdown. Idempotent.
    pub fn trigger(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Waits until a shutdown is requested, or until all triggers are dropped.
    pub async fn requested(&mut self) {
        let _ = self.0.wait_for(|requested| *requested).await;
    }

    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }
}

impl Signal {
    /// The name that operators know.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Hangup => "SIGHUP",
        }
    }
}

/// Waits for the next signal; forever if the sender is gone.
async fn next(signals: &mut mpsc::Receiver<Signal>) -> Signal {
    match signals.recv().await {
        Some(signal) => signal,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn work_that_ends_by_itself_needs_no_signal() {
        let (_sender, signals) = mpsc::channel(2);
        let (trigger, shutdown) = shutdown_channel();
        let ending = supervise(async { 7 }, signals, trigger, GRACE).await;
        assert_eq!(ending, Ending::Finished(7));
        assert!(!shutdown.is_requested());
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_signal_starts_the_grace_period() {
        let (sender, signals) = mpsc::channel(2);
        let (trigger, mut shutdown) = shutdown_channel();
        sender.send(Signal::Terminate).await.unwrap();
        let work = async move {
            shutdown.requested().await;
            tokio::time::sleep(GRACE / 2).await;
            "drained"
        };
        assert_eq!(
            supervise(work, signals, trigger, GRACE).await,
            Ending::Finished("drained")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_does_not_drain_is_dropped_after_the_grace_period() {
        let (sender, signals) = mpsc::channel(2);
        let (trigger, _shutdown) = shutdown_channel();
        sender.send(Signal::Terminate).await.unwrap();
        let started = tokio::time::Instant::now();
        let ending = supervise(std::future::pending::<()>(), signals, trigger, GRACE).await;
        assert_eq!(ending, Ending::GraceExpired);
        assert_eq!(started.elapsed(), GRACE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_ends_the_grace_period() {
        let (sender, signals) = mpsc::channel(2);
        let (trigger, _shutdown) = shutdown_channel();
        sender.send(Signal::Interrupt).await.unwrap();
        sender.send(Signal::Interrupt).await.unwrap();
        let started = tokio::time::Instant::now();
        let ending = supervise(std::future::pending::<()>(), signals, trigger, GRACE).await;
        assert_eq!(ending, Ending::Forced(Signal::Interrupt));
        assert_eq!(started.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_the_trigger_requests_a_shutdown() {
        let (trigger, mut shutdown) = shutdown_channel();
        drop(trigger);
        shutdown.requested().await;
    }
}
