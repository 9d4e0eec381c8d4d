//! Pinned keys of peers with certificates of unknown authorities.

use kubevitals_tls::{ClientTls, PeerNames, PinnedKey};
use rcgen::{BasicConstraints, IsCa, KeyPair};

use crate::support::{DAY, TestCa, connect, failure, now, params, trusting};

fn pinned(client: &ClientTls, pin: &PinnedKey) -> ClientTls {
    client.for_pinned_peer(PeerNames::new(["worker-1"]).unwrap(), pin.clone())
}

#[tokio::test]
async fn the_first_key_is_trusted_and_another_is_rejected() {
    let client = trusting(TestCa::new("cluster").roots());
    let (pin, own) = (PinnedKey::new(), TestCa::new("worker-1-ca@17"));
    let server = own.pair(&["other"]).serve();
    connect(&server, &pinned(&client, &pin), "10.0.0.7").await;
    assert!(pin.is_set());
    connect(&server, &pinned(&client, &pin), "10.0.0.7").await;

    let other = own.pair(&["other"]).serve();
    let rejected = failure(&other, &pinned(&client, &pin), "10.0.0.7").await;
    assert_eq!(rejected.reason(), "tls-pin");
    // A node with another UID has a pin of its own.
    connect(&other, &pinned(&client, &PinnedKey::new()), "10.0.0.7").await;
}

#[tokio::test]
async fn a_renewed_certificate_with_the_same_key_is_accepted() {
    let client = trusting(TestCa::new("cluster").roots());
    let (pin, own) = (PinnedKey::new(), TestCa::new("own"));
    let key = KeyPair::generate().unwrap();
    for day in [1, 2] {
        let certificate = own.sign(&params(&["a"], now() - day * DAY, now() + day * DAY), &key);
        let pair = crate::support::TestPair {
            certificate,
            key: key.serialize_pem(),
            ..own.pair(&["a"])
        };
        connect(&pair.serve(), &pinned(&client, &pin), "10.0.0.7").await;
    }
}

#[tokio::test]
async fn a_self_signed_ca_certificate_can_be_pinned() {
    let client = trusting(TestCa::new("cluster").roots());
    let pin = PinnedKey::new();
    let mut params = params(&["worker-1"], now() - DAY, now() + DAY);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let server = TestCa::new("own").issue(&params).serve();
    connect(&server, &pinned(&client, &pin), "10.0.0.7").await;
    assert!(pin.is_set());
}

#[tokio::test]
async fn certificates_of_a_trusted_authority_are_verified_and_never_pinned() {
    let cluster = TestCa::new("cluster");
    let client = trusting(cluster.roots());
    let pin = PinnedKey::new();
    let stolen = cluster.pair(&["worker-2"]).serve();
    let rejected = failure(&stolen, &pinned(&client, &pin), "10.0.0.7").await;
    assert_eq!(rejected.reason(), "tls-san");
    let expired = cluster.issue(&params(&["worker-1"], now() - 2 * DAY, now() - DAY));
    let rejected = failure(&expired.serve(), &pinned(&client, &pin), "10.0.0.7").await;
    assert_eq!(rejected.reason(), "tls-expired");
    // Keys signed by a trusted authority may change.
    for _ in 0..2 {
        let server = cluster.pair(&["worker-1"]).serve();
        connect(&server, &pinned(&client, &pin), "10.0.0.7").await;
        assert!(!pin.is_set());
    }
}

/// The first stranger on the path of a node with certificates of the cluster was once trusted.
#[tokio::test]
async fn a_peer_that_an_authority_has_verified_is_never_pinned_to_another_certificate() {
    let cluster = TestCa::new("cluster");
    let client = trusting(cluster.roots());
    let stranger = TestCa::new("evil").pair(&["worker-1"]).serve();
    for starts_pinned in [false, true] {
        let pin = PinnedKey::new();
        let own = TestCa::new("own").pair(&["worker-1"]).serve();
        if starts_pinned {
            connect(&own, &pinned(&client, &pin), "10.0.0.7").await;
            assert!(pin.is_set());
        }
        let verified = cluster.pair(&["worker-1"]).serve();
        connect(&verified, &pinned(&client, &pin), "10.0.0.7").await;
        for server in [&stranger, &own] {
            let rejected = failure(server, &pinned(&client, &pin), "10.0.0.7").await;
            assert_eq!(rejected.reason(), "tls-pin");
        }
        connect(&verified, &pinned(&client, &pin), "10.0.0.7").await;
    }
}
