//! In a simulated cluster: its API server performs reviews, and its aggregation layer is in front.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kubevitals_apiserver::{
    AccessReview, ApiServer, AuthenticationConfig, AuthorizationConfig, BearerToken, CaBundleError,
    CaBundleStatus, CaBundleWriter, KubeReviewer, RequestInfo, Reviewer as _, ServerConfig,
    ServingCertificate, TokenReviewResult, TrustStatus, service_names,
};
use kubevitals_sim::api::{
    ADDRESS_ANNOTATION, Effect, RequestFault, Rule, SimApi, SimApiConfig, SimApiHandle, User,
};
use kubevitals_sim::objects::Resource;
use kubevitals_telemetry::Status;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::support::{loopback, spawn, telemetry, widgets, within};

struct Cluster {
    sim: SimApiHandle,
    certificate: ServingCertificate,
    client: kube::Client,
    trust: TrustStatus,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

async fn kube_client(kubeconfig: &str) -> kube::Client {
    let config = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    kube::Client::try_from(config).unwrap()
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

async fn cluster() -> Cluster {
    kubevitals_tls::install_crypto_provider();
    let rule = Rule {
        users: texts(&["reader"]),
        groups: Vec::new(),
        verbs: texts(&["get", "list", "watch"]),
        api_groups: texts(&["example.dev"]),
        resources: texts(&["widgets"]),
        namespaces: Vec::new(),
        non_resource_urls: Vec::new(),
    };
    let user = |name: &str| User {
        name: name.to_owned(),
        uid: String::new(),
        groups: Vec::new(),
        extra: std::collections::BTreeMap::new(),
    };
    let config = SimApiConfig {
        probe_interval: Duration::from_millis(20),
        rules: vec![rule],
        tokens: vec![
            (String::from("reader-token"), user("reader")),
            (String::from("other-token"), user("other")),
        ],
        ..SimApiConfig::default()
    };
    let sim = SimApi::start(config).await.unwrap();
    let client = kube_client(&sim.kubeconfig()).await;
    let reviewer = Arc::new(KubeReviewer::new(client.clone()));
    let certificate = ServingCertificate::self_signed(
        "widgets",
        service_names("widgets", "default", "cluster.local"),
        None,
        std::time::SystemTime::now(),
    )
    .unwrap();
    let (telemetry, _, _) = telemetry();
    let mut config = ServerConfig::new(
        loopback(),
        certificate.clone(),
        AuthenticationConfig::delegated(&reviewer),
        AuthorizationConfig::delegated(reviewer),
        telemetry,
    );
    config.groups = vec![widgets(5)];
    let server = ApiServer::bind(config).await.unwrap();
    let trust = server.trust_status();
    assert!(matches!(trust.status(), Status::WarmingUp(_)));
    let address = server.local_addr();
    let (stop, task) = spawn(server);
    for version in ["v1", "v1beta1"] {
        let object = json!({
            "metadata": {"name": format!("{version}.example.dev"),
                         "annotations": {ADDRESS_ANNOTATION: address.to_string()}},
            "spec": {"group": "example.dev", "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
                     "service": {"namespace": "default", "name": "widgets"},
                     "caBundle": STANDARD.encode(sim.kube_ca_pem())},
        });
        sim.writer().create(Resource::ApiServices, object).unwrap();
    }
    Cluster {
        sim,
        certificate,
        client,
        trust,
        stop,
        task,
    }
}

impl Cluster {
    fn api_service(&self, name: &str) -> Value {
        self.sim.object(Resource::ApiServices, None, name).unwrap()
    }

    async fn wait_for(&self, name: &str, status: &str) {
        let has_status = |object: &APIService| {
            let conditions = object.status.iter().flat_map(|status| &status.conditions);
            conditions
                .flatten()
                .next()
                .is_some_and(|condition| condition.status == status)
        };
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        let api = Api::<APIService>::all(self.client.clone());
        let waited = async {
            let mut events = pin!(api.watch(&params, "0").await.unwrap());
            while let Some(event) = events.next().await {
                match event.unwrap() {
                    WatchEvent::Added(object) | WatchEvent::Modified(object)
                        if has_status(&object) =>
                    {
                        return;
                    }
                    _ => {}
                }
            }
            panic!("the watch ended");
        };
        within(&format!("{name} has the status {status}"), waited).await;
    }

    async fn end(self) {
        drop(self.stop);
        within("the server ends", self.task).await.unwrap();
        self.sim.shutdown().await;
    }
}

async fn get(client: &kube::Client, path: &str) -> Result<Value, kube::Error> {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    within(
        &format!("a response to GET {path}"),
        client.request(request),
    )
    .await
}

fn writer(cluster: &Cluster, certificate: &ServingCertificate) -> CaBundleWriter {
    let names = texts(&["v1.example.dev", "v1beta1.example.dev"]);
    CaBundleWriter::new(cluster.client.clone(), certificate.clone(), names)
}

fn another_certificate() -> ServingCertificate {
    let names = service_names("widgets", "default", "cluster.local");
    let now = std::time::SystemTime::now();
    ServingCertificate::self_signed("widgets", names, None, now).unwrap()
}

impl Cluster {
    fn bundle(&self, name: &str) -> String {
        let object = self.api_service(name);
        let bundle = object["spec"]["caBundle"].as_str().unwrap();
        String::from_utf8(STANDARD.decode(bundle).unwrap()).unwrap()
    }
}

/// Replicas that start together used to overwrite the authorities of each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_write_at_once_end_with_all_authorities() {
    let cluster = cluster().await;
    let certificates: Vec<_> = (0..8).map(|_| another_certificate()).collect();
    let writers = certificates.iter().map(|certificate| {
        let writer = writer(&cluster, certificate);
        tokio::spawn(async move { writer.update("v1.example.dev").await })
    });
    let all = futures_util::future::join_all(writers);
    for written in within("all bundles are written", all).await {
        assert!(written.unwrap().unwrap());
    }
    let bundle = cluster.bundle("v1.example.dev");
    for certificate in &certificates {
        assert!(bundle.contains(certificate.ca_bundle().unwrap().trim()));
    }
    cluster.end().await;
}

/// A replica whose authority the API server does not know used to be ready, and unusable.
#[tokio::test]
async fn a_replica_is_in_sync_once_its_authority_is_in_all_bundles() {
    let cluster = cluster().await;
    let own = another_certificate();
    let writer = writer(&cluster, &own);
    let status = writer.status();
    let reason = |status: &CaBundleStatus| match status.status() {
        Status::WarmingUp(reason) => reason.into_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        reason(&status),
        "caBundle of APIService v1.example.dev: it was not read yet"
    );
    writer.update("v1.example.dev").await.unwrap();
    assert_eq!(
        reason(&status),
        "caBundle of APIService v1beta1.example.dev: it was not read yet"
    );
    writer.update("v1beta1.example.dev").await.unwrap();
    assert_eq!(status.status(), Status::Ok);

    // Somebody removes it, and we are not allowed to write.
    let client = kube_client(&cluster.sim.kubeconfig_for_token("other-token")).await;
    cluster.sim.allow(Rule {
        users: texts(&["other"]),
        groups: Vec::new(),
        verbs: texts(&["get"]),
        api_groups: texts(&["apiregistration.k8s.io"]),
        resources: texts(&["apiservices"]),
        namespaces: Vec::new(),
        non_resource_urls: Vec::new(),
    });
    let names = texts(&["v1.example.dev"]);
    let reader = CaBundleWriter::new(client, another_certificate(), names);
    let error = reader.update("v1.example.dev").await.unwrap_err();
    assert!(matches!(error, CaBundleError::Patch(_)), "{error}");
    assert_eq!(
        reason(&reader.status()),
        "caBundle of APIService v1.example.dev: it does not have the authority of this server yet"
    );
    // An API server that is away changes nothing.
    let unreadable = RequestFault::always(Effect::InternalError).on_resource("apiservices");
    cluster.sim.inject(unreadable);
    let error = writer.update("v1.example.dev").await.unwrap_err();
    assert!(matches!(error, CaBundleError::Get(_)), "{error}");
    assert_eq!(status.status(), Status::Ok);
    cluster.sim.clear_faults();

    // Nobody verifies us by the bundle of another server, or of none.
    let names = texts(&["v1.example.dev", "v3.example.dev"]);
    let other =
        CaBundleWriter::new(cluster.client.clone(), own, names).of_service("default", "another");
    let error = other.update("v1.example.dev").await.unwrap_err();
    assert!(
        matches!(error, CaBundleError::OtherService { .. }),
        "{error}"
    );
    let error = other.update("v3.example.dev").await.unwrap_err();
    assert!(matches!(error, CaBundleError::NotFound), "{error}");
    assert_eq!(other.status().status(), Status::Ok);
    cluster.end().await;
}

/// An API server that fails now and then used to fail as many requests of users.
#[tokio::test]
async fn reviews_are_retried_after_an_internal_error() {
    let cluster = cluster().await;
    let reviewer = KubeReviewer::new(cluster.client.clone());
    for resource in ["tokenreviews", "subjectaccessreviews"] {
        let once = RequestFault::always(Effect::InternalError)
            .on_resource(resource)
            .times(1);
        cluster.sim.inject(once);
    }
    let token = BearerToken::new("reader-token");
    let TokenReviewResult::Valid(user) = reviewer.review_token(&token).await.unwrap() else {
        panic!("the token is valid");
    };
    assert_eq!(user.name, "reader");
    let list = RequestInfo::parse(
        &http::Method::GET,
        &"/apis/example.dev/v1/widgets".parse().unwrap(),
    );
    let attributes = list.unwrap().attributes();
    let review = AccessReview { user, attributes };
    assert!(reviewer.review_access(&review).await.unwrap().allowed);
    assert_eq!(
        reviewer
            .review_token(&BearerToken::new("nobodys-token"))
            .await
            .unwrap(),
        TokenReviewResult::Failed,
        "the API server gives an error with an invalid token"
    );
    cluster.end().await;
}

#[tokio::test]
async fn the_aggregation_layer_passes_requests_on() {
    let cluster = cluster().await;
    // The bundle is of another authority.
    cluster.wait_for("v1.example.dev", "False").await;
    let writer = writer(&cluster, &cluster.certificate);
    assert!(writer.update("v1.example.dev").await.unwrap());
    assert!(
        !writer.update("v1.example.dev").await.unwrap(),
        "written once"
    );
    assert!(writer.update("v2.example.dev").await.is_err());
    // Our own authority comes first; those of other replicas may follow.
    let written = cluster.bundle("v1.example.dev");
    assert!(written.starts_with(cluster.certificate.ca_bundle().unwrap().trim()));
    let running = tokio::spawn(writer.run());
    cluster.wait_for("v1.example.dev", "True").await;
    cluster.wait_for("v1beta1.example.dev", "True").await;
    running.abort();
    assert_eq!(cluster.trust.status(), Status::Ok);

    let reader = kube_client(&cluster.sim.kubeconfig_for_token("reader-token")).await;
    let list = get(&reader, "/apis/example.dev/v1/widgets").await.unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 5);
    let one = get(
        &reader,
        "/apis/example.dev/v1beta1/namespaces/ns-2/widgets/widget-2",
    )
    .await
    .unwrap();
    assert_eq!(one["weight"], 2);
    let other = kube_client(&cluster.sim.kubeconfig_for_token("other-token")).await;
    let error = get(&other, "/apis/example.dev/v1/widgets")
        .await
        .unwrap_err();
    assert!(
        matches!(&error, kube::Error::Api(status) if status.code == 403),
        "{error}"
    );
    cluster.end().await;
}

