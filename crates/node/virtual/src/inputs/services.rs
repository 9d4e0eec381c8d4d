//! Services as environment variables, by the names of Docker links.

use k8s_openapi::api::core::v1::Service;

/// Returns the variables of all services that have an address, in the order of a kubelet.
pub(super) fn environment(services: &[Service]) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    for service in services {
        add(service, &mut variables);
    }
    variables
}

fn add(service: &Service, variables: &mut Vec<(String, String)>) {
    let (Some(name), Some(spec)) = (&service.metadata.name, &service.spec) else {
        return;
    };
    let address = spec.cluster_ip.as_deref().unwrap_or_default();
    let ports = spec.ports.as_deref().unwrap_or_default();
    let Some(first) = ports.first() else {
        return;
    };
    // A headless Service has no address of its own.
    if address.is_empty() || address == "None" {
        return;
    }
    let prefix = variable_name(name);
    let mut push =
        |suffix: String, value: String| variables.push((format!("{prefix}_{suffix}"), value));
    push("SERVICE_HOST".to_owned(), address.to_owned());
    push("SERVICE_PORT".to_owned(), first.port.to_string());
    for port in ports {
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            let name = variable_name(name);
            push(format!("SERVICE_PORT_{name}"), port.port.to_string());
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let protocol = port.protocol.as_deref().filter(|text| !text.is_empty());
        let upper = protocol.unwrap_or("TCP").to_uppercase();
        let lower = upper.to_lowercase();
        let host = if address.contains(':') {
            format!("[{address}]")
        } else {
            address.to_owned()
        };
        let number = port.port;
        let url = format!("{lower}://{host}:{number}");
        if index == 0 {
            push("PORT".to_owned(), url.clone());
        }
        let port = format!("PORT_{number}_{upper}");
        push(port.clone(), url);
        push(format!("{port}_PROTO"), lower);
        push(format!("{port}_PORT"), number.to_string());
        push(format!("{port}_ADDR"), address.to_owned());
    }
}

fn variable_name(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn services_have_the_variables_of_docker_links() {
        let services: Vec<Service> = serde_json::from_value(json!([
            {"metadata": {"name": "headless"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}},
            {"metadata": {"name": "my-db"}, "spec": {"clusterIP": "10.96.0.7", "ports": [
                {"name": "sql", "port": 5432, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}},
        ]))
        .unwrap();
        let expected = [
            ("MY_DB_SERVICE_HOST", "10.96.0.7"),
            ("MY_DB_SERVICE_PORT", "5432"),
            ("MY_DB_SERVICE_PORT_SQL", "5432"),
            ("MY_DB_PORT", "tcp://10.96.0.7:5432"),
            ("MY_DB_PORT_5432_TCP", "tcp://10.96.0.7:5432"),
            ("MY_DB_PORT_5432_TCP_PROTO", "tcp"),
            ("MY_DB_PORT_5432_TCP_PORT", "5432"),
            ("MY_DB_PORT_5432_TCP_ADDR", "10.96.0.7"),
            ("MY_DB_PORT_53_UDP", "udp://10.96.0.7:53"),
            ("MY_DB_PORT_53_UDP_PROTO", "udp"),
            ("MY_DB_PORT_53_UDP_PORT", "53"),
            ("MY_DB_PORT_53_UDP_ADDR", "10.96.0.7"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(environment(&services), expected);
    }
}
