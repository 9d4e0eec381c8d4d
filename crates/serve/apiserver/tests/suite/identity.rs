//! Authentication.

use std::sync::atomic::Ordering;

use kubevitals_telemetry::{Probe, Status};

use crate::client::{Client, Received};
use crate::support::{Authority, Running};

const WIDGETS: &str = "/apis/example.dev/v1/widgets";

/// Returns the user as which a client is authenticated, from the error of a forbidden request.
async fn user_of(client: &Client) -> String {
    let (code, message) = client.error("/metrics").await;
    assert_eq!(code, 403, "{message}");
    message
        .strip_prefix("forbidden: User \"")
        .unwrap()
        .split('"')
        .next()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn the_front_proxy_identifies_users() {
    let server = Running::start().await;
    let proxy = Client::of(&server).showing(server.proxies.client("front-proxy", &[]));
    for client in [proxy.clone(), proxy.clone().http1()] {
        assert_eq!(
            user_of(&client.clone().with("x-remote-user", "ada")).await,
            "ada"
        );
        assert_eq!(
            client
                .clone()
                .with("x-remote-user", "reader")
                .get(WIDGETS)
                .await
                .code,
            200
        );
        let masters = client
            .with("x-remote-user", "ada")
            .with("X-Remote-Group", "system:masters");
        assert_eq!(masters.get("/metrics").await.code, 200);
    }
    // The first of several headers counts, and a proxy without headers is an unknown client.
    let two = proxy
        .clone()
        .with("x-remote-user", "ada")
        .with("x-remote-user", "reader");
    assert_eq!(user_of(&two).await, "ada");
    assert_eq!(proxy.get(WIDGETS).await.code, 401);
    // A proxy that forwards anonymous requests keeps its connection, which other users share.
    let anonymous = proxy.with("x-remote-user", "system:anonymous");
    let mut open = anonymous.connect().await;
    for _ in 0..20 {
        let request = anonymous.request(http::Method::GET, WIDGETS);
        assert_eq!(
            Received::read(open.send(request).await.unwrap()).await.code,
            403
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn identity_headers_of_other_clients_are_ignored() {
    let server = Running::start().await;
    let claim = |client: Client| {
        client
            .with("x-remote-user", "reader")
            .with("x-remote-group", "system:masters")
    };
    // No certificate at all.
    assert_eq!(
        user_of(&claim(Client::of(&server))).await,
        "system:anonymous"
    );
    // Signed by the proxy's authority, with another name.
    let other = Client::of(&server).showing(server.proxies.client("other", &["system:masters"]));
    assert_eq!(claim(other).get(WIDGETS).await.code, 401);
    // The name of the proxy, signed by the client CA: an ordinary client of that name.
    let client = Client::of(&server).showing(server.clients.client("front-proxy", &[]));
    assert_eq!(user_of(&claim(client)).await, "front-proxy");
    // An unknown authority.
    let anonymous =
        Client::of(&server).showing(Authority::new("proxies").client("front-proxy", &[]));
    assert_eq!(claim(anonymous).get(WIDGETS).await.code, 401);
    // Expired.
    let expired = Client::of(&server).showing(server.proxies.expired("front-proxy"));
    assert_eq!(claim(expired).get(WIDGETS).await.code, 401);
    // A token does not make the headers valid.
    let token = claim(Client::of(&server).bearer("token-of-eve"));
    assert_eq!(user_of(&token).await, "eve");
    // Similar header names.
    let proxy = Client::of(&server).showing(server.proxies.client("front-proxy", &[]));
    assert_eq!(
        proxy
            .with("x_remote_user", "reader")
            .get(WIDGETS)
            .await
            .code,
        401
    );
    server.stop().await;
}

#[tokio::test]
async fn client_certificates_authenticate_their_subject() {
    let server = Running::start().await;
    let reader = Client::of(&server).showing(server.clients.client("reader", &[]));
    assert_eq!(reader.get(WIDGETS).await.code, 200);
    let admin = Client::of(&server).showing(server.clients.client("root", &["system:masters"]));
    assert_eq!(admin.get("/metrics").await.code, 200);
    let forged = Client::of(&server).showing(server.clients.client("eve, O=system:masters", &[]));
    assert_eq!(user_of(&forged).await, "eve, O=system:masters");
    let expired = Client::of(&server).showing(server.clients.expired("reader"));
    assert_eq!(expired.get(WIDGETS).await.code, 401);
    // The authority of proxies does not sign clients.
    let wrong = Client::of(&server).showing(server.proxies.client("reader", &[]));
    assert_eq!(wrong.get(WIDGETS).await.code, 401);
    // An invalid certificate does not invalidate a token.
    let both = Client::reader(&server).showing(server.clients.expired("x"));
    assert_eq!(both.get(WIDGETS).await.code, 200);
    server.stop().await;
}

#[tokio::test]
async fn token_reviews_are_cached() {
    let server = Running::start().await;
    for _ in 0..3 {
        assert_eq!(Client::reader(&server).get(WIDGETS).await.code, 200);
        let (code, message) = Client::of(&server).bearer("wrong").error(WIDGETS).await;
        assert_eq!((code, message.as_str()), (401, "Unauthorized"));
    }
    assert_eq!(
        server.reviewer.tokens_asked.load(Ordering::SeqCst),
        2,
        "valid and invalid tokens"
    );
    assert_eq!(server.reviewer.access_asked.load(Ordering::SeqCst), 1);
    server.stop().await;
}

#[tokio::test]
async fn failed_reviews_reject_requests_with_a_reason() {
    let server = Running::start().await;
    server.reviewer.down.store(true, Ordering::SeqCst);
    let response = Client::reader(&server).get(WIDGETS).await;
    assert_eq!(
        (response.code.as_u16(), response.header("retry-after")),
        (503, "1")
    );
    assert!(
        response.text().contains("cannot create tokenreviews"),
        "{}",
        response.text()
    );
    let reader = Client::of(&server).showing(server.clients.client("reader", &[]));
    let (code, message) = reader.error(WIDGETS).await;
    assert_eq!(code, 503);
    assert!(
        message.contains("cannot create subjectaccessreviews"),
        "{message}"
    );
    assert_eq!(
        Client::of(&server).get("/livez").await.code,
        200,
        "probes need no review"
    );
    server.reviewer.down.store(false, Ordering::SeqCst);
    assert_eq!(reader.get(WIDGETS).await.code, 200);
    server.stop().await;
}

/// Probes that carry a token used to wait ten seconds for a review while the cluster's API server
/// was stopped, and then to fail with 503.
#[tokio::test]
async fn open_paths_never_wait_for_a_review() {
    let server = Running::start().await;
    server.reviewer.silent.store(true, Ordering::SeqCst);
    let anonymous = Client::of(&server);
    let mut odd = vec![
        anonymous.clone(),
        anonymous.clone().bearer("token-of-reader"),
        anonymous.clone().bearer("wrong"),
        anonymous.clone().with("authorization", "Bearer t\u{f6}k"),
        anonymous.clone().with("authorization", "Basic x"),
        anonymous
            .clone()
            .bearer("x")
            .with("impersonate-user", "reader"),
        anonymous
            .clone()
            .with("impersonate-group", "system:masters"),
        anonymous.clone().with("x-remote-user", "reader"),
        anonymous.clone().showing(server.clients.expired("reader")),
        anonymous
            .clone()
            .showing(Authority::new("x").client("x", &[])),
        anonymous
            .clone()
            .showing(server.clients.client("reader", &[])),
        anonymous
            .showing(server.proxies.client("front-proxy", &[]))
            .with("x-remote-user", "reader"),
    ];
    odd.extend(odd.clone().into_iter().map(Client::http1));
    for client in odd {
        for path in ["/livez", "/readyz?verbose", "/healthz"] {
            assert_eq!(client.get(path).await.code, 200, "{path}");
        }
    }
    assert_eq!(server.reviewer.tokens_asked.load(Ordering::SeqCst), 0);
    assert_eq!(server.reviewer.access_asked.load(Ordering::SeqCst), 0);
    server.stop().await;
}

#[tokio::test]
async fn no_path_is_open_if_anonymous_requests_are_rejected() {
    let server = Running::with(|config| config.authentication.anonymous = false).await;
    assert_eq!(Client::of(&server).get("/livez").await.code, 401);
    assert_eq!(
        Client::of(&server).bearer("x").get("/livez").await.code,
        401
    );
    assert_eq!(Client::reader(&server).get("/livez").await.code, 200);
    server.stop().await;
}

/// Reasons name nodes and addresses, and quote kubelets. They used to be shown to everybody.
#[tokio::test]
async fn reasons_of_failing_checks_are_for_authorized_clients() {
    let server = Running::start().await;
    server
        .health
        .check("nodes", Probe::READINESS, || {
            Status::failing("node-7 at 10.1.2.3 said no")
        })
        .unwrap();
    let anonymous = Client::of(&server);
    let reader = Client::reader(&server);
    // The token is known from here on.
    assert_eq!(reader.get(WIDGETS).await.code, 200);
    let withheld = "[+]ping ok\n[+]log ok\n[-]nodes failed: reason withheld\n[+]shutdown ok\n\
                    readyz check failed\n";
    for client in [
        anonymous.clone(),
        anonymous.clone().bearer("wrong"),
        anonymous.clone().with("x-remote-group", "system:masters"),
        reader.clone(),
    ] {
        for path in ["/readyz", "/readyz?verbose"] {
            let response = client.get(path).await;
            assert_eq!((response.code.as_u16(), response.text()), (500, withheld));
        }
    }
    assert_eq!(anonymous.get("/readyz/nodes").await.code, 403);
    assert_eq!(
        reader.get("/readyz/nodes").await.text(),
        "internal server error: node-7 at 10.1.2.3 said no\n"
    );
    let root = Client::of(&server).showing(server.clients.client("root", &["system:masters"]));
    assert!(
        root.get("/readyz")
            .await
            .text()
            .contains("node-7 at 10.1.2.3")
    );
    let as_nobody = root.with("impersonate-user", "nobody");
    assert_eq!(as_nobody.get("/readyz").await.text(), withheld);
    server.stop().await;
}

#[tokio::test]
async fn extras_beyond_the_limit_are_refused() {
    let server = Running::start().await;
    let mut proxy = Client::of(&server)
        .showing(server.proxies.client("front-proxy", &[]))
        .with("x-remote-user", "reader");
    for number in 0..64 {
        proxy = proxy.with(&format!("x-remote-extra-{number}"), "x");
    }
    assert_eq!(proxy.get(WIDGETS).await.code, 200);
    let (code, message) = proxy.with("x-remote-extra-more", "x").error(WIDGETS).await;
    assert_eq!(code, 400);
    assert_eq!(
        message,
        "the front proxy sent 65 extra keys of a user, and at most 64 are supported"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_token_that_is_not_ascii_is_unauthorized() {
    let server = Running::start().await;
    for client in [Client::of(&server), Client::of(&server).http1()] {
        let odd = client.with("authorization", "Bearer t\u{f6}k");
        assert_eq!(odd.get("/metrics").await.code, 401);
    }
    assert_eq!(server.reviewer.tokens_asked.load(Ordering::SeqCst), 0);
    server.stop().await;
}

#[tokio::test]
async fn impersonation_must_be_authorized() {
    let server = Running::start().await;
    let boss = Client::of(&server).bearer("token-of-boss");
    assert_eq!(boss.get(WIDGETS).await.code, 403);
    assert_eq!(
        boss.clone()
            .with("impersonate-user", "reader")
            .get(WIDGETS)
            .await
            .code,
        200
    );
    assert_eq!(
        user_of(&boss.clone().with("impersonate-user", "bob")).await,
        "bob"
    );
    let (code, message) = Client::reader(&server)
        .with("impersonate-user", "boss")
        .error(WIDGETS)
        .await;
    assert_eq!(code, 403);
    assert_eq!(
        message,
        "users \"boss\" is forbidden: User \"reader\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope: this server does not support constrained impersonation"
    );
    assert_eq!(
        boss.with("impersonate-group", "system:masters")
            .get(WIDGETS)
            .await
            .code,
        400
    );
    server.stop().await;
}

#[tokio::test]
async fn errors_have_the_messages_of_kubernetes() {
    let server = Running::start().await;
    let anonymous = Client::of(&server);
    let (_, message) = anonymous
        .error("/apis/example.dev/v1/namespaces/a/widgets/b")
        .await;
    assert_eq!(
        message,
        "widgets.example.dev \"b\" is forbidden: User \"system:anonymous\" cannot get resource \"widgets\" in API group \"example.dev\" in the namespace \"a\""
    );
    let (_, message) = anonymous.error(&format!("{WIDGETS}?watch=1")).await;
    assert!(
        message.contains("cannot watch resource \"widgets\""),
        "{message}"
    );
    let yaml = anonymous.accept("application/yaml").get("/metrics").await;
    assert_eq!(
        yaml.text(),
        "apiVersion: v1\ncode: 403\ndetails: {}\nkind: Status\nmessage: 'forbidden: User \"system:anonymous\" cannot get path \"/metrics\"'\nmetadata: {}\nreason: Forbidden\nstatus: Failure\n"
    );
    server.stop().await;
}

#[tokio::test]
async fn always_allowed_paths_match_exactly() {
    let server = Running::start().await;
    let anonymous = Client::of(&server);
    for path in ["/livez", "/readyz", "/healthz", "/livez?verbose"] {
        assert_eq!(anonymous.get(path).await.code, 200, "{path}");
    }
    for path in [
        "/livez/ping",
        "/%6Civez/",
        "/metrics",
        "/",
        "/version",
        "/apis",
        "/debug/pprof/",
    ] {
        assert_eq!(anonymous.get(path).await.code, 403, "{path}");
    }
    assert_eq!(
        anonymous.get("/%6Civez").await.code,
        200,
        "the same path, however it is written"
    );
    server.stop().await;
}

#[cfg(feature = "pprof")]
#[tokio::test]
async fn profiles_are_for_users_that_may_get_them_once_enabled() {
    let off = Running::start().await;
    let on = Running::with(|config| config.telemetry.profiling = true).await;
    let root = |server: &Running| {
        let root = server.clients.client("root", &["system:masters"]);
        Client::of(server).showing(root)
    };
    assert_eq!(root(&off).get("/debug/pprof/heap").await.code, 404);
    let index = root(&on).get("/debug/pprof/").await;
    assert_eq!(index.code, 200);
    assert!(index.text().contains("heap"), "{}", index.text());
    for path in ["/debug/pprof/", "/debug/pprof/profile", "/debug/pprof/heap"] {
        assert_eq!(Client::of(&on).get(path).await.code, 403, "{path}");
    }
    let taken = root(&on).get("/debug/pprof/profile?seconds=1").await;
    assert_eq!(taken.code, 200);
    assert_eq!(taken.header("content-type"), "application/octet-stream");
    // A profile must end before the request times out.
    let long = root(&on).get("/debug/pprof/profile?seconds=120").await;
    assert_eq!(long.code, 400);
    assert_eq!(root(&on).get("/debug/pprof/trace").await.code, 404);
    off.stop().await;
    on.stop().await;
}
