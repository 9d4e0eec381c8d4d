//! Writes: create, update, patch, delete, and writable subresources.

#![expect(
    clippy::indexing_slicing,
    reason = "JSON trees: a missing member reads as null, and what is written into is an object"
)]

use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use serde_json::{Map, Value, json};

use super::apply::{self, Manager};
use super::body::{self, Answer};
use super::catalog::{self, Facts};
use super::list::namespace;
use super::patch::{self, PatchKind};
use super::payload::Payload;
use super::prepare;
use super::request::{Parameters, Target};
use super::reviews;
use super::shared::Shared;
use super::status::{self, ApiError};
use crate::auth::User;
use crate::objects::{Resource, WriteError};
use crate::store::{Expect, Form, Record, join_key, timestamp};

/// Number of attempts of a patch that meets concurrent writes.
const PATCH_ATTEMPTS: usize = 5;

/// A write request.
struct Writing<'a> {
    shared: &'a Arc<Shared>,
    facts: &'static Facts,
    target: &'a Target,
    key: String,
    manager: Manager,
    force: bool,
}

/// Handles a write.
pub(crate) async fn write(
    shared: &Arc<Shared>,
    facts: &'static Facts,
    target: &Target,
    verb: &str,
    parameters: &Parameters,
    request: Request<Incoming>,
) -> Result<Answer, ApiError> {
    if !parameters.get("dryRun").is_empty() {
        return Err(ApiError::bad_request(
            "dryRun is not supported by the simulated API server",
        ));
    }
    let manager = Manager::of(parameters.get("fieldManager"), request.headers(), target);
    let writing = Writing {
        shared,
        facts,
        target,
        key: join_key(namespace(facts, target), &target.name),
        manager,
        force: parameters.flag("force") == Some(true),
    };
    let payload = Payload::read(request).await?;
    match (verb, target.subresource.as_str()) {
        ("create", "") if target.name.is_empty() => writing.create(payload.object()?),
        ("create", "binding") => bind(
            shared,
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
    shared: &Arc<Shared>,
    namespace: &str,
    pod: Option<&str>,
    binding: &Map<String, Value>,
) -> Result<Answer, ApiError> {
    let facts = catalog::facts(Resource::Pods);
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
        return Err(ApiError::invalid(
            facts,
            name,
            "target.name: Required value",
        ));
    }
    let key = join_key(namespace, name);
    let record = shared
        .store
        .get(Resource::Pods, &key)
        .ok_or_else(|| ApiError::not_found(facts, name))?;
    let mut object = record.value(facts);
    let bound = object["spec"]["nodeName"].as_str().unwrap_or_default();
    if !bound.is_empty() {
        let problem = format!("pod {name} is already assigned to node {bound:?}");
        return Err(ApiError::conflict(facts, name, &problem));
    }
    object["spec"]["nodeName"] = json!(node);
    let now = timestamp(shared.store.now());
    let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
    let status = object["status"].as_object_mut();
    if let Some(status) = status {
        let conditions = status.entry("conditions").or_insert_with(|| json!([]));
        if let Some(conditions) = conditions.as_array_mut() {
            conditions.retain(|condition| condition["type"] != "PodScheduled");
            conditions.push(condition);
        }
    }
    store(shared, facts, object, Expect::Version(record.version()))?;
    Ok(body::json(StatusCode::CREATED, &reviews::success()))
}

impl Writing<'_> {
    fn create(&self, object: Map<String, Value>) -> Result<Answer, ApiError> {
        let mut object = prepare::for_creation(self.shared, self.facts, self.target, object)?;
        apply::track(
            self.facts,
            None,
            &mut object,
            &self.manager,
            self.shared.store.now(),
        );
        let record = store(self.shared, self.facts, object, Expect::Absent)?;
        Ok(self.show(StatusCode::CREATED, &record))
    }

    fn update(&self, object: Map<String, Value>) -> Result<Answer, ApiError> {
        let existing = self.existing()?;
        let expect = prepare::expectation(self.facts, &self.target.name, &object)?;
        let old = existing.value(self.facts);
        let mut new = prepare::for_update(self.facts, self.target, &old, object)?;
        apply::track(
            self.facts,
            Some(&old),
            &mut new,
            &self.manager,
            self.shared.store.now(),
        );
        self.commit(new, expect)
    }

    fn patch(&self, payload: &Payload, parameters: &Parameters) -> Result<Answer, ApiError> {
        let kind = PatchKind::of(&payload.media_type)?;
        if kind == PatchKind::Apply {
            return self.apply(payload, parameters);
        }
        let patch = patch::Patch::parse(kind, &payload.bytes)?;
        let mut attempt = 1;
        loop {
            let existing = self.existing()?;
            let old = existing.value(self.facts);
            let Value::Object(object) = patch.apply(&old)? else {
                return Err(ApiError::bad_request("the patch does not leave an object"));
            };
            // A patch that names a version applies to exactly that one.
            let expect = prepare::expectation(self.facts, &self.target.name, &object)?;
            let mut new = prepare::for_update(self.facts, self.target, &old, object)?;
            apply::track(
                self.facts,
                Some(&old),
                &mut new,
                &self.manager,
                self.shared.store.now(),
            );
            let named = patch.names_version();
            let expect = if named {
                expect
            } else {
                Expect::Version(existing.version())
            };
            match self.commit(new, expect) {
                Err(error)
                    if error.code == StatusCode::CONFLICT && !named && attempt < PATCH_ATTEMPTS =>
                {
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    fn apply(&self, payload: &Payload, parameters: &Parameters) -> Result<Answer, ApiError> {
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
        prepare::check_names(self.facts, self.target, &applied)?;
        let existing = self.shared.store.get(self.facts.resource, &self.key);
        let old = existing.as_ref().map(|record| record.value(self.facts));
        if old.is_none() && !self.target.subresource.is_empty() {
            return Err(ApiError::not_found(self.facts, &self.target.name));
        }
        let now = self.shared.store.now();
        let merged = apply::apply(
            self.facts,
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
            let mut new = prepare::for_update(self.facts, self.target, &old, merged)?;
            new["metadata"]["managedFields"] = managed;
            return self.commit(new, Expect::Version(existing.version()));
        }
        let mut object = prepare::for_creation(self.shared, self.facts, self.target, merged)?;
        object["metadata"]["managedFields"] = managed;
        let record = store(self.shared, self.facts, object, Expect::Absent)?;
        Ok(self.show(StatusCode::CREATED, &record))
    }

    /// Stores an update, or removes an object whose last finalizer is gone.
    fn commit(&self, object: Value, expect: Expect) -> Result<Answer, ApiError> {
        let metadata = &object["metadata"];
        let is_leaving = metadata["deletionTimestamp"].is_string()
            && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
            && metadata["deletionGracePeriodSeconds"].as_u64().unwrap_or(0) == 0;
        let record = store(self.shared, self.facts, object, expect)?;
        if is_leaving {
            self.remove_now(Expect::Version(record.version()))?;
        }
        Ok(self.show(StatusCode::OK, &record))
    }

    fn delete(&self, options: &Value, parameters: &Parameters) -> Result<Answer, ApiError> {
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

    fn remove(&self, options: &Value) -> Result<Answer, ApiError> {
        let existing = self.existing()?;
        let mut object = existing.value(self.facts);
        prepare::check_preconditions(
            self.facts,
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
            if object["metadata"]["deletionTimestamp"].is_null() {
                let at = self.shared.store.now() + Duration::from_secs(grace);
                object["metadata"]["deletionTimestamp"] = json!(timestamp(at));
                object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
                let expect = Expect::Version(existing.version());
                let record = store(self.shared, self.facts, object, expect)?;
                return Ok(self.show(StatusCode::OK, &record));
            }
            return Ok(self.show(StatusCode::OK, &existing));
        }
        self.remove_now(Expect::Version(existing.version()))?;
        if matches!(
            self.facts.resource,
            Resource::Pods | Resource::Services | Resource::ServiceAccounts
        ) {
            return Ok(self.show(StatusCode::OK, &existing));
        }
        Ok(body::json(
            StatusCode::OK,
            &status::deleted(self.facts, &self.target.name, &uid),
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
        if self.facts.resource != Resource::Pods
            || !self.shared.graceful_pod_deletion
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

    fn issue_token(&self, request: &Map<String, Value>) -> Result<Answer, ApiError> {
        const HOUR: u64 = 3600;
        prepare::check_shape(request)?;
        let existing = self.existing()?;
        let metadata = existing.metadata(self.facts);
        let wanted = request
            .get("spec")
            .and_then(|spec| spec.get("expirationSeconds"))
            .and_then(Value::as_u64)
            .unwrap_or(HOUR);
        if wanted < 600 {
            let problem = "spec.expirationSeconds: Invalid value: may not specify a duration less than 10 minutes";
            return Err(ApiError::invalid(self.facts, &self.target.name, problem));
        }
        let mut user = User::service_account(&self.target.namespace, &self.target.name);
        if let Some(uid) = metadata.get("uid").and_then(Value::as_str) {
            uid.clone_into(&mut user.uid);
        }
        let now = self.shared.store.now();
        let token = self
            .shared
            .tokens
            .issue(user, now, Some(Duration::from_secs(wanted)))
            .map_err(|error| {
                ApiError::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "InternalError",
                    error.to_string(),
                )
            })?;
        let mut answer = Value::Object(request.clone());
        answer["kind"] = json!("TokenRequest");
        answer["apiVersion"] = json!("authentication.k8s.io/v1");
        answer["metadata"] = json!({"name": self.target.name, "namespace": self.target.namespace});
        answer["spec"]["expirationSeconds"] = json!(wanted);
        answer["status"] = json!({
            "token": token,
            "expirationTimestamp": timestamp(now + Duration::from_secs(wanted)),
        });
        Ok(body::json(StatusCode::CREATED, &answer))
    }

    fn existing(&self) -> Result<Arc<Record>, ApiError> {
        self.shared
            .store
            .get(self.facts.resource, &self.key)
            .ok_or_else(|| ApiError::not_found(self.facts, &self.target.name))
    }

    fn remove_now(&self, expect: Expect) -> Result<(), ApiError> {
        match self
            .shared
            .store
            .remove(self.facts.resource, &self.key, expect)
        {
            // Another client removed it first.
            Err(WriteError::NotFound { .. }) | Ok(_) => Ok(()),
            Err(error) => Err(ApiError::from_write(self.facts, error)),
        }
    }

    fn show(&self, code: StatusCode, record: &Record) -> Answer {
        let mut text = Vec::new();
        record.write(&mut text, self.facts, Form::Object);
        text.push(b'\n');
        body::raw_json(code, text)
    }
}

fn store(
    shared: &Shared,
    facts: &Facts,
    object: Value,
    expect: Expect,
) -> Result<Arc<Record>, ApiError> {
    let Value::Object(object) = object else {
        return Err(ApiError::bad_request(
            "the object provided is not an object",
        ));
    };
    shared
        .store
        .put(facts.resource, object, expect)
        .map_err(|error| ApiError::from_write(facts, error))
}
