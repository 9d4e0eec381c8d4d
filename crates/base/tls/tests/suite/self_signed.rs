//! The self-signed authority over years.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kubevitals_tls::{
    CertificateInfo, ClientOptions, ClientTls, Refresh, Refreshed, SelfSigned, SelfSignedFiles,
    SelfSignedOptions, ServerTls, TlsError, parse_certificates,
};

use crate::support::{Clock, DAY, Files, connect, failure, now, roots, server_options};

const HOUR: Duration = Duration::from_hours(1);

fn options() -> SelfSignedOptions {
    let names = [
        "localhost",
        "kubevitals.kube-system.svc",
        "127.0.0.1",
        "::1",
    ];
    SelfSignedOptions::new("kubevitals", names.map(str::to_owned).to_vec())
}

fn start(options: SelfSignedOptions) -> Arc<SelfSigned> {
    SelfSigned::start(options, now()).unwrap()
}

fn leaf(signed: &SelfSigned) -> CertificateInfo {
    CertificateInfo::parse(&signed.leaf().unwrap()).unwrap()
}

fn authorities(bundle: &str) -> Vec<CertificateInfo> {
    let certificates = parse_certificates(bundle.as_bytes()).unwrap();
    certificates
        .iter()
        .map(|der| CertificateInfo::parse(der).unwrap())
        .collect()
}

/// Returns a client that trusts a bundle at a time.
fn client(bundle: &str, time: SystemTime) -> ClientTls {
    let options = ClientOptions {
        clock: Some(Clock::at(time)),
        ..ClientOptions::default()
    };
    ClientTls::trusting(roots(bundle), &options).unwrap()
}

#[tokio::test]
async fn clients_with_the_bundle_can_connect() {
    let signed = start(options());
    let server = ServerTls::new(Arc::clone(&signed) as _, &server_options()).unwrap();
    let bundle = signed.ca_bundle_pem();
    for name in [
        "localhost",
        "kubevitals.kube-system.svc",
        "127.0.0.1",
        "::1",
    ] {
        connect(&server, &client(&bundle, now()), name).await;
        // A client whose clock is behind.
        connect(&server, &client(&bundle, now() - HOUR), name).await;
    }
    let other = client(&start(options()).ca_bundle_pem(), now());
    assert_eq!(
        failure(&server, &other, "localhost").await.reason(),
        "tls-ca"
    );
}

#[test]
fn certificates_have_the_expected_fields() {
    let signed = start(options());
    let leaf = leaf(&signed);
    assert!(!leaf.is_authority);
    assert_eq!(leaf.subject, "CN=kubevitals");
    assert_eq!(leaf.issuer, "CN=kubevitals-ca@1800000000");
    assert_eq!(
        leaf.names,
        [
            "localhost",
            "kubevitals.kube-system.svc",
            "127.0.0.1",
            "::1"
        ]
    );
    assert_eq!(
        (leaf.not_before, leaf.not_after),
        (now() - HOUR, now() + 90 * DAY)
    );
    let [authority] = &authorities(&signed.ca_bundle_pem())[..] else {
        panic!("one authority")
    };
    assert!(authority.is_authority);
    assert_eq!(
        (authority.not_before, authority.not_after),
        (now() - HOUR, now() + 1825 * DAY)
    );
    assert_eq!(signed.status().not_after, Some(leaf.not_after));
}

#[test]
fn the_leaf_is_renewed_at_three_quarters_of_its_validity() {
    let signed = start(options());
    let (first, bundle) = (signed.leaf(), signed.ca_bundle_pem());
    let due = now() - HOUR + (90 * DAY + HOUR) * 3 / 4;
    assert_eq!(
        signed.refresh(due - Duration::from_secs(1)).unwrap(),
        Refreshed::Unchanged
    );
    assert_eq!(signed.leaf(), first);
    assert_eq!(signed.refresh(due).unwrap(), Refreshed::Replaced);
    assert_eq!(leaf(&signed).not_after, due + 90 * DAY);
    assert_eq!(signed.ca_bundle_pem(), bundle, "the authority stays");
    assert_eq!(signed.refresh(due).unwrap(), Refreshed::Unchanged);
    let status = signed.status();
    assert_eq!((status.replaced, status.loaded_at), (1, due));
}

