//! The rules of create and update, as functions of the stored object and what the client sent.

use serde_json::{Map, Value};

use crate::error::{ApiError, Cause};
use crate::object::{Object, View};
use crate::ownership::{self, Author, Scope};
use crate::resource::Resource;
use crate::{clock, convert, crd, defaults, events, pods};

/// The object that a request is about, in the version that the request speaks.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) version: usize,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) author: Author<'a>,
}

impl<'a> Subject<'a> {
    /// The object's fields as seen by whoever keeps their owners.
    pub(crate) fn scope(&self, part: Part, now: u64) -> Scope<'a> {
        let Subject { resource, version, author, .. } = *self;
        Scope { resource, version, author, status: part == Part::Status, now }
    }
}

/// How a client says what an object shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// As a whole: a create or a PUT.
    Whole,
    /// By a patch of what is stored.
    Patch,
    /// By an apply, which has settled the owners of fields.
    Apply,
}

/// What an update comes to.
#[derive(Debug, PartialEq)]
pub(crate) enum Updated {
    /// Nothing changed: no write, no event.
    Unchanged,
    /// The new state, in the storage version.
    Changed(Value),
    /// The last finalizer of a terminating object went: the object goes too. Holds what the client is told, in the
    /// storage version and under the old revision.
    Released(Value),
}

/// The request's part in an update.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Part {
    /// Everything but `status`.
    Main,
    /// `status` alone (and, for core types, labels and annotations).
    Status,
    /// The containers of a pod that come after its start.
    EphemeralContainers,
    /// The resources of a pod's containers.
    Resize,
}

/// Names a new object: its own name, or a generated one.
pub(crate) fn name(resource: &Resource, body: &mut Value, suffix: impl FnOnce() -> String) -> Result<String, ApiError> {
    let metadata = metadata_mut(body);
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (mut name, base) = (text("name"), text("generateName"));
    if name.is_empty() && !base.is_empty() {
        let end = base.char_indices().nth(58).map_or(base.len(), |(at, _)| at);
        name = format!("{}{}", &base[..end], suffix());
        metadata.insert("name".into(), name.clone().into());
    }
    if name.is_empty() {
        let cause = Cause::required("metadata.name", "name or generateName is required");
        return Err(ApiError::invalid(resource, "", &[cause]));
    }
    let mut causes = Vec::new();
    if base.len() > 253 {
        causes.push(Cause::invalid("metadata.generateName", &base.into(), "must be no more than 253 characters"));
    }
    if let Some(why) = bad_name(&resource.plural, &name) {
        causes.push(Cause::invalid("metadata.name", &name.as_str().into(), why));
    }
    if causes.is_empty() { Ok(name) } else { Err(ApiError::invalid(resource, &name, &causes)) }
}

/// Why a name is no DNS subdomain (or, for namespaces and services, no DNS label).
fn bad_name(plural: &str, name: &str) -> Option<&'static str> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let label = |l: &str| !l.is_empty() && l.chars().all(inner) && !l.starts_with('-') && !l.ends_with('-');
    match plural {
        "namespaces" | "services" => (name.len() > 63 || !label(name)).then_some(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ),
        _ if name.len() > 253 => Some("must be no more than 253 characters"),
        _ => (!name.split('.').all(label)).then_some(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ),
    }
}

/// The stored form of a new object: identity, defaults, generation. `body` has its name.
pub(crate) fn created(
    subject: Subject<'_>,
    mut body: Value,
    way: Way,
    now: u64,
    address: impl FnOnce() -> String,
) -> Result<Value, ApiError> {
    let Subject { resource, version, namespace, name, .. } = subject;
    let metadata = metadata_mut(&mut body);
    for ours in ["deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"] {
        metadata.remove(ours);
    }
    if resource.namespaced {
        metadata.insert("namespace".into(), namespace.into());
    } else {
        metadata.remove("namespace");
    }
    metadata.insert("uid".into(), clock::uid().into());
    metadata.insert("creationTimestamp".into(), clock::rfc3339(now).into());
    if resource.counts_generation {
        metadata.insert("generation".into(), 1.into());
    }
    if resource.has_status {
        body.as_object_mut().map(|o| o.remove("status"));
    }
    defaults::apply(resource, version, &mut body);
    let causes = validate(resource, version, &body, None);
    if !causes.is_empty() {
        return Err(ApiError::invalid(resource, name, &causes));
    }
    if way != Way::Apply {
        ownership::updated(subject.scope(Part::Main, now), None, &mut body);
    }
    defaults::at_creation(resource, &mut body, address);
    Ok(convert::to_storage(resource, version, body))
}

