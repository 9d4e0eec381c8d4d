//! Writes: create, update, patch, delete, and writable subresources.

#![expect(
    clippy::indexing_slicing,
    reason = "JSON trees: a missing member reads as null, and all writes go to objects"
)]

use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use serde_json::{Map, Value, json};

use super::apply::{self, Manager};
use super::body::{self, ApiResponse};
use super::context::ApiContext;
use super::list::namespace;
use super::patch::{self, PatchKind};
use super::payload::Payload;
use super::prepare;
use super::request::{Parameters, Target};
use super::resources::{self, ResourceInfo};
use super::reviews;
use super::status::{self, ApiError};
use crate::auth::User;
use crate::objects::{Resource, WriteError};
use crate::store::{Form, Precondition, Record, join_key, timestamp};

/// Number of attempts of a patch that meets concurrent writes.
const PATCH_ATTEMPTS: usize = 5;

/// A write request.
struct WriteRequest<'a> {
    context: &'a Arc<ApiContext>,
    info: &'static ResourceInfo,
    target: &'a Target,
    key: String,
    manager: Manager,
    force: bool,
}

/// Handles a write.
pub(crate) async fn write(
    context: &Arc<ApiContext>,
    info: &'static ResourceInfo,
    target: &Target,
    verb: &str,
    parameters: &Parameters,
    request: Request<Incoming>,
) -> Result<ApiResponse, ApiError> {
    if !parameters.get("dryRun").is_empty() {
        return Err(ApiError::bad_request(
            "dryRun is not supported by the simulated API server",
        ));
    }
    let manager = Manager::of(parameters.get("fieldManager"), request.headers(), target);
    let writing = WriteRequest {
        context,
        info,
        target,
        key: join_key(namespace(info, target), &target.name),
        manager,
        force: parameters.flag("force") == Some(true),
    };
    let payload = Payload::read(request).await?;
    match (verb, target.subresource.as_str()) {
        ("create", "") if target.name.is_empty() => writing.create(payload.object()?),
        ("create", "binding") => bind(
            context,
            &target.namespace,
            Some(&target.name),
            &payload.object()?,
        ),
        ("create", "eviction") => {
            writing.remove(&json!({}))?;
            Ok(body::json(StatusCode::CREATED, &reviews::success()))
        }
        ("create", "token") => writing.issue_token(&payload.object()?),
        ("update", "" | "status") => writing.update(payload.object()?),
        ("patch", "" | "status") => writing.patch(&payload, parameters),
        ("delete", "") => {
            let options = if payload.bytes.is_empty() {
                Map::new()
            } else {
                payload.object()?
            };
            writing.delete(&Value::Object(options), parameters)
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Binds a pod to a node.
pub(crate) fn bind(
    context: &Arc<ApiContext>,
    namespace: &str,
    pod: Option<&str>,
    binding: &Map<String, Value>,
) -> Result<ApiResponse, ApiError> {
    let info = resources::info(Resource::Pods);
    let member = |pointer: &[&str]| {
        let first = pointer.first().and_then(|name| binding.get(*name))?;
        pointer
            .iter()
            .skip(1)
            .try_fold(first, |value, name| value.get(*name))?
            .as_str()
    };
    let name = pod
        .or_else(|| member(&["metadata", "name"]))
        .unwrap_or_default();
    let node = member(&["target", "name"]).unwrap_or_default();
    if node.is_empty() {
        return Err(ApiError::invalid(info, name, "target.name: Required value"));
    }
    let key = join_key(namespace, name);
    let record = context
        .store
        .get(Resource::Pods, &key)
        .ok_or_else(|| ApiError::not_found(info, name))?;
    let mut object = record.value(info);
    let bound = object["spec"]["nodeName"].as_str().unwrap_or_default();
    if !bound.is_empty() {
        let problem = format!("pod {name} is already assigned to node {bound:?}");
        return Err(ApiError::conflict(info, name, &problem));
    }
    object["spec"]["nodeName"] = json!(node);
    prepare::copy_topology_labels(&context.store, &mut object);
    let now = timestamp(context.store.now());
    let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
    let status = object["status"].as_object_mut();
    if let Some(status) = status {
        let conditions = status.entry("conditions").or_insert_with(|| json!([]));
        if let Some(conditions) = conditions.as_array_mut() {
            conditions.retain(|condition| condition["type"] != "PodScheduled");
            conditions.push(condition);
        }
    }
    store(
        context,
        info,
        object,
        Precondition::Version(record.version()),
    )?;
    Ok(body::json(StatusCode::CREATED, &reviews::success()))
}

impl WriteRequest<'_> {
    fn create(&self, object: Map<String, Value>) -> Result<ApiResponse, ApiError> {
        let mut object = prepare::for_creation(self.context, self.info, self.target, object)?;
        apply::track(
            self.info,
            None,
            &mut object,
            &self.manager,
            self.context.store.now(),
        );
        let record = store(self.context, self.info, object, Precondition::Absent)?;
        Ok(self.object_response(StatusCode::CREATED, &record))
    }

    fn update(&self, object: Map<String, Value>) -> Result<ApiResponse, ApiError> {
        let existing = self.existing()?;
        let precondition = prepare::precondition(self.info, &self.target.name, &object)?;
        let old = existing.value(self.info);
        let mut new = prepare::for_update(self.info, self.target, &old, object)?;
        apply::track(
            self.info,
            Some(&old),
            &mut new,
            &self.manager,
            self.context.store.now(),
        );
        self.commit(new, precondition)
    }

    fn patch(&self, payload: &Payload, parameters: &Parameters) -> Result<ApiResponse, ApiError> {
        let kind = PatchKind::of(&payload.media_type)?;
        if kind == PatchKind::Apply {
            return self.apply(payload, parameters);
        }
        let patch = patch::Patch::parse(kind, &payload.bytes)?;
        let mut attributes = 1;
        loop {
            let existing = self.existing()?;
            let old = existing.value(self.info);
            let Value::Object(object) = patch.apply(&old)? else {
                return Err(ApiError::bad_request("the patch does not leave an object"));
            };
            // A patch that names a version applies to exactly that one.
            let precondition = prepare::precondition(self.info, &self.target.name, &object)?;
            let mut new = prepare::for_update(self.info, self.target, &old, object)?;
            apply::track(
                self.info,
                Some(&old),
                &mut new,
                &self.manager,
                self.context.store.now(),
            );
            let named = patch.names_version();
            let precondition = if named {
                precondition
            } else {
                Precondition::Version(existing.version())
            };
            match self.commit(new, precondition) {
                Err(error)
                    if error.code == StatusCode::CONFLICT
                        && !named
                        && attributes < PATCH_ATTEMPTS =>
                {
                    attributes += 1;
                }
                outcome => return outcome,
            }
        }
    }

    fn apply(&self, payload: &Payload, parameters: &Parameters) -> Result<ApiResponse, ApiError> {
        if parameters.get("fieldManager").is_empty() {
            let message = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
            return Err(
                ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(
                    "PatchOptions",
                    "meta.k8s.io",
                    "",
                ),
            );
        }
        let Value::Object(applied) = super::payload::yaml(&payload.bytes)? else {
            return Err(ApiError::bad_request(
                "the applied configuration is not an object",
            ));
        };
        prepare::check_names(self.info, self.target, &applied)?;
        let existing = self.context.store.get(self.info.resource, &self.key);
        let old = existing.as_ref().map(|record| record.value(self.info));
        if old.is_none() && !self.target.subresource.is_empty() {
            return Err(ApiError::not_found(self.info, &self.target.name));
        }
        if let Some(existing) = &existing {
            self.check_version(existing, &applied)?;
        }
        let now = self.context.store.now();
        let merged = apply::apply(
            self.info,
            old.as_ref(),
            &applied,
            &self.manager,
            self.force,
            now,
        )?;
        let managed = merged
            .get("metadata")
            .and_then(|metadata| metadata.get("managedFields"))
            .cloned()
            .unwrap_or_default();
        if let (Some(existing), Some(old)) = (existing, old) {
            let mut new = prepare::for_update(self.info, self.target, &old, merged)?;
            new["metadata"]["managedFields"] = managed;
            return self.commit(new, Precondition::Version(existing.version()));
        }
        let mut object = prepare::for_creation(self.context, self.info, self.target, merged)?;
        object["metadata"]["managedFields"] = managed;
        let record = store(self.context, self.info, object, Precondition::Absent)?;
        Ok(self.object_response(StatusCode::CREATED, &record))
    }

    /// An applied configuration that names a version applies to exactly that one.
    fn check_version(
        &self,
        existing: &Record,
        applied: &Map<String, Value>,
    ) -> Result<(), ApiError> {
        let version = applied.get("metadata").map(|meta| &meta["resourceVersion"]);
        match version.and_then(Value::as_str) {
            Some(version) if version != existing.version().to_string() => {
                let problem = "the object has been modified; please apply your changes to the latest version and try again";
                Err(ApiError::conflict(self.info, &self.target.name, problem))
            }
            _ => Ok(()),
        }
    }

    /// Stores an update, or removes an object whose last finalizer is gone.
    fn commit(&self, object: Value, precondition: Precondition) -> Result<ApiResponse, ApiError> {
        let metadata = &object["metadata"];
        let is_leaving = metadata["deletionTimestamp"].is_string()
            && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
            && metadata["deletionGracePeriodSeconds"].as_u64().unwrap_or(0) == 0;
        let record = store(self.context, self.info, object, precondition)?;
        if is_leaving {
            self.remove_now(Precondition::Version(record.version()))?;
        }
        Ok(self.object_response(StatusCode::OK, &record))
    }

    fn delete(&self, options: &Value, parameters: &Parameters) -> Result<ApiResponse, ApiError> {
        if options["dryRun"]
            .as_array()
            .is_some_and(|list| !list.is_empty())
        {
            return Err(ApiError::bad_request(
                "dryRun is not supported by the simulated API server",
            ));
        }
        let mut options = options.clone();
        if let Some(seconds) = parameters.number("gracePeriodSeconds")?
            && options["gracePeriodSeconds"].is_null()
        {
            options["gracePeriodSeconds"] = json!(seconds);
        }
        self.remove(&options)
    }

    fn remove(&self, options: &Value) -> Result<ApiResponse, ApiError> {
        let existing = self.existing()?;
        let mut object = existing.value(self.info);
        prepare::check_preconditions(
            self.info,
            &self.target.name,
            &object,
            &options["preconditions"],
        )?;
        let uid = object["metadata"]["uid"].clone();
        let grace = self.grace(&object, options);
        let has_finalizers = object["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|list| !list.is_empty());
        if grace > 0 || has_finalizers {
            let metadata = &object["metadata"];
            // A second deletion may shorten the grace.
            let before = metadata["deletionGracePeriodSeconds"].as_u64();
            if metadata["deletionTimestamp"].is_null() || before.is_some_and(|it| it > grace) {
                let at = self.context.store.now() + Duration::from_secs(grace);
                object["metadata"]["deletionTimestamp"] = json!(timestamp(at));
                object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
                let precondition = Precondition::Version(existing.version());
                let record = store(self.context, self.info, object, precondition)?;
                return Ok(self.object_response(StatusCode::OK, &record));
            }
            return Ok(self.object_response(StatusCode::OK, &existing));
        }
        self.remove_now(Precondition::Version(existing.version()))?;
        if matches!(
            self.info.resource,
            Resource::Pods | Resource::Services | Resource::ServiceAccounts
        ) {
            return Ok(self.object_response(StatusCode::OK, &existing));
        }
        Ok(body::json(
            StatusCode::OK,
            &status::deleted(self.info, &self.target.name, &uid),
        ))
    }

    /// Returns the grace period of a pod; other objects are removed at once.
    fn grace(&self, object: &Value, options: &Value) -> u64 {
        let is_bound = object["spec"]["nodeName"]
            .as_str()
            .is_some_and(|node| !node.is_empty());
        let has_ended = matches!(
            object["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed")
        );
        if self.info.resource != Resource::Pods
            || !self.context.graceful_pod_deletion
            || !is_bound
            || has_ended
        {
            return 0;
        }
        options["gracePeriodSeconds"]
            .as_u64()
            .or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_u64())
            .unwrap_or(30)
    }

    fn issue_token(&self, request: &Map<String, Value>) -> Result<ApiResponse, ApiError> {
        const HOUR: u64 = 3600;
        prepare::check_shape(request)?;
        let existing = self.existing()?;
        let metadata = existing.metadata(self.info);
        let lifetime_seconds = request
            .get("spec")
            .and_then(|spec| spec.get("expirationSeconds"))
            .and_then(Value::as_u64)
            .unwrap_or(HOUR);
        if lifetime_seconds < 600 {
            let problem = "spec.expirationSeconds: Invalid value: may not specify a duration less than 10 minutes";
            return Err(ApiError::invalid(self.info, &self.target.name, problem));
        }
        let mut user = User::service_account(&self.target.namespace, &self.target.name);
        if let Some(uid) = metadata.get("uid").and_then(Value::as_str) {
            uid.clone_into(&mut user.uid);
        }
        let now = self.context.store.now();
        let token = self
            .context
            .tokens
            .issue(user, now, Some(Duration::from_secs(lifetime_seconds)))
            .map_err(|error| {
                ApiError::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "InternalError",
                    error.to_string(),
                )
            })?;
        let mut response = Value::Object(request.clone());
        response["kind"] = json!("TokenRequest");
        response["apiVersion"] = json!("authentication.k8s.io/v1");
        response["metadata"] =
            json!({"name": self.target.name, "namespace": self.target.namespace});
        response["spec"]["expirationSeconds"] = json!(lifetime_seconds);
        response["status"] = json!({
            "token": token,
            "expirationTimestamp": timestamp(now + Duration::from_secs(lifetime_seconds)),
        });
        Ok(body::json(StatusCode::CREATED, &response))
    }

    fn existing(&self) -> Result<Arc<Record>, ApiError> {
        self.context
            .store
            .get(self.info.resource, &self.key)
            .ok_or_else(|| ApiError::not_found(self.info, &self.target.name))
    }

    fn remove_now(&self, precondition: Precondition) -> Result<(), ApiError> {
        match self
            .context
            .store
            .remove(self.info.resource, &self.key, precondition)
        {
            // Another client removed it first.
            Err(WriteError::NotFound { .. }) | Ok(_) => Ok(()),
            Err(error) => Err(ApiError::from_write(self.info, error)),
        }
    }

    fn object_response(&self, code: StatusCode, record: &Record) -> ApiResponse {
        let mut text = Vec::new();
        record.write(&mut text, self.info, Form::Object);
        text.push(b'\n');
        body::raw_json(code, text)
    }
}

fn store(
    context: &ApiContext,
    info: &ResourceInfo,
    object: Value,
    precondition: Precondition,
) -> Result<Arc<Record>, ApiError> {
    let Value::Object(object) = object else {
        return Err(ApiError::bad_request(
            "the object provided is not an object",
        ));
    };
    context
        .store
        .put(info.resource, object, precondition)
        .map_err(|error| ApiError::from_write(info, error))
}
