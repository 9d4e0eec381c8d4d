//! Parameters after the question mark.

use std::borrow::Cow;
use std::time::Duration;

use kubevitals_model::{FieldTerm, LabelSelector, parse_field_selector};

use crate::resource::{IncludeObject, ResourceFacts};
use crate::status::Failure;

/// The parameters of a request, read when they are asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Query<'a>(&'a str);

/// What a list or a watch asks for.
#[derive(Debug)]
pub(crate) struct ListOptions {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: Vec<FieldTerm>,
    pub(crate) resource_version: String,
    pub(crate) timeout: Option<Duration>,
    pub(crate) allow_bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
}

impl<'a> Query<'a> {
    pub(crate) fn new(query: Option<&'a str>) -> Self {
        Self(query.unwrap_or_default())
    }

    /// The first value of a name; `Some("")` for a name without one.
    pub(crate) fn first(&self, name: &str) -> Option<Cow<'a, str>> {
        self.all(name).next()
    }

    /// All values of a name.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = Cow<'a, str>> {
        self.0.split('&').filter_map(move |pair| {
            // Go drops what a semicolon is in.
            if pair.contains(';') {
                return None;
            }
            let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(found)? == name).then(|| decode(value)).flatten()
        })
    }

    /// A name without a value, and everything but no, is yes.
    pub(crate) fn asks_to_watch(&self) -> bool {
        self.flag("watch").unwrap_or_default()
    }

    pub(crate) fn pretty(&self) -> Option<bool> {
        let value = self.first("pretty").filter(|value| !value.is_empty())?;
        Some(matches!(
            &*value,
            "1" | "t" | "T" | "true" | "TRUE" | "True"
        ))
    }

    pub(crate) fn list_options(&self, facts: &ResourceFacts) -> Result<ListOptions, Failure> {
        let text = |name: &str| self.first(name).unwrap_or_default();
        let labels = LabelSelector::parse(&text("labelSelector"))
            .map_err(|error| Failure::bad_request(error.to_string()))?;
        let fields = parse_field_selector(&text("fieldSelector"))
            .map_err(|error| Failure::bad_request(error.to_string()))?;
        if let Some(unknown) = fields
            .iter()
            .find(|term| !facts.selectable_fields.contains(&term.field.as_str()))
        {
            let known: Vec<String> = facts
                .selectable_fields
                .iter()
                .map(|field| format!("{field:?}"))
                .collect();
            return Err(Failure::bad_request(format!(
                "{:?} is not a known field selector: only {}",
                unknown.field,
                known.join(", ")
            )));
        }
        // Lists are never cut into pages, but nonsense is refused as Kubernetes does.
        self.integer("limit")?;
        let seconds = self.integer("timeoutSeconds")?;
        Ok(ListOptions {
            labels,
            fields,
            resource_version: text("resourceVersion").into_owned(),
            timeout: seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .filter(|seconds| *seconds > 0)
                .map(Duration::from_secs),
            allow_bookmarks: self.flag("allowWatchBookmarks").unwrap_or_default(),
            send_initial_events: self.flag("sendInitialEvents"),
        })
    }

    pub(crate) fn include_object(&self) -> Result<IncludeObject, Failure> {
        match &*self.first("includeObject").unwrap_or_default() {
            "" | "Metadata" => Ok(IncludeObject::Metadata),
            "None" => Ok(IncludeObject::None),
            "Object" => Ok(IncludeObject::Object),
            other => Err(Failure::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: \
                 must be 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }

    fn flag(&self, name: &str) -> Option<bool> {
        let value = self.first(name)?;
        Some(!matches!(&*value.to_ascii_lowercase(), "false" | "0"))
    }

    fn integer(&self, name: &str) -> Result<Option<i64>, Failure> {
        match self.first(name).filter(|value| !value.is_empty()) {
            None => Ok(None),
            Some(value) => value.parse().map(Some).map_err(|_| {
                Failure::bad_request(format!(
                    "strconv.ParseInt: parsing {value:?}: invalid syntax"
                ))
            }),
        }
    }
}

/// Undoes percent-encoding, with `+` for a space; `None` for what is none.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> ResourceFacts {
        ResourceFacts {
            plural: "widgets",
            singular: "widget",
            kind: "Widget",
            list_kind: "WidgetList",
            namespaced: true,
            selectable_fields: &["metadata.name", "metadata.namespace"],
            watchable: true,
            schemas: "{}",
        }
    }

    #[test]
    fn parameters_are_decoded() {
        let query = Query::new(Some("a=1&b=x%3Dy+z&a=2&c&bad=%zz&d=1;e=2"));
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(query.first("b").unwrap(), "x=y z");
        assert_eq!(query.first("c").unwrap(), "");
        assert_eq!(query.first("bad"), None);
        assert_eq!(query.first("d"), None);
    }

    #[test]
    fn lists_are_asked_for() {
        let query = "labelSelector=a%3Db&fieldSelector=metadata.name%3Dx&timeoutSeconds=7&limit=5\
                     &allowWatchBookmarks=true&sendInitialEvents=false&resourceVersion=12";
        let options = Query::new(Some(query)).list_options(&facts()).unwrap();
        assert_eq!(options.fields.len(), 1);
        assert!(!options.labels.is_empty());
        assert_eq!(options.timeout, Some(Duration::from_secs(7)));
        assert!(options.allow_bookmarks);
        assert_eq!(options.send_initial_events, Some(false));
        assert_eq!(options.resource_version, "12");
    }

    #[test]
    fn nonsense_is_refused_in_the_servers_words() {
        let refused = |query| {
            let failure = Query::new(Some(query)).list_options(&facts()).unwrap_err();
            format!("{failure:?}")
        };
        assert!(refused("limit=x").contains("strconv.ParseInt: parsing \\\"x\\\": invalid syntax"));
        assert!(refused("labelSelector=a===b").contains("unable to parse requirement"));
        assert!(refused("fieldSelector=spec.nodeName%3Db").contains(
            "\\\"spec.nodeName\\\" is not a known field selector: only \\\"metadata.name\\\", \\\"metadata.namespace\\\""
        ));
    }
}
