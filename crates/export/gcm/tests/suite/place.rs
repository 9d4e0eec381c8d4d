//! Where this program runs.

use kubevitals_gcm::{Credentials, MetadataError, MetadataServer, Place, PlaceError, PlaceSource};
use kubevitals_sim::google::GoogleIdentity;

use crate::support::no_metadata;

async fn metadata() -> (GoogleIdentity, MetadataServer) {
    let identity = GoogleIdentity::start().await.unwrap();
    let address = identity.address.to_string();
    let get = |name: &str| (name == "GCE_METADATA_HOST").then(|| address.clone());
    let metadata = MetadataServer::new(get).unwrap();
    (identity, metadata)
}

async fn detect(
    source: &PlaceSource,
    variables: &[(&str, &str)],
    metadata: &MetadataServer,
) -> Result<Place, PlaceError> {
    let get = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Place::detect(source, get, &Credentials::Metadata, metadata, "i").await
}

/// Detects the place of a machine that is not of Google.
async fn detect_elsewhere(variables: &[(&str, &str)]) -> Result<Place, PlaceError> {
    let get = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let source = PlaceSource::default();
    Place::detect(&source, get, &Credentials::Anonymous, &no_metadata(), "i").await
}

fn parts(place: &Place) -> (&str, &str, Option<&str>) {
    (&place.project, &place.location, place.cluster.as_deref())
}

#[tokio::test]
async fn the_metadata_server_knows_project_location_and_cluster() {
    let (identity, metadata) = metadata().await;
    let place = detect(&PlaceSource::default(), &[], &metadata)
        .await
        .unwrap();
    assert_eq!(
        parts(&place),
        ("sim-project", "europe-west1", Some("sim-cluster"))
    );
    let email = metadata.email().await.unwrap();
    assert_eq!(email, "prober@sim-project.iam.gserviceaccount.com");
    // A machine of Google that is in no cluster.
    identity.set("instance/attributes/cluster-name", None);
    identity.set("instance/attributes/cluster-location", None);
    let place = detect(&PlaceSource::default(), &[], &metadata)
        .await
        .unwrap();
    assert_eq!(parts(&place), ("sim-project", "global", None));
    let missing = metadata.cluster_name().await.unwrap_err();
    assert!(matches!(missing, MetadataError::Status { .. }), "{missing}");
}

#[tokio::test]
async fn settings_come_before_variables_and_these_before_the_metadata_server() {
    let (identity, metadata) = metadata().await;
    let source = PlaceSource {
        project: Some("mine".to_owned()),
        ..PlaceSource::default()
    };
    let variables = [
        ("GOOGLE_CLOUD_PROJECT", "other"),
        ("CLUSTER_NAME", "c"),
        ("CLUSTER_LOCATION", "l"),
    ];
    let place = detect(&source, &variables, &metadata).await.unwrap();
    assert_eq!(parts(&place), ("mine", "l", Some("c")));
    // Nobody asks for what is known.
    assert_eq!(identity.requests(), []);
}

#[tokio::test]
async fn without_a_metadata_server_the_project_must_be_named() {
    let error = detect_elsewhere(&[]).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("GOOGLE_CLOUD_PROJECT"), "{text}");
    let place = detect_elsewhere(&[("GOOGLE_CLOUD_PROJECT", "p")]).await;
    assert_eq!(parts(&place.unwrap()), ("p", "global", None));
}

/// Series of the wrong resource would last as long as the process.
#[tokio::test]
async fn a_metadata_server_that_is_late_is_an_error() {
    let named = [("GOOGLE_CLOUD_PROJECT", "p")];
    let late = detect(&PlaceSource::default(), &named, &no_metadata()).await;
    assert!(matches!(late, Err(PlaceError::Metadata(_))), "{late:?}");
}

/// A proxy or a portal that answers everything is not Google.
#[tokio::test]
async fn an_answer_without_the_flavor_of_google_is_none() {
    let other = kubevitals_sim::otlp::OtlpReceiver::start(([127, 0, 0, 1], 0).into(), None)
        .await
        .unwrap();
    let address = other.address.to_string();
    let metadata = MetadataServer::new(|_| Some(address.clone())).unwrap();
    assert!(metadata.project().await.is_err());
}
