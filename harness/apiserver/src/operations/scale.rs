//! The `scale` subresource: one number of an object, in a shape that is the same for all types.

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{Answer, Operation};
use crate::clock;
use crate::crd::ScalePaths;
use crate::error::{ApiError, Cause};
use crate::object::{View, show};
use crate::patch::PatchKind;
use crate::request::Verb;
use crate::resource::Resource;
use crate::write::{self, Part, Updated, Way};

impl Operation<'_> {
    /// GET, PUT and PATCH of `/scale`.
    pub(super) fn scale(&self, verb: Verb, paths: &ScalePaths) -> Result<Answer, ApiError> {
        let whole = View { version: self.version, metadata_only: false };
        let mut history = self.store.lock();
        let key = self.key();
        let Some(existing) = history.get(self.table, &key).cloned() else {
            return Err(ApiError::not_found(self.resource, self.name()));
        };
        let current = existing.form(self.resource, whole).value().clone();
        let scale = shown(self.resource, paths, &current)?;
        let wanted = match verb {
            Verb::Get => return Ok(Answer::status(StatusCode::OK, &scale, None)),
            Verb::Update => serde_json::from_slice(self.body).map_err(|error| {
                ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
            })?,
            Verb::Patch => {
                let media = self.content_type.split(';').next().unwrap_or_default().trim();
                PatchKind::of(media, self.resource.custom)?.apply(&scale, self.body)?
            }
            _ => return Err(self.not_allowed(verb)),
        };
        let incoming = scaled(self.resource, self.name(), paths, &current, &wanted)?;
        let updated =
            write::updated(self.subject(self.name()), Part::Main, &existing, incoming, Way::Patch, clock::now())?;
        let (next, revision) = match updated {
            Updated::Unchanged => (current, None),
            Updated::Changed(next) | Updated::Released(next) if self.dry_run() => {
                (show(self.resource, whole, &next).into(), None)
            }
            Updated::Changed(next) => {
                let object = history.commit(self.table, &key, Some(next));
                (object.form(self.resource, whole).value().clone(), Some(object.revision))
            }
            Updated::Released(last) => {
                let gone = history.commit(self.table, &key, None);
                (show(self.resource, whole, &last).into(), Some(gone.revision))
            }
        };
        Ok(Answer::status(StatusCode::OK, &shown(self.resource, paths, &next)?, revision))
    }
}

fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').filter(|step| !step.is_empty()).try_fold(object, |value, step| value.get(step))
}

fn set(object: &mut Value, path: &str, value: Value) {
    let mut place = object;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[step];
    }
    *place = value;
}

/// The object as a `Scale`.
fn shown(resource: &Resource, paths: &ScalePaths, object: &Value) -> Result<Value, ApiError> {
    let wanted = match at(object, &paths.spec) {
        Some(replicas) => replicas.as_i64().unwrap_or(0),
        None if resource.custom => {
            let what = format!("the spec replicas field {:?} does not exist", paths.spec);
            return Err(ApiError::failed_inside(&what));
        }
        None => 0,
    };
    let mut metadata = Map::new();
    for member in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(member) {
            metadata.insert(member.into(), value.clone());
        }
    }
    let selector = match &paths.selector {
        Some(path) => at(object, path).and_then(Value::as_str).unwrap_or_default().to_owned(),
        None => selector(&object["spec"]["selector"]),
    };
    let mut status = json!({"replicas": at(object, &paths.status).and_then(Value::as_i64).unwrap_or(0)});
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    let spec = if wanted == 0 { json!({}) } else { json!({"replicas": wanted}) };
    Ok(json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}))
}

/// A label selector as text, as far as it is equalities.
fn selector(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().or_else(|| selector.as_object());
    let terms = labels.into_iter().flatten().filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    terms.collect::<Vec<_>>().join(",")
}

/// The object with the number that a `Scale` wants.
fn scaled(
    resource: &Resource,
    name: &str,
    paths: &ScalePaths,
    current: &Value,
    wanted: &Value,
) -> Result<Value, ApiError> {
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        return Err(if resource.custom {
            let cause = Cause::invalid(&paths.spec, &replicas.into(), "should be a non-negative integer");
            ApiError::invalid(resource, name, &[cause])
        } else {
            let cause = Cause::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0");
            ApiError::invalid_as("autoscaling", "Scale", name, &[cause])
        });
    }
    let mut next = current.clone();
    set(&mut next, &paths.spec, replicas.into());
    for member in ["resourceVersion", "uid"] {
        if let Some(sent) = wanted["metadata"][member].as_str().filter(|sent| !sent.is_empty()) {
            next["metadata"][member] = sent.into();
        }
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{SandboxVersions, registry};

    const PATHS: ScalePaths = ScalePaths {
        spec: std::borrow::Cow::Borrowed(".spec.replicas"),
        status: std::borrow::Cow::Borrowed(".status.replicas"),
        selector: Some(std::borrow::Cow::Borrowed(".status.selector")),
    };

    fn sandboxes() -> Resource {
        registry(SandboxVersions::Both, true).into_iter().find(|r| r.custom).expect("registered")
    }

    #[test]
    fn an_object_shows_its_numbers_and_its_selector() {
        let object = json!({
            "metadata": {"name": "x", "uid": "u", "resourceVersion": "5", "labels": {"a": "b"}},
            "spec": {"replicas": 6}, "status": {"replicas": 2, "selector": "app=x"},
        });
        assert_eq!(
            shown(&sandboxes(), &PATHS, &object).expect("has replicas"),
            json!({
                "kind": "Scale", "apiVersion": "autoscaling/v1",
                "metadata": {"name": "x", "uid": "u", "resourceVersion": "5"},
                "spec": {"replicas": 6}, "status": {"replicas": 2, "selector": "app=x"},
            })
        );
        let error = shown(&sandboxes(), &PATHS, &json!({"metadata": {}, "spec": {}})).expect_err("has none");
        assert_eq!(
            (error.code, error.message()),
            (500, "Internal error occurred: the spec replicas field \".spec.replicas\" does not exist",)
        );
    }

    #[test]
    fn a_scale_changes_the_number_and_carries_its_preconditions() {
        let object = json!({"metadata": {"name": "x", "resourceVersion": "5"}, "spec": {"replicas": 6}});
        let scale = json!({"metadata": {"resourceVersion": "4"}, "spec": {"replicas": 7}});
        let next = scaled(&sandboxes(), "x", &PATHS, &object, &scale).expect("a number");
        assert_eq!(next, json!({"metadata": {"name": "x", "resourceVersion": "4"}, "spec": {"replicas": 7}}));
        let error =
            scaled(&sandboxes(), "x", &PATHS, &object, &json!({"spec": {"replicas": -1}})).expect_err("negative");
        assert_eq!(
            error.message(),
            "Sandbox.agents.x-k8s.io \"x\" is invalid: .spec.replicas: Invalid value: -1: should be a non-negative integer"
        );
    }
}
