use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
#[command(args_override_self = true)]
struct Flags {
    #[command(flatten)]
    node: NodeFlags,
}

fn machine() -> Machine {
    Machine {
        host_name: "box".to_owned(),
        cores: 4,
        memory: Some(8 << 30),
        ..Machine::default()
    }
}

fn settings_with(flags: &[&str], variables: &[(&str, &str)]) -> Result<Settings, InvalidSetting> {
    let flags = Flags::parse_from(["node", "--provider=sim"].iter().chain(flags));
    let environment = |name: &str| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Settings::new(&flags.node, &environment, &machine())
}

#[test]
fn defaults_are_those_of_the_host_and_of_kubelets() {
    let settings = settings_with(&["--node-address=192.0.2.7"], &[]).unwrap();
    let node = &settings.node;
    assert_eq!(node.name, "box");
    assert_eq!(
        node.taints,
        [taint("kubevitals.io/provider=sim:NoSchedule").unwrap()]
    );
    assert_eq!(node.capacity["cpu"].0, "4");
    assert_eq!(node.capacity["memory"].0, "8388608Ki");
    assert_eq!(node.capacity["pods"].0, "110");
    assert_eq!(node.addresses[0].address, "192.0.2.7");
    assert_eq!(node.addresses[1].address, "box");
    assert_eq!(node.declared_features, ["ExtendWebSocketsToKubelet"]);
    assert!(node.info.kubelet_version.starts_with("v1.37."));
    assert_eq!(settings.serving.address.port(), 10250);
    assert!(settings.serving.tokens && !settings.serving.anonymous);
    assert_eq!(
        settings.serving.stream_idle_timeout,
        Duration::from_hours(4)
    );
}

#[test]
fn the_variables_of_virtual_kubelet_are_read_where_no_flag_is_given() {
    let variables = [
        ("KUBELET_PORT", "10251"),
        ("VKUBELET_POD_IP", "192.0.2.8"),
        ("VKUBELET_TAINT_KEY", "k"),
        ("VKUBELET_TAINT_VALUE", "v"),
        ("VKUBELET_TAINT_EFFECT", "NoExecute"),
        ("APISERVER_CERT_LOCATION", "/c"),
        ("APISERVER_KEY_LOCATION", "/k"),
        ("APISERVER_CA_CERT_LOCATION", "/ca"),
        ("DEFAULT_NODE_NAME", "vk"),
    ];
    let settings = settings_with(&[], &variables).unwrap();
    assert_eq!(settings.serving.address, "0.0.0.0:10251".parse().unwrap());
    assert_eq!(settings.addresses, ["192.0.2.8".parse::<IpAddr>().unwrap()]);
    assert_eq!(settings.node.taints, [taint("k=v:NoExecute").unwrap()]);
    assert_eq!(
        settings.serving.certificate,
        Some(("/c".into(), "/k".into()))
    );
    assert_eq!(settings.serving.client_ca, Some("/ca".into()));
    assert_eq!(settings.node.name, "vk");
    let flags = [
        "--listen-address=192.0.2.9:1",
        "--node-name=own",
        "--disable-taint",
    ];
    let settings = settings_with(&flags, &variables[2..]).unwrap();
    assert_eq!(settings.addresses, ["192.0.2.9".parse::<IpAddr>().unwrap()]);
    assert_eq!(settings.node.name, "own");
    assert!(settings.node.taints.is_empty());
}

#[test]
fn wrong_values_name_their_flag() {
    let address = "--node-address=192.0.2.7";
    for (flags, variables, flag) in [
        (vec![], vec![], "node-address"),
        (vec![], vec![("VKUBELET_POD_IP", "here")], "node-address"),
        (vec![address], vec![("KUBELET_PORT", "x")], "listen-address"),
        (vec![address, "--node-name=Not_A_Name"], vec![], "node-name"),
        (vec![address, "--node-name=a..b"], vec![], "node-name"),
        (vec![address, "--node-labels=x"], vec![], "node-labels"),
        (
            vec![address, "--register-with-taints=k=v"],
            vec![],
            "register-with-taints",
        ),
        (
            vec![address, "--register-with-taints=k=v:Never"],
            vec![],
            "register-with-taints",
        ),
        (vec![address, "--capacity=memory"], vec![], "capacity"),
        (vec![address, "--capacity=memory=much"], vec![], "capacity"),
        (
            vec![address, "--stream-idle-timeout=-1s"],
            vec![],
            "stream-idle-timeout",
        ),
    ] {
        let error = settings_with(&flags, &variables).unwrap_err();
        assert_eq!(error.flag, flag, "{flags:?}");
    }
}

#[test]
fn capacity_and_labels_can_be_set() {
    let flags = [
        "--node-address=192.0.2.7,2001:db8::7",
        "--capacity=memory=1Gi,example.com/gpu=2",
        "--node-labels=zone=attic,empty=",
        "--register-with-taints=a:NoExecute,b=c:PreferNoSchedule",
    ];
    let settings = settings_with(&flags, &[]).unwrap();
    assert_eq!(settings.memory, 1 << 30);
    assert_eq!(settings.node.allocatable["example.com/gpu"].0, "2");
    assert_eq!(settings.node.labels["zone"], "attic");
    assert_eq!(settings.node.labels["empty"], "");
    assert_eq!(settings.node.taints.len(), 2);
    assert_eq!(settings.node.addresses.len(), 3);
}
