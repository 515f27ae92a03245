//! Failures as a client sees them: an HTTP code and a `Status` body.
//!
//! Texts and shapes follow recorded answers of kube-apiserver 1.36 (API concepts: "Status").

use serde_json::{Map, Value, json};

use crate::resource::Resource;

/// A refusal: the HTTP code and the `Status` that explains it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiError {
    /// HTTP status code.
    pub(crate) code: u16,
    /// The `Status` object, or `None` for the bare `404 page not found` of paths that nothing serves.
    pub(crate) status: Option<Box<Value>>,
    /// Seconds for a `Retry-After` header.
    pub(crate) retry_after: Option<u32>,
}

/// One entry of `details.causes`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) field: String,
}

impl Cause {
    pub(crate) fn forbidden(field: &str, what: impl std::fmt::Display) -> Cause {
        Cause { reason: "FieldValueForbidden", message: format!("Forbidden: {what}"), field: field.into() }
    }

    pub(crate) fn invalid(field: &str, value: &Value, what: impl std::fmt::Display) -> Cause {
        Cause { reason: "FieldValueInvalid", message: format!("Invalid value: {value}: {what}"), field: field.into() }
    }

    pub(crate) fn required(field: &str, what: &str) -> Cause {
        let message = if what.is_empty() { "Required value".into() } else { format!("Required value: {what}") };
        Cause { reason: "FieldValueRequired", message, field: field.into() }
    }

    pub(crate) fn unsupported(field: &str, value: impl std::fmt::Display, supported: &[&str]) -> Cause {
        let names: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        Cause {
            reason: "FieldValueNotSupported",
            message: format!("Unsupported value: {value}: supported values: {}", names.join(", ")),
            field: field.into(),
        }
    }
}

impl ApiError {
    fn new(code: u16, reason: &str, message: impl Into<String>, details: Option<Value>) -> ApiError {
        let mut status = Map::new();
        status.insert("kind".into(), "Status".into());
        status.insert("apiVersion".into(), "v1".into());
        status.insert("metadata".into(), json!({}));
        status.insert("status".into(), "Failure".into());
        status.insert("message".into(), message.into().into());
        if !reason.is_empty() {
            status.insert("reason".into(), reason.into());
        }
        if let Some(details) = details {
            status.insert("details".into(), details);
        }
        status.insert("code".into(), code.into());
        ApiError { code, status: Some(Box::new(Value::Object(status))), retry_after: None }
    }

    /// The message of the `Status`.
    #[cfg(test)]
    pub(crate) fn message(&self) -> &str {
        self.status.as_ref().and_then(|s| s["message"].as_str()).unwrap_or("404 page not found")
    }

    /// What this server lacks and will not approximate: 501.
    pub(crate) fn unsupported(what: impl std::fmt::Display) -> ApiError {
        ApiError::new(501, "NotImplemented", format!("photofinish-apiserver does not support {what}"), None)
    }

    /// A path outside everything that is served: plain text, no `Status`.
    pub(crate) fn no_such_path() -> ApiError {
        ApiError { code: 404, status: None, retry_after: None }
    }

    /// An unknown resource inside a built-in group.
    pub(crate) fn no_such_resource() -> ApiError {
        ApiError::new(404, "NotFound", "the server could not find the requested resource", Some(json!({})))
    }

    pub(crate) fn not_found(resource: &Resource, name: &str) -> ApiError {
        ApiError::new(
            404,
            "NotFound",
            format!("{} {name:?} not found", resource.qualified()),
            Some(details(resource, name)),
        )
    }

    pub(crate) fn already_exists(resource: &Resource, name: &str, terminating: bool) -> ApiError {
        let prefix = if terminating { "object is being deleted: " } else { "" };
        let message = format!("{prefix}{} {name:?} already exists", resource.qualified());
        ApiError::new(409, "AlreadyExists", message, Some(details(resource, name)))
    }

    pub(crate) fn modified(resource: &Resource, name: &str) -> ApiError {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        ApiError::conflict(resource, name, why)
    }

