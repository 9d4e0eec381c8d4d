use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::reviewer::{
    BearerToken, ReviewError, ReviewFuture, SelectorOperator, TokenReviewResult,
};

/// Allows the users of a list, and counts reviews.
#[derive(Default)]
struct Rules {
    allowed: Mutex<Vec<String>>,
    reviews: AtomicUsize,
    down: std::sync::atomic::AtomicBool,
}

impl Reviewer for Rules {
    fn review_token<'a>(&'a self, _: &'a BearerToken) -> ReviewFuture<'a, TokenReviewResult> {
        Box::pin(async { Ok(TokenReviewResult::Invalid) })
    }

    fn review_access<'a>(&'a self, review: &'a AccessReview) -> ReviewFuture<'a, AccessDecision> {
        self.reviews.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if self.down.load(Ordering::SeqCst) {
                return Err(ReviewError::new(
                    "cannot create subjectaccessreviews.authorization.k8s.io",
                    "connection refused to 10.0.0.1",
                ));
            }
            Ok(AccessDecision {
                allowed: self.allowed.lock().unwrap().contains(&review.user.name),
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

fn path(path: &str) -> Attributes {
    Attributes::Path {
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
    Authorizer::new(
        &config,
        &AccessMetrics::unregistered(),
        &OutageLog::default(),
    )
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn decisions_are_cached_for_their_ttl() {
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
    assert_eq!(rules.reviews.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_failed_review_denies_without_details() {
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
fn only_listed_paths_are_always_allowed() {
    let authorizer = authorizer(&Arc::default(), &["/livez", "metrics", "/debug/*"]);
    for open in ["/livez", "/metrics", "/debug/", "/debug/pprof"] {
        assert!(authorizer.is_always_allowed(&path(open)), "{open}");
    }
    for closed in ["/livez/", "//livez", "/livezx", "/debug", "/"] {
        assert!(!authorizer.is_always_allowed(&path(closed)), "{closed}");
    }
    let resource = Attributes::Resource {
        verb: String::from("get"),
        group: String::new(),
        version: String::new(),
        resource: String::from("livez"),
        subresource: String::new(),
        namespace: String::new(),
        name: String::new(),
        field_selector: Vec::new(),
        label_selector: Vec::new(),
    };
    assert!(!authorizer.is_always_allowed(&resource));
    for bad in ["", "/", "*", "/*", "/a*b", "/a**"] {
        assert!(AllowedPath::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn different_reviews_have_different_keys() {
    let review = |name: &str, groups: &[&str], attributes: Attributes| {
        key(&AccessReview {
            user: user(name, groups),
            attributes,
        })
    };
    let requirement = |key: &str, operator, values: &[&str]| SelectorRequirement {
        key: key.to_owned(),
        operator,
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    };
    let list = |field_selector: Vec<SelectorRequirement>, label_selector| Attributes::Resource {
        verb: String::from("list"),
        group: String::new(),
        version: String::new(),
        resource: String::from("pods"),
        subresource: String::new(),
        namespace: String::new(),
        name: String::new(),
        field_selector,
        label_selector,
    };
    let (is, is_not) = (SelectorOperator::In, SelectorOperator::NotIn);
    let on = |operator, values: &[&str]| vec![requirement("spec.nodeName", operator, values)];
    let keys = [
        review("a", &[], list(Vec::new(), Vec::new())),
        review("a", &[], list(on(is, &["x"]), Vec::new())),
        review("a", &[], list(Vec::new(), on(is, &["x"]))),
        review("a", &[], list(on(is_not, &["x"]), Vec::new())),
        review("a", &[], list(on(is, &["y"]), Vec::new())),
        review("a", &[], list(on(is, &["x", "y"]), Vec::new())),
        review("a", &[], list(on(is, &[]), on(is, &["x"]))),
        review("a", &[], path("/x")),
        review("a", &["b"], path("/x")),
        review("a", &["b", "c"], path("/x")),
        review("a", &["bc"], path("/x")),
        review("ab", &["c"], path("/x")),
        review("a", &[], path("/y")),
    ];
    for (at, one) in keys.iter().enumerate() {
        assert!(!keys[at + 1..].contains(one), "{at}");
    }
}
