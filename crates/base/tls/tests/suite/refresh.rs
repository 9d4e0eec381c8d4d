//! The refresh loop, driven step by step.

use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use kubevitals_tls::{
    PemSource, Periodic, Refresh, RefreshStatus, Refreshed, ReloadingKeyPair, Ticks, TlsError,
    refresh_loop,
};

use crate::support::{DAY, Files, TestCa, now};

/// Runs one step before each tick; when none is left, the loop ends.
struct Script<'a>(Vec<Box<dyn FnMut() + Send + 'a>>);

impl Ticks for Script<'_> {
    async fn next(&mut self) -> Option<SystemTime> {
        if self.0.is_empty() {
            return None;
        }
        (self.0.remove(0))();
        Some(now() + DAY)
    }
}

#[tokio::test]
async fn each_tick_completes_before_the_next() {
    let (ca, files) = (TestCa::new("cluster"), Files::new());
    let (first, second) = (ca.pair(&["server"]), ca.pair(&["server"]));
    files.write_pair(&first);
    let source = |name| PemSource::File(files.path(name));
    let certificate =
        ReloadingKeyPair::load("serving", source("tls.crt"), source("tls.key"), now()).unwrap();
    let watched = Arc::clone(&certificate);
    let steps = Script(vec![
        Box::new(|| drop(files.write("tls.key", "half"))),
        Box::new(|| {
            assert_eq!(watched.status().failed, 1);
            assert_eq!(watched.chain(), from_ref(&first.der));
        }),
        Box::new(|| {
            assert_eq!(watched.status().failed, 2);
            files.write_pair(&second);
        }),
        Box::new(|| {
            assert_eq!(watched.chain(), from_ref(&second.der));
            assert_eq!(watched.status().replaced, 1);
            assert_eq!(watched.status().last_error, None);
        }),
    ]);
    refresh_loop(vec![Arc::clone(&certificate) as _], steps).await;
    assert_eq!(certificate.status().replaced, 1);
}

/// Counts refreshes.
struct Counted(AtomicU64);

impl Refresh for Counted {
    fn name(&self) -> &'static str {
        "counted"
    }

    fn refresh(&self, _now: SystemTime) -> Result<Refreshed, TlsError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Refreshed::Unchanged)
    }

    fn status(&self) -> Arc<RefreshStatus> {
        Arc::new(RefreshStatus {
            loaded_at: now(),
            not_after: None,
            last_error: None,
            failing_since: None,
            replaced: 0,
            failed: 0,
        })
    }
}

#[tokio::test(start_paused = true)]
async fn periodic_ticks_are_on_time_until_shutdown() {
    let counted = Arc::new(Counted(0.into()));
    let stop = tokio::time::sleep(Duration::from_secs(35));
    let started = tokio::time::Instant::now();
    refresh_loop(
        vec![Arc::clone(&counted) as _],
        Periodic::new(Duration::from_secs(10), stop),
    )
    .await;
    assert_eq!(started.elapsed().as_secs(), 35);
    assert_eq!(counted.0.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn the_loop_can_be_spawned() {
    let ticks = Periodic::new(Duration::from_secs(10), async {});
    tokio::spawn(refresh_loop(Vec::new(), ticks)).await.unwrap();
}
