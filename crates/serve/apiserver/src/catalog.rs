//! The groups, looked up by path.

use std::sync::Arc;

use crate::error::ApiServerError;
use crate::request_info::ResourceTarget;
use crate::resource::{ApiGroup, ApiResource};

/// What is served.
pub(crate) struct Catalog {
    groups: Vec<ApiGroup>,
}

/// What a path leads to.
pub(crate) struct Found<'a> {
    pub(crate) resource: &'a Arc<dyn ApiResource>,
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
}

impl Catalog {
    pub(crate) fn new(groups: Vec<ApiGroup>) -> Result<Self, ApiServerError> {
        let bad = |reason: String| Err(ApiServerError::Groups { reason });
        for (at, group) in groups.iter().enumerate() {
            if group.versions.is_empty() {
                return bad(format!("{} has no version", group.name));
            }
            if groups.iter().take(at).any(|other| other.name == group.name) {
                return bad(format!("{} is there twice", group.name));
            }
            for (at, resource) in group.resources.iter().enumerate() {
                let plural = resource.facts().plural;
                if group
                    .resources
                    .iter()
                    .take(at)
                    .any(|other| other.facts().plural == plural)
                {
                    return bad(format!("{plural}.{} is there twice", group.name));
                }
            }
        }
        Ok(Self { groups })
    }

    pub(crate) fn groups(&self) -> &[ApiGroup] {
        &self.groups
    }

    pub(crate) fn group(&self, name: &str) -> Option<&ApiGroup> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// The resource of a path, if the path is one that the resource has.
    pub(crate) fn resource(&self, target: &ResourceTarget) -> Option<Found<'_>> {
        let group = self.group(&target.group)?;
        let version = group
            .versions
            .iter()
            .find(|version| **version == target.version)?;
        let resource = group
            .resources
            .iter()
            .find(|resource| resource.facts().plural == target.resource)?;
        let named = target.parts == 2;
        let has_namespace = !target.namespace.is_empty();
        let fits = match (resource.facts().namespaced, named) {
            (true, true) => has_namespace,
            (true, false) => true,
            (false, _) => !has_namespace,
        };
        (fits && target.parts <= 2).then_some(Found {
            resource,
            group: group.name,
            version,
        })
    }
}
