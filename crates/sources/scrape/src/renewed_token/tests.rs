use std::sync::Arc;

use kubevitals_telemetry::Metrics;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::*;
use crate::credentials::Credentials;

const HOUR: Duration = Duration::from_hours(1);

/// An API server whose answer can be changed.
#[derive(Clone)]
struct Issuer(Arc<Mutex<Script>>);

struct Script {
    answer: Answer,
    /// When tokens were requested.
    requests: Vec<Instant>,
}

#[derive(Clone, Copy)]
enum Answer {
    Token(Duration),
    Status(u16),
    Never,
}

impl Issuer {
    fn new(answer: Answer) -> Self {
        Self(Arc::new(Mutex::new(Script {
            answer,
            requests: Vec::new(),
        })))
    }

    fn set(&self, answer: Answer) {
        self.0.lock().answer = answer;
    }

    fn requests(&self) -> usize {
        self.0.lock().requests.len()
    }
}

impl TokenIssuer for Issuer {
    fn issue(&self) -> IssueFuture<'_> {
        let mut script = self.0.lock();
        script.requests.push(Instant::now());
        let (answer, count) = (script.answer, script.requests.len());
        Box::pin(async move {
            match answer {
                Answer::Token(lifetime) => Ok(IssuedToken {
                    token: Bearer::new(&format!("token-{count}")).unwrap(),
                    lifetime,
                }),
                Answer::Status(code) => Err(IssueError {
                    failure: IssueFailure::of_status(code),
                    message: format!("status {code}"),
                }),
                Answer::Never => std::future::pending().await,
            }
        })
    }
}

struct Renewing {
    token: Arc<RenewedToken>,
    issuer: Issuer,
    metrics: Metrics,
    task: JoinHandle<Infallible>,
}

impl Renewing {
    fn start(answer: Answer) -> Self {
        let issuer = Issuer::new(answer);
        let token = Arc::new(RenewedToken::new());
        let mut metrics = Metrics::new();
        let counters = TokenMetrics::register(&mut metrics);
        let (renewed, requested) = (Arc::clone(&token), issuer.clone());
        let task = tokio::spawn(async move {
            let outage = OutageLog::default();
            let rng = Rng::seeded(1);
            renewed.renew(&requested, &counters, &outage, rng).await
        });
        Self {
            token,
            issuer,
            metrics,
            task,
        }
    }

