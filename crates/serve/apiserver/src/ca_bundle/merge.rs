//! The content of a bundle: the authorities of all replicas.

use std::time::SystemTime;

use kubevitals_tls::{CertificateInfo, parse_certificates};
use rustls_pki_types::CertificateDer;

/// Maximum number of authorities in a bundle: five replicas that are being replaced are ten, and a
/// few more may be left of replicas that are gone.
const MAX_AUTHORITIES: usize = 16;

/// A writer whose authority is beyond this position moves it to the front. The last ones are
/// evicted, so that those of live replicas stay unless more than `MAX_AUTHORITIES - SAFE_POSITIONS`
/// replicas start within one interval of checks.
const SAFE_POSITIONS: usize = 10;

const BEGIN_OF_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
const END_OF_CERTIFICATE: &str = "-----END CERTIFICATE-----";

/// A certificate of a bundle. Two are the same if their encoding is, whatever the text around it.
struct Authority<'a> {
    pem: &'a str,
    der: CertificateDer<'static>,
}

/// Whether a bundle has all of our own authorities.
pub(super) fn contains(bundle: &str, own: &str) -> bool {
    let bundle = authorities(bundle);
    let has = |one: &Authority<'_>| bundle.iter().any(|other| other.der == one.der);
    authorities(own).iter().all(has)
}

/// Returns our own authorities followed by the existing ones, or `None` if nothing has to change.
/// The most recent writer is first. Expired authorities are evicted, and then the last ones.
pub(super) fn merged(existing: &str, own: &str, now: SystemTime) -> Option<String> {
    let own = authorities(own);
    let existing = authorities(existing);
    let is_safe = |one: &Authority<'_>| {
        let mut safe = existing.iter().take(SAFE_POSITIONS);
        safe.any(|other| other.der == one.der)
    };
    if own.iter().all(is_safe) {
        return None;
    }
    let mut all = own;
    for other in existing {
        if all.len() < MAX_AUTHORITIES
            && !other.is_expired(now)
            && !all.iter().any(|one| one.der == other.der)
        {
            all.push(other);
        }
    }
    let texts = all.iter().flat_map(|authority| [authority.pem, "\n"]);
    Some(texts.collect())
}

/// Returns the certificates of a bundle. Other text is left out, since no API server can use it.
fn authorities(pem: &str) -> Vec<Authority<'_>> {
    pem.split_inclusive(END_OF_CERTIFICATE)
        .filter_map(|block| {
            block
                .find(BEGIN_OF_CERTIFICATE)
                .and_then(|at| block.get(at..))
        })
        .filter_map(|pem| {
            let der = parse_certificates(pem.as_bytes())
                .ok()?
                .into_iter()
                .next()?;
            Some(Authority { pem, der })
        })
        .collect()
}

impl Authority<'_> {
    fn is_expired(&self, now: SystemTime) -> bool {
        CertificateInfo::parse(&self.der).is_some_and(|info| info.not_after < now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn authority_until(not_after: SystemTime) -> String {
        let mut params = rcgen::CertificateParams::default();
        params.not_after = not_after.into();
        let key = rcgen::KeyPair::generate().unwrap();
        params
            .self_signed(&key)
            .unwrap()
            .pem()
            .replace("\r\n", "\n")
    }

    fn authority() -> String {
        authority_until(SystemTime::now() + 100 * DAY)
    }

    fn merge(existing: &str, own: &str) -> Option<String> {
        merged(existing, own, SystemTime::now())
    }

    #[test]
    fn replicas_keep_the_authorities_of_others() {
        let (a, b) = (authority(), authority());
        assert_eq!(merge("", &a), Some(a.clone()));
        let both = merge(&a, &b).unwrap();
        assert_eq!(both, format!("{b}{a}"));
        assert_eq!(merge(&both, &a), None);
        assert_eq!(merge(&both, &b), None);
        assert!(contains(&both, &a) && contains(&both, &b) && !contains(&a, &b));
        assert_eq!(merge("not a certificate", &a), Some(a.clone()));
        let noise = format!("# ours\n{}\n# end", a.replace('\n', "\r\n"));
        assert_eq!(merge(&noise, &a), None, "the same in other words");
    }

    /// Eight used to fit: a rollout of five replicas evicted authorities that were in use.
    #[test]
    fn a_rollout_of_five_replicas_fits() {
        let old: Vec<String> = (0..5).map(|_| authority()).collect();
        let new: Vec<String> = (0..5).map(|_| authority()).collect();
        let mut bundle = String::new();
        for own in old.iter().chain(&new) {
            bundle = merge(&bundle, own).unwrap();
        }
        for own in old.iter().chain(&new) {
            assert_eq!(merge(&bundle, own), None, "nobody has to write again");
        }
    }

    #[test]
    fn authorities_of_live_replicas_stay() {
        let live = [authority(), authority()];
        let mut bundle = live.concat();
        for _ in 0..20 {
            // Replicas that are replaced all the time, five between two checks.
            for _ in 0..5 {
                bundle = merge(&bundle, &authority()).unwrap();
                assert!(authorities(&bundle).len() <= MAX_AUTHORITIES);
            }
            for own in &live {
                assert!(contains(&bundle, own));
                bundle = merge(&bundle, own).unwrap_or(bundle);
            }
        }
    }

    #[test]
    fn expired_authorities_are_evicted_first() {
        let now = SystemTime::now();
        let expired = authority_until(now - DAY);
        let others: Vec<String> = (1..MAX_AUTHORITIES).map(|_| authority()).collect();
        let bundle = format!("{expired}{}", others.concat());
        let own = authority();
        let merged = merge(&bundle, &own).unwrap();
        assert_eq!(merged, format!("{own}{}", others.concat()));
        let expired_own = authority_until(now - DAY);
        let kept = merge(&merged, &expired_own).unwrap();
        assert!(contains(&kept, &expired_own), "our own clock may be wrong");
    }
}
