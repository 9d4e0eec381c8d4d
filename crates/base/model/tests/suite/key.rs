use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use kubevitals_model::{AsContainerKey, AsPodKey, ContainerKeyRef, PodKeyRef};
use proptest::prelude::*;

use crate::config;

proptest! {
    #![proptest_config(config())]

    #[test]
    fn owned_and_borrowed_keys_hash_compare_and_sort_alike(a in "[ab/]{0,3}", b in "[ab/]{0,3}", c in "[ab/]{0,3}", d in "[ab/]{0,3}", e in "[ab/]{0,3}", f in "[ab/]{0,3}") {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let first = ContainerKeyRef { pod: PodKeyRef { namespace: &a, name: &b }, container: &c };
        let second = ContainerKeyRef { pod: PodKeyRef { namespace: &d, name: &e }, container: &f };
        let (owned, other) = (first.to_owned_key(), second.to_owned_key());
        prop_assert_eq!(owned.as_container_key(), first);
        prop_assert_eq!(owned.pod().as_pod_key(), first.pod);
        prop_assert_eq!(hasher.hash_one(&owned), hasher.hash_one(first.as_dyn()));
        prop_assert_eq!(hasher.hash_one(owned.pod()), hasher.hash_one(first.pod.as_dyn()));
        prop_assert_eq!(owned.cmp(&other), first.cmp(&second));
        prop_assert_eq!(owned.cmp(&other), (&a, &b, &c).cmp(&(&d, &e, &f)));
        prop_assert_eq!(owned == other, first.as_dyn() == second.as_dyn());
        prop_assert_eq!(owned.to_string(), format!("{a}/{b}/{c}"));
    }
}