#[tokio::test]
async fn a_new_authority_is_published_before_it_signs() {
    let signed = start(options());
    let server = ServerTls::new(Arc::clone(&signed) as _, &server_options()).unwrap();
    let old_bundle = signed.ca_bundle_pem();
    // A leaf that is not due yet when the authority is.
    let due = now() - HOUR + (1825 * DAY + HOUR) * 3 / 4;
    signed.refresh(due - DAY).unwrap();
    assert_eq!(signed.ca_bundle_pem(), old_bundle);

    assert_eq!(signed.refresh(due).unwrap(), Refreshed::Replaced);
    let both = signed.ca_bundle_pem();
    assert_eq!(authorities(&both).len(), 2);
    connect(&server, &client(&old_bundle, due), "localhost").await;
    connect(&server, &client(&both, due), "localhost").await;

    assert_eq!(
        signed.refresh(due + DAY - HOUR).unwrap(),
        Refreshed::Unchanged
    );
    let later = due + DAY;
    assert_eq!(signed.refresh(later).unwrap(), Refreshed::Replaced);
    connect(&server, &client(&both, later), "localhost").await;
    assert_eq!(
        failure(&server, &client(&old_bundle, later), "localhost")
            .await
            .reason(),
        "tls-ca"
    );
    assert_eq!(
        signed.ca_bundle_pem(),
        both,
        "the old authority stays in the bundle"
    );

    signed.refresh(now() + 1826 * DAY).unwrap();
    let rest = signed.ca_bundle_pem();
    assert_eq!(
        authorities(&rest).len(),
        1,
        "and is removed when it has expired"
    );
    connect(&server, &client(&rest, now() + 1826 * DAY), "localhost").await;
}

#[tokio::test]
async fn all_certificates_are_replaced_after_years_without_refresh() {
    let signed = start(options());
    let server = ServerTls::new(Arc::clone(&signed) as _, &server_options()).unwrap();
    let late = now() + 10_000 * DAY;
    assert_eq!(signed.refresh(late).unwrap(), Refreshed::Replaced);
    let bundle = signed.ca_bundle_pem();
    assert_eq!(authorities(&bundle).len(), 1);
    connect(&server, &client(&bundle, late), "localhost").await;
}

#[tokio::test]
async fn certificates_from_the_future_are_replaced_when_the_clock_is_corrected() {
    let signed = start(options());
    let server = ServerTls::new(Arc::clone(&signed) as _, &server_options()).unwrap();
    let real = now() - 300 * DAY;
    assert_eq!(signed.refresh(real).unwrap(), Refreshed::Replaced);
    connect(&server, &client(&signed.ca_bundle_pem(), real), "localhost").await;
}

#[tokio::test]
async fn daily_refreshes_over_twenty_years_never_leave_a_gap() {
    let signed = start(options());
    let mut replaced = 0;
    for day in 0..20 * 365 {
        let time = now() + day * DAY;
        if signed.refresh(time).unwrap() == Refreshed::Replaced {
            replaced += 1;
        }
        let leaf = leaf(&signed);
        assert!(
            leaf.not_before <= time && time + 20 * DAY < leaf.not_after,
            "day {day}"
        );
        let authorities = authorities(&signed.ca_bundle_pem());
        assert!(authorities.len() <= 2, "day {day}");
        assert!(
            authorities
                .iter()
                .any(|authority| authority.subject == leaf.issuer)
        );
    }
    assert!((100..140).contains(&replaced), "{replaced}");
}

#[test]
fn serial_numbers_are_random() {
    let serial = |signed: &SelfSigned| {
        let der = signed.leaf().unwrap();
        let (_, certificate) = x509_parser::parse_x509_certificate(&der).unwrap();
        certificate.raw_serial().to_vec()
    };
    let (one, two) = (serial(&start(options())), serial(&start(options())));
    assert_ne!(one, two);
    assert_eq!((one.len(), two.len()), (16, 16));
}