    /// The token that a scrape would send.
    fn sent(&self) -> Result<String, String> {
        let credentials = Credentials::Renewed(Arc::clone(&self.token));
        let token = credentials.token().map_err(|error| error.to_string())?;
        Ok(token.unwrap().expose().to_owned())
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_at_half_of_its_lifetime() {
    let renewing = Renewing::start(Answer::Token(HOUR));
    assert_eq!(
        renewing.token.status(),
        Status::warming_up("no token for kubelets was issued: waiting for the API server")
    );
    renewing.token.issued().await;
    assert_eq!(renewing.sent().unwrap(), "token-1");
    sleep((HOUR / 2).saturating_sub(Duration::from_secs(1))).await;
    assert_eq!(renewing.sent().unwrap(), "token-1");
    sleep(HOUR / 10 + Duration::from_secs(2)).await;
    assert_eq!(renewing.sent().unwrap(), "token-2");
    assert_eq!(renewing.token.status(), Status::Ok);
}

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_keeps_the_token_until_it_expires() {
    for failure in [
        Answer::Status(403),
        Answer::Status(404),
        Answer::Status(429),
        Answer::Status(500),
        Answer::Never,
    ] {
        let renewing = Renewing::start(Answer::Token(HOUR));
        renewing.token.issued().await;
        renewing.issuer.set(failure);
        sleep(HOUR.saturating_sub(Duration::from_secs(1))).await;
        assert_eq!(renewing.sent().unwrap(), "token-1");
        assert_eq!(renewing.token.status(), Status::Ok);
        // About one attempt in 30 s: neither given up nor in a hurry.
        let attempts = renewing.issuer.requests();
        assert!((20..80).contains(&attempts), "{attempts}");
        sleep(Duration::from_secs(2)).await;
        let reason = renewing.sent().unwrap_err();
        assert!(reason.contains("expired 1 s ago"), "{reason}");
        let Status::Failing(reason) = renewing.token.status() else {
            panic!("an expired token fails readiness");
        };
        assert!(reason.contains("expired 1 s ago"), "{reason}");

        // The outage ends, and another begins and ends.
        for _ in 0..2 {
            renewing.issuer.set(Answer::Token(HOUR));
            sleep(Duration::from_mins(1)).await;
            assert!(renewing.sent().is_ok());
            assert_eq!(renewing.token.status(), Status::Ok);
            renewing.issuer.set(failure);
            sleep(HOUR + Duration::from_secs(1)).await;
            assert!(renewing.sent().is_err());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_token_that_is_refused_has_its_reason() {
    let renewing = Renewing::start(Answer::Status(403));
    sleep(Duration::from_secs(20)).await;
    let reason = renewing.sent().unwrap_err();
    assert_eq!(
        reason,
        "no token for kubelets was issued: status 403".to_owned()
    );
    assert_eq!(
        renewing.token.status(),
        Status::failing("no token for kubelets was issued: status 403")
    );
    renewing.issuer.set(Answer::Token(HOUR));
    renewing.token.issued().await;
    assert_eq!(renewing.token.status(), Status::Ok);
}

/// A `ServiceAccount` that is deleted and created again makes its tokens invalid at once.
#[tokio::test(start_paused = true)]
async fn a_rejected_token_is_renewed_at_most_once_a_minute() {
    let renewing = Renewing::start(Answer::Token(HOUR));
    renewing.token.issued().await;
    let credentials = Credentials::Renewed(Arc::clone(&renewing.token));
    let first = credentials.token().unwrap().unwrap();
    assert_eq!(credentials.replacement(&first), None);
    sleep(MIN_RENEWAL_INTERVAL.saturating_sub(Duration::from_secs(1))).await;
    assert_eq!(renewing.issuer.requests(), 1);
    sleep(Duration::from_secs(2)).await;
    let second = credentials.replacement(&first).unwrap();
    assert_eq!(second.expose(), "token-2");
    // A hostile node rejects everything, all the time.
    for _ in 0..600 {
        let token = credentials.token().unwrap().unwrap();
        let _ = credentials.replacement(&token);
        sleep(Duration::from_secs(1)).await;
    }
    assert!((10..=13).contains(&renewing.issuer.requests()));
}

#[tokio::test(start_paused = true)]
async fn tokens_for_seconds_are_not_requested_in_a_loop() {
    let renewing = Renewing::start(Answer::Token(Duration::from_secs(3)));
    sleep(Duration::from_mins(10)).await;
    assert!((9..=12).contains(&renewing.issuer.requests()));
    assert!(renewing.sent().is_err(), "it has expired long ago");
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_result_and_the_token_is_never_printed() {
    let mut renewing = Renewing::start(Answer::Status(403));
    sleep(Duration::from_millis(500)).await;
    let text = |renewing: &mut Renewing| {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, renewing.metrics.root()).unwrap();
        text
    };
    let before = text(&mut renewing);
    assert!(
        before.contains("kubevitals_scrape_token_requests_total{result=\"forbidden\"} 1"),
        "{before}"
    );
    // Unknown is left out.
    assert!(
        !before.contains("token_expiration_timestamp_seconds "),
        "{before}"
    );
    renewing.issuer.set(Answer::Token(HOUR));
    renewing.token.issued().await;
    let after = text(&mut renewing);
    assert!(
        after.contains("kubevitals_scrape_token_requests_total{result=\"success\"} 1"),
        "{after}"
    );
    assert!(
        after.contains("kubevitals_scrape_token_expiration_timestamp_seconds "),
        "{after}"
    );
    assert!(!format!("{:?}", renewing.token).contains("token-"));
}