/// An update of the stored object to what the client sent (PUT), or to the stored object with a patch applied.
///
/// `incoming` is in the version of the request. A PUT differs from a patch in what it may leave out.
pub(crate) fn updated(
    subject: Subject<'_>,
    part: Part,
    stored: &Object,
    mut incoming: Value,
    way: Way,
    now: u64,
) -> Result<Updated, ApiError> {
    let Subject { resource, version, namespace, name, .. } = subject;
    let put = way == Way::Whole;
    let current = stored.form(resource, View { version, metadata_only: false }).value();
    check_identity(subject, current, &mut incoming, put)?;
    check_revision(resource, name, current, &incoming, put)?;
    let dying = current["metadata"].get("deletionTimestamp").is_some();
    if put && !dying {
        check_deletion_marks(resource, name, &incoming)?;
    }
    keep_server_fields(current, &mut incoming, namespace, resource);
    let mut next = match part {
        Part::Main => main_part(resource, current, incoming),
        Part::Status => status_part(resource, current, incoming),
        Part::EphemeralContainers => pods::with_ephemeral(current, &incoming),
        Part::Resize => pods::resized(current, &incoming),
    };
    defaults::keep_allocated(resource, current, &mut next);
    defaults::apply(resource, version, &mut next);
    let mut causes = validate(resource, version, &next, Some(current));
    causes.extend(new_finalizers(current, &next));
    match part {
        Part::EphemeralContainers => causes.extend(pods::ephemeral_changes(current, &next)),
        Part::Resize => causes.extend(defaults::class_change(current, &next)),
        Part::Main | Part::Status => {}
    }
    if part == Part::Main {
        causes.extend(type_rules(resource, current, &next));
    }
    if !causes.is_empty() {
        return Err(ApiError::invalid(resource, name, &causes));
    }
    if way != Way::Apply {
        ownership::updated(subject.scope(part, now), Some(current), &mut next);
    }
    if resource.counts_generation && part != Part::Status && desired_changed(current, &next) {
        let generation = current["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        next["metadata"]["generation"] = generation.into();
    }
    let next = convert::to_storage(resource, version, next);
    if ownership::same_but_times(&next, stored.value()) {
        return Ok(Updated::Unchanged);
    }
    let grace = next["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    // Namespaces have finalizers of their own besides, which only `/finalize` takes away.
    let held = next["kind"] == "Namespace" && next["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
    if dying && grace == 0 && !held && next["metadata"].get("finalizers").is_none() {
        return Ok(Updated::Released(next));
    }
    Ok(Updated::Changed(next))
}

pub(crate) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    object.get_mut("metadata").and_then(Value::as_object_mut).expect("bodies are checked to have metadata")
}

fn check_identity(subject: Subject<'_>, current: &Value, incoming: &mut Value, put: bool) -> Result<(), ApiError> {
    let Subject { resource, namespace, name, .. } = subject;
    let metadata = metadata_mut(incoming);
    match metadata.get("name").and_then(Value::as_str) {
        Some(sent) if sent != name && !sent.is_empty() => {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({sent}) does not match the name on the URL ({name})"
            )));
        }
        _ => metadata.insert("name".into(), name.into()),
    };
    check_namespace(resource, namespace, metadata)?;
    let stored = current["metadata"]["uid"].as_str().unwrap_or_default();
    match metadata.get("uid").and_then(Value::as_str) {
        Some(sent) if !sent.is_empty() && sent != stored => Err(if put {
            wrong_uid(subject, sent, stored)
        } else {
            // Reported by two validations in turn.
            let cause = Cause::invalid("metadata.uid", &sent.into(), "field is immutable");
            ApiError::invalid(resource, name, &[cause.clone(), cause])
        }),
        _ => Ok(()),
    }
}