#[tokio::test]
async fn a_restart_restores_the_stored_authority() {
    let files = Files::new();
    let stored = SelfSignedFiles::in_directory(&files.path("certs"), "apiserver");
    let options = SelfSignedOptions {
        files: Some(stored.clone()),
        ..options()
    };
    let bundle = start(options.clone()).ca_bundle_pem();
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&stored.authority), 0o600);
    assert_eq!(mode(&stored.bundle), 0o644);
    assert_eq!(std::fs::read_to_string(&stored.bundle).unwrap(), *bundle);

    let again = SelfSigned::start(options.clone(), now() + DAY).unwrap();
    assert_eq!(again.ca_bundle_pem(), bundle);
    let server = ServerTls::new(Arc::clone(&again) as _, &server_options()).unwrap();
    connect(&server, &client(&bundle, now() + DAY), "localhost").await;

    // Also while two authorities overlap.
    let due = now() + 1400 * DAY;
    again.refresh(due).unwrap();
    let both = again.ca_bundle_pem();
    assert_eq!(authorities(&both).len(), 2);
    let third = SelfSigned::start(options, due).unwrap();
    assert_eq!(third.ca_bundle_pem(), both);
    let server = ServerTls::new(third, &server_options()).unwrap();
    connect(&server, &client(&bundle, due), "localhost").await;
    assert_eq!(
        std::fs::read_dir(files.path("certs")).unwrap().count(),
        2,
        "no file left over"
    );
}

#[tokio::test]
async fn a_start_with_a_wrong_clock_keeps_the_authority() {
    let files = Files::new();
    let stored = SelfSignedFiles::in_directory(files.folder(), "apiserver");
    let options = SelfSignedOptions {
        files: Some(stored),
        ..options()
    };
    let bundle = start(options.clone()).ca_bundle_pem();
    let early = UNIX_EPOCH + DAY;
    let again = SelfSigned::start(options, early).unwrap();
    assert_eq!(authorities(&again.ca_bundle_pem()).len(), 2);

    let later = now() + 2 * DAY;
    assert_eq!(again.refresh(later).unwrap(), Refreshed::Replaced);
    assert_eq!(again.ca_bundle_pem(), bundle);
    let server = ServerTls::new(again, &server_options()).unwrap();
    connect(&server, &client(&bundle, later), "localhost").await;
}

/// A damaged file in an `emptyDir` used to end every restart until the pod was deleted.
#[test]
fn a_file_that_cannot_be_used_is_moved_aside() {
    let files = Files::new();
    let stored = SelfSignedFiles::in_directory(files.folder(), "apiserver");
    let options = SelfSignedOptions {
        files: Some(stored.clone()),
        ..options()
    };
    start(options.clone());
    let own = std::fs::read_to_string(&stored.authority).unwrap();
    let certificate_only = own.split("-----BEGIN PRIVATE").next().unwrap().to_owned();
    let foreign_key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    for wrong in [
        "",
        "precious",
        &certificate_only,
        &(certificate_only.clone() + &foreign_key),
    ] {
        std::fs::write(&stored.authority, wrong).unwrap();
        let bundle = start(options.clone()).ca_bundle_pem();
        assert!(!own.contains(&**bundle));
        let aside = files.path("apiserver-authority.pem.damaged");
        assert_eq!(std::fs::read_to_string(aside).unwrap(), wrong);
        assert_eq!(start(options.clone()).ca_bundle_pem(), bundle, "stored");
    }
    // Not even a file.
    std::fs::remove_file(&stored.authority).unwrap();
    std::fs::remove_file(files.path("apiserver-authority.pem.damaged")).unwrap();
    std::fs::create_dir(&stored.authority).unwrap();
    let bundle = start(options.clone()).ca_bundle_pem();
    assert_eq!(start(options).ca_bundle_pem(), bundle);
}

