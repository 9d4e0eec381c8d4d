//! A JSON Schema validator for the keywords that our schema uses. An unknown keyword fails the
//! test, so that nothing goes unchecked.

use kubevitals_model::Timestamp;
use serde_json::{Map, Value};

pub(crate) struct Schema(Value);

impl Schema {
    pub(crate) fn new(text: &str) -> Self {
        Self(serde_json::from_str(text).unwrap())
    }

    /// The first violation of the schema; `None` for a valid value.
    pub(crate) fn violation(&self, value: &Value) -> Option<String> {
        self.check(&self.0, value, "").err()
    }

    fn check(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        for (keyword, rule) in schema.as_object().unwrap() {
            self.check_keyword(keyword, rule, schema, value, at)?;
        }
        Ok(())
    }

    fn check_keyword(
        &self,
        keyword: &str,
        rule: &Value,
        schema: &Value,
        value: &Value,
        at: &str,
    ) -> Result<(), String> {
        let holds = match keyword {
            "$schema" | "$defs" | "title" | "description" => true,
            "$ref" => {
                let name = rule.as_str().unwrap().strip_prefix("#").unwrap();
                let found = self.0.pointer(name).unwrap_or_else(|| panic!("no {name}"));
                return self.check(found, value, at);
            }
            "type" => is_of_type(rule.as_str().unwrap(), value),
            "const" => rule == value,
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => value.as_f64() >= rule.as_f64() || !value.is_number(),
            "format" => {
                assert_eq!(rule, "date-time");
                value
                    .as_str()
                    .is_none_or(|text| text.parse::<Timestamp>().is_ok())
            }
            "required" => {
                let names = rule.as_array().unwrap();
                let missing = names
                    .iter()
                    .find(|name| value.get(name.as_str().unwrap()).is_none());
                return missing.map_or(Ok(()), |name| Err(format!("{at}: no {name}")));
            }
            "properties" => return self.check_properties(rule, value, at),
            "additionalProperties" if rule.is_object() => {
                // Of a map, whose keys are any.
                assert!(schema.get("properties").is_none());
                for (key, value) in value.as_object().unwrap() {
                    self.check(rule, value, &format!("{at}/{key}"))?;
                }
                true
            }
            "additionalProperties" => {
                assert_eq!(rule, false);
                let known: &Map<String, Value> = schema["properties"].as_object().unwrap();
                let mut keys = value.as_object().unwrap().keys();
                let is_label = |key: &str| {
                    let is_allowed = schema.get("patternProperties").is_some();
                    let name = key.strip_prefix("label_").filter(|_| is_allowed);
                    name.is_some_and(|name| !name.is_empty() && name.chars().all(is_name))
                };
                let unknown = keys.find(|key| !known.contains_key(*key) && !is_label(key));
                return unknown.map_or(Ok(()), |key| Err(format!("{at}: unknown {key}")));
            }
            "patternProperties" => {
                let (pattern, rule) = rule.as_object().unwrap().iter().next().unwrap();
                assert_eq!(pattern, "^label_[a-z0-9_]+$");
                let labels = value.as_object().unwrap().iter();
                for (key, value) in labels.filter(|(key, _)| key.starts_with("label_")) {
                    self.check(rule, value, &format!("{at}/{key}"))?;
                }
                true
            }
            "items" => {
                let items = value.as_array().unwrap().iter().enumerate();
                for (index, item) in items {
                    self.check(rule, item, &format!("{at}/{index}"))?;
                }
                true
            }
            "oneOf" => return self.check_one_of(rule.as_array().unwrap(), value, at),
            other => panic!("the validator does not know {other}"),
        };
        if holds {
            Ok(())
        } else {
            Err(format!("{at}: {value} breaks {keyword} {rule}"))
        }
    }

    fn check_properties(&self, rules: &Value, value: &Value, at: &str) -> Result<(), String> {
        let object = value
            .as_object()
            .ok_or_else(|| format!("{at}: no object"))?;
        for (key, rule) in rules.as_object().unwrap() {
            if let Some(value) = object.get(key) {
                self.check(rule, value, &format!("{at}/{key}"))?;
            }
        }
        Ok(())
    }

    fn check_one_of(&self, choices: &[Value], value: &Value, at: &str) -> Result<(), String> {
        let faults: Vec<String> = choices
            .iter()
            .filter_map(|choice| self.check(choice, value, at).err())
            .collect();
        match choices.len() - faults.len() {
            1 => Ok(()),
            fitting => Err(format!("{at}: {fitting} choices fit: {faults:?}")),
        }
    }
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_'
}

fn is_of_type(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        other => panic!("the validator does not know the type {other}"),
    }
}

#[test]
fn the_validator_rejects_invalid_values() {
    let schema = Schema::new(kubevitals_jsonl::SCHEMA);
    let line = |change: &dyn Fn(&mut Value)| {
        let mut line = serde_json::json!({"time": "2026-11-15T20:12:10Z", "kube_transition_metrics": {
            "type": "image_pull", "partial": false, "kube_namespace": "a", "pod_name": "b",
            "image_pull": {"started_timestamp": "2026-11-15T20:12:10Z", "duration_seconds": 1.5}}});
        change(&mut line);
        schema.violation(&line)
    };
    assert_eq!(line(&|_| ()), None);
    assert_eq!(
        line(&|line| line["kube_transition_metrics"]["label_team"] = "shop".into()),
        None
    );
    let wrong: [&dyn Fn(&mut Value); 10] = [
        &|line| line["kube_transition_metrics"]["label_team"] = 1.into(),
        &|line| line["kube_transition_metrics"]["label_Team"] = "shop".into(),
        &|line| line["extra"] = 1.into(),
        &|line| line["time"] = "soon".into(),
        &|line| line["kube_transition_metrics"]["type"] = "pod".into(),
        &|line| line["kube_transition_metrics"]["pod_uid"] = "1".into(),
        &|line| line["kube_transition_metrics"]["kube_qos"] = "Best".into(),
        &|line| line["kube_transition_metrics"]["partial"] = "no".into(),
        &|line| line["kube_transition_metrics"]["image_pull"]["duration_seconds"] = (-1).into(),
        &|line| line["kube_transition_metrics"]["image_pull"]["started_timestamp"] = Value::Null,
    ];
    for change in wrong {
        assert!(line(change).is_some());
    }
}

#[test]
fn the_lines_in_the_documentation_follow_the_schema() {
    let document = include_str!("../../../../docs/transitions.md");
    let schema = Schema::new(kubevitals_jsonl::SCHEMA);
    let mut kinds = Vec::new();
    for line in document
        .lines()
        .filter(|line| line.starts_with("{\"time\""))
    {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(schema.violation(&line), None, "{line}");
        let kind = line["kube_transition_metrics"]["type"].as_str().unwrap();
        kinds.push(kind.to_owned());
    }
    assert_eq!(kinds, ["image_pull", "pod", "container", "lifecycle"]);
}