/// The storage layer's words for a uid that is not the stored object's.
pub(crate) fn wrong_uid(subject: Subject<'_>, sent: &str, stored: &str) -> ApiError {
    let Subject { resource, namespace, name, .. } = subject;
    let group = if resource.custom { format!("{}/", resource.group) } else { String::new() };
    let key = format!("/registry/{group}{}/{}", resource.plural, resource.key(namespace, name));
    ApiError::conflict(
        resource,
        name,
        format_args!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {sent}, UID in object meta: {stored}"
        ),
    )
}

/// A namespace in the body must be the one in the path.
pub(crate) fn check_namespace(
    resource: &Resource,
    namespace: &str,
    metadata: &Map<String, Value>,
) -> Result<(), ApiError> {
    match metadata.get("namespace").and_then(Value::as_str) {
        Some(sent) if resource.namespaced && !sent.is_empty() && sent != namespace => Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
        _ => Ok(()),
    }
}

fn check_revision(
    resource: &Resource,
    name: &str,
    current: &Value,
    incoming: &Value,
    put: bool,
) -> Result<(), ApiError> {
    let sent = incoming["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if sent.is_empty() || sent == "0" {
        if put && resource.custom {
            let cause = Cause::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
            return Err(ApiError::invalid_as(&resource.group, &resource.plural, name, &[cause]));
        }
        return Ok(());
    }
    if sent.parse::<u64>().is_err() {
        return Err(ApiError::bad_request(format!("resourceVersion: Invalid value: {sent:?}: must be a number")));
    }
    if current["metadata"]["resourceVersion"] == *sent { Ok(()) } else { Err(ApiError::modified(resource, name)) }
}

/// A PUT cannot put a live object into termination.
fn check_deletion_marks(resource: &Resource, name: &str, incoming: &Value) -> Result<(), ApiError> {
    let causes: Vec<Cause> = ["deletionTimestamp", "deletionGracePeriodSeconds"]
        .iter()
        .filter_map(|field| {
            let sent = incoming["metadata"].get(*field)?;
            Some(Cause::invalid(&format!("metadata.{field}"), sent, "field is immutable"))
        })
        .collect();
    // Reported by two validations in turn.
    let causes = [causes.clone(), causes].concat();
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid(resource, name, &causes)) }
}

fn keep_server_fields(current: &Value, incoming: &mut Value, namespace: &str, resource: &Resource) {
    let metadata = metadata_mut(incoming);
    if resource.namespaced {
        metadata.insert("namespace".into(), namespace.into());
    } else {
        metadata.remove("namespace");
    }
    const OURS: [&str; 6] = [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
        "generateName",
    ];
    let generation = resource.counts_generation.then_some("generation");
    for field in OURS.into_iter().chain(generation) {
        match current["metadata"].get(field) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.remove(field),
        };
    }
}

fn main_part(resource: &Resource, current: &Value, mut incoming: Value) -> Value {
    if resource.group.is_empty() && resource.plural == "namespaces" {
        // Its finalizers have a subresource of their own.
        copy_member(current, &mut incoming, "spec");
    }
    if resource.has_status {
        copy_member(current, &mut incoming, "status");
    }
    incoming
}

fn status_part(resource: &Resource, current: &Value, mut incoming: Value) -> Value {
    let mut next = current.clone();
    if !resource.custom {
        // Core strategies protect the spec; labels and annotations go through.
        for field in ["labels", "annotations"] {
            let sent = metadata_mut(&mut incoming).remove(field);
            match sent {
                Some(value) => metadata_mut(&mut next).insert(field.into(), value),
                None => metadata_mut(&mut next).remove(field),
            };
        }
    }
    copy_member(&incoming, &mut next, "status");
    // An apply has settled the owners; what others say of them is not heard here.
    if let Some(owners) = metadata_mut(&mut incoming).remove("managedFields") {
        metadata_mut(&mut next).insert("managedFields".into(), owners);
    }
    next
}

fn copy_member(from: &Value, to: &mut Value, member: &str) {
    let Some(to) = to.as_object_mut() else { return };
    match from.get(member) {
        Some(value) => to.insert(member.into(), value.clone()),
        None => to.remove(member),
    };
}

