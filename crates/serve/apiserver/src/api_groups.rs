//! The API groups of a server, indexed by path.

use std::sync::Arc;

use crate::error::ApiServerError;
use crate::request_info::ResourceTarget;
use crate::resource::{ApiGroup, ApiResource};

/// The API groups of a server.
pub(crate) struct ApiGroups {
    groups: Vec<ApiGroup>,
}

/// The resource of a path.
pub(crate) struct ResolvedResource<'a> {
    pub(crate) resource: &'a Arc<dyn ApiResource>,
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
}

impl ApiGroups {
    pub(crate) fn new(groups: Vec<ApiGroup>) -> Result<Self, ApiServerError> {
        let invalid = |reason: String| Err(ApiServerError::Groups { reason });
        for (index, group) in groups.iter().enumerate() {
            if group.versions.is_empty() {
                return invalid(format!("{} has no version", group.name));
            }
            if groups
                .iter()
                .take(index)
                .any(|other| other.name == group.name)
            {
                return invalid(format!("{} is registered twice", group.name));
            }
            for (index, resource) in group.resources.iter().enumerate() {
                let plural = resource.info().plural;
                if group
                    .resources
                    .iter()
                    .take(index)
                    .any(|other| other.info().plural == plural)
                {
                    return invalid(format!("{plural}.{} is registered twice", group.name));
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

    /// Returns the resource of a path, if the scope of the path fits.
    pub(crate) fn resource(&self, target: &ResourceTarget) -> Option<ResolvedResource<'_>> {
        let group = self.group(&target.group)?;
        let version = group
            .versions
            .iter()
            .find(|version| **version == target.version)?;
        let resource = group
            .resources
            .iter()
            .find(|resource| resource.info().plural == target.resource)?;
        let named = target.parts == 2;
        let has_namespace = !target.namespace.is_empty();
        let fits = match (resource.info().namespaced, named) {
            (true, true) => has_namespace,
            (true, false) => true,
            (false, _) => !has_namespace,
        };
        (fits && target.parts <= 2).then_some(ResolvedResource {
            resource,
            group: group.name,
            version,
        })
    }
}
