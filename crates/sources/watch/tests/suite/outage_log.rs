//! The log of an outage: one line when it begins, one when it ends.

use kubevitals_model::PodSummary;
use kubevitals_telemetry::logs::{LogCapture, LogOptions};
use kubevitals_watch::WatchSpec;

use crate::fake::{Fake, Fault, pass, view, within};

fn capture() -> LogCapture {
    LogCapture::start(&LogOptions::default())
}

/// An API server that was restarted properly left no line when it was gone, and one for each watch
/// when it was back.
#[tokio::test(start_paused = true)]
async fn an_outage_is_two_lines_however_many_watches_there_are() {
    let log = capture();
    let fake = Fake::new();
    fake.put("a");
    let client = fake.server();
    let watches = ["pods", "nodes", "events"]
        .map(|name| client.reflector(WatchSpec::<PodSummary>::new(name)));
    for watch in &watches {
        assert!(within("a first list", watch.synced()).await);
    }
    pass(30).await;
    assert_eq!(log.lines(), [""; 0]);
    for outage in 1..=2 {
        fake.lock().faults.extend(vec![Fault::Unreachable; 12]);
        if outage == 1 {
            // As a server that shuts down.
            fake.drop_watches();
        } else {
            fake.break_watches();
        }
        // Not so long that a watch without bookmarks is taken for dead.
        pass(120).await;
        fake.put(&format!("after-{outage}"));
        pass(1).await;
        for watch in &watches {
            assert_eq!(view(&watch.objects()), fake.objects());
        }
        let lines = log.lines();
        assert_eq!(lines.len(), 2 * outage, "{lines:#?}");
        let [.., begin, end] = lines.as_slice() else {
            panic!("{lines:#?}");
        };
        assert!(begin.contains("WARN") && begin.contains("API server is unavailable"));
        assert!(end.contains("INFO") && end.contains("API server is available again"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_drops_each_connection_at_once_is_one_outage() {
    let log = capture();
    let fake = Fake::new();
    fake.put("a");
    let pods = fake.pods();
    assert!(within("a first list", pods.synced()).await);
    pass(30).await;
    for _ in 0..20 {
        fake.break_watches();
        pass(9).await;
    }
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    pass(60).await;
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[1].contains("API server is available again"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_is_logged_by_itself() {
    let log = capture();
    let fake = Fake::new();
    fake.lock().faults.extend(vec![Fault::Status(403, None); 5]);
    let pods = fake.pods();
    assert!(within("a first list", pods.synced()).await);
    pass(30).await;
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].contains("watch disconnected") && lines[0].contains("forbidden"));
    assert!(lines[1].contains("watch reconnected"));
}