/// A folder that cannot be written used to end the start.
#[tokio::test]
async fn an_authority_that_cannot_be_stored_is_kept_in_memory() {
    let files = Files::new();
    files.write("certs", "in the way");
    let signed = start(SelfSignedOptions {
        files: Some(SelfSignedFiles::in_directory(
            &files.path("certs"),
            "apiserver",
        )),
        ..options()
    });
    let server = ServerTls::new(Arc::clone(&signed) as _, &server_options()).unwrap();
    connect(
        &server,
        &client(&signed.ca_bundle_pem(), now()),
        "localhost",
    )
    .await;
    signed.refresh(now() + 1400 * DAY).unwrap();
    assert_eq!(authorities(&signed.ca_bundle_pem()).len(), 2, "and renewed");
}

#[test]
fn only_the_newest_authorities_are_kept() {
    let files = Files::new();
    let stored = SelfSignedFiles::in_directory(files.folder(), "apiserver");
    let options = SelfSignedOptions {
        files: Some(stored.clone()),
        ..options()
    };
    let mut all = String::new();
    for start in [
        now(),
        now() + 2000 * DAY,
        now() + 2000 * DAY,
        now() + 2000 * DAY,
    ] {
        SelfSigned::start(options.clone(), start).unwrap();
        all.push_str(&std::fs::read_to_string(&stored.authority).unwrap());
        std::fs::remove_file(&stored.authority).unwrap();
    }
    std::fs::write(&stored.authority, all).unwrap();
    let signed = SelfSigned::start(options, now()).unwrap();
    assert_eq!(authorities(&signed.ca_bundle_pem()).len(), 3);
    assert_eq!(leaf(&signed).not_after, now() + 90 * DAY);
}

#[test]
fn a_successor_that_cannot_be_stored_is_not_published() {
    let files = Files::new();
    let stored = SelfSignedFiles::in_directory(&files.path("certs"), "apiserver");
    let signed = start(SelfSignedOptions {
        files: Some(stored),
        ..options()
    });
    let bundle = signed.ca_bundle_pem();
    std::fs::remove_dir_all(files.path("certs")).unwrap();
    files.write("certs", "in the way");
    let error = signed.refresh(now() + 1400 * DAY).unwrap_err();
    assert!(matches!(error, TlsError::Write { .. }), "{error}");
    assert_eq!(signed.ca_bundle_pem(), bundle);
    assert_eq!(signed.status().failed, 1);
}

#[test]
fn invalid_options_are_rejected() {
    let rejected = |options| SelfSigned::start(options, now()).unwrap_err().to_string();
    let base = options();
    let mut messages = vec![
        rejected(SelfSignedOptions {
            names: vec![],
            ..base.clone()
        }),
        rejected(SelfSignedOptions {
            names: vec!["a b".to_owned()],
            ..base.clone()
        }),
        rejected(SelfSignedOptions {
            leaf_validity: 1000 * DAY,
            ..base.clone()
        }),
        rejected(SelfSignedOptions {
            leaf_validity: Duration::ZERO,
            ..base.clone()
        }),
        rejected(SelfSignedOptions {
            activation_delay: 300 * DAY,
            ..base.clone()
        }),
    ];
    messages.push(rejected(SelfSignedOptions {
        backdate: 30 * DAY,
        ..base.clone()
    }));
    messages.push(rejected(SelfSignedOptions {
        authority_validity: Duration::MAX,
        ..base
    }));
    insta::assert_snapshot!(messages.join("\n"), @r#"
    a self-signed certificate needs at least one DNS name or IP address
    "a b" is not a valid DNS name or IP address for a certificate
    validity periods do not fit together: the validity of a leaf must not exceed half of that of the authority
    validity periods do not fit together: a leaf must be valid for at least a minute
    validity periods do not fit together: the activation delay must not exceed an eighth of the validity of the authority
    validity periods do not fit together: the backdating must not exceed a quarter of the validity of a leaf
    validity periods do not fit together: the end lies after the year 9999
    "#);
}

#[test]
fn debug_output_contains_no_key() {
    let files = Files::new();
    let stored = SelfSignedFiles::in_directory(files.folder(), "apiserver");
    let signed = start(SelfSignedOptions {
        files: Some(stored.clone()),
        ..options()
    });
    let printed = format!("{signed:?}");
    for line in std::fs::read_to_string(stored.authority).unwrap().lines() {
        assert!(!printed.contains(line), "{line}");
    }
    assert!(printed.contains("localhost"));
}
