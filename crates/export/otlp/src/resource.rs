//! The resource: the process that sends.

use std::borrow::Cow;

use crate::settings::parse_list;
use crate::span::{Attribute, Value};

/// The attributes of the process, in the order of their keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource(Vec<Attribute>);

const ATTRIBUTES_VARIABLE: &str = "OTEL_RESOURCE_ATTRIBUTES";

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
        let given = get(ATTRIBUTES_VARIABLE).unwrap_or_default();
        // As the specification says, an invalid list is ignored as a whole.
        let given = parse_list(&given).unwrap_or_else(|problem| {
            tracing::warn!(
                variable = ATTRIBUTES_VARIABLE,
                problem,
                "ignored an invalid list of attributes"
            );
            Vec::new()
        });
        if given.len() > MAX_ATTRIBUTES {
            tracing::warn!(
                variable = ATTRIBUTES_VARIABLE,
                attributes = given.len(),
                used = MAX_ATTRIBUTES,
                "ignored attributes beyond the limit"
            );
        }
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
    use kubevitals_telemetry::logs::{LogCapture, LogOptions};

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

    /// It was ignored without a word.
    #[test]
    fn an_invalid_variable_is_named_in_one_warning() {
        let logged = |list: &str| {
            let capture = LogCapture::start(&LogOptions::default());
            let _resource = Resource::new("a-0", |name| {
                (name == "OTEL_RESOURCE_ATTRIBUTES").then(|| list.to_owned())
            });
            capture.text()
        };
        let invalid = logged("k8s.cluster.name=a,secret");
        assert_eq!(invalid.lines().count(), 1, "{invalid}");
        for part in ["OTEL_RESOURCE_ATTRIBUTES", "entry 2 is not NAME=VALUE"] {
            assert!(invalid.contains(part), "{invalid}");
        }
        // A value may be a secret.
        assert!(!invalid.contains("secret"), "{invalid}");
        let many: Vec<String> = (0..65).map(|number| format!("a{number}=b")).collect();
        let many = logged(&many.join(","));
        assert!(many.contains("OTEL_RESOURCE_ATTRIBUTES"), "{many}");
        assert_eq!(many.lines().count(), 1, "{many}");
        for good in ["", "a=b"] {
            assert_eq!(logged(good), "");
        }
    }
}