/// Requests to the server itself, without the aggregation layer.
#[tokio::test]
async fn direct_requests_are_reviewed_by_the_cluster() {
    let cluster = cluster().await;
    let address = cluster.api_service("v1.example.dev")["metadata"]["annotations"]
        [ADDRESS_ANNOTATION]
        .as_str()
        .unwrap()
        .to_owned();
    within("the trust is looked up", cluster.trust.loaded()).await;
    assert_eq!(cluster.trust.status(), Status::Ok);
    let direct = async |kubeconfig: String| {
        let bundle = STANDARD.encode(cluster.certificate.ca_bundle().unwrap().as_bytes());
        let old = STANDARD.encode(cluster.sim.kube_ca_pem());
        let kubeconfig = kubeconfig
            .replace(&cluster.sim.url(), &format!("https://{address}"))
            .replace(&old, &bundle);
        kube_client(&kubeconfig).await
    };
    let code = |response: Result<Value, kube::Error>| match response {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    };
    let path = "/apis/example.dev/v1/widgets";
    let reader = direct(cluster.sim.kubeconfig_for_token("reader-token")).await;
    assert_eq!(code(get(&reader, path).await), 200);
    let other = direct(cluster.sim.kubeconfig_for_token("other-token")).await;
    assert_eq!(code(get(&other, path).await), 403);
    let unknown = direct(cluster.sim.kubeconfig_for_token("nobodys-token")).await;
    assert_eq!(code(get(&unknown, path).await), 401);
    let admin = direct(cluster.sim.kubeconfig()).await;
    assert_eq!(
        code(get(&admin, path).await),
        200,
        "by a client certificate of the cluster"
    );
    let issued = cluster
        .sim
        .issue_client_certificate("reader", None)
        .unwrap();
    let reader = direct(cluster.sim.kubeconfig_for_certificate(&issued)).await;
    assert_eq!(code(get(&reader, path).await), 200);
    cluster.end().await;
}
