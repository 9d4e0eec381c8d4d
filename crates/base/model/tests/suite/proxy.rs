use kubevitals_model::ProxyRules;
use proptest::prelude::*;

use crate::config;
use crate::vectors::rows_of;

fn rules(variables: &[(&str, &str)]) -> ProxyRules {
    ProxyRules::from_env(|name| {
        let mut found = variables.iter().filter(|(own, _)| *own == name);
        found.next().map(|(_, value)| (*value).to_owned())
    })
}

fn without_proxy(no_proxy: &str) -> ProxyRules {
    rules(&[("HTTPS_PROXY", "proxy.test:3128"), ("NO_PROXY", no_proxy)])
}

#[test]
fn hosts_are_exempt_as_in_go() {
    for [list, host, port, is_proxied] in rows_of(include_str!("../vectors/no_proxy.tsv")) {
        let list = list.trim_start_matches('<').trim_end_matches('>');
        let rules = without_proxy(list);
        let proxy = rules.proxy_for(true, host, port.parse().unwrap());
        assert_eq!(
            proxy.is_some().to_string(),
            is_proxied,
            "NO_PROXY={list:?} and {host} {port}"
        );
    }
}

#[test]
fn the_variable_is_chosen_by_the_scheme_and_upper_case_wins() {
    let both = rules(&[
        ("HTTPS_PROXY", "https://one.test"),
        ("https_proxy", "two.test:1"),
        ("HTTP_PROXY", ""),
        ("http_proxy", "three.test:3"),
    ]);
    let host = "api.example";
    assert_eq!(both.proxy_for(true, host, 443), Some("https://one.test"));
    assert_eq!(both.proxy_for(false, host, 80), Some("http://three.test:3"));
    assert_eq!(rules(&[]).proxy_for(true, host, 443), None);
    let only_http = rules(&[("HTTP_PROXY", "three.test:3")]);
    assert_eq!(only_http.proxy_for(true, host, 443), None);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_longer_list_exempts_no_fewer_hosts(
        list in "[a-z0-9.:/*\\[\\] ,]{0,40}",
        more in "[a-z0-9.:/*\\[\\] ]{0,20}",
        host in "[a-z0-9.:]{0,20}",
        port in any::<u16>(),
    ) {
        let shorter = without_proxy(&list);
        let longer = without_proxy(&format!("{list},{more}"));
        if shorter.proxy_for(true, &host, port).is_none() {
            prop_assert!(longer.proxy_for(true, &host, port).is_none());
        }
    }

    #[test]
    fn a_listed_host_is_exempt(host in "[a-z0-9]{1,9}(\\.[a-z]{1,5}){0,3}", port in any::<u16>()) {
        let rules = without_proxy(&format!("other.test, {host}"));
        prop_assert_eq!(rules.proxy_for(true, &host, port), None);
        let sub = format!("sub.{host}");
        prop_assert_eq!(rules.proxy_for(true, &sub, port), None);
    }

    #[test]
    fn an_address_is_exempt_by_each_of_its_networks(bits in any::<u32>(), prefix in 0_u32..=32) {
        let address = std::net::Ipv4Addr::from_bits(bits);
        let rules = without_proxy(&format!("{address}/{prefix}"));
        prop_assert_eq!(rules.proxy_for(true, &address.to_string(), 443), None);
    }
}