    /// 409 on the type's plural name, as updates report it.
    pub(crate) fn conflict(resource: &Resource, name: &str, why: impl std::fmt::Display) -> ApiError {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.qualified());
        ApiError::new(409, "Conflict", message, Some(details(resource, name)))
    }

    /// 422 of a patch whose result is no object of the type: `patched` is that result, as JSON.
    pub(crate) fn unfit_patch(patched: &str, why: impl std::fmt::Display) -> ApiError {
        let message = format!("Invalid value: {patched:?}: {why}");
        let cause = Cause { reason: "FieldValueInvalid", message, field: "patch".into() };
        ApiError::invalid_kind("", "", "", &[cause])
    }

    /// 409 of an apply that would change fields of others: pairs of an owner and a field.
    pub(crate) fn apply_conflict(found: &[(String, String)]) -> ApiError {
        let mut by_owner: std::collections::BTreeMap<&str, Vec<&str>> = std::collections::BTreeMap::new();
        for (owner, field) in found {
            by_owner.entry(owner).or_default().push(field);
        }
        let text = match found {
            [(owner, field)] => format!("1 conflict: conflict with {owner}: {field}"),
            _ => {
                let of_owner = |(owner, fields): (&&str, &Vec<&str>)| {
                    let lines: Vec<String> = fields.iter().map(|field| format!("\n- {field}")).collect();
                    format!("conflicts with {owner}:{}", lines.concat())
                };
                let texts: Vec<String> = by_owner.iter().map(of_owner).collect();
                format!("{} conflicts: {}", found.len(), texts.join("\n"))
            }
        };
        let causes: Vec<Value> = found
            .iter()
            .map(|(owner, field)| {
                json!({"reason": "FieldManagerConflict", "message": format!("conflict with {owner}"), "field": field})
            })
            .collect();
        let details = json!({"causes": causes});
        ApiError::new(409, "Conflict", format!("Apply failed with {text}"), Some(details))
    }

    /// 409 on the kind, as failed delete preconditions report it.
    pub(crate) fn precondition(resource: &Resource, name: &str, why: impl std::fmt::Display) -> ApiError {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource.qualified_kind());
        ApiError::new(409, "Conflict", message, Some(kind_details(&resource.group, &resource.kind, name)))
    }

    /// 409 on a subresource of a core type, such as `pods/binding`.
    pub(crate) fn conflict_on(subresource: &str, name: &str, why: impl std::fmt::Display) -> ApiError {
        let message = format!("Operation cannot be fulfilled on {subresource} {name:?}: {why}");
        ApiError::new(409, "Conflict", message, Some(json!({"name": name, "kind": subresource})))
    }

    pub(crate) fn forbidden(
        resource: &Resource,
        name: &str,
        why: impl std::fmt::Display,
        causes: Option<Value>,
    ) -> ApiError {
        let mut details = details(resource, name);
        if let Some(causes) = causes {
            details["causes"] = causes;
        }
        let message = format!("{} {name:?} is forbidden: {why}", resource.qualified());
        ApiError::new(403, "Forbidden", message, Some(details))
    }

    pub(crate) fn invalid(resource: &Resource, name: &str, causes: &[Cause]) -> ApiError {
        ApiError::invalid_kind(&resource.group, &resource.kind, name, causes)
    }

    /// 422 on the options of a request rather than on an object.
    pub(crate) fn invalid_options(kind: &str, causes: &[Cause]) -> ApiError {
        ApiError::invalid_kind("meta.k8s.io", kind, "", causes)
    }

    /// 422 under another name than the kind's, as the storage layer reports it.
    pub(crate) fn invalid_as(group: &str, noun: &str, name: &str, causes: &[Cause]) -> ApiError {
        ApiError::invalid_kind(group, noun, name, causes)
    }

    fn invalid_kind(group: &str, kind: &str, name: &str, causes: &[Cause]) -> ApiError {
        let mut texts: Vec<String> = Vec::new();
        for cause in causes {
            let text = format!("{}: {}", cause.field, cause.message);
            // The aggregated message drops repetitions, the list of causes keeps them.
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let text = if texts.len() == 1 { texts.remove(0) } else { format!("[{}]", texts.join(", ")) };
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut details = kind_details(group, kind, name);
        details["causes"] = causes
            .iter()
            .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
            .collect::<Vec<_>>()
            .into();
        ApiError::new(422, "Invalid", format!("{qualified} {name:?} is invalid: {text}"), Some(details))
    }

    /// 422 without causes: a JSON patch that does not apply.
    pub(crate) fn unprocessable(message: impl Into<String>) -> ApiError {
        ApiError::new(422, "Invalid", message, Some(json!({})))
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "BadRequest", message, None)
    }

    pub(crate) fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(500, "", message, None)
    }

    pub(crate) fn method_not_allowed() -> ApiError {
        let message = "the server does not allow this method on the requested resource";
        ApiError::new(405, "MethodNotAllowed", message, Some(json!({})))
    }

    /// 405: the CRD of the type goes, and nothing new can be made of it.
    pub(crate) fn terminating(resource: &Resource) -> ApiError {
        let message = "create not allowed while custom resource definition is terminating";
        ApiError::new(405, "MethodNotAllowed", message, Some(details(resource, "")))
    }

    pub(crate) fn not_supported_on(resource: &Resource, verb: &str) -> ApiError {
        let message = format!("{verb} is not supported on resources of kind {:?}", resource.qualified());
        ApiError::new(405, "MethodNotAllowed", message, Some(details(resource, "")))
    }

    pub(crate) fn not_acceptable(watch: bool) -> ApiError {
        let mut all = "application/json, application/yaml, application/vnd.kubernetes.protobuf".to_owned();
        if watch {
            all.push_str(", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch");
        }
        ApiError::new(
            406,
            "NotAcceptable",
            format!("406: Not Acceptable\n\nAvailable representations: {all}"),
            Some(json!({})),
        )
    }

    /// 406 of a watch to a client that takes a known format, but none for streams.
    pub(crate) fn no_such_stream() -> ApiError {
        let all = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
        let message = format!("only the following media types are accepted: {all}");
        ApiError::new(406, "NotAcceptable", message, None)
    }

    /// 406 for documents that are not objects.
    pub(crate) fn only_these_media() -> ApiError {
        let media = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        ApiError::new(406, "NotAcceptable", format!("only the following media types are accepted: {media}"), None)
    }

    /// 406 to a client that takes protobuf alone, of a type that has no message.
    pub(crate) fn no_protobuf() -> ApiError {
        let message = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml";
        ApiError::new(406, "NotAcceptable", message, Some(json!({})))
    }

    pub(crate) fn unsupported_media(accepted: &str) -> ApiError {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        ApiError::new(415, "UnsupportedMediaType", message, None)
    }

    pub(crate) fn unsupported_patch() -> ApiError {
        ApiError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type", Some(json!({})))
    }

    pub(crate) fn too_large_body() -> ApiError {
        ApiError::too_large("limit is 3145728")
    }

    /// 413, and what was too large.
    pub(crate) fn too_large(what: &str) -> ApiError {
        ApiError::new(413, "RequestEntityTooLarge", format!("Request entity too large: {what}"), None)
    }

    /// A revision that the server has not reached.
    pub(crate) fn future_revision(asked: u64, current: u64) -> ApiError {
        let mut error = ApiError::new(
            504,
            "Timeout",
            format!("Timeout: Too large resource version: {asked}, current: {current}"),
            Some(json!({
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            })),
        );
        error.retry_after = Some(1);
        error
    }

    /// The same for types without a watch cache, which do not wait for it either.
    pub(crate) fn future_revision_uncached(asked: u64, current: u64) -> ApiError {
        let mut error = ApiError::future_revision(asked, current);
        error.retry_after = None;
        if let Some(details) = error.status.as_mut().and_then(|status| status["details"].as_object_mut()) {
            details.remove("retryAfterSeconds");
        }
        error
    }

    /// A type whose watch cache is being filled: its server, or its definition, has just come.
    pub(crate) fn initializing() -> ApiError {
        ApiError::too_many_requests("storage is (re)initializing", 1)
    }

    /// 429, to be tried again after so many seconds.
    pub(crate) fn too_many_requests(message: &str, seconds: u32) -> ApiError {
        let mut error = ApiError::new(429, "TooManyRequests", message, Some(json!({"retryAfterSeconds": seconds})));
        error.retry_after = Some(seconds);
        error
    }

    /// 429: a disruption budget forbids an eviction, for now.
    pub(crate) fn budget(why: &str, seconds: Option<u32>) -> ApiError {
        let mut details = json!({"causes": [{"reason": "DisruptionBudget", "message": why}]});
        if let Some(seconds) = seconds {
            details["retryAfterSeconds"] = seconds.into();
        }
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let mut error = ApiError::new(429, "TooManyRequests", message, Some(details));
        error.retry_after = seconds;
        error
    }

    /// 503: nothing behind the address that could answer.
    pub(crate) fn unavailable() -> ApiError {
        let message = "the server is currently unable to handle the request";
        ApiError::new(503, "ServiceUnavailable", message, None)
    }

    /// 500 that says so with a reason, as failures inside the server do.
    pub(crate) fn failed_inside(message: &str) -> ApiError {
        let details = json!({"causes": [{"message": message}]});
        let message = format!("Internal error occurred: {message}");
        ApiError::new(500, "InternalError", message, Some(details))
    }

    /// 504: the request was given up before its end was known. Unlike all other answers it names no kind.
    pub(crate) fn timed_out() -> ApiError {
        let message = "Timeout: request did not complete within the allotted timeout";
        let mut error = ApiError::new(504, "Timeout", message, Some(json!({})));
        if let Some(status) = error.status.as_mut().and_then(|status| status.as_object_mut()) {
            status.remove("kind");
            status.remove("apiVersion");
        }
        error
    }

    /// A page of a list that can no longer be continued, without the offer to go on inconsistently.
    pub(crate) fn expired_page() -> ApiError {
        ApiError::expired("The provided continue parameter is too old to display a consistent list result.")
    }

    /// A revision that the history no longer holds.
    pub(crate) fn expired(message: impl Into<String>) -> ApiError {
        ApiError::new(410, "Expired", message, None)
    }
}

fn details(resource: &Resource, name: &str) -> Value {
    kind_details(&resource.group, &resource.plural, name)
}

fn kind_details(group: &str, kind: &str, name: &str) -> Value {
    let mut details = Map::new();
    if !name.is_empty() {
        details.insert("name".into(), name.into());
    }
    if !group.is_empty() {
        details.insert("group".into(), group.into());
    }
    if !kind.is_empty() {
        details.insert("kind".into(), kind.into());
    }
    Value::Object(details)
}
