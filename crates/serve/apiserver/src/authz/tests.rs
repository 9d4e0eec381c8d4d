use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::review::{BearerToken, Pending, ReviewError, TokenVerdict};

/// Allows what is on its list, and counts what it is asked.
#[derive(Default)]
struct Rules {
    allowed: Mutex<Vec<String>>,
    asked: AtomicUsize,
    down: std::sync::atomic::AtomicBool,
}

impl Reviewer for Rules {
    fn review_token<'a>(&'a self, _: &'a BearerToken) -> Pending<'a, TokenVerdict> {
        Box::pin(async { Ok(TokenVerdict::Invalid) })
    }

    fn review_access<'a>(&'a self, question: &'a AccessQuestion) -> Pending<'a, AccessVerdict> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if self.down.load(Ordering::SeqCst) {
                return Err(ReviewError {
                    what: "cannot create subjectaccessreviews.authorization.k8s.io",
                    problem: String::from("connection refused to 10.0.0.1"),
                });
            }
            Ok(AccessVerdict {
                allowed: self.allowed.lock().unwrap().contains(&question.user.name),
                reason: String::new(),
            })
        })
    }
}

fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo {
        name: name.to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..UserInfo::default()
    }
}

fn path(path: &str) -> Attempt {
    Attempt::Path {
        verb: String::from("get"),
        path: path.to_owned(),
    }
}

fn authorizer(rules: &Arc<Rules>, paths: &[&str]) -> Authorizer {
    let reviewer: Arc<dyn Reviewer> = Arc::<Rules>::clone(rules);
    let config = AuthorizationConfig {
        always_allow_paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        denied_ttl: Duration::from_secs(3),
        ..AuthorizationConfig::delegated(reviewer)
    };
    Authorizer::new(&config, &ApiServerMetrics::unregistered()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn answers_hold_for_their_time() {
    let rules = Arc::new(Rules::default());
    let authorizer = authorizer(&rules, &[]);
    let (ada, metrics) = (user("ada", &[]), path("/metrics"));
    assert!(authorizer.authorize(&ada, metrics.clone()).await.is_err());
    rules.allowed.lock().unwrap().push(String::from("ada"));
    assert!(
        authorizer.authorize(&ada, metrics.clone()).await.is_err(),
        "a no is remembered"
    );
    tokio::time::advance(Duration::from_secs(3)).await;
    assert!(authorizer.authorize(&ada, metrics.clone()).await.is_ok());
    rules.allowed.lock().unwrap().clear();
    tokio::time::advance(Duration::from_secs(9)).await;
    assert!(
        authorizer.authorize(&ada, metrics.clone()).await.is_ok(),
        "a yes is remembered"
    );
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(authorizer.authorize(&ada, metrics).await.is_err());
    assert_eq!(rules.asked.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn without_an_answer_nothing_is_allowed_and_nothing_is_told() {
    let rules = Arc::new(Rules::default());
    rules.down.store(true, Ordering::SeqCst);
    let authorizer = authorizer(&rules, &["/livez"]);
    let failure = authorizer
        .authorize(&user("ada", &[]), path("/metrics"))
        .await
        .unwrap_err();
    assert_eq!(failure.code, 503);
    let text = format!("{failure:?}");
    assert!(
        text.contains("cannot create subjectaccessreviews"),
        "{text}"
    );
    assert!(
        !text.contains("10.0.0.1"),
        "addresses are for the log: {text}"
    );
    assert!(
        authorizer
            .authorize(&user("ada", &[]), path("/livez"))
            .await
            .is_ok()
    );
    assert!(
        authorizer
            .authorize(&user("root", &["system:masters"]), path("/metrics"))
            .await
            .is_ok()
    );
    rules.down.store(false, Ordering::SeqCst);
    rules.allowed.lock().unwrap().push(String::from("ada"));
    assert!(
        authorizer
            .authorize(&user("ada", &[]), path("/metrics"))
            .await
            .is_ok(),
        "a failure is not remembered"
    );
}

#[test]
fn open_paths_are_those_of_the_list() {
    let authorizer = authorizer(&Arc::default(), &["/livez", "metrics", "/debug/*"]);
    for open in ["/livez", "/metrics", "/debug/", "/debug/pprof"] {
        assert!(authorizer.is_open(&path(open)), "{open}");
    }
    for closed in ["/livez/", "//livez", "/livezx", "/debug", "/"] {
        assert!(!authorizer.is_open(&path(closed)), "{closed}");
    }
    let resource = Attempt::Resource {
        verb: String::from("get"),
        group: String::new(),
        version: String::new(),
        resource: String::from("livez"),
        subresource: String::new(),
        namespace: String::new(),
        name: String::new(),
    };
    assert!(!authorizer.is_open(&resource));
    for bad in ["", "/", "*", "/*", "/a*b", "/a**"] {
        assert!(AllowedPath::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn different_questions_have_different_keys() {
    let question = |name: &str, groups: &[&str], attempt: Attempt| {
        key(&AccessQuestion {
            user: user(name, groups),
            attempt,
        })
    };
    let keys = [
        question("a", &[], path("/x")),
        question("a", &["b"], path("/x")),
        question("a", &["b", "c"], path("/x")),
        question("a", &["bc"], path("/x")),
        question("ab", &["c"], path("/x")),
        question("a", &[], path("/y")),
    ];
    for (at, one) in keys.iter().enumerate() {
        assert!(!keys[at + 1..].contains(one), "{at}");
    }
}