/// Anything but metadata and status.
fn desired_changed(current: &Value, next: &Value) -> bool {
    let (Some(current), Some(next)) = (current.as_object(), next.as_object()) else { return current != next };
    let desired = |key: &String| key != "metadata" && key != "status";
    let changed = |(key, value): (&String, &Value)| desired(key) && next.get(key) != Some(value);
    current.iter().any(changed) || next.keys().any(|key| desired(key) && !current.contains_key(key))
}

fn new_finalizers(current: &Value, next: &Value) -> Vec<Cause> {
    if current["metadata"].get("deletionTimestamp").is_none() {
        return Vec::new();
    }
    let list = |object: &Value| object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let old = list(current);
    let added: Vec<String> = list(next).into_iter().filter(|f| !old.contains(f)).map(|f| f.to_string()).collect();
    if added.is_empty() {
        return Vec::new();
    }
    let what = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        added.join(", ")
    );
    // Reported by two validations in turn.
    let cause = Cause::forbidden("metadata.finalizers", what);
    vec![cause.clone(), cause]
}

/// Only one owner can be the controller.
fn two_controllers(object: &Value) -> Option<Cause> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let mut controllers = owners.iter().filter(|owner| owner["controller"] == true);
    let (first, second) = (controllers.next()?, controllers.next()?);
    // In the order of the Go struct, which is not that of the alphabet.
    let member = |owner: &Value, key: &str| owner.get(key).map(|value| format!("\"{key}\":{value}"));
    let keys = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let show = |owner: &Value| {
        let members: Vec<String> = keys.iter().filter_map(|key| member(owner, key)).collect();
        format!("{{{}}}", members.join(","))
    };
    let all: Vec<String> = owners.iter().map(show).collect();
    let name = |owner: &Value| {
        let text = |key: &str| owner[key].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", text("kind"), text("name"))
    };
    Some(Cause {
        reason: "FieldValueInvalid",
        message: format!(
            "Invalid value: [{}]: Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
            all.join(","),
            name(first),
            name(second)
        ),
        field: "metadata.ownerReferences".into(),
    })
}

/// Checks of a whole object. `old` is its state before an update, in the same version.
fn validate(resource: &Resource, version: usize, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(custom) = resource.custom_version(version) {
        causes.extend(custom.schema.validate(object, old));
    }
    causes.extend(two_controllers(object));
    for value in object["metadata"]["labels"].as_object().into_iter().flat_map(|labels| labels.values()) {
        if !value.as_str().is_some_and(label_value) {
            causes.push(Cause::invalid(
                "metadata.labels",
                value,
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ));
        }
    }
    match &*resource.plural {
        "events" if resource.group.is_empty() => causes.extend(events::mistakes(version, object)),
        "leases" => causes.extend(lease_mistakes(&object["spec"])),
        "pods" if object.pointer("/spec/containers/0").is_none() => causes.push(Cause::required("spec.containers", "")),
        "customresourcedefinitions" => causes.extend(crd::mistakes(object, old)),
        _ => {}
    }
    causes
}

/// What is wrong with a lease.
fn lease_mistakes(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let number = |field: &str| spec[field].as_i64();
    if number("leaseDurationSeconds").is_some_and(|seconds| seconds <= 0) {
        let value = &spec["leaseDurationSeconds"];
        causes.push(Cause::invalid("spec.leaseDurationSeconds", value, "must be greater than 0"));
    }
    if number("leaseTransitions").is_some_and(|count| count < 0) {
        let why = "must be greater than or equal to 0";
        causes.push(Cause::invalid("spec.leaseTransitions", &spec["leaseTransitions"], why));
    }
    causes
}

/// At most 63 characters, alphanumeric at both ends.
fn label_value(text: &str) -> bool {
    let end = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.len() <= 63 && text.chars().all(inner) && end(text.chars().next()) && end(text.chars().next_back())
}

/// Immutable parts of single types.
fn type_rules(resource: &Resource, current: &Value, next: &Value) -> Vec<Cause> {
    match &*resource.plural {
        "pods" => pods::spec_changes(current, next).into_iter().collect(),
        "secrets" | "configmaps" if current["immutable"] == true && current.get("data") != next.get("data") => {
            vec![Cause::forbidden("data", "field is immutable when `immutable` is set")]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
