//! The resource: the process that sends.

use std::borrow::Cow;

use crate::settings::parse_list;
use crate::span::{Attribute, Value};

/// The attributes of the process, in the order of their keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource(Vec<Attribute>);

/// Maximum number of attributes from the environment.
const MAX_ATTRIBUTES: usize = 64;

impl Resource {
    /// `instance` identifies this process among its replicas. `OTEL_RESOURCE_ATTRIBUTES` and
    /// `OTEL_SERVICE_NAME`, which `get` reads, add and replace attributes.
    pub fn new(instance: &str, get: impl Fn(&str) -> Option<String>) -> Self {
        let mut attributes = vec![
            Attribute::new("service.instance.id", instance),
            Attribute::new("service.name", "kubevitals"),
            Attribute::new("service.version", env!("CARGO_PKG_VERSION")),
        ];
        let set = |attributes: &mut Vec<Attribute>, key: String, value: String| {
            let key = Cow::<'static, str>::Owned(key);
            let value = Value::from(value);
            match attributes.binary_search_by(|one| one.key.cmp(&key)) {
                Ok(at) => {
                    if let Some(known) = attributes.get_mut(at) {
                        known.value = value;
                    }
                }
                Err(at) => attributes.insert(at, Attribute { key, value }),
            }
        };
        let given = get("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        // As the specification says, an invalid list is ignored as a whole.
        let given = parse_list(&given).unwrap_or_default();
        for (key, value) in given.into_iter().take(MAX_ATTRIBUTES) {
            set(&mut attributes, key, value);
        }
        if let Some(name) = get("OTEL_SERVICE_NAME").filter(|name| !name.is_empty()) {
            set(&mut attributes, "service.name".to_owned(), name);
        }
        Self(attributes)
    }

    pub(crate) fn attributes(&self) -> &[Attribute] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(resource: &Resource) -> Vec<(String, String)> {
        let text = |value: &Value| match value {
            Value::Text(text) => text.to_string(),
            other => format!("{other:?}"),
        };
        let each = resource.attributes().iter();
        each.map(|one| (one.key.to_string(), text(&one.value)))
            .collect()
    }

    #[test]
    fn the_environment_adds_and_replaces_attributes() {
        let plain = texts(&Resource::new("a-0", |_| None));
        let version = env!("CARGO_PKG_VERSION");
        let own = [
            ("service.instance.id", "a-0"),
            ("service.name", "kubevitals"),
            ("service.version", version),
        ];
        assert_eq!(plain, own.map(|(key, value)| (key.into(), value.into())));
        let named = texts(&Resource::new("a-0", |name| match name {
            "OTEL_SERVICE_NAME" => Some("pods".to_owned()),
            "OTEL_RESOURCE_ATTRIBUTES" => {
                Some("k8s.cluster.name=a%2Cb,service.name=other".to_owned())
            }
            _ => None,
        }));
        let all = [
            ("k8s.cluster.name", "a,b"),
            ("service.instance.id", "a-0"),
            ("service.name", "pods"),
            ("service.version", version),
        ];
        assert_eq!(named, all.map(|(key, value)| (key.into(), value.into())));
        let invalid = |name: &str| (name == "OTEL_RESOURCE_ATTRIBUTES").then(|| "a".to_owned());
        assert_eq!(texts(&Resource::new("a-0", invalid)), plain);
    }
}
